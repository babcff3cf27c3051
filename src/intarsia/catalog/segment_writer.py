"""Writing a segment of a catalog: facts of files in, tables out, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from intarsia.catalog.file_facts import Facts, FileEntry, KeySpec, LeafBounds
from intarsia.catalog.manifest import Form, KeyPart, KeyTable, Segment, TailPart
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
"""Writes a table where it is to be."""

PART_ENTRIES = 1 << 22
"""Keys a file."""
_TAIL_FILES, _TAIL_BYTES = 4096, 64 * 1024 * 1024
_KEY_BITS = np.uint64(32)
_MOST_GRANULES = 1 << 32


@dataclass(slots=True)
class Index:
    """One index on its way into a segment: the files that have it, and how many granules each."""

    spec: KeySpec
    form: str
    files: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    num_granules: int = 0

    def cover(self, file: int, granules: int) -> int:
        """Count a file in; returns the number of its first granule."""
        start = self.num_granules
        self.files.append(file)
        self.counts.append(granules)
        self.num_granules += granules
        return start


class SegmentTables:
    """All of a segment but its keys: files are numbered as they are added."""

    def __init__(self, put: Put, generation: str) -> None:
        self._put, self.generation = put, generation
        self._entries: list[FileEntry] = []
        self._bounds: dict[tuple[str, ...], list[tuple[int, LeafBounds]]] = {}
        self._tails: list[bytes] = []
        self._tail_bytes = 0
        self._parts: list[TailPart] = []
        self.indexes: dict[tuple[KeySpec, str], Index] = {}

    def add(self, entry: FileEntry, bounds: Iterable[LeafBounds], tail: bytes | None = None) -> int:
        """Take a file; returns its number. A ``tail`` of None is in a part that ``parts`` has."""
        number = len(self._entries)
        self._entries.append(entry)
        for one in bounds:
            self._bounds.setdefault(one.path, []).append((number, one))
        if tail is not None:
            self._tails.append(tail)
            self._tail_bytes += len(tail)
            if len(self._tails) >= _TAIL_FILES or self._tail_bytes >= _TAIL_BYTES:
                self._flush()
        return number

    def index(self, spec: KeySpec, form: str) -> Index:
        """The index of that meaning, on files of that form."""
        return self.indexes.setdefault((spec, form), Index(spec, form))

    def built(self, what: str, schema: pa.Schema, rows: pa.Table, **options: int) -> BuiltTable:
        """A table that was written."""
        made = build_table(new_name(self.generation, what), schema, [rows], **options)
        self._put(made)
        return made

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
        """Write what is left. ``keys_of`` gives an index's keys; None where it is left out."""
        self._flush()
        forms = list(dict.fromkeys(entry.form for entry in self._entries))
        numbers = {form: number for number, form in enumerate(forms)}
        first = {entry.form: n for n, entry in reversed(list(enumerate(self._entries)))}
        indexes: list[Index] = []
        keys: list[KeyTable] = []
        for index in self.indexes.values():
            found = keys_of(index) if index.num_granules < _MOST_GRANULES else None
            if found is not None:
                indexes.append(index)
                keys.append(index.spec.table(numbers[index.form], found))
        return Segment(
            len(self._entries),
            tuple(Form(form, first[form]) for form in forms),
            tuple(self._bounds),
            self.built("files", FILES, self._files(numbers)).table,
            self.built("bounds", BOUNDS, self._bounds_rows()).table,
            self.built("covers", COVERS, _covers(indexes)).table,
            tuple(self._parts if parts is None else parts),
            tuple(keys),
        )

    def _files(self, forms: dict[str, int]) -> pa.Table:
        rows = [
            (e.path, e.size, e.mtime, e.stamp, e.rows, e.row_groups, forms[e.form])
            for e in self._entries
        ]
        return _table(rows, FILES)

    def _bounds_rows(self) -> pa.Table:
        rows = [
            (leaf, number, b.low, b.high, b.all_null, b.nulls, b.nans)
            for leaf, held in enumerate(self._bounds.values())
            for number, b in held
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
    """A segment written on one machine: keys are sorted in runs, on disk where they are many."""

    def __init__(self, put: Put, generation: str, work: Workspace) -> None:
        self.tables, self._work = SegmentTables(put, generation), work
        self._runs: dict[tuple[KeySpec, str], Runs] = {}

    def add(self, facts: Facts) -> None:
        """Take a file."""
        number = self.tables.add(facts.entry, facts.bounds, facts.tail)
        for spec, granules, entries in facts.keys:
            index = self.tables.index(spec, facts.entry.form)
            self._push(index, entries + np.uint64(index.cover(number, granules)))

    def _push(self, index: Index, entries: UInt64Array) -> None:
        id_ = index.spec, index.form
        if index.num_granules < _MOST_GRANULES:
            self._runs.setdefault(id_, Runs(self._work)).add(entries)

    def absorb(self, old: SegmentReader, numbers: Int64Array) -> None:
        """Take the files ``numbers``, ascending, of a segment there is, of which none is opened."""
        renumbered = np.full(old.num_files, -1, dtype=np.int64)
        bounds: dict[int, list[LeafBounds]] = {}
        for leaf, path in enumerate(old.segment.leaves):
            for row in old.bounds_of(leaf).to_pylist():
                bounds.setdefault(row.pop("file"), []).append(LeafBounds(path, **row))
        listed, forms = old.listed, old.segment.forms
        for n in numbers.tolist():
            entry = FileEntry(
                listed.paths[n],
                int(listed.sizes[n]),
                int(listed.mtimes[n]),
                listed.stamps[n],
                int(listed.rows[n]),
                int(listed.row_groups[n]),
                forms[listed.forms[n]].hash,
            )
            renumbered[n] = self.tables.add(entry, bounds.get(n, ()), old.tail(n))
        for number, table in enumerate(old.segment.keys):
            covered = old.covered(number)
            if (renumbered[covered.files] < 0).all():
                continue  # nor is there a file of its schema, perhaps
            index = self.tables.index(KeySpec.of(table), forms[table.form].hash)
            counts = np.diff(covered.stops, prepend=0)
            starts = np.full(len(covered.files), -1, dtype=np.int64)
            for at, file in enumerate(renumbered[covered.files].tolist()):
                if file >= 0:
                    starts[at] = index.cover(file, int(counts[at]))
            for part in table.parts:
                entries = old.part(part.table, covered.num_granules).all()
                self._push(index, _moved(entries, covered.stops, starts))

    def finish(self) -> Segment:
        """Write what is left."""
        return self.tables.finish(lambda index: list(self._keys(index)))

    def _keys(self, index: Index) -> Iterator[KeyPart]:
        runs = self._runs.get((index.spec, index.form))
        for entries in _parts(runs.blocks() if runs else ()):
            built = self.tables.built("keys", STEP_SCHEMA, entry_table(entries))
            low, high = (int(entries[at] >> _KEY_BITS) for at in (0, -1))
            yield KeyPart(low, high, built.table)


def _moved(entries: UInt64Array, stops: Int64Array, starts: Int64Array) -> UInt64Array:
    """Entries whose granules are numbered anew; those of files whose start is -1 are left out.

    ``stops`` and ``starts`` are where the granules of each file ended, and where they begin now.
    """
    granules = (entries & np.uint64(0xFFFFFFFF)).astype(np.int64)
    file = np.searchsorted(stops, granules, side="right")
    before = np.concatenate(([0], stops[:-1])) if len(stops) else stops
    kept = starts[file] >= 0
    moved = (granules - before[file] + starts[file])[kept].astype(np.uint64)
    keys: UInt64Array = entries[kept] >> _KEY_BITS << _KEY_BITS
    return keys | moved


def _parts(blocks: Iterable[UInt64Array]) -> Iterator[UInt64Array]:
    """Blocks joined, and divided, into parts of about ``PART_ENTRIES``."""
    held: list[UInt64Array] = []
    count = 0
    for block in blocks:
        for at in range(0, len(block), PART_ENTRIES):
            held.append(block[at : at + PART_ENTRIES])
            count += len(held[-1])
            if count >= PART_ENTRIES:
                yield np.concatenate(held)
                held, count = [], 0
    if count:
        yield np.concatenate(held)
