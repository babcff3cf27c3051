"""Writes a segment of a catalog from the facts of files, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from intarsia.catalog.file_facts import Facts, FileEntry, KeySpec, LeafBounds
from intarsia.catalog.manifest import KeyPart, KeyTable, SchemaGroupRecord, Segment, TailPart
from intarsia.catalog.segment_reader import SegmentReader
from intarsia.catalog.tables import (
    BOUNDS,
    COVERS,
    FILES,
    TAIL_ROWS,
    TAILS,
    BuiltTable,
    build_table,
    new_name,
)
from intarsia.index.section.writer import STEP_SCHEMA, entry_table
from intarsia.io.external_sort import Runs, Workspace
from intarsia.row_ranges import Int64Array, UInt64Array

Put = Callable[[BuiltTable], None]
"""Stores a table that was built."""

PART_ENTRIES = 1 << 22
"""Entries in one ``keys`` table, so that sorted parts fit in memory."""
_MAX_TAIL_FILES, _MAX_TAIL_BYTES = 4096, 64 * 1024 * 1024
"""At either of these limits a ``tails`` table is written, so that memory stays bounded."""
_KEY_SHIFT = np.uint64(32)
"""Bits of the granule in a packed entry; the key is above them."""
_MAX_GRANULES = 1 << 32
"""Granules are numbered in 32 bits. An index with this many is left out."""


@dataclass(slots=True)
class Index:
    """An index of a segment being written: the files that have it, and their granule counts."""

    spec: KeySpec
    schema_hash: str
    files: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    num_granules: int = 0

    def cover(self, file: int, granules: int) -> int:
        """Adds a file and returns the number of its first granule."""
        start = self.num_granules
        self.files.append(file)
        self.counts.append(granules)
        self.num_granules += granules
        return start


class SegmentTables:
    """All tables of a segment except keys. Files are numbered in the order they are added."""

    def __init__(self, put: Put, generation: str) -> None:
        self._put, self.generation = put, generation
        self._entries: list[FileEntry] = []
        self._bounds: dict[tuple[str, ...], list[tuple[int, LeafBounds]]] = {}
        self._tails: list[bytes] = []
        self._tail_bytes = 0
        self._parts: list[TailPart] = []
        self.indexes: dict[tuple[KeySpec, str], Index] = {}

    def add(self, entry: FileEntry, bounds: Iterable[LeafBounds], tail: bytes | None = None) -> int:
        """Adds a file and returns its number. Without ``tail``, ``finish`` gets the file's end."""
        number = len(self._entries)
        self._entries.append(entry)
        for leaf_bounds in bounds:
            self._bounds.setdefault(leaf_bounds.path, []).append((number, leaf_bounds))
        if tail is not None:
            self._tails.append(tail)
            self._tail_bytes += len(tail)
            if len(self._tails) >= _MAX_TAIL_FILES or self._tail_bytes >= _MAX_TAIL_BYTES:
                self._flush()
        return number

    def index(self, spec: KeySpec, schema_hash: str) -> Index:
        """Returns the index with this meaning for files of this schema group."""
        return self.indexes.setdefault((spec, schema_hash), Index(spec, schema_hash))

    def built(self, table: str, schema: pa.Schema, rows: pa.Table, **options: int) -> BuiltTable:
        """Builds, stores and returns a table."""
        table_file = build_table(new_name(self.generation, table), schema, [rows], **options)
        self._put(table_file)
        return table_file

    def _flush(self) -> None:
        if self._tails:
            first = len(self._entries) - len(self._tails)
            rows = pa.table([pa.array(self._tails, pa.binary())], schema=TAILS)
            built = self.built("tails", TAILS, rows, page_rows=TAIL_ROWS)
            self._parts.append(TailPart(first, built.table))
            self._tails, self._tail_bytes = [], 0

    def finish(
        self,
        keys_of: Callable[[Index], Sequence[KeyPart] | None],
        parts: Sequence[TailPart] | None = None,
    ) -> Segment:
        """Writes the rest and returns the segment, without indexes that have no keys."""
        self._flush()
        hashes = list(dict.fromkeys(entry.schema_hash for entry in self._entries))
        numbers = {schema_hash: number for number, schema_hash in enumerate(hashes)}
        exemplars = {entry.schema_hash: n for n, entry in reversed(list(enumerate(self._entries)))}
        indexes: list[Index] = []
        keys: list[KeyTable] = []
        for index in self.indexes.values():
            parts_of_keys = keys_of(index) if index.num_granules < _MAX_GRANULES else None
            if parts_of_keys is not None:
                indexes.append(index)
                keys.append(index.spec.table(numbers[index.schema_hash], parts_of_keys))
        return Segment(
            len(self._entries),
            tuple(SchemaGroupRecord(one, exemplars[one]) for one in hashes),
            tuple(self._bounds),
            self.built("files", FILES, self._files(numbers)).table,
            self.built("bounds", BOUNDS, self._bounds_rows()).table,
            self.built("covers", COVERS, _covers(indexes)).table,
            tuple(self._parts if parts is None else parts),
            tuple(keys),
        )

    def _files(self, numbers: dict[str, int]) -> pa.Table:
        rows = [
            (e.path, e.size, e.mtime, e.stamp, e.rows, e.row_groups, numbers[e.schema_hash])
            for e in self._entries
        ]
        return _table(rows, FILES)

    def _bounds_rows(self) -> pa.Table:
        rows = [
            (leaf, number, bounds.low, bounds.high, bounds.all_null, bounds.nulls, bounds.nans)
            for leaf, file_bounds in enumerate(self._bounds.values())
            for number, bounds in file_bounds
        ]
        return _table(rows, BOUNDS)


