"""Finding which pages of a chunk are damaged, and which of its rows these hold.

::

    offset index   [p0][p1][p2][p3]     tells where each page is, whatever the one before it says
    none           [p0][p1][?? …        each tells where the next is; behind one that cannot,
                               [p3]     the next that fits its checksum and leads to the end

Where neither tells which rows are lost, all of the row group are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from intarsia.decode.page_data import num_rows
from intarsia.decode.page_validation import CheckedPage, check_page
from intarsia.decode.splice import ChunkBytes, RowGroupBytes, decode_root
from intarsia.errors import FormatError, Where
from intarsia.file.corrupt_rows import CorruptData
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import PageType
from intarsia.parquet.page_header import read_page_header
from intarsia.parquet.page_index import OffsetIndex
from intarsia.row_ranges import RowRanges

_KNOWN_TYPES = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2, PageType.DICTIONARY_PAGE)
_FIRST_FIELD = b"\x15"
"""What every page header begins with: the field ``type``, an integer."""
_LONGEST_HEADER = 4096
"""Of a page behind one that is damaged: a longer one is passed over."""
_MOST_TIMES = 64
"""So many times as many bytes as a chunk has are looked at for its next page."""


class IndexIsWrong(Exception):  # noqa: N818 # no damage to the data, which all can be read
    """The chunk's pages are sound and its offset index is not, which is distrusted now."""


@dataclass(frozen=True, slots=True)
class _Place:
    """One data page, or bytes that should be some: offset within the chunk, rows of the group."""

    number: int
    offset: int
    size: int
    first_row: int
    num_rows: int
    problem: str | None
    page: CheckedPage | None


def locate(
    file: OpenedFile, row_group: int, leaf: int, reason: str, *, decode: bool = False
) -> list[CorruptData]:
    """The damage of a chunk of which is known that ``reason``; ``decode`` tries every page.

    Reads all of the chunk. Raises ``IndexIsWrong``. Where the chunk has no offset index, the file
    gets one made of its pages, so that the others can be read.
    """
    return _Search(file, row_group, leaf).damage(reason, decode)


def all_lost(file: OpenedFile, row_group: int, leaf: int, reason: str) -> CorruptData:
    """A chunk of which nothing can be read: its row group's rows are lost."""
    start, stop = file.row_group_starts[row_group : row_group + 2].tolist()
    offset = file.chunk(row_group, leaf).start
    where = Where(file.name, row_group, file.schema.leaves[leaf].name, offset=offset)
    return CorruptData(where, reason, RowRanges.of((start, stop)))


