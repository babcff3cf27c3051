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
from intarsia.dataset.engine_hand_over import PAGE_COST, HandOver, hand_over, is_current
from intarsia.errors import IntarsiaError
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.statistics import Bounds
from intarsia.row_ranges import RowRanges

if TYPE_CHECKING:
    import polars

T = TypeVar("T")

MAX_FILES = 128
"""Files of a lake that Polars scans alone. It opens all of them for each query, while our footers
are cached: above this, a query that footers answer for most files is faster with these."""
_UNITS = ("ms", "us", "ns")
"""Units of timestamps, which Polars keeps."""
_ROWS_AT_A_TIME = 32 * 1024 * 1024
"""Rows of files that Polars reads within our scan before it gives any."""
_MAX_PROBES = 16
"""Values of a chunk that are looked for in its pages."""


class NotReadError(Exception):
    """Polars did not read files that were handed over."""


def whole_scan(data: Dataset, schema: polars.Schema) -> polars.LazyFrame | None:
    """A scan of all of ``data`` by Polars alone, whose schema is ``schema``.

    None if indexes may skip rows, or if Polars may give other rows than our reader.
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
    handed = handed_over(data, data.schema.names, schema)
    return None if handed is None else scan_of(handed, schema)


class KnownScans:
    """Scans by Polars alone, each for a data set, and valid until a file is replaced."""

    def __init__(self) -> None:
        self._scans: WeakKeyDictionary[Dataset, tuple[list[OpenedFile], polars.LazyFrame]]
        self._scans = WeakKeyDictionary()

    def find(self, data: Dataset) -> polars.LazyFrame | None:
        """The scan of a data set, if it is known and all files are as they were."""
        files, scan = self._scans.get(data, ([], None))
        if scan is None:
            return None
        try:
            current = [data.scan_source.cache.get(file.path) for file in data.scan_source.files]
        except (IntarsiaError, OSError):  # the scan reports it
            return None
        return scan if all(map(operator.is_, current, files)) else None

    def keep(self, data: Dataset, scan: polars.LazyFrame) -> None:
        """Remember the scan of a data set, for files as they were opened last."""
        files = [data.scan_source.cache.as_opened(file.path) for file in data.scan_source.files]
        self._scans[data] = files, scan


def may_skip_pages(files: Sequence[OpenedFile]) -> bool:
    """True if indexes may leave out so many pages that our reader is faster than Polars'.

    A page index is no such index where a value may be in most pages of a chunk, or where these take
    longer than the chunk. Three files are asked for theirs: the first, the last and one in their
    middle.
    """
    return any(map(_has_index, files)) or any(map(_has_useful_pages, _some_of(files)))


def _some_of(items: Sequence[T]) -> list[T]:
    """Returns the first item, the last and one in the middle, as far as there are so many."""
    places = dict.fromkeys((0, len(items) // 2, len(items) - 1)) if items else ()
    return [items[at] for at in places]


def _has_index(file: OpenedFile) -> bool:
    """True if a file has an index of ours, in itself or its sidecar, or a useful bloom filter.

    A bloom filter beside a dictionary is of few values, of which a row group has most.
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
    """True if pages that may hold a value are read by us faster than a chunk by Polars.

    Polars decodes all of the chunk, and of the other columns pages that hold the value. Three row
    groups are asked.
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
                if PAGE_COST * share * sum(sizes) < size + share * others:
                    return True
    return False


def _share_with_a_value(bounds: Bounds) -> float:
    """The share of pages in which one value may be, as a mean of some values; 1 if unknown."""
    known = np.flatnonzero(bounds.bounded)
    if not len(known):
        return 1.0
    low, high = bounds.low[known], bounds.high[known]
    probes = np.linspace(0, len(known) - 1, min(len(known), _MAX_PROBES)).astype(np.int64)
    hits = [np.count_nonzero((low <= key) & (high >= key)) for key in low[probes]]
    unknown = np.count_nonzero(~bounds.bounded & ~bounds.all_null)
    return float(np.mean(hits) + unknown) / len(bounds)


def handed_over(
    data: Dataset,
    columns: Sequence[str],
    schema: polars.Schema,
    filter_: pc.Expression | None = None,
    limit: int | None = None,
) -> HandOver | None:
    """The files that Polars is to read, or None if our reader reads them."""
    import polars

    try:
        found = hand_over(data.scan_source, columns, filter_, limit, expects_nan=True, units=_UNITS)
        if isinstance(found, str):
            return None
        names = [name for name in columns if name not in found.folder_keys]
        files = (data.scan_source.cache.as_opened(path) for path in found.files)
        return found if all(_has_types(file, names, schema) for file in files) else None
    except (IntarsiaError, polars.exceptions.PolarsError, OSError):  # our reader reports it
        return None


def _has_types(file: OpenedFile, names: Sequence[str], schema: polars.Schema) -> bool:
    """True if Polars gives columns ``names`` of a file the types that they have in ``schema``."""
    import polars

    types = file.shape.kept("polars", lambda: polars.read_parquet_schema(file.name))
    return all(types.get(name) == schema[name] for name in names)


def frames_of(
    data: Dataset,
    handed: HandOver,
    schema: polars.Schema,
    ask: Callable[[polars.LazyFrame], polars.LazyFrame],
    *,
    in_parts: bool,
) -> Iterator[polars.DataFrame]:
    """What ``ask`` makes of the rows that Polars reads, in order.

    If the answer may be put together from answers ``in_parts``, it asks of some files at a time:
    ``collect_batches`` of Polars 2.1 takes fewer of all in memory, but ends early where its reader
    fails. Raises ``NotReadError`` if Polars cannot read the files, or if they were replaced
    meanwhile.
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
    """Yields ``handed``, some files at a time: ``_ROWS_AT_A_TIME`` rows at most, or one file."""
    files, num_rows = list[str](), 0
    for path in handed.files:
        more = data.scan_source.cache.as_opened(path).num_rows
        if files and num_rows + more > _ROWS_AT_A_TIME:
            yield replace(handed, files=tuple(files))
            files, num_rows = [], 0
        files.append(path)
        num_rows += more
    yield replace(handed, files=tuple(files))


def scan_of(handed: HandOver, schema: polars.Schema) -> polars.LazyFrame:
    """A scan by Polars of files that are handed over, whose columns have the types of ``schema``.

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
    """Rows of one file. Polars reads only the row groups that have row numbers in the ranges."""
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
    # With a schema, Polars opens no file before it reads it, so it reads files that were replaced.
    return polars.scan_parquet(
        paths,
        schema=types,
        hive_partitioning=bool(keys),
        hive_schema=keys or None,
        glob=False,
        extra_columns="ignore",
        **options,
    )
