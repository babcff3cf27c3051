"""``scan``: a data set as a Polars LazyFrame that reads only the pages its predicate can match."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.dataset.dataset import Dataset
from intarsia.dataset.discovery import dataset
from intarsia.dataset.record_batches import BATCH_ROWS, empty_batch
from intarsia.engines.arrow_types import as_in_polars, filters_by_other_types
from intarsia.engines.polars.explain import active_recorder
from intarsia.engines.polars.native_scan import (
    KnownScans,
    NotReadError,
    frames_of,
    polars_hand_over,
    whole_scan,
)
from intarsia.errors import UnsupportedError, check_version, optional, public
from intarsia.io.storage import PathLike
from intarsia.process_state import importing

if TYPE_CHECKING:
    import polars

_SCANS = KnownScans()


@public
def scan(source: Dataset | PathLike | Sequence[PathLike], **options: Any) -> polars.LazyFrame:
    """Returns a Polars LazyFrame over a data set.

    Predicates, columns and row limits reach the scan. Polars also applies its predicate to the rows
    that it gets, so results are Polars' own. If no index can skip much, the frame is a
    ``scan_parquet`` of the files: Polars reads them by itself if it gets the same rows, and its
    errors name no page. With ``reader="pages"`` Polars never reads files by itself. With
    ``reader="engine"`` it reads all files of which it gets the same rows.

    Parameters
    ----------
    source : Dataset, path or sequence of paths
        A data set, or what ``intarsia.dataset`` opens.
    **options
        Options of ``intarsia.dataset``, if it opens ``source``.

    Returns
    -------
    polars.LazyFrame
        A frame that reads only the pages that its predicate can match.

    Raises
    ------
    MissingDependencyError
        Without a supported version of Polars.
    PathError
        If there is no file.
    TypeError
        If ``options`` are given for a data set that is open.
    UnsupportedError
        If the data set's own filter uses a type that Polars lacks.

    Examples
    --------
    >>> frame = ia.polars.scan("logs.parquet")
    >>> frame.select("trace_id", "status").head(2).collect().rows()
    [('t0', 200), ('t1', 200)]
    """
    with (
        optional("Polars is not installed: install the extra, intarsia[polars]", "polars"),
        importing,
    ):
        import polars.io.plugins
        import polars.selectors

        check_version(polars)
        from intarsia.engines.polars.operands import is_by_row
        from intarsia.engines.polars.predicate import arrow_predicate

    known = _SCANS.find(source) if isinstance(source, Dataset) and not options else None
    if known is not None:
        return known
    data = _opened(source, options)
    schema = _framed(empty_batch(data.schema)).schema
    whole = whole_scan(data, schema)
    if whole is not None:
        if isinstance(source, Dataset):
            _SCANS.keep(source, whole)
        return whole

    counter = "rows"
    while counter in schema:
        counter += "_"
    schema = polars.Schema({**schema, counter: polars.Null()})

    @public
    def read(
        columns: list[str] | None,
        predicate: polars.Expr | None,
        limit: int | None,
        batch_rows: int | None,
    ) -> Iterator[polars.DataFrame]:
        recorder = active_recorder()
        scanned = data if recorder is None else recorder.recorded(data)
        listed = list(schema) if columns is None else columns
        names_out = [name for name in listed if name != counter]
        if not names_out and predicate is None:
            count = scanned.count_rows()
            rows = polars.DataFrame(height=count if limit is None else min(limit, count))
            yield _counted(rows, listed, counter)
            return
        needed = set(names_out) if predicate is None else {*names_out, *predicate.meta.root_names()}
        names = [name for name in data.schema.names if name in needed]
        in_batches = predicate is None or is_by_row(predicate)
        # A limit counts rows before the predicate: with a limit, no row may be left out.
        pushed = predicate if limit is None and in_batches else None
        pushed_filter = None if pushed is None else arrow_predicate(pushed, data.schema)
        scan_columns = names or data.schema.names[:1]
        if recorder is not None and not recorder.runs:
            recorder.plan(data, scan_columns, pushed_filter, limit)
            yield polars.DataFrame(schema={name: schema[name] for name in listed})
            return

        def ask(rows: polars.LazyFrame) -> polars.LazyFrame:
            rows = rows if limit is None else rows.head(limit)
            rows = rows if predicate is None else rows.filter(predicate)
            return rows.select(polars.selectors.by_name(names_out) if names_out else polars.len())

        num_given = 0
        handed = polars_hand_over(scanned, scan_columns, schema, pushed_filter, limit)
        if handed is not None:
            try:
                in_parts = in_batches and limit is None
                for frame in frames_of(scanned, handed, schema, ask, in_parts=in_parts):
                    rows = frame if names_out else polars.DataFrame(height=frame.item())
                    yield _counted(rows, listed, counter)
                    num_given += rows.height
                return
            except NotReadError:  # our reader reads the rest, or names the file and the error
                pass
        frames = _frames(scanned, scan_columns, pushed_filter, limit, batch_rows or BATCH_ROWS)
        for frame in frames if in_batches else _as_one(frames):
            rows = frame if predicate is None else frame.filter(predicate)
            is_known = min(num_given, rows.height)
            num_given -= is_known
            # Names may look like patterns; without columns, a selection has no rows.
            rows = rows[names_out] if names_out else rows.drop(rows.columns)
            yield _counted(rows[is_known:], listed, counter)

    # Polars reads a column even to count rows. It chooses the one that is NULL.
    return polars.io.plugins.register_io_source(read, schema=schema, is_pure=True).drop(counter)


def _counted(frame: polars.DataFrame, columns: Sequence[str], counter: str) -> polars.DataFrame:
    """Returns ``frame`` with a column ``counter`` of NULL where ``columns`` name it."""
    import polars

    if counter not in columns:
        return frame
    nulls = polars.Series(counter, dtype=polars.Null).extend_constant(None, frame.height)
    return polars.DataFrame([frame[name] if name != counter else nulls for name in columns])


def _frames(
    data: Dataset,
    columns: Sequence[str],
    filter_: pc.Expression | None,
    limit: int | None,
    batch_rows: int,
) -> Iterator[polars.DataFrame]:
    """Yields the rows for which a filter is TRUE, at most ``limit``, in one frame or more."""
    left = limit
    if left is not None and left <= batch_rows:  # a scan reads ahead
        batches = iter(data.head(left, columns).to_batches())
    else:
        batches = data.to_batches(columns, filter_, batch_size=batch_rows)
    for batch in batches:
        rows = batch if left is None else batch.slice(0, left)
        left = None if left is None else left - rows.num_rows
        yield _framed(rows)
        if left == 0:
            return


def _as_one(frames: Iterator[polars.DataFrame]) -> Iterator[polars.DataFrame]:
    """Yields all of ``frames`` as one, if there are any."""
    import polars

    all_frames = list(frames)
    if all_frames:
        yield polars.concat(all_frames)


def _framed(batch: pa.RecordBatch) -> polars.DataFrame:
    import polars

    frame = polars.DataFrame(polars.from_arrow(_from_the_start(batch)))
    frame.columns = batch.schema.names  # Polars renames a column without a name
    return frame


def _opened(source: Dataset | PathLike | Sequence[PathLike], options: Mapping[str, Any]) -> Dataset:
    """Returns the data set, in types that Polars has. Raises as ``scan`` does."""
    if not isinstance(source, Dataset):
        data = dataset(source, **options)
    elif options:
        raise TypeError(f"a data set that is open takes no options: {', '.join(options)}")
    else:
        data = source
    known = as_in_polars(data.schema)
    if filters_by_other_types(data, known):
        problem = "the data set's filter uses decimals of 256 bits, which Polars lacks"
        raise UnsupportedError(f"{problem}: filter the LazyFrame instead")
    return Dataset.wrap(data, known)


def _from_the_start(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copies lists of fixed size in ``batch``: Polars refuses slices of them."""
    columns = [
        column.take(pa.array(np.arange(len(column)))) if _has_fixed_lists(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _has_fixed_lists(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return True
    return any(_has_fixed_lists(kind.field(at).type) for at in range(kind.num_fields))
