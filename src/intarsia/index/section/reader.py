"""Reads index sections: small page-indexed Parquet files without their last four bytes.

::

    PAR1 [pages of each column] [column and offset indexes][footer][length] (PAR1 cut off)
                                └──────── metadata, with a CRC of its own ───────┘

The rows of an inverted index are ``(key, granule)`` or ``(key, step)`` (see ``writer``), sorted and
distinct. The column index therefore finds the few pages that may contain a key. A summary index has
one row per granule. The footer's key/values state where granules start, and the ``file_id`` of the
directory that lists the section.

``PageCache`` keeps decoded pages of all files, least recently used first out.

All bytes are checked before they are used. Any failure is a ``FormatError``; callers then assume
that all rows might match.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from intarsia.decode.page_size_limit import check_limit
from intarsia.decode.splice import ChunkBytes, RowGroupBytes, decode_roots
from intarsia.decode.synthetic_footer import RootTemplate, SchemaTemplates
from intarsia.errors import FormatError
from intarsia.index.key_formula import FingerprintArray, Granules
from intarsia.index.section.writer import LENGTH_BYTES, MAX_GRANULES
from intarsia.io.source import Source
from intarsia.limits import MAX_SECTION_METADATA_BYTES, check_claim
from intarsia.parquet.column_order import order_of
from intarsia.parquet.footer_cache import FOOTER_KEY, FooterLayout, decode_footer
from intarsia.parquet.metadata import ColumnMetaData, FileMetaData
from intarsia.parquet.page_header import read_page_header
from intarsia.parquet.page_index import read_column_index, read_offset_index
from intarsia.parquet.schema import Leaf, Root, read_schema
from intarsia.parquet.statistics import Bounds, page_bounds
from intarsia.process_state import ForkLock, SharedState, cached_property
from intarsia.row_ranges import Int64Array, distinct


class Entries(NamedTuple):
    """Entries of one or several pages: keys, ascending, and the granule of each.

    Cached pages are as stored: they may hold steps instead of granules.
    """

    keys: FingerprintArray
    granules: Granules

    @property
    def num_bytes(self) -> int:
        return self.keys.nbytes + self.granules.nbytes


class PageCache(SharedState):
    """A cache of pages by section and page number, safe to share between threads.

    A section is any object that identifies its bytes as they were when it was opened.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._num_bytes = max_bytes, 0
        self._pages: OrderedDict[tuple[object, int], Entries] = OrderedDict()
        self._lock = ForkLock()
        super().__init__()

    def clear(self) -> None:
        """Removes all pages."""
        with self._lock:
            self._num_bytes = 0
            self._pages.clear()

    def get(self, section: object, pages: Iterable[int]) -> dict[int, Entries]:
        """Returns those of ``pages`` that are cached."""
        cached_pages = {}
        with self._lock:
            for page in pages:
                entries = self._pages.get((section, page))
                if entries is not None:
                    self._pages.move_to_end((section, page))
                    cached_pages[page] = entries
        return cached_pages

    def put(self, section: object, pages: Mapping[int, Entries]) -> None:
        """Caches ``pages``. Evicts the least recently used pages beyond the limit."""
        with self._lock:
            for page, entries in pages.items():
                previous = self._pages.pop((section, page), None)
                self._num_bytes += entries.num_bytes - (previous.num_bytes if previous else 0)
                self._pages[section, page] = entries
            while self._num_bytes > self._max_bytes:
                _, evicted = self._pages.popitem(last=False)
                self._num_bytes -= evicted.num_bytes


PAGE_CACHE = PageCache(16 * 1024 * 1024)
"""The cache of this process, at most 16 MiB."""


