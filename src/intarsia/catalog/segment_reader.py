"""Prunes the files of one catalog segment without opening them.

Bounds are compared first, then the tables of keys are probed. Facts that depend only on the schema
come from an *exemplar*: one file of the schema group, whose footer the catalog stores.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeGuard

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.catalog.manifest import KeyTable, Segment, Table
from intarsia.catalog.tables import BOUNDS, COVERS, FILES, TAILS, KeyRows, Rows, parts_with_keys
from intarsia.errors import FormatError
from intarsia.file.embedded_indexes import may_answer
from intarsia.file.index_subjects import subject_of
from intarsia.file.open_file import OpenedFile
from intarsia.file.read_options import ReadOptions
from intarsia.index.base import Inverted, Subject
from intarsia.index.key_formula import (
    FingerprintArray,
    Formula,
    GranuleMask,
    Granules,
    Keys,
    granules_of,
    leaves_of,
)
from intarsia.index.registry import known_version, make
from intarsia.io.source import EndSource, Source
from intarsia.io.storage import FileSource
from intarsia.parquet.statistics import Bounds
from intarsia.plan.file_group import FileGroup
from intarsia.plan.stored_columns import missing_columns
from intarsia.process_state import ForkLock, cached_property
from intarsia.pruning.bounds_comparison import rows_might_match
from intarsia.pruning.partition_pruning import Constants, constants_might_match
from intarsia.pruning.predicates import Comparison, Predicate, rows_left
from intarsia.row_ranges import Int64Array, RowRanges, distinct
from intarsia.scan.request import Request

BoolArray = NDArray[np.bool_]
Identity = tuple[int, int | None]
"""Identity of a file in a listing: its size in bytes, and its time of change in nanoseconds.

Storage that lists entity tags has a hash of the tag instead of the time.
"""
_MAX_PROBED_BYTES = 32 * 1024 * 1024
"""Bytes of keys that one predicate may read. Beyond that, the files' own indexes are used."""
_MAX_CACHED_TAIL_PAGES, _MAX_CACHED_KEY_PARTS = 8, 64
"""Pages and tables cached for each segment, so that memory stays bounded."""
_MAX_COMMON_KEY_BYTES = 1024 * 1024
"""Bytes of all keys of a segment that are read early. A request takes as long as a megabyte."""


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """The ``n`` files of a segment. Every array has shape ``(n,)``.

    ``sizes`` are in bytes, ``mtimes`` in nanoseconds. ``schema_groups`` are numbers.
    """

    paths: list[str]
    sizes: Int64Array
    mtimes: Int64Array
    stamps: list[str | None]
    rows: Int64Array
    row_groups: Int64Array
    schema_groups: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Covered:
    """The ``c`` files that have an index, and the end of each file's granules: shape ``(c,)``."""

    files: Int64Array
    stops: Int64Array

    @property
    def num_granules(self) -> int:
        return int(self.stops[-1]) if len(self.stops) else 0

    def files_of(self, granules: GranuleMask) -> Int64Array:
        """Returns the files with any granule in the mask, sorted and distinct."""
        return distinct(
            self.files[np.searchsorted(self.stops, np.flatnonzero(granules), side="right")]
        )


