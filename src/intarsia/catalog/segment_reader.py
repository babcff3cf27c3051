"""Which files of one segment of a catalog might match, told without opening any of them.

Bounds come first, then the tables of keys. What a file's own footer would say of a test is asked of
an *exemplar*, a file of the same schema whose end the catalog holds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.catalog.manifest import KeyTable, Segment, Table
from intarsia.catalog.tables import BOUNDS, COVERS, FILES, TAILS, KeyRows, Rows, hit
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
from intarsia.index.section.writer import distinct
from intarsia.io.source import EndSource, Source
from intarsia.io.storage import FileSource
from intarsia.parquet.statistics import Bounds
from intarsia.process_state import ForkLock, cached_property
from intarsia.pruning.bounds_comparison import rows_might_match
from intarsia.pruning.partition_pruning import Constants, constants_might_match
from intarsia.pruning.predicates import Predicate, Test
from intarsia.pruning.prune import rows_left
from intarsia.row_ranges import Int64Array, RowRanges
from intarsia.scan.file_planner import leaf_of, missing_columns, values_agree
from intarsia.scan.request import Request

BoolArray = NDArray[np.bool_]
_MOST_PROBED = 32 * 1024 * 1024
"""Bytes of keys that one test may have read; where it takes more, files are asked themselves."""
_KEPT_PAGES, _KEPT_PARTS = 8, 64


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """The files of a segment; every array has shape ``(n,)``. ``mtimes`` are in nanoseconds."""

    paths: list[str]
    sizes: Int64Array
    mtimes: Int64Array
    stamps: list[str | None]
    rows: Int64Array
    row_groups: Int64Array
    forms: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Covered:
    """The ``c`` files that have an index, and where the granules of each end: shape ``(c,)``."""

    files: Int64Array
    stops: Int64Array

    @property
    def num_granules(self) -> int:
        return int(self.stops[-1]) if len(self.stops) else 0

    def files_of(self, granules: GranuleMask) -> Int64Array:
        """The files that the granules meant are in, sorted and distinct."""
        return np.unique(
            self.files[np.searchsorted(self.stops, np.flatnonzero(granules), side="right")]
        )


class SegmentReader:
    """An opened segment. All methods raise ``FormatError`` or ``PathError`` for damaged tables."""

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
        """Bytes of the tables that are held in memory once they are read, as they are stored.

        That is without the few pages of ends of files, and of keys the metadata.
        """
        segment = self.segment
        keys = sum(part.table.meta_length for index in segment.keys for part in index.parts)
        return segment.files.size + segment.bounds.size + segment.covers.size + keys

    def rest(self) -> None:
        """Let go of handles until something is read again."""
        for source in list(self._sources.values()):
            if isinstance(source, FileSource):
                source.rest()

    def _source_of(self, table: Table) -> Source:
        source = self._sources[table.name] = self._find_source(table)
        return source

    def _table(self, table: Table, schema: pa.Schema) -> Rows:
        if table.name not in self._rows:
            self._rows[table.name] = Rows(self._source_of(table), table, schema)
        return self._rows[table.name]

    @cached_property
    def listed(self) -> Listed:
        """Its files."""
        table = self._table(self.segment.files, FILES).columns_of(FILES.names)
        if any(table.column(name).null_count for name in FILES.names if name != "stamp"):
            raise FormatError("the catalog does not say all of a file")
        forms = table.column("form").to_numpy().astype(np.int64)
        if len(forms) and forms.max() >= len(self.segment.forms):
            raise FormatError("the catalog has a file of a form that it does not have")
        numbers = {n: table.column(n).to_numpy() for n in ("size", "mtime", "rows", "row_groups")}
        return Listed(
            table.column("path").to_pylist(),
            numbers["size"],
            numbers["mtime"],
            table.column("stamp").to_pylist(),
            numbers["rows"],
            numbers["row_groups"],
            forms,
        )

    # --- ends of files --------------------------------------------------------------------------

    def tail(self, number: int) -> bytes:
        """The end of a file, its footer included; nothing where that was too long to keep."""
        tails = self.segment.tails
        at = int(np.searchsorted([part.first for part in tails], number, side="right")) - 1
        rows = self._table(tails[at].table, TAILS)
        row = np.array([number - tails[at].first], dtype=np.int64)
        (page,) = rows.pages_with(row).tolist()
        id_ = at, page
        with self._lock:
            found = self._pages.get(id_)
        if found is None:
            found = rows.columns_of(["tail"], np.array([page])).column("tail").to_pylist()
            with self._lock:
                self._pages[id_] = found
                while len(self._pages) > _KEPT_PAGES:
                    self._pages.popitem(last=False)
        first = int(rows.rows_on(np.array([page]))[0])
        return found[int(row[0]) - first] or b""

    def exemplar(self, form: int) -> OpenedFile:
        """A file of that form, of which there is no more than its end."""
        if form not in self._exemplars:
            number = self.segment.forms[form].exemplar
            tail, size = self.tail(number), int(self.listed.sizes[number])
            source = EndSource(size, memoryview(tail))
            made = OpenedFile(source, "the catalog", len(tail), options=self._options)
            self._exemplars[form] = made
        return self._exemplars[form]

    # --- pruning --------------------------------------------------------------------------------

    def might_match(
        self, numbers: Int64Array, form: int, constants: Constants, request: Request
    ) -> Int64Array:
        """Those of the files ``numbers``, ascending and of one form, that might hold matching rows.

        ``constants`` are the columns that folders fix; only their names count.
        """
        question = _Question(self, form, constants, request)
        files = rows_left(request.pruning, RowRanges.from_rows(numbers), question.by_bounds)
        if files.num_rows > 1:
            files = rows_left(request.pruning, files, question.by_keys)
        return files.rows()

    def bounds_verdict(self, test: Test, path: tuple[str, ...], form: int) -> BoolArray:
        """For each file: might a row pass, as far as its bounds tell? True for other forms."""
        might = np.ones(self.num_files, dtype=np.bool_)
        if path not in self.segment.leaves:
            return might
        if (path, form) not in self._bounds:
            self._bounds[path, form] = self._bounds_in(path, form)
        files, bounds = self._bounds[path, form]
        might[files] = rows_might_match(test, bounds)
        return might

    def _bounds_in(self, path: tuple[str, ...], form: int) -> tuple[Int64Array, Bounds]:
        """Files of one form, and the bounds of a column in them."""
        found = self.bounds_of(self.segment.leaves.index(path))
        files = found.column("file").to_numpy().astype(np.int64)
        if len(files) and files.max() >= self.num_files:
            raise FormatError("the catalog has bounds of a file that it does not have")
        mine = self.listed.forms[files] == form
        found, files = found.filter(pa.array(mine)), files[mine]
        order = self.exemplar(form).order(self._leaf_number(path, form))
        low, low_usable = order.keys(found.column("low").to_pylist())
        high, high_usable = order.keys(found.column("high").to_pylist())
        bounded = low_usable & high_usable & np.asarray(low <= high, dtype=np.bool_)
        rest = (found.column(name).to_numpy() for name in ("all_null", "nulls", "nans"))
        return files, Bounds(order, low, high, bounded, *rest)

    def _leaf_number(self, path: tuple[str, ...], form: int) -> int:
        leaves = self.exemplar(form).schema.leaves
        return next(leaf.index for leaf in leaves if leaf.path == path)

    def bounds_of(self, leaf: int) -> pa.Table:
        """The rows of a column, by its number, without that."""
        if leaf not in self._columns:
            names = BOUNDS.names[1:]
            found = self._table(self.segment.bounds, BOUNDS).where("leaf", leaf, names)
            if any(found.column(n).null_count for n in ("file", "all_null", "nulls", "nans")):
                raise FormatError("the catalog's bounds are incomplete")
            self._columns[leaf] = found
        return self._columns[leaf]

    def kind(self, number: int) -> tuple[Inverted, Subject] | None:
        """What an index is, and what it is on; None where it cannot be used here."""
        if number not in self._kinds:
            index = self.segment.keys[number]
            self._kinds[number] = None
            if known_version(index.kind) == index.kind_version:
                kind = make(index.kind, index.on, index.params)
                if has_fingerprints(kind):
                    of = subject_of(self.exemplar(index.form).columns, kind, index.meaning)
                    self._kinds[number] = kind, of
        return self._kinds[number]

    def covered(self, number: int) -> Covered:
        """The files that have an index, by its number."""
        if number not in self._covered:
            rows = self._table(self.segment.covers, COVERS)
            found = rows.where("index", number, COVERS.names[1:])
            files = found.column("file").to_numpy().astype(np.int64)
            counts = found.column("granules").to_numpy()
            stops = np.cumsum(counts)
            if len(files) and (
                files.max() >= self.num_files or counts.min() < 0 or stops[-1] >= 1 << 32
            ):
                raise FormatError("the catalog has an index of files that it does not have")
            self._covered[number] = Covered(files, stops)
        return self._covered[number]

    def keys_verdict(self, number: int, formula: Formula) -> BoolArray | None:
        """For each file: does it hold the keys of ``formula``, or lack the index?

        None where that cannot be told, or takes more reading than it may save.
        """
        asked = leaves_of(formula)
        if not all(isinstance(leaf, Keys) for leaf in asked):
            return None
        covered, index = self.covered(number), self.segment.keys[number]
        wanted = distinct(
            np.concatenate(
                [np.empty(0, np.uint32), *(x.keys for x in asked if isinstance(x, Keys))]
            )
        )
        found = self._entries(index, wanted, covered.num_granules)
        if found is None:
            return None
        keys, granules = found

        def held(leaf: Keys) -> GranuleMask:
            found = np.zeros(covered.num_granules, dtype=np.bool_)
            found[granules[np.isin(keys, leaf.keys)]] = True
            return found

        might = np.ones(self.num_files, dtype=np.bool_)
        might[covered.files] = False
        passed = granules_of(formula, held, covered.num_granules)
        might[covered.files_of(passed)] = True
        return might

    def _entries(
        self, index: KeyTable, wanted: FingerprintArray, num_granules: int
    ) -> tuple[FingerprintArray, Granules] | None:
        low = np.array([part.low for part in index.parts], dtype=np.int64)
        high = np.array([part.high for part in index.parts], dtype=np.int64)
        if (low > high).any() or (high[:-1] > low[1:]).any():
            raise FormatError("the catalog's parts of keys are not sorted")
        chosen = [index.parts[i].table for i in hit(low, high, wanted)] if len(low) else []
        parts = [self.part(table, num_granules) for table in chosen]
        if sum(part.bytes_for(wanted) for part in parts) > _MOST_PROBED:
            return None
        found = [part.holding(wanted) for part in parts]
        none = np.empty(0, np.uint32)
        keys = np.concatenate([none, *(keys for keys, _ in found)])
        return keys, np.concatenate([none, *(granules for _, granules in found)])

    def part(self, table: Table, num_granules: int) -> KeyRows:
        """One part of the keys of an index that has so many granules."""
        found = self._key_rows.get(table.name)
        if found is None:
            found = KeyRows(self._source_of(table), table, num_granules)
            with self._lock:
                if len(self._key_rows) >= _KEPT_PARTS:
                    for name in self._key_rows:
                        self._sources.pop(name, None)
                    self._key_rows.clear()
                self._key_rows[table.name] = found
        return found


def has_fingerprints(kind: object) -> TypeGuard[Inverted]:
    """Is it of a kind whose keys a catalog gathers: fingerprints, each of which tells much?"""
    return isinstance(kind, Inverted) and not kind.exact and kind.reading_share is None


class _Question:
    """A query over files of one form, in folders of the same keys."""

    def __init__(
        self, reader: SegmentReader, form: int, constants: Constants, request: Request
    ) -> None:
        file = reader.exemplar(form)
        self._reader, self._form, self._schema = reader, form, request.schema
        self._missing = missing_columns(file, request.pruning, constants, request.schema)
        self._constants = {**constants, **self._missing}
        self._all = RowRanges.all(reader.num_files)
        self._known: dict[tuple[Predicate, bool], RowRanges] = {}

    def by_bounds(self, test: Predicate) -> RowRanges:
        """The files in which a row might pass, as far as schema and bounds tell."""
        return self._once(test, False)

    def by_keys(self, test: Predicate) -> RowRanges:
        """Likewise, as far as keys tell as well."""
        return self._once(test, True)

    def _once(self, test: Predicate, with_keys: bool) -> RowRanges:
        id_ = test, with_keys
        if id_ not in self._known:
            found = self._by_bounds(test)
            if with_keys and found:
                found &= self._by_keys(test)
            self._known[id_] = found
        return self._known[id_]

    def _by_bounds(self, test: Predicate) -> RowRanges:
        file = self._reader.exemplar(self._form)
        if not constants_might_match(test, self._missing):
            return RowRanges.none()
        leaf = leaf_of(file, test, self._constants, self._schema)
        if leaf is None or not isinstance(test, Test):
            return self._all
        return RowRanges.from_mask(self._reader.bounds_verdict(test, leaf.path, self._form))

    def _by_keys(self, test: Predicate) -> RowRanges:
        reader, file = self._reader, self._reader.exemplar(self._form)
        files = self._all
        for number, index in enumerate(reader.segment.keys):
            known = reader.kind(number) if index.form == self._form else None
            if known is None or known[1].term != test.term or not may_answer(*known, test):
                continue
            if not values_agree(file, test.term, self._constants, self._schema):
                continue
            formula = known[0].keys_for(test, known[1])
            might = None if formula is None else reader.keys_verdict(number, formula)
            if might is not None:
                files &= RowRanges.from_mask(might)
        return files


def in_order(numbers: Sequence[int]) -> Int64Array:
    """File numbers as ``might_match`` takes them."""
    return np.sort(np.array(numbers, dtype=np.int64))