PAGE_SIZE_LIMIT = 64 * 1024 * 1024
"""Most bytes per page, uncompressed. Pages of fingerprints written here have 32 KB."""


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a section.

    ``pages`` holds offset and length in bytes of the pages of all row groups. Shape ``(pages, 2)``.
    ``indexes`` holds the encoded column index of each row group, and its number of pages.
    """

    chunks: tuple[ColumnMetaData, ...]
    pages: Int64Array
    root: Root
    leaf: Leaf
    indexes: tuple[tuple[memoryview, int], ...]

    @cached_property
    def bounds(self) -> Bounds | None:
        """Bounds of the column's pages. None if a column index is missing.

        Raises ``FormatError`` if a column index is damaged.
        """
        return _concatenate([_bounds(self.leaf, data, pages) for data, pages in self.indexes])


class Section:
    """An open section: its checked metadata in memory, its pages read on demand."""

    def __init__(
        self, source: Source, meta_length: int, meta_crc32: int, file_id: str, num_rows: int
    ) -> None:
        """Opens the section in ``source``, which holds nothing else.

        ``num_rows`` is the number of rows in the indexed file. Raises ``FormatError`` if the
        metadata is damaged or belongs to another file.
        """
        if not LENGTH_BYTES <= meta_length <= source.size:
            raise FormatError("the metadata is longer than the section")
        check_claim("the section's metadata", meta_length, MAX_SECTION_METADATA_BYTES)
        start = source.size - meta_length
        meta = source.read([(start, meta_length)])[0]
        if zlib.crc32(meta) != meta_crc32:
            raise FormatError("the metadata does not match its checksum")
        (length,) = struct.unpack("<I", meta[-LENGTH_BYTES:])
        if length > meta_length - LENGTH_BYTES:
            raise FormatError("the footer is longer than the metadata")
        raw = bytes(meta[-LENGTH_BYTES - length : -LENGTH_BYTES])
        metadata, shape = decode_footer(raw)
        self.info = _info(metadata)
        if self.info.get("file_id") != file_id:
            raise FormatError("the section belongs to another file")
        self.granule_starts = _unpack_starts(str(self.info.get("granules")), num_rows)
        self._source = source
        self._groups = [group.num_rows for group in metadata.row_groups if group.num_rows]
        self.num_entries = sum(self._groups)
        self._templates = shape.cached("section", lambda: SchemaTemplates(metadata, raw))
        self._load(metadata, shape, meta, start)

    @property
    def num_granules(self) -> int:
        return len(self.granule_starts) - 1

    @property
    def num_pages(self) -> int:
        return len(self._page_groups)

    def _load(
        self, metadata: FileMetaData, shape: FooterLayout, meta: memoryview, start: int
    ) -> None:
        schema = shape.cached("schema", lambda: read_schema(metadata.schema))
        is_flat = bool(schema.leaves) and all(leaf.is_flat for leaf in schema.leaves)
        if not is_flat or min(self._groups, default=1) < 0:
            raise FormatError("a section is a table of flat columns")
        groups = [group for group in metadata.row_groups if group.num_rows]
        if any(len(group.columns) != len(schema.leaves) for group in groups):
            raise FormatError("a row group lacks columns")
        self.columns: dict[str, Column] = {}
        first_rows: list[list[Int64Array]] = [[] for _ in groups]
        for leaf, root in zip(schema.leaves, schema.roots, strict=True):
            chunks = [group.columns[leaf.index] for group in groups]
            page_ranges = [np.empty((0, 2), dtype=np.int64)]
            indexes = []
            for group_number, chunk in enumerate(chunks):
                if chunk.meta_data is None:
                    raise FormatError("a chunk without metadata")
                index_place = chunk.offset_index_offset, chunk.offset_index_length
                offset_index = read_offset_index(_part(meta, start, *index_place))
                at = chunk.meta_data.start
                stop = min(at + chunk.meta_data.total_compressed_size, start)
                problem = offset_index.problem(self._groups[group_number], at, stop)
                if problem:
                    raise FormatError(problem)
                first_rows[group_number].append(offset_index.first_row_index)
                page_ranges.append(
                    np.column_stack((offset_index.offset, offset_index.compressed_page_size))
                )
                index_place = chunk.column_index_offset, chunk.column_index_length
                indexes.append((_part(meta, start, *index_place), len(offset_index)))
            self.columns[root.name] = Column(
                tuple(chunk.meta_data for chunk in chunks if chunk.meta_data is not None),
                np.concatenate(page_ranges),
                root,
                leaf,
                tuple(indexes),
            )
        self._set_pages(first_rows)

    def _set_pages(self, first_rows: Sequence[Sequence[Int64Array]]) -> None:
        """Numbers the pages, which must be the same in all columns, across row groups."""
        groups: list[Int64Array] = []
        counts: list[Int64Array] = []
        for number, (rows, firsts) in enumerate(zip(self._groups, first_rows, strict=True)):
            if any(not np.array_equal(first, firsts[0]) for first in firsts[1:]):
                raise FormatError("the pages of columns differ in rows")
            counts.append(np.diff(firsts[0], append=rows))
            groups.append(np.full(len(firsts[0]), number, dtype=np.int64))
        empty = np.empty(0, dtype=np.int64)
        self._page_groups = np.concatenate([empty, *groups])
        self._page_rows = np.concatenate([empty, *counts])

    def pages_with(self, rows: Int64Array) -> Int64Array:
        """Returns the numbers of the pages that hold any of ``rows``."""
        stops = np.cumsum(self._page_rows)
        return distinct(np.searchsorted(stops, rows, side="right"))

    def rows_on(self, pages: Int64Array) -> Int64Array:
        """Returns the rows that ``pages`` hold, in order."""
        stops = np.cumsum(self._page_rows)
        return np.concatenate(
            [np.empty(0, np.int64)]
            + [np.arange(stops[p] - self._page_rows[p], stops[p]) for p in pages]
        )

    @property
    def rows_per_page(self) -> Int64Array:
        """The number of rows of each page. Shape ``(pages,)``."""
        return self._page_rows

    def starts_of(self, pages: Int64Array) -> Int64Array:
        """Returns the first row of each of ``pages`` among the rows that ``read`` returns."""
        counts: Int64Array = self._page_rows[pages]
        return np.cumsum(counts) - counts

    def read(self, names: Sequence[str], pages: Int64Array) -> list[pa.ChunkedArray]:
        """Reads the values of columns on ``pages``, which ascend.

        Raises ``FormatError`` if a page is damaged or larger than ``PAGE_SIZE_LIMIT``.
        """
        template, groups = self.fetched(names, pages)
        columns: list[pa.ChunkedArray] = decode_roots(
            template, groups, verify_checksums=True
        ).columns
        return columns

    def fetched(
        self, names: Sequence[str], pages: Int64Array
    ) -> tuple[RootTemplate, list[RowGroupBytes]]:
        """Reads the bytes of columns on ``pages``, without decoding them.

        Sections with the same footer layout share one template.
        """
        columns = [self.columns[name] for name in names]
        template = self._templates.together([column.root for column in columns])
        if template is None:
            raise FormatError("the section stores Arrow types for only some of its columns")
        places = [column.pages[pages].tolist() for column in columns]
        parts = self._source.read([(offset, size) for at in places for offset, size in at])
        by_column = [parts[i * len(pages) :][: len(pages)] for i in range(len(columns))]
        for column, read in zip(columns, by_column, strict=True):
            for page in read:
                check_limit(read_page_header(page)[0], column.leaf, PAGE_SIZE_LIMIT)
        numbers, rows = self._page_groups[pages], self._page_rows[pages]
        groups = []
        for number in dict.fromkeys(numbers.tolist()):
            is_in_group = numbers == number
            count = int(rows[is_in_group].sum())
            positions = [i for i, is_selected in enumerate(is_in_group.tolist()) if is_selected]
            chunks = [
                ChunkBytes(column.chunks[number], None, [read[i] for i in positions], count)
                for column, read in zip(columns, by_column, strict=True)
            ]
            groups.append(RowGroupBytes(count, chunks))
        return template, groups


def _bounds(leaf: Leaf, data: memoryview, pages: int) -> Bounds | None:
    """Returns the bounds of a column index.

    Returns None if there is none, as for pages with only NaN.
    """
    if not len(data):
        return None
    index = read_column_index(data)
    if len(index) != pages:
        raise FormatError("a column index does not have the pages of its chunk")
    return page_bounds(order_of(leaf.element), index, declared=True)


def _concatenate(parts: Sequence[Bounds | None]) -> Bounds | None:
    """Concatenates the bounds of row groups. Returns None if some are unknown."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not known:
        return None
    names = ("low", "high", "bounded", "all_null", "null_counts", "nan_counts")
    joined = [np.concatenate([getattr(part, name) for part in known]) for name in names]
    return Bounds(known[0].order, *joined)