class SegmentReader:
    """An opened segment. Methods raise ``FormatError`` or ``PathError`` if tables are damaged."""

    def __init__(
        self, segment: Segment, source_of: Callable[[Table], Source], options: ReadOptions
    ) -> None:
        self.segment, self._find_source, self._options = segment, source_of, options
        self._sources: dict[str, Source] = {}
        self._lock = ForkLock()
        self._rows: dict[str, Rows] = {}
        self._exemplars: dict[int, OpenedFile] = {}
        self._pages: OrderedDict[tuple[int, int], list[bytes]] = OrderedDict()
        self._key_rows: dict[str, KeyRows] = {}
        self._kinds: dict[int, tuple[Inverted, Subject] | None] = {}
        self._columns: dict[int, pa.Table] = {}
        self._bounds: dict[tuple[tuple[str, ...], int], tuple[Int64Array, Bounds]] = {}
        self._covered: dict[int, Covered] = {}

    @property
    def num_files(self) -> int:
        return self.segment.num_files

    @property
    def kept_bytes(self) -> int:
        """Stored bytes of tables that stay in memory; tables of keys count by metadata."""
        segment = self.segment
        keys = sum(part.table.meta_length for index in segment.keys for part in index.parts)
        return segment.files.size + segment.bounds.size + segment.covers.size + keys

    def suspend(self) -> None:
        """Closes file handles. The next read opens them again."""
        for source in list(self._sources.values()):
            if isinstance(source, FileSource):
                source.suspend()

    @property
    def common_tables(self) -> list[Table]:
        """The tables that most queries read. Keys are among them if all of them are small."""
        segment = self.segment
        tails = [part.table for part in segment.tails[:1]]
        keys = [part.table for index in segment.keys for part in index.parts]
        if sum(table.size for table in keys) > _MAX_COMMON_KEY_BYTES:
            keys = []
        return [segment.files, segment.bounds, segment.covers, *tails, *keys]

    def open(self, table: Table) -> None:
        """Opens a table of the segment, and reads a small one."""
        self._source_of(table)

    def _source_of(self, table: Table) -> Source:
        source = self._sources.get(table.name)
        if source is None:
            source = self._sources[table.name] = self._find_source(table)
        return source

    def _table(self, table: Table, schema: pa.Schema) -> Rows:
        if table.name not in self._rows:
            self._rows[table.name] = Rows(self._source_of(table), table, schema)
        return self._rows[table.name]

    @cached_property
    def listed(self) -> Listed:
        """The files of the segment."""
        table = self._table(self.segment.files, FILES).columns_of(FILES.names)
        if any(table.column(name).null_count for name in FILES.names if name != "stamp"):
            raise FormatError("the catalog's list of files is incomplete")
        schema_groups = table.column("form").to_numpy().astype(np.int64)
        if len(schema_groups) and schema_groups.max() >= len(self.segment.forms):
            raise FormatError("the catalog has a file of a schema group that does not exist")
        numbers = {n: table.column(n).to_numpy() for n in ("size", "mtime", "rows", "row_groups")}
        return Listed(
            table.column("path").to_pylist(),
            numbers["size"],
            numbers["mtime"],
            table.column("stamp").to_pylist(),
            numbers["rows"],
            numbers["row_groups"],
            schema_groups,
        )

    @cached_property
    def identities(self) -> list[Identity]:
        """The identity of each file for which the segment is valid."""
        listed = self.listed
        return list(zip(listed.sizes.tolist(), listed.mtimes.tolist(), strict=True))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each file by its path, without ``paths_outside``."""
        return {path: i for i, path in enumerate(self.listed.paths) if _is_inside(path)}

    @cached_property
    def paths_outside(self) -> list[str]:
        """Paths that lead out of the data set's folder. They are ignored."""
        return [path for path in self.listed.paths if path not in self.numbers]

    # --- ends of files --------------------------------------------------------------------------

    def tail(self, number: int) -> bytes:
        """Returns the end of a file with its footer; ``b""`` if it was too long to store."""
        parts = self.segment.tails
        index = int(np.searchsorted([part.first for part in parts], number, side="right")) - 1
        rows = self._table(parts[index].table, TAILS)
        row = np.array([number - parts[index].first], dtype=np.int64)
        (page,) = rows.pages_with(row).tolist()
        page_key = index, page
        with self._lock:
            tails_on_page = self._pages.get(page_key)
        if tails_on_page is None:
            tails_on_page = rows.columns_of(["tail"], np.array([page])).column("tail").to_pylist()
            with self._lock:
                self._pages[page_key] = tails_on_page
                while len(self._pages) > _MAX_CACHED_TAIL_PAGES:
                    self._pages.popitem(last=False)
        first = int(rows.rows_on(np.array([page]))[0])
        return tails_on_page[int(row[0]) - first] or b""

    def exemplar(self, schema_group: int) -> OpenedFile:
        """Returns one file of a schema group. Only its end can be read."""
        if schema_group not in self._exemplars:
            number = self.segment.forms[schema_group].exemplar
            tail, size = self.tail(number), int(self.listed.sizes[number])
            source = EndSource(size, memoryview(tail))
            file = OpenedFile(source, "the catalog", len(tail), options=self._options)
            self._exemplars[schema_group] = file
        return self._exemplars[schema_group]

    # --- pruning --------------------------------------------------------------------------------

    def might_match(
        self, numbers: Int64Array, schema_group: int, constants: Constants, request: Request
    ) -> Int64Array:
        """Returns the files among ``numbers``, ascending, that might have matching rows."""
        group = FileGroup([self.exemplar(schema_group)], [constants], request.schema)
        by_bounds = functools.cache(partial(self._by_bounds, group, schema_group))
        files = rows_left(request.pruning, RowRanges.from_rows(numbers), by_bounds)
        if files.num_rows > 1:
            by_keys = partial(self._by_keys, group, schema_group, by_bounds)
            files = rows_left(request.pruning, files, by_keys)
        return files.rows()

    def _by_bounds(self, group: FileGroup, schema_group: int, predicate: Predicate) -> RowRanges:
        """Returns the files in which a row might pass, by schema and bounds."""
        missing = missing_columns(group.file, [predicate], group.constants[0], group.schema)
        if not constants_might_match(predicate, missing):
            return RowRanges.none()
        for test, leaf in group.leaves([predicate]).items():
            return RowRanges.from_mask(self.bounds_verdict(test, leaf.path, schema_group))
        return RowRanges.all(self.num_files)

    def _by_keys(
        self,
        group: FileGroup,
        schema_group: int,
        by_bounds: Callable[[Predicate], RowRanges],
        predicate: Predicate,
    ) -> RowRanges:
        """Returns the files in which a row might pass, by schema, bounds and keys."""
        files = by_bounds(predicate)
        for number, index in enumerate(self.segment.keys) if files else ():
            known = self.kind(number) if index.form == schema_group else None
            if known is None or known[1].term != predicate.term:
                continue
            if not (may_answer(*known, predicate) and group.values_agree(predicate.term)):
                continue
            formula = known[0].keys_for(predicate, known[1])
            might_match = None if formula is None else self.keys_verdict(number, formula)
            if might_match is not None:
                files &= RowRanges.from_mask(might_match)
        return files

    def bounds_verdict(
        self, test: Comparison, path: tuple[str, ...], schema_group: int
    ) -> BoolArray:
        """Returns a mask of files whose bounds allow ``test``. Other schema groups are True."""
        might_match = np.ones(self.num_files, dtype=np.bool_)
        if path not in self.segment.leaves:
            return might_match
        if (path, schema_group) not in self._bounds:
            self._bounds[path, schema_group] = self._bounds_in(path, schema_group)
        files, bounds = self._bounds[path, schema_group]
        might_match[files] = rows_might_match(test, bounds)
        return might_match

    def _bounds_in(self, path: tuple[str, ...], schema_group: int) -> tuple[Int64Array, Bounds]:
        """Returns the files of one schema group that have bounds of a column, and the bounds."""
        rows = self.bounds_of(self.segment.leaves.index(path))
        files = rows.column("file").to_numpy().astype(np.int64)
        if len(files) and files.max() >= self.num_files:
            raise FormatError("the catalog has bounds of a file that does not exist")
        in_group = self.listed.schema_groups[files] == schema_group
        rows, files = rows.filter(pa.array(in_group)), files[in_group]
        order = self.exemplar(schema_group).order(self._leaf_number(path, schema_group))
        low, low_usable = order.keys(rows.column("low").to_pylist())
        high, high_usable = order.keys(rows.column("high").to_pylist())
        bounded = low_usable & high_usable & np.asarray(low <= high, dtype=np.bool_)
        flags_and_counts = (rows.column(name).to_numpy() for name in ("all_null", "nulls", "nans"))
        return files, Bounds(order, low, high, bounded, *flags_and_counts)

    def _leaf_number(self, path: tuple[str, ...], schema_group: int) -> int:
        leaves = self.exemplar(schema_group).schema.leaves
        return next(leaf.index for leaf in leaves if leaf.path == path)

    def bounds_of(self, leaf: int) -> pa.Table:
        """Returns the rows of the ``bounds`` table for column number ``leaf``."""
        if leaf not in self._columns:
            names = BOUNDS.names[1:]
            rows = self._table(self.segment.bounds, BOUNDS).where("leaf", leaf, names)
            if any(rows.column(n).null_count for n in ("file", "all_null", "nulls", "nans")):
                raise FormatError("the catalog's bounds are incomplete")
            self._columns[leaf] = rows
        return self._columns[leaf]

    def kind(self, number: int) -> tuple[Inverted, Subject] | None:
        """Returns the kind and the subject of an index; None if it cannot be used here."""
        if number not in self._kinds:
            index = self.segment.keys[number]
            self._kinds[number] = None
            if known_version(index.kind) == index.kind_version:
                kind = make(index.kind, index.on, index.params)
                if has_fingerprints(kind):
                    subject = subject_of(self.exemplar(index.form).columns, kind, index.meaning)
                    self._kinds[number] = kind, subject
        return self._kinds[number]

    def covered(self, number: int) -> Covered:
        """Returns the files that have the index with this number."""
        if number not in self._covered:
            rows = self._table(self.segment.covers, COVERS)
            cover_rows = rows.where("index", number, COVERS.names[1:])
            files = cover_rows.column("file").to_numpy().astype(np.int64)
            counts = cover_rows.column("granules").to_numpy()
            stops = np.cumsum(counts)
            if len(files) and (
                files.max() >= self.num_files or counts.min() < 0 or stops[-1] >= 1 << 32
            ):
                raise FormatError(
                    "the catalog has an index of files that do not exist, or too many granules"
                )
            self._covered[number] = Covered(files, stops)
        return self._covered[number]

    def keys_verdict(self, number: int, formula: Formula) -> BoolArray | None:
        """Returns a mask of files that satisfy ``formula``; None if unknown or costly."""
        leaves = leaves_of(formula)
        if not all(isinstance(leaf, Keys) for leaf in leaves):
            return None
        covered, index = self.covered(number), self.segment.keys[number]
        requested_keys = distinct(
            np.concatenate(
                [np.empty(0, np.uint32), *(each.keys for each in leaves if isinstance(each, Keys))]
            )
        )
        matching = self._entries(index, requested_keys, covered.num_granules)
        if matching is None:
            return None
        keys, granules = matching

        def mask_of(leaf: Keys) -> GranuleMask:
            matching = np.zeros(covered.num_granules, dtype=np.bool_)
            matching[granules[np.isin(keys, leaf.keys)]] = True
            return matching

        might_match = np.ones(self.num_files, dtype=np.bool_)
        might_match[covered.files] = False
        passed = granules_of(formula, mask_of, covered.num_granules)
        might_match[covered.files_of(passed)] = True
        return might_match

    def _entries(
        self, index: KeyTable, requested_keys: FingerprintArray, num_granules: int
    ) -> tuple[FingerprintArray, Granules] | None:
        low = np.array([part.low for part in index.parts], dtype=np.int64)
        high = np.array([part.high for part in index.parts], dtype=np.int64)
        if (low > high).any() or (high[:-1] > low[1:]).any():
            raise FormatError("the catalog's parts of keys are not sorted")
        tables = (
            [index.parts[i].table for i in parts_with_keys(low, high, requested_keys)]
            if len(low)
            else []
        )
        parts = [self.part(table, num_granules) for table in tables]
        if sum(part.bytes_for(requested_keys) for part in parts) > _MAX_PROBED_BYTES:
            return None
        matching = [part.holding(requested_keys) for part in parts]
        no_entries = np.empty(0, np.uint32)
        keys = np.concatenate([no_entries, *(keys for keys, _ in matching)])
        return keys, np.concatenate([no_entries, *(granules for _, granules in matching)])

    def part(self, table: Table, num_granules: int) -> KeyRows:
        """Returns an opened ``keys`` table of an index with ``num_granules`` granules."""
        rows = self._key_rows.get(table.name)
        if rows is None:
            rows = KeyRows(self._source_of(table), table, num_granules)
            with self._lock:
                if len(self._key_rows) >= _MAX_CACHED_KEY_PARTS:
                    for name in self._key_rows:
                        self._sources.pop(name, None)
                    self._key_rows.clear()
                self._key_rows[table.name] = rows
        return rows


def has_fingerprints(kind: object) -> TypeGuard[Inverted]:
    """True if a catalog stores the keys of this kind: selective fingerprints."""
    return isinstance(kind, Inverted) and not kind.exact and kind.reading_share is None


def _is_inside(path: str) -> bool:
    """True if the path is relative and stays in the folder that it is relative to."""
    return not {"", ".", ".."} & set(path.split("/")) and "\0" not in path
