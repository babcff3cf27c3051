"""Reads the values that indexes are built of: each column of a file once, piece by piece."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import intarsia.memory as memory
from intarsia.errors import IndexSpecError, PredicateError
from intarsia.expr.functions import elements_of, plain_values
from intarsia.file.index_subjects import NESTED_READS, evaluated
from intarsia.file.open_file import OpenedFile
from intarsia.index.base import Reads, Subject
from intarsia.index.registry import EmbeddedIndex
from intarsia.io.source import BufferSource, ByteRange, Source
from intarsia.parquet.schema import Leaf, Root
from intarsia.row_ranges import Int64Array, RowRanges, without_repeats
from intarsia.scan.column_reader import read_rows
from intarsia.scan.integrity.page_guard import PageIndexMistrust
from intarsia.scan.units import decoded_chunk_bytes, page_starts

PIECE_BYTES = 64 * 1024 * 1024
"""Decoded bytes that are read at a time from a row group whose pages can be located."""
_TOGETHER_BYTES = 4 * 1024 * 1024
"""Decoded bytes of small row groups that are read together. Each read takes about a millisecond."""


class Values(NamedTuple):
    """Values, and the row of the file that each belongs to. Shape ``(n,)`` each, rows ascending."""

    values: pa.Array
    rows: Int64Array


class Piece:
    """Some rows of a file. Columns that were read are cached as long as the piece exists."""

    def __init__(self, file: OpenedFile, start: int, stop: int) -> None:
        self.file, self.start, self.stop = file, start, stop
        self._source = _CachedSource(file.source)
        self._columns: dict[tuple[str, tuple[int, ...], bool], pa.ChunkedArray] = {}

    def values(self, index: EmbeddedIndex, subject: Subject) -> Iterator[Values]:
        """Yields the values of an index. Raises ``IndexSpecError`` if they cannot be computed."""
        row = self.start
        for chunk in self._values(index, subject).chunks:
            rows = np.arange(row, row + len(chunk), dtype=np.int64)
            row += len(chunk)
            if index.reads is Reads.ELEMENTS:
                yield _elements(chunk, rows)
            elif index.reads is Reads.ENTRIES:
                yield _entries(chunk, rows)
            else:
                yield Values(chunk, rows)

    def _values(self, index: EmbeddedIndex, subject: Subject) -> pa.ChunkedArray:
        term, schema = subject.term, self.file.schema
        if index.reads in NESTED_READS:
            root = schema.root(term.path[0])
            assert root is not None
            leaves = [leaf.index for leaf in leaves_of(self.file, subject)]
            values = self._read(root.pruned(leaves))
            for name in term.path[1:]:
                values = pc.struct_field(values, name)
            return values
        if not term.path:
            values = plain_values(self._computed(subject))
            return _as_stored(values) if index.reads is Reads.PHYSICAL else values
        leaf = schema.leaf(term.path)
        assert leaf is not None  # the index's subject was resolved with it
        root = schema.roots[leaf.root].pruned([leaf.index])
        values = self._read(root, physical=index.reads is Reads.PHYSICAL)
        for name in leaf.path[1:]:
            values = pc.struct_field(values, name)
        return plain_values(values)

    def _computed(self, subject: Subject) -> pa.ChunkedArray:
        schema = self.file.schema
        columns = {}
        for name in sorted({path[0] for path in subject.term.fields}):
            root = schema.root(name)
            assert root is not None
            columns[name] = self._read(root)
        try:
            return evaluated(subject.term, columns)
        except PredicateError as error:
            raise IndexSpecError(
                f"{self.file.name}: no index on {subject.term}: {error}"
            ) from error

    def _read(self, root: Root | None, *, physical: bool = False) -> pa.ChunkedArray:
        assert root is not None
        key = (root.name, tuple(root.leaves), physical)
        while key not in self._columns:
            rows = RowRanges.of((self.start, self.stop))
            try:
                (self._columns[key],) = read_rows(
                    self.file, [root], rows, physical=physical, source=self._source
                )
            except PageIndexMistrust:
                continue  # the page index was dropped: the next try locates pages without it
        return self._columns[key]


def pieces(file: OpenedFile, leaves: Sequence[int], groups: range) -> Iterator[Piece]:
    """Yields small row groups together, and large ones in parts that end where pages end."""
    first_row, num_bytes = 0, 0  # of the small row groups that are read together
    most_bytes, most_together = memory.share(PIECE_BYTES, 16), memory.share(_TOGETHER_BYTES, 16)
    for group in groups:
        first, stop = file.row_group_starts[group : group + 2].tolist()
        sizes = {leaf: decoded_chunk_bytes(file, group, leaf) for leaf in leaves}
        size = max(sum(sizes.values()), 1)
        if num_bytes and num_bytes + size > most_together:
            yield Piece(file, first_row, first)
            num_bytes = 0
        first_row = first_row if num_bytes else first
        if size <= most_together:
            num_bytes += size
            continue
        parts = min(-(-size // most_bytes), stop - first)
        edges = None if parts < 2 else page_starts(file, group, sizes, learns=True)
        if edges is None:
            yield Piece(file, first, stop)
            continue
        # Each cut is the last start of a page that does not exceed an even division.
        even = np.arange(parts, dtype=np.int64) * (stop - first) // parts
        starts = without_repeats(edges[np.searchsorted(edges, even, side="right") - 1])
        for low, high in itertools.pairwise([*starts.tolist(), stop - first]):
            yield Piece(file, first + low, first + high)
    if num_bytes:
        yield Piece(file, first_row, stop)


def leaves_of(file: OpenedFile, subject: Subject) -> list[Leaf]:
    """Returns the leaves that an index is built of. The leaves of the first field come first."""
    leaves = []
    for path in [subject.term.path] if subject.term.path else sorted(subject.term.fields):
        field_leaves = [leaf for leaf in file.schema.leaves if leaf.path[: len(path)] == path]
        leaves += field_leaves
    return leaves


class _CachedSource:
    """A source that caches every range it has read."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner
        self._cached: dict[ByteRange, memoryview] = {}

    @property
    def size(self) -> int:
        return self._inner.size

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        missing = [r for r in dict.fromkeys(ranges) if r not in self._cached]
        self._cached.update(zip(missing, self._inner.read(missing), strict=True))
        return [self._cached[range_] for range_ in ranges]


def _elements(lists: pa.Array, rows: Int64Array) -> Values:
    """Returns the elements of lists, or the keys of maps, with the rows of their lists."""
    elements, positions_of = elements_of(lists)
    return Values(elements, rows[positions_of(np.arange(len(elements), dtype=np.int64))])


def _entries(maps: pa.Array, rows: Int64Array) -> Values:
    """Returns the entries of maps with their rows: each key, and its value as Parquet stores it."""
    keys, rows_of_keys = _elements(maps, rows)
    start = maps.offsets[0].as_py() if len(maps) else 0
    values = plain_values(maps.items.slice(start, len(keys)))
    stored = _as_stored(pa.chunked_array([values])).combine_chunks()
    return Values(pa.StructArray.from_arrays([keys, stored], ["key", "value"]), rows_of_keys)


def _as_stored(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns values as the physical type that Parquet stores them as."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"value": values}), sink, compression="none", use_dictionary=False,
        row_group_size=max(len(values), 1), version="2.6",
    )  # fmt: skip
    stored = OpenedFile(BufferSource(memoryview(sink.getvalue())), "<values>")
    rows = RowRanges.all(stored.num_rows)
    (physical,) = read_rows(stored, list(stored.schema.roots), rows, physical=True)
    return physical
