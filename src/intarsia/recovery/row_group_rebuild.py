"""Rebuilds row groups from pages that no footer lists.

A row group is one chunk of each column after the other, all with the same number of rows. A chunk
is an optional dictionary page, followed by data pages. A chunk ends before the next dictionary,
before a page that can only be another column's, or at the only place where row counts match. All
possible readings of the pages are considered. A row group is rebuilt only if all readings agree on
it, so no row is ever put together from pieces of several rows.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from intarsia.errors import FormatError
from intarsia.file.chunk_reader import RUN_BYTES
from intarsia.parquet.metadata import (
    DICTIONARY_ENCODINGS,
    ColumnChunk,
    ColumnMetaData,
    Encoding,
    PageType,
    RowGroup,
    Type,
)
from intarsia.parquet.schema import Leaf
from intarsia.parquet.thrift import encode
from intarsia.recovery.footer_check import SavedGroup
from intarsia.recovery.torn_pages import TornPages

_ANY = frozenset(Type)
_FIXED = frozenset({Type.INT32, Type.INT64, Type.FLOAT, Type.DOUBLE, Type.FIXED_LEN_BYTE_ARRAY})
_TYPES: Mapping[int, frozenset[Type]] = {
    Encoding.PLAIN: _ANY,
    Encoding.PLAIN_DICTIONARY: _ANY - {Type.BOOLEAN},
    Encoding.RLE_DICTIONARY: _ANY - {Type.BOOLEAN},
    Encoding.RLE: frozenset({Type.BOOLEAN}),
    Encoding.BIT_PACKED: frozenset({Type.BOOLEAN}),
    Encoding.DELTA_BINARY_PACKED: frozenset({Type.INT32, Type.INT64}),
    Encoding.DELTA_LENGTH_BYTE_ARRAY: frozenset({Type.BYTE_ARRAY}),
    Encoding.DELTA_BYTE_ARRAY: frozenset({Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY}),
    Encoding.BYTE_STREAM_SPLIT: _FIXED,
}
"""The physical types that may have an encoding."""
_LOOKAHEAD_ROW_GROUPS = 4
"""A reading is dropped if the pages behind it cannot be read as up to this many row groups."""
_MAX_STEPS, _MAX_STEPS_PER_PAGE = 200_000, 32
"""Limit of the search: pages added to a run, and lookups in runs. Columns that differ take 3 a
page."""
_MAX_PAGES_AHEAD = 1024
"""Pages that are decoded at once, at most."""


class _Uncertain(Exception):  # noqa: N818 # a signal, caught below
    """Raised if not all readings can be considered, so no row group is certain."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """One possible row group: pages ``[stops[i - 1], stops[i])`` are column ``i``'s."""

    rows: int
    stops: tuple[int, ...]

    @property
    def stop(self) -> int:
        return self.stops[-1]


@dataclass(slots=True)
class _Run:
    """Pages from ``start`` on that one chunk can hold, as far as they were needed."""

    start: int
    rows: list[int] = field(default_factory=list)
    """Rows up to the end of each page."""
    is_complete: bool = False

    @property
    def stop(self) -> int:
        return self.start + len(self.rows)


@dataclass(slots=True)
class Rebuilt:
    """The rebuilt row groups, the page behind them, and why there are no more."""

    groups: list[SavedGroup] = field(default_factory=list)
    next_page: int = 0
    reason: str = ""
    rows_begun: int = 0
    """Rows that the first column has in the pages behind: at least as many were being written."""