def _table(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _covers(indexes: Sequence[Index]) -> pa.Table:
    rows = [
        (number, file, count)
        for number, index in enumerate(indexes)
        for file, count in zip(index.files, index.counts, strict=True)
    ]
    return _table(rows, COVERS)


class SegmentWriter:
    """Writer of a segment on one machine. Keys are sorted externally, on disk if there are many."""

    def __init__(self, put: Put, generation: str, work: Workspace) -> None:
        self.tables, self._work = SegmentTables(put, generation), work
        self._runs: dict[tuple[KeySpec, str], Runs] = {}

    def add(self, facts: Facts) -> None:
        """Adds a file."""
        number = self.tables.add(facts.entry, facts.bounds, facts.tail)
        for spec, granules, entries in facts.keys:
            index = self.tables.index(spec, facts.entry.schema_hash)
            self._push(index, entries + np.uint64(index.cover(number, granules)))

    def _push(self, index: Index, entries: UInt64Array) -> None:
        id_ = index.spec, index.schema_hash
        if index.num_granules < _MAX_GRANULES:
            self._runs.setdefault(id_, Runs(self._work)).add(entries)

    def absorb(self, old: SegmentReader, numbers: Int64Array) -> None:
        """Copies the files ``numbers``, ascending, from another segment without opening them."""
        renumbered = np.full(old.num_files, -1, dtype=np.int64)
        bounds: dict[int, list[LeafBounds]] = {}
        for leaf, path in enumerate(old.segment.leaves):
            for row in old.bounds_of(leaf).to_pylist():
                bounds.setdefault(row.pop("file"), []).append(LeafBounds(path, **row))
        listed, schema_groups = old.listed, old.segment.forms
        for n in numbers.tolist():
            entry = FileEntry(
                listed.paths[n],
                int(listed.sizes[n]),
                int(listed.mtimes[n]),
                listed.stamps[n],
                int(listed.rows[n]),
                int(listed.row_groups[n]),
                schema_groups[listed.schema_groups[n]].hash,
            )
            renumbered[n] = self.tables.add(entry, bounds.get(n, ()), old.tail(n))
        for number, table in enumerate(old.segment.keys):
            covered = old.covered(number)
            if (renumbered[covered.files] < 0).all():
                continue  # perhaps no file of its schema group is left either
            index = self.tables.index(KeySpec.of(table), schema_groups[table.form].hash)
            counts = np.diff(covered.stops, prepend=0)
            starts = np.full(len(covered.files), -1, dtype=np.int64)
            for at, file in enumerate(renumbered[covered.files].tolist()):
                if file >= 0:
                    starts[at] = index.cover(file, int(counts[at]))
            for part in table.parts:
                entries = old.part(part.table, covered.num_granules).all()
                self._push(index, _moved(entries, covered.stops, starts))

    def finish(self, tails: Sequence[TailPart] | None = None) -> Segment:
        """Writes the remaining tables and returns the segment. ``tails`` are stored already."""
        return self.tables.finish(lambda index: list(self._keys(index)), tails)

    def _keys(self, index: Index) -> Iterator[KeyPart]:
        runs = self._runs.get((index.spec, index.schema_hash))
        for entries in _parts(runs.blocks() if runs else ()):
            built = self.tables.built("keys", STEP_SCHEMA, entry_table(entries))
            low, high = (int(entries[at] >> _KEY_SHIFT) for at in (0, -1))
            yield KeyPart(low, high, built.table)


def _moved(entries: UInt64Array, stops: Int64Array, starts: Int64Array) -> UInt64Array:
    """Returns entries renumbered from ``stops`` to ``starts``, without files whose start is -1."""
    granules = (entries & np.uint64(0xFFFFFFFF)).astype(np.int64)
    file_numbers = np.searchsorted(stops, granules, side="right")
    old_starts = np.concatenate(([0], stops[:-1])) if len(stops) else stops
    stays = starts[file_numbers] >= 0
    moved = (granules - old_starts[file_numbers] + starts[file_numbers])[stays].astype(np.uint64)
    keys: UInt64Array = entries[stays] >> _KEY_SHIFT << _KEY_SHIFT
    return keys | moved


def _parts(blocks: Iterable[UInt64Array]) -> Iterator[UInt64Array]:
    """Regroups blocks into parts of at least ``PART_ENTRIES``, fewer than twice as many."""
    pending: list[UInt64Array] = []
    num_entries = 0
    for block in blocks:
        for start in range(0, len(block), PART_ENTRIES):
            pending.append(block[start : start + PART_ENTRIES])
            num_entries += len(pending[-1])
            if num_entries >= PART_ENTRIES:
                yield np.concatenate(pending)
                pending, num_entries = [], 0
    if num_entries:
        yield np.concatenate(pending)