class _Search:
    def __init__(self, file: OpenedFile, row_group: int, leaf: int) -> None:
        self._file, self._group = file, row_group
        self._leaf = file.schema.leaves[leaf]
        self._chunk = chunk = file.chunk(row_group, leaf)
        self._rows = file.num_rows_in(row_group)
        size = min(chunk.total_compressed_size, file.source.size - chunk.start)
        self._data = file.source.read([(chunk.start, size)])[0]
        self._has_dictionary = 0

    def damage(self, reason: str, decode: bool) -> list[CorruptData]:
        file, id_ = self._file, (self._group, self._leaf.index)
        walked, is_whole = self._walk(0)
        index = file.page_indexes.offsets(*id_)
        if index is not None and is_whole and (lie := self._contradiction(walked, index)):
            file.page_indexes.distrust(*id_, lie)
            raise IndexIsWrong
        if (problem := self._dictionary_problem(walked, index)) is not None:
            return [self._lost(0, 0, 0, self._rows, problem)]
        if index is not None and len(index):
            places: list[_Place] | None = self._by_index(index)
        else:
            places = self._by_walk(walked, is_whole)
        if places is None:
            return [self._all_lost(reason)]
        places = _without_lone_checksums(places)
        if decode:
            places = [self._decoded(place) for place in places]
        found = [
            self._lost(p.number, p.offset, p.first_row, p.num_rows, p.problem)
            for p in places
            if p.problem is not None and p.num_rows
        ]
        if not found:
            return [self._all_lost(reason)]
        if index is None:
            file.page_indexes.take(*id_, self._index_of(places))
        return found

    def _check(self, data: memoryview) -> CheckedPage:
        return check_page(data, self._leaf, self._chunk, self._file.options.page_size_limit)

    def _lost(self, number: int, offset: int, row: int, count: int, problem: str) -> CorruptData:
        file = self._file
        at = self._chunk.start + offset
        where = Where(file.name, self._group, self._leaf.name, number, at)
        start = int(file.row_group_starts[self._group]) + row
        return CorruptData(where, problem, RowRanges.of((start, start + count)))

    def _all_lost(self, reason: str) -> CorruptData:
        return all_lost(self._file, self._group, self._leaf.index, reason)

    # --- pages, one behind the other --------------------------------------------------------------

    def _walk(self, at: int) -> tuple[list[tuple[int, CheckedPage]], bool]:
        """Pages and their offsets from ``at`` on, and whether they are all that are due.

        The last one is without a header where there the way is lost.
        """
        found: list[tuple[int, CheckedPage]] = []
        values, stop = 0, self._data.nbytes
        while at < stop and (values < self._chunk.num_values or not found):
            page = self._check(self._data[at:])
            found.append((at, page))
            if page.header is None:
                return found, False
            values += max(page.num_values or 0, 0)
            at += page.size
        return found, values == self._chunk.num_values

    def _rows_of(self, at: int, page: CheckedPage) -> int | None:
        """Rows of a data page; None where it does not tell."""
        header = page.header
        if header is None or page.num_values is None:
            return None
        if not self._leaf.max_repetition_level:
            return page.num_values
        if page.problem is not None:
            return None
        _, length = read_page_header(self._data[at : at + page.size])
        body = self._data[at + length : at + page.size]
        try:
            return num_rows(header, body, self._leaf, self._chunk.codec)
        except FormatError:
            return None

    def _by_walk(
        self, walked: Sequence[tuple[int, CheckedPage]], is_whole: bool
    ) -> list[_Place] | None:
        """Pages without an offset index; None where it cannot be told which rows they hold.

        Pages of repeated columns are not followed: without an index they may begin within a row.
        """
        if self._leaf.max_repetition_level:
            return None
        pages = [(at, page) for at, page in walked if page.num_values is not None]
        behind: list[tuple[int, CheckedPage]] = []
        if not is_whole:
            # The way may have been lost before it showed, at the first page that is not sound.
            unsound = [one for one in walked if one[1].problem or _is_of_no_known_type(one[1])]
            if not unsound:
                return None  # one of them tells a wrong number of values
            at, found = unsound[0]
            last = replace(found, problem=found.problem or "its type is unknown")
            pages = [one for one in pages if one[0] < at]
            behind = self._resumed(at)
            left = self._rows - sum(p.num_values or 0 for _, p in (*pages, *behind))
            if left <= 0:
                return None
        places: list[_Place] = []
        row = 0

        def add(at: int, size: int, count: int, page: CheckedPage) -> None:
            nonlocal row
            number = len(places) + self._has_dictionary
            places.append(_Place(number, at, size, row, count, page.problem, page))
            row += count

        for start, page in pages:
            add(start, page.size, page.num_values or 0, page)
        if not is_whole:
            stop = behind[0][0] if behind else self._data.nbytes
            add(at, stop - at, left, last)
            for start, page in behind:
                add(start, page.size, page.num_values or 0, page)
        return places if row == self._rows else None

    def _resumed(self, at: int) -> list[tuple[int, CheckedPage]]:
        """The pages behind one without a header, from the first that is sound up to the end."""
        data = bytes(self._data)
        left = _MOST_TIMES * len(data)
        while left > 0 and (at := data.find(_FIRST_FIELD, at + 1)) >= 0:
            ahead = self._data[at : at + _LONGEST_HEADER]
            left -= ahead.nbytes
            if not _has_checksum(ahead):
                continue
            page = self._check(self._data[at:])
            left -= page.size
            if page.problem is not None:
                continue
            found, _ = self._walk(at)
            left -= len(data)
            last, page = found[-1]
            if last + page.size == self._data.nbytes and all(p.header for _, p in found):
                return [(start, page) for start, page in found if page.num_values is not None]
        return []

    # --- by the offset index ----------------------------------------------------------------------

    def _contradiction(
        self, walked: Sequence[tuple[int, CheckedPage]], index: OffsetIndex
    ) -> str | None:
        """How pages whose headers agree with the footer contradict the index."""
        pages = [(at, page) for at, page in walked if page.num_values]  # empty ones are in none
        if len(pages) != len(index):
            return f"{len(index)} entries for {len(pages)} pages"
        starts, stops = index.row_bounds(self._rows)
        for number, (at, page) in enumerate(pages):
            rows = self._rows_of(at, page)
            due = int(stops[number] - starts[number])
            is_there = (at + self._chunk.start, page.size) == (
                int(index.offset[number]),
                int(index.compressed_page_size[number]),
            )
            if not is_there or (rows is not None and rows != due):
                return f"page {number} is not where it says, or not of {due:,} rows"
        return None

    def _by_index(self, index: OffsetIndex) -> list[_Place]:
        starts, stops = index.row_bounds(self._rows)
        places = []
        for number in range(len(index)):
            at = int(index.offset[number]) - self._chunk.start
            size, first = int(index.compressed_page_size[number]), int(starts[number])
            due = int(stops[number]) - first
            page = self._check(self._data[at : at + size])
            problem = page.problem
            if problem is None and page.size != size:
                problem = f"its header says {page.size:,} bytes, the offset index {size:,}"
            if problem is None and (rows := self._rows_of(at, page)) != due:
                told = "no number of" if rows is None else f"{rows:,}"
                problem = f"it tells {told} rows, the offset index {due:,}"
            at_number = number + self._has_dictionary
            places.append(_Place(at_number, at, size, first, due, problem, page))
        return places

    # --- dictionary, checksums, values ------------------------------------------------------------

    def _dictionary_problem(
        self, walked: Sequence[tuple[int, CheckedPage]], index: OffsetIndex | None
    ) -> str | None:
        """What is wrong with the dictionary page, if there is to be one."""
        start = self._chunk.start
        first = int(index.offset[0]) if index is not None and len(index) else None
        first = max(self._chunk.data_page_offset, start) if first is None else first
        page = walked[0][1] if walked else CheckedPage(None, 0, "there are no pages")
        is_dictionary = page.header is not None and page.header.type == PageType.DICTIONARY_PAGE
        self._has_dictionary = int(is_dictionary or first > start)
        if is_dictionary:
            return page.problem
        if first > start:
            return page.problem or "there is no dictionary where there should be one"
        return None

    def _decoded(self, place: _Place) -> _Place:
        """The page, with what keeps pyarrow from decoding it."""
        if place.problem is not None or place.page is None or place.page.num_values is None:
            return place
        dictionary = None
        if self._has_dictionary:
            size = self._check(self._data).size
            dictionary = self._data[:size]
        page = self._data[place.offset : place.offset + place.size]
        chunk = ChunkBytes(self._chunk, dictionary, [page], place.page.num_values)
        template = self._file.templates.physical(self._file.schema, self._leaf)
        try:
            decode_root(template, [RowGroupBytes(place.num_rows, [chunk])])
        except FormatError as error:
            return replace(place, problem=error.message)
        return place

    def _index_of(self, places: Sequence[_Place]) -> OffsetIndex:
        """An offset index of the pages as they were found."""
        kept = [place for place in places if place.num_rows]
        columns = (
            [place.offset + self._chunk.start for place in kept],
            [place.size for place in kept],
            [place.first_row for place in kept],
        )
        return OffsetIndex(*(np.array(column, dtype=np.int64) for column in columns))


def _has_checksum(page: memoryview) -> bool:
    """Does a page header begin here, one with a checksum?"""
    try:
        return read_page_header(page)[0].crc is not None
    except FormatError:
        return False


def _is_of_no_known_type(page: CheckedPage) -> bool:
    return page.header is not None and page.header.type not in _KNOWN_TYPES


def _without_lone_checksums(places: Sequence[_Place]) -> list[_Place]:
    """Of pages that have checksums, one without has lost it."""
    headers = [place.page.header for place in places if place.page and place.page.header]
    if not any(header.crc is not None for header in headers):
        return list(places)
    return [
        replace(place, problem="it has no checksum, as others of its chunk have")
        if place.problem is None
        and place.page is not None
        and place.page.header is not None
        and place.page.header.crc is None
        else place
        for place in places
    ]