class Rebuilder:
    """Rebuilds row groups from the pages ``[first, stop)`` of ``torn``.

    ``codecs`` has each column's codec. ``breaks`` are numbers of pages that certainly begin a row
    group, and ``chunk_ends`` of pages that certainly begin a chunk. Both may include ``stop``.
    ``is_end`` is True if the last row group was finished.
    """

    def __init__(
        self,
        torn: TornPages,
        codecs: Sequence[int],
        pages: tuple[int, int],
        breaks: set[int],
        chunk_ends: set[int],
        is_end: bool,
    ) -> None:
        self._torn, self._codecs, self._breaks, self._is_end = torn, codecs, breaks, is_end
        self._ends = breaks | chunk_ends
        self._first, self._stop = pages
        self._is_chunk_end = is_end or self._stop in self._ends
        self._leaves = torn.schema.leaves
        kinds: dict[object, int] = {}
        self._kinds = [kinds.setdefault(self._kind_of(leaf), len(kinds)) for leaf in self._leaves]
        """A number for each column. Columns that decode the same pages share it."""
        self._of_kinds = dict(zip(self._kinds, self._leaves, strict=True))
        self._is_decodable = {kind: np.full(self._stop, -1, np.int8) for kind in self._of_kinds}
        """For each page: 1 if it can be decoded as the kind's, 0 if not, −1 if not known yet."""
        self._runs: dict[int, list[_Run]] = {kind: [] for kind in self._of_kinds}
        """By the page at which they start."""
        self._known_readings: dict[int, tuple[list[_Reading], bool]] = {}
        self._steps_left = _MAX_STEPS + _MAX_STEPS_PER_PAGE * (self._stop - self._first)
        self._pages_ahead = dict.fromkeys(self._of_kinds, 1)
        """Pages to decode at once next time, by kind."""

    def _kind_of(self, leaf: Leaf) -> object:
        elements = [self._torn.schema.elements[i] for i in leaf.elements]
        nesting = tuple(element.repetition_type for element in elements)
        return leaf.element.type, leaf.element.type_length, nesting, self._codecs[leaf.index]

    def run(self) -> Rebuilt:
        """Returns the certain row groups from the first page on, up to the first uncertain one."""
        rebuilt = Rebuilt(next_page=self._first)
        while rebuilt.next_page < self._stop:
            try:
                reading, reason = self._certain(rebuilt.next_page)
            except _Uncertain as problem:
                reading, reason = None, str(problem)
            if reading is None:
                rebuilt.reason = reason
                rebuilt.rows_begun = self._rows_begun(rebuilt.next_page)
                break
            rebuilt.groups.append(self._group(rebuilt.next_page, reading))
            rebuilt.next_page = reading.stop
        return rebuilt

    def _certain(self, at: int) -> tuple[_Reading | None, str]:
        if len(self._leaves) == 1:
            return self._only_column(at)
        readings, unfinished = self._readings(at)
        if unfinished:
            if readings:
                return None, "columns cannot be told apart: the row group may be unfinished"
            return None, "the row group was not finished"
        possible = (one for one in readings if self._leads_on(one.stop, _LOOKAHEAD_ROW_GROUPS))
        first, second = next(possible, None), next(possible, None)
        if second is not None:
            return None, "columns cannot be told apart: there are several ways to"
        return first, "" if first else "the pages do not form a row group of these columns"

    def _only_column(self, at: int) -> tuple[_Reading | None, str]:
        """Returns the pages up to a boundary as one row group: rows stay complete."""
        leaf = self._leaves[0]
        run = self._whole_run(leaf, at)
        stop, rows = run.stop, run.rows[-1] if run.rows else 0
        if not self._is_boundary(stop):
            return None, "a page that cannot be decoded as the column's"
        if stop == at or not rows:
            return None, "a dictionary without data"
        if stop == self._stop and not self._is_chunk_end and self._may_go_on(leaf, stop - 1):
            return None, "the last row may continue in a lost page"
        return _Reading(rows, (stop,)), ""

    def _readings(self, at: int) -> tuple[list[_Reading], bool]:
        """Returns the row groups that may begin at ``at``, and if one may be unfinished."""
        known = self._known_readings.get(at)
        if known is not None:
            return known
        readings: dict[int, _Reading] = {}
        may_be_unfinished = False
        leaf, page = self._leaves[0], at
        run = self._run(leaf, at)
        while page < run.stop or self._grow(leaf, run):
            rows = run.rows[page - run.start] - self._rows_before(run, at)
            page += 1
            if not self._torn.pages.is_data[page - 1] or not rows:
                continue
            stops, is_cut = self._others(page, rows)
            may_be_unfinished |= is_cut
            if stops is not None:
                readings[stops[-1]] = _Reading(rows, (page, *stops))
        may_be_unfinished |= not self._is_end and run.stop == self._stop
        self._known_readings[at] = list(readings.values()), may_be_unfinished
        return self._known_readings[at]

    def _others(self, at: int, rows: int) -> tuple[tuple[int, ...] | None, bool]:
        """Returns where the other columns end, or None; and if lost pages might follow."""
        stops = []
        for leaf in self._leaves[1:]:
            stop, is_cut = self._chunk(leaf, at, rows)
            if stop is None:
                return None, is_cut
            at = stop
            stops.append(stop)
        at_end = at == self._stop and not self._is_chunk_end
        return tuple(stops), at_end and self._may_go_on(self._leaves[-1], at - 1)

    def _chunk(self, leaf: Leaf, at: int, rows: int) -> tuple[int | None, bool]:
        """Returns where the chunk ends, or None, and whether lost pages might complete it."""
        if at >= self._stop:
            return None, not self._is_end
        if at in self._breaks:
            return None, False
        self._step()
        run = self._run(leaf, at)
        rows += self._rows_before(run, at)
        while (not run.rows or run.rows[-1] <= rows) and self._grow(leaf, run):
            pass
        stop = run.start + bisect_right(run.rows, rows)
        if stop > at and run.rows[stop - 1 - run.start] == rows:
            return (None if stop < run.stop and self._continues(leaf, stop) else stop), False
        return None, stop == self._stop and not self._is_chunk_end

    def _run(self, leaf: Leaf, at: int) -> _Run:
        """Returns the run that has page ``at``. A run from a dictionary on serves one chunk."""
        runs = self._runs[self._kinds[leaf.index]]
        place = bisect_right(runs, at, key=lambda run: run.start)
        if place:
            run = runs[place - 1]
            if run.start == at or (at < run.stop and not self._torn.pages.is_dictionary[run.start]):
                return run
        runs.insert(place, _Run(at))
        return runs[place]

    def _rows_before(self, run: _Run, at: int) -> int:
        """Returns the rows that a run has before page ``at``."""
        return run.rows[at - run.start - 1] if at > run.start else 0

    def _grow(self, leaf: Leaf, run: _Run) -> bool:
        """Adds the next page to a run. Returns False if no chunk of ``leaf`` can hold it too."""
        page = run.stop
        if run.is_complete or (page > run.start and self._is_boundary(page)):
            return False
        self._step()
        damage = self._torn.damage(page, page + 1)
        if damage:
            raise _Uncertain(damage)
        counted = self._rows(leaf, page) if self._is_of(leaf, page, run.start) else None
        if counted is None:
            run.is_complete = True
            return False
        run.rows.append(counted + (run.rows[-1] if run.rows else 0))
        return True

    def _whole_run(self, leaf: Leaf, at: int) -> _Run:
        run = self._run(leaf, at)
        while self._grow(leaf, run):
            pass
        return run

    def _is_boundary(self, page: int) -> bool:
        """True if no chunk holds both ``page`` and the page before it."""
        is_end = page == self._stop or page in self._ends
        return is_end or bool(self._torn.pages.is_dictionary[page])

    def _step(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise _Uncertain("there are too many ways to tell columns apart")

    def _continues(self, leaf: Leaf, page: int) -> bool:
        """True if a page that holds rows of ``leaf`` begins with the rest of the row before it."""
        if not leaf.max_repetition_level:
            return False
        return not self._torn.rows(page, leaf, self._codecs[leaf.index]).begins_a_row

    def _may_go_on(self, leaf: Leaf, page: int) -> bool:
        """True if the last row of a page may continue in the next page. V2 pages never do."""
        kind = self._torn.pages.kind[page]
        return bool(leaf.max_repetition_level) and kind != PageType.DATA_PAGE_V2

    def _leads_on(self, at: int, depth: int) -> bool:
        """True if the pages from ``at`` on can be read as ``depth`` row groups, finished or not."""
        if at >= self._stop or depth == 0:
            return True
        readings, unfinished = self._readings(at)
        return unfinished or any(self._leads_on(reading.stop, depth - 1) for reading in readings)

    def _rows(self, leaf: Leaf, page: int) -> int | None:
        """Returns the rows in a page of ``leaf``, 0 if it has no data, None if another column's."""
        if not self._torn.pages.is_data[page]:
            return 0
        try:
            return self._torn.rows(page, leaf, self._codecs[leaf.index]).count
        except FormatError:
            return None

    def _is_of(self, leaf: Leaf, page: int, start: int) -> bool:
        """True if ``page`` can be of ``leaf``, in a chunk that begins at page ``start``."""
        pages = self._torn.pages
        if not pages.is_data[page]:
            return True
        encoding = int(pages.encoding[page])
        if leaf.element.type not in _TYPES.get(encoding, _ANY):
            return False
        has_dictionary = bool(pages.is_dictionary[start])
        if encoding in DICTIONARY_ENCODINGS and not has_dictionary:
            return False
        if self._decodes(leaf, page, start):
            return True
        # A page of no column is damaged, and may wrongly rule out the right reading.
        if not any(self._decodes(other, page, start) for other in self._of_kinds.values()):
            at = int(pages.offset[page])
            raise _Uncertain(f"the page at offset {at:,} cannot be decoded as any column's")
        return False

    def _decodes(self, leaf: Leaf, page: int, start: int) -> bool:
        pages = self._torn.pages
        encoding = int(pages.encoding[page])
        first = [start] if encoding in DICTIONARY_ENCODINGS else []
        kind = self._kinds[leaf.index]
        verdicts = self._is_decodable[kind]
        if verdicts[page] >= 0:
            return bool(verdicts[page])

        def are_decodable(numbers: range) -> bool:
            chosen = [*first, *numbers]
            return self._torn.is_decodable(leaf, self._metadata(leaf, chosen), chosen)

        # While pages can be decoded, twice as many are tried at once. Not for repeated columns,
        # where a row may continue in the next page.
        stop = min(page + (1 if leaf.max_repetition_level else self._pages_ahead[kind]), self._stop)
        alike = pages.is_data[page:stop] & (pages.encoding[page:stop] == encoding)
        alike[1:] &= np.cumsum(pages.whole[page:stop])[1:] <= RUN_BYTES
        run = range(page, stop if alike.all() else page + int(np.argmin(alike)))
        if len(run) > 1 and not are_decodable(run):
            run = range(page, page + 1)
        known = are_decodable(run) if len(run) == 1 else True
        self._pages_ahead[kind] = min(2 * len(run), _MAX_PAGES_AHEAD) if known else 1
        verdicts[run.start : run.stop] = known
        return known

    def _rows_begun(self, at: int) -> int:
        """Returns the rows in the pages from ``at`` on that are certainly of the first column."""
        if not self._torn.pages.is_dictionary[at]:
            return 0
        run = self._run(self._leaves[0], at)
        with contextlib.suppress(_Uncertain):
            self._whole_run(self._leaves[0], at)
        return run.rows[-1] if run.rows else 0

    def _group(self, at: int, reading: _Reading) -> SavedGroup:
        torn, start = self._torn, at
        chunks = []
        for leaf, stop in zip(self._leaves, reading.stops, strict=True):
            metadata = self._metadata(leaf, range(start, stop))
            chunks.append(ColumnChunk(file_offset=0, meta_data=metadata))
            start = stop
        sizes = [chunk.meta_data.total_uncompressed_size for chunk in chunks if chunk.meta_data]
        group = RowGroup(columns=chunks, total_byte_size=sum(sizes), num_rows=reading.rows)
        first, last = int(torn.pages.offset[at]), int(torn.pages.stop[reading.stop - 1])
        unchecked = torn.unchecked(at, reading.stop)
        return SavedGroup(encode(group), reading.rows, first, last, unchecked, is_rebuilt=True)

    def _metadata(self, leaf: Leaf, numbers: Sequence[int]) -> ColumnMetaData:
        """Returns the metadata of a chunk with these pages."""
        pages, chosen = self._torn.pages, list(numbers)
        data = [page for page in chosen if pages.is_data[page]]
        encodings = {int(pages.encoding[page]) for page in chosen if pages.encoding[page] >= 0}
        if leaf.max_definition_level or leaf.max_repetition_level:
            encodings.add(Encoding.RLE)
        first = chosen[0]
        return ColumnMetaData(
            type=-1 if leaf.element.type is None else leaf.element.type,
            encodings=sorted(encodings),
            path_in_schema=list(leaf.path),
            codec=self._codecs[leaf.index],
            num_values=int(pages.values[data].sum()),
            total_uncompressed_size=int((pages.header_size[chosen] + pages.whole[chosen]).sum()),
            total_compressed_size=int((pages.header_size[chosen] + pages.stored[chosen]).sum()),
            data_page_offset=int(pages.offset[data[0]]) if data else 0,
            dictionary_page_offset=int(pages.offset[first]) if pages.is_dictionary[first] else None,
        )