def _unpack_starts(text: str, num_rows: int) -> Int64Array:
    """Returns the granule starts. There can be at most one more than rows."""
    limit = (min(num_rows, MAX_GRANULES) + 2) * 8
    try:
        unpack = zlib.decompressobj()
        raw = unpack.decompress(base64.b64decode(text, validate=True), limit)
    except (ValueError, zlib.error) as error:
        raise FormatError(f"granules cannot be unpacked: {error}") from error
    if unpack.unconsumed_tail or len(raw) % 8:
        raise FormatError("more granules than rows, or than are supported")
    starts: Int64Array = np.cumsum(np.frombuffer(raw, dtype="<i8"), dtype=np.int64)
    ends = starts[:1].tolist() + starts[-1:].tolist()
    if ends != [0, num_rows] or (starts[1:] <= starts[:-1]).any():
        raise FormatError("granules do not cover the rows of the file one after the other")
    return starts


def _info(metadata: FileMetaData) -> dict[str, object]:
    try:
        info = json.loads(metadata.key_value(FOOTER_KEY) or "")
    except (ValueError, RecursionError) as error:
        raise FormatError("the section does not say what it belongs to") from error
    return info if isinstance(info, dict) else {}


def _part(meta: memoryview, start: int, offset: int | None, length: int | None) -> memoryview:
    """Returns bytes of the metadata by their position in the section, none for no position."""
    if offset is None or length is None:
        return meta[:0]
    if offset < start or length < 0 or offset - start + length > len(meta):
        raise FormatError("the section's page index lies outside its metadata")
    return meta[offset - start : offset - start + length]
