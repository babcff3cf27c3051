"""Locates the damaged pages of a chunk, and the rows that they hold.

::

    offset index   [p0][p1][p2][p3]     gives the position of each page
    none           [p0][p1][?? …        each header gives the position of the next page; behind a
                               [p3]     damaged one, search for a page that matches its checksum
                                        and is followed by pages up to the end of the chunk

If neither shows which rows are lost, all rows of the row group are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from intarsia.decode.page_data import num_rows
from intarsia.decode.page_validation import CheckedPage, check_page
from intarsia.decode.splice import ChunkBytes, RowGroupBytes, decode_root
from intarsia.errors import FormatError, Where
from intarsia.file.corrupt_data import CorruptData
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import PageType
from intarsia.parquet.page_header import read_page_header
from intarsia.parquet.page_index import OffsetIndex
from intarsia.row_ranges import RowRanges

_PAGE_TYPES = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2, PageType.DICTIONARY_PAGE)
_HEADER_START = b"\x15"
"""Every page header begins with this byte: the field ``type``, an integer."""
_MAX_HEADER_BYTES = 4096
"""When searching behind a damaged page, pages with longer headers are skipped."""
_MAX_SEARCH_RATIO = 64
"""The search for the next page reads at most this many times the chunk's bytes."""


class IndexIsWrong(Exception):  # noqa: N818 # no damage to the data, which all can be read
    """Signal that a chunk's pages are sound but its offset index is wrong. It is not used again."""


@dataclass(frozen=True, slots=True)
class _PagePlace:
    """A data page, or bytes where one should be.

    ``offset`` counts from the start of the chunk, ``first_row`` from the start of the row group.
    """

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
    """Locates the damage of a chunk. ``reason`` is the known problem.

    Reads the whole chunk. ``decode`` also tries to decode each page. A chunk without an offset
    index gets one in memory, so that its sound pages can be read. Raises ``IndexIsWrong``.
    """
    return _DamageSearch(file, row_group, leaf).damage(reason, decode)


def all_lost(file: OpenedFile, row_group: int, leaf: int, reason: str) -> CorruptData:
    """Returns the damage of a chunk that cannot be read: all rows of the row group are lost."""
    start, stop = file.row_group_starts[row_group : row_group + 2].tolist()
    offset = file.chunk(row_group, leaf).start
    where = Where(file.name, row_group, file.schema.leaves[leaf].name, offset=offset)
    return CorruptData(where, reason, RowRanges.of((start, stop)))


