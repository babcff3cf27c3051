"""Files that Polars reads by itself, as a LazyFrame of ``scan_parquet``."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow.compute as pc

from intarsia.dataset.dataset import Dataset
from intarsia.dataset.engine_hand_over import HandOver, Refusal, hand_over, is_current
from intarsia.errors import IntarsiaError
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.statistics import Bounds
from intarsia.plan.cost_model import COSTS
from intarsia.row_ranges import RowRanges

if TYPE_CHECKING:
    import polars

T = TypeVar("T")

MAX_FILES = 128
"""The most files that Polars scans by itself. It opens all of them for each query, while we cache
footers. Above this, our reader is faster for queries that footers answer for most files."""
_UNITS = ("ms", "us", "ns")
"""Units of timestamps that Polars keeps."""
_MAX_PART_ROWS = 32 * 1024 * 1024
"""Rows of files that Polars reads into memory at a time, within our scan."""
_MAX_PROBES = 16
"""Values for which the share of matching pages in a chunk is estimated."""


class NotReadError(Exception):
    """Polars did not read files that were handed over."""


def whole_scan(data: Dataset, schema: polars.Schema) -> polars.LazyFrame | None:
    """Returns a scan of all of ``data`` by Polars alone, with the schema ``schema``.

    Returns None if indexes may skip many pages, or if Polars may give other rows than our reader.
    """
    if data.scan_source.options.reader == "auto":
        if data.scan_source.catalog is not None or len(data.scan_source.files) > MAX_FILES:
            return None
        try:
            if may_skip_pages(
                [data.scan_source.cache.get(file.path) for file in data.scan_source.files]
            ):
                return None
        except (IntarsiaError, OSError):  # the scan reports it
            return None
    handed = polars_hand_over(data, data.schema.names, schema)
    return None if handed is None else scan_of(handed, schema)


class KnownScans:
    """Scans by Polars alone, each for a data set, and valid until a file is replaced."""

    def __init__(self) -> None:
        self._scans: WeakKeyDictionary[Dataset, tuple[list[OpenedFile], polars.LazyFrame]]
        self._scans = WeakKeyDictionary()

    def find(self, data: Dataset) -> polars.LazyFrame | None:
        """Returns the scan of a data set, if it is known and no file was replaced, else None."""
        files, scan = self._scans.get(data, ([], None))
        if scan is None:
            return None
        try:
            current = [data.scan_source.cache.get(file.path) for file in data.scan_source.files]
        except (IntarsiaError, OSError):  # the scan reports it
            return None
        return scan if all(map(operator.is_, current, files)) else None

    def keep(self, data: Dataset, scan: polars.LazyFrame) -> None:
        """Remembers the scan of a data set, for its files as they were opened last."""
        files = [data.scan_source.cache.as_opened(file.path) for file in data.scan_source.files]
        self._scans[data] = files, scan


def may_skip_pages(files: Sequence[OpenedFile]) -> bool:
    """True if indexes may skip enough pages to make our reader faster than Polars' reader.

    A page index does not count if most pages of a chunk may have a value, or take longer to read
    than the chunk. Only the page indexes of three files are read: the first, the last and
    one in the middle.
    """
    return any(map(_has_index, files)) or any(map(_has_useful_pages, _some_of(files)))


def _some_of(items: Sequence[T]) -> list[T]:
    """Returns the first item, the last and one in the middle, or fewer if there are fewer."""
    places = dict.fromkeys((0, len(items) // 2, len(items) - 1)) if items else ()
    return [items[at] for at in places]


def _has_index(file: OpenedFile) -> bool:
    """True if a file has an index of ours, embedded or in a sidecar, or a useful bloom filter.

    The bloom filter of a chunk with a dictionary has few values, most of them in every row group.
    """
    if file.sections.entries or file.options.distinct_index_column is not None:
        return True
    known = (chunk.meta_data for group in file.metadata.row_groups for chunk in group.columns)
    return any(
        chunk is not None
        and chunk.bloom_filter_offset is not None
        and chunk.dictionary_page_offset is None
        for chunk in known
    )


def _has_useful_pages(file: OpenedFile) -> bool:
    """True if we read the pages that may have a value faster than Polars reads the chunk.

    Polars decodes the whole chunk, and of other columns the pages with matches. The page indexes of
    three row groups are read.
    """
    leaves = range(len(file.schema.leaves))
    for group in _some_of(range(len(file.metadata.row_groups))):
        sizes = [chunk.total_compressed_size for chunk in file.outlines(group, leaves)]
        chunks = [(group, leaf) for leaf in leaves]
        file.page_indexes.load(chunks, chunks)
        for leaf, size in zip(leaves, sizes, strict=True):
            bounds = file.page_indexes.bounds(group, leaf)
            if bounds is not None:
                share, others = _share_with_a_value(bounds), sum(sizes) - size
                if COSTS.page_cost * share * sum(sizes) < size + share * others:
                    return True
    return False


def _share_with_a_value(bounds: Bounds) -> float:
    """Returns the share of pages in which a value may be: a mean over some values, 1 if unknown."""
    known = np.flatnonzero(bounds.bounded)
    if not len(known):
        return 1.0
    low, high = bounds.low[known], bounds.high[known]
    probes = np.linspace(0, len(known) - 1, min(len(known), _MAX_PROBES)).astype(np.int64)
    hits = [np.count_nonzero((low <= key) & (high >= key)) for key in low[probes]]
    unknown = np.count_nonzero(~bounds.bounded & ~bounds.all_null)
    return float(np.mean(hits) + unknown) / len(bounds)


def polars_hand_over(
    data: Dataset,
    columns: Sequence[str],
    schema: polars.Schema,
    filter_: pc.Expression | None = None,
    limit: int | None = None,
) -> HandOver | None:
    """Returns the files that Polars reads, or None if our reader reads them."""
    import polars

    try:
        handed = hand_over(
            data.scan_source, columns, filter_, limit, expects_nan=True, units=_UNITS
        )
        if isinstance(handed, Refusal):
            return None
        names = [name for name in columns if name not in handed.folder_keys]
        files = (data.scan_source.cache.as_opened(path) for path in handed.files)
        return handed if all(_has_types(file, names, schema) for file in files) else None
    except (IntarsiaError, polars.exceptions.PolarsError, OSError):  # our reader reports it
        return None


def _has_types(file: OpenedFile, names: Sequence[str], schema: polars.Schema) -> bool:
    """True if Polars gives columns ``names`` of a file the types that they have in ``schema``."""
    import polars

    types = file.shape.cached("polars", lambda: polars.read_parquet_schema(file.name))
    return all(types.get(name) == schema[name] for name in names)


def frames_of(
    data: Dataset,
    handed: HandOver,
    schema: polars.Schema,
    ask: Callable[[polars.LazyFrame], polars.LazyFrame],
    *,
    in_parts: bool,
) -> Iterator[polars.DataFrame]:
    """Yields the result of the query ``ask`` on the rows that Polars reads, in order.

    With ``in_parts``, the query runs on some files at a time. ``collect_batches`` of Polars 2.1
    needs less memory, but ends early if its reader fails.

    Raises ``NotReadError`` if Polars cannot read the files, or if they were replaced meanwhile.
    """
    import polars

    for part in _parts(data, handed) if in_parts and not handed.rows else [handed]:
        try:
            frame = ask(scan_of(part, schema)).collect()
        except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
            raise NotReadError from error
        if not is_current(data.scan_source, handed):
            raise NotReadError
        yield frame


def _parts(data: Dataset, handed: HandOver) -> Iterator[HandOver]:
    """Yields ``handed``, some files at a time: ``_MAX_PART_ROWS`` rows at most, or one file."""
    files, num_rows = list[str](), 0
    for path in handed.files:
        more = data.scan_source.cache.as_opened(path).num_rows
        if files and num_rows + more > _MAX_PART_ROWS:
            yield replace(handed, files=tuple(files))
            files, num_rows = [], 0
        files.append(path)
        num_rows += more
    yield replace(handed, files=tuple(files))


def scan_of(handed: HandOver, schema: polars.Schema) -> polars.LazyFrame:
    """Returns a scan by Polars of files that are handed over, in the types of ``schema``.

    Files of which only some rows are read have a scan each.
    """
    import polars

    types = {name: schema[name] for name in handed.schema.names}
    scans = []
    for has_rows, group in itertools.groupby(handed.files, handed.rows.__contains__):
        if has_rows:
            scans += [_rows_of(path, handed.rows[path], handed, types) for path in group]
        else:
            scans.append(_scan(list(group), handed, types))
    return scans[0] if len(scans) == 1 else polars.concat(scans)


def _rows_of(
    path: str, rows: RowRanges, handed: HandOver, types: Mapping[str, polars.DataType]
) -> polars.LazyFrame:
    """Returns rows of one file. Polars reads only row groups with row numbers in the ranges."""
    import polars

    names = {root.name for root in handed.planned[path].schema.roots} | types.keys()
    number = "row"
    while number in names:
        number += "_"
    ranges = zip(rows.starts.tolist(), (rows.stops - 1).tolist(), strict=True)
    parts = [polars.col(number).is_between(first, last) for first, last in ranges]
    return (
        _scan([path], handed, types, row_index_name=number)
        .filter(polars.any_horizontal(parts) if parts else False)
        .drop(number)
    )


def _scan(
    paths: list[str], handed: HandOver, types: Mapping[str, polars.DataType], **options: Any
) -> polars.LazyFrame:
    import polars

    keys = {name: types[name] for name in handed.folder_keys}
    # With a schema, Polars opens a file only to read it, so it reads files that were replaced.
    return polars.scan_parquet(
        paths,
        schema=types,
        hive_partitioning=bool(keys),
        hive_schema=keys or None,
        glob=False,
        extra_columns="ignore",
        **options,
    )