class _DamageSearch:
    def __init__(self, file: OpenedFile, row_group: int, leaf: int) -> None:
        self._file, self._group = file, row_group
        self._leaf = file.schema.leaves[leaf]
        self._chunk = chunk = file.chunk(row_group, leaf)
        self._rows = file.num_rows_in(row_group)
        size = min(chunk.total_compressed_size, file.source.size - chunk.start)
        self._data = file.source.read([(chunk.start, size)])[0]
        self._has_dictionary = 0

    def damage(self, reason: str, decode: bool) -> list[CorruptData]:
        file, chunk_id = self._file, (self._group, self._leaf.index)
        walked, is_whole = self._walk(0)
        index = file.page_indexes.offsets(*chunk_id)
        if (
            index is not None
            and is_whole
            and (contradiction := self._index_contradiction(walked, index))
        ):
            file.page_indexes.distrust(*chunk_id, contradiction)
            raise IndexIsWrong
        if (problem := self._dictionary_problem(walked, index)) is not None:
            return [self._lost(0, 0, 0, self._rows, problem)]
        if index is not None and len(index):
            places: list[_PagePlace] | None = self._by_index(index)
        else:
            places = self._by_walk(walked, is_whole)
        if places is None:
            return [self._all_lost(reason)]
        places = _without_lone_checksums(places)
        if decode:
            places = [self._with_decoding_problem(place) for place in places]
        damage = [
            self._lost(lost.number, lost.offset, lost.first_row, lost.num_rows, lost.problem)
            for lost in places
            if lost.problem is not None and lost.num_rows
        ]
        if not damage:
            return [self._all_lost(reason)]
        if index is None:
            file.page_indexes.take(*chunk_id, self._index_of(places))
        return damage

    def _check(self, data: memoryview) -> CheckedPage:
        return check_page(data, self._leaf, self._chunk, self._file.options.page_size_limit)

    def _lost(self, number: int, offset: int, row: int, count: int, problem: str) -> CorruptData:
        file = self._file
        position = self._chunk.start + offset
        where = Where(file.name, self._group, self._leaf.name, number, position)
        start = int(file.row_group_starts[self._group]) + row
        return CorruptData(where, problem, RowRanges.of((start, start + count)))

    def _all_lost(self, reason: str) -> CorruptData:
        return all_lost(self._file, self._group, self._leaf.index, reason)

    # --- pages, one behind the other --------------------------------------------------------------

    def _walk(self, at: int) -> tuple[list[tuple[int, CheckedPage]], bool]:
        """Follows page headers from ``at``. Returns offsets and pages, and True if all are there.

        If a header cannot be parsed, the last page has none.
        """
        pages: list[tuple[int, CheckedPage]] = []
        values, stop = 0, self._data.nbytes
        while at < stop and (values < self._chunk.num_values or not pages):
            page = self._check(self._data[at:])
            pages.append((at, page))
            if page.header is None:
                return pages, False
            values += max(page.num_values or 0, 0)
            at += page.size
        return pages, values == self._chunk.num_values

    def _rows_of(self, at: int, page: CheckedPage) -> int | None:
        """Returns the rows of a data page; None if they cannot be counted."""
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
    ) -> list[_PagePlace] | None:
        """Returns pages without an offset index; None if their rows are unknown.

        Rows of repeated columns are unknown, because pages may begin within a row without an index.
        """
        if self._leaf.max_repetition_level:
            return None
        pages = [(at, page) for at, page in walked if page.num_values is not None]
        behind: list[tuple[int, CheckedPage]] = []
        if not is_whole:
            # The first unsound page may have given a wrong position for the next page.
            unsound = [each for each in walked if each[1].problem or _has_unknown_type(each[1])]
            if not unsound:
                return None  # one of them has a wrong number of values
            at, unsound_page = unsound[0]
            last = replace(unsound_page, problem=unsound_page.problem or "its type is unknown")
            pages = [each for each in pages if each[0] < at]
            behind = self._pages_behind(at)
            rows_left = self._rows - sum(p.num_values or 0 for _, p in (*pages, *behind))
            if rows_left <= 0:
                return None
        places: list[_PagePlace] = []
        row = 0

        def add(at: int, size: int, count: int, page: CheckedPage) -> None:
            nonlocal row
            number = len(places) + self._has_dictionary
            places.append(_PagePlace(number, at, size, row, count, page.problem, page))
            row += count

        for start, page in pages:
            add(start, page.size, page.num_values or 0, page)
        if not is_whole:
            stop = behind[0][0] if behind else self._data.nbytes
            add(at, stop - at, rows_left, last)
            for start, page in behind:
                add(start, page.size, page.num_values or 0, page)
        return places if row == self._rows else None

    def _pages_behind(self, at: int) -> list[tuple[int, CheckedPage]]:
        """Returns the pages behind a damaged one, from the next sound page to the chunk's end."""
        data = bytes(self._data)
        bytes_left = _MAX_SEARCH_RATIO * len(data)
        while bytes_left > 0 and (at := data.find(_HEADER_START, at + 1)) >= 0:
            ahead = self._data[at : at + _MAX_HEADER_BYTES]
            bytes_left -= ahead.nbytes
            if not _has_checksum(ahead):
                continue
            page = self._check(self._data[at:])
            bytes_left -= page.size
            if page.problem is not None:
                continue
            pages, _ = self._walk(at)
            bytes_left -= len(data)
            last, page = pages[-1]
            if last + page.size == self._data.nbytes and all(p.header for _, p in pages):
                return [(start, page) for start, page in pages if page.num_values is not None]
        return []

    # --- by the offset index ----------------------------------------------------------------------

    def _index_contradiction(
        self, walked: Sequence[tuple[int, CheckedPage]], index: OffsetIndex
    ) -> str | None:
        """Describes how the index contradicts pages whose headers agree with the footer."""
        pages = [
            (at, page) for at, page in walked if page.num_values
        ]  # the index has no empty pages
        if len(pages) != len(index):
            return f"{len(index)} entries for {len(pages)} pages"
        starts, stops = index.row_bounds(self._rows)
        for number, (at, page) in enumerate(pages):
            rows = self._rows_of(at, page)
            expected_rows = int(stops[number] - starts[number])
            is_in_place = (at + self._chunk.start, page.size) == (
                int(index.offset[number]),
                int(index.compressed_page_size[number]),
            )
            if not is_in_place or (rows is not None and rows != expected_rows):
                return (
                    f"page {number} is not where it says, or does not have {expected_rows:,} rows"
                )
        return None

    def _by_index(self, index: OffsetIndex) -> list[_PagePlace]:
        starts, stops = index.row_bounds(self._rows)
        places = []
        for number in range(len(index)):
            at = int(index.offset[number]) - self._chunk.start
            size, first = int(index.compressed_page_size[number]), int(starts[number])
            expected_rows = int(stops[number]) - first
            page = self._check(self._data[at : at + size])
            problem = page.problem
            if problem is None and page.size != size:
                problem = f"its header says {page.size:,} bytes, the offset index {size:,}"
            if problem is None and (rows := self._rows_of(at, page)) != expected_rows:
                counted = "an unknown number of" if rows is None else f"{rows:,}"
                problem = f"it has {counted} rows, the offset index says {expected_rows:,}"
            page_number = number + self._has_dictionary
            places.append(_PagePlace(page_number, at, size, first, expected_rows, problem, page))
        return places

    # --- dictionary, checksums, values ------------------------------------------------------------

    def _dictionary_problem(
        self, walked: Sequence[tuple[int, CheckedPage]], index: OffsetIndex | None
    ) -> str | None:
        """Describes what is wrong with the dictionary page, if there should be one."""
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

    def _with_decoding_problem(self, place: _PagePlace) -> _PagePlace:
        """Returns the page with pyarrow's error as its problem, if it cannot be decoded."""
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

    def _index_of(self, places: Sequence[_PagePlace]) -> OffsetIndex:
        """Returns an offset index of the pages that were located."""
        non_empty = [place for place in places if place.num_rows]
        columns = (
            [place.offset + self._chunk.start for place in non_empty],
            [place.size for place in non_empty],
            [place.first_row for place in non_empty],
        )
        return OffsetIndex(*(np.array(column, dtype=np.int64) for column in columns))


def _has_checksum(page: memoryview) -> bool:
    """True if a page header with a checksum begins here."""
    try:
        return read_page_header(page)[0].crc is not None
    except FormatError:
        return False


def _has_unknown_type(page: CheckedPage) -> bool:
    return page.header is not None and page.header.type not in _PAGE_TYPES


def _without_lone_checksums(places: Sequence[_PagePlace]) -> list[_PagePlace]:
    """Marks pages without a checksum as damaged if other pages of the chunk have one."""
    headers = [place.page.header for place in places if place.page and place.page.header]
    if not any(header.crc is not None for header in headers):
        return list(places)
    return [
        replace(place, problem="it has no checksum, but other pages of its chunk have one")
        if place.problem is None
        and place.page is not None
        and place.page.header is not None
        and place.page.header.crc is None
        else place
        for place in places
    ]
