"""Checks pages as they are read.

Row counts are always compared with the offset index: wrong row numbers would give wrong answers.
Other checks are for reads that report or skip damage (``on_corrupt``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from intarsia.decode.page_data import num_rows
from intarsia.decode.page_validation import check_page
from intarsia.errors import FormatError, quiet
from intarsia.file.corrupt_data import CorruptData
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import ColumnMetaData, PageType
from intarsia.parquet.page_header import num_values, read_page_header
from intarsia.parquet.page_index import OffsetIndex
from intarsia.parquet.schema import Leaf
from intarsia.plan.page_ranges import ChunkSelection
from intarsia.scan.integrity.damage_locator import IndexIsWrong, all_lost, locate
from intarsia.scan.integrity.footer_repair import repair_footer

_MAX_RIVALS = 4
"""Chunks with overlapping bytes that are examined. One wrong footer entry makes one rival."""


class PageIndexMistrust(Exception):  # noqa: N818 # a signal between readers, not an error
    """Signal that the caller must plan again, because pages contradict the index of the plan.

    It is also raised after damage was located; the file's ``damage`` has the rows to skip.
    """


def check_places(file: OpenedFile, selections: Iterable[tuple[int, int, ChunkSelection]]) -> None:
    """Checks the positions of chunks before they are read.

    ``selections`` are row groups and leaves with their selections. A chunk outside of the file's
    data, or overlapping another chunk, is recorded as lost if its footer entry cannot be repaired.
    Raises the errors of ``check_selection``.
    """
    if not file.options.looks_for_damage or file.trusts_bounds:
        return
    needs_new_plan = False
    for group, leaf, selection in selections:
        if not selection.parts or file.chunk(group, leaf).num_values == 0:
            continue
        overlapping_chunks = file.layout.overlapping_chunks(group, leaf, _MAX_RIVALS)
        if file.layout.is_within(group, leaf) and not overlapping_chunks:
            continue
        needs_new_plan = True  # planning again once for all chunks keeps the time linear
        if any(repair_footer(file, *id_) for id_ in [(group, leaf), *overlapping_chunks]):
            continue
        problem = (
            "another chunk claims its bytes"
            if overlapping_chunks
            else "its chunk is not within the file"
        )
        _record_lost(file, group, leaf, selection, [all_lost(file, group, leaf, problem)], problem)
    if needs_new_plan:
        raise PageIndexMistrust


def check_selection(
    file: OpenedFile,
    group: int,
    leaf: int,
    selection: ChunkSelection,
    dictionary: memoryview | None,
    pages: Sequence[memoryview],
) -> None:
    """Checks the pages that were read of a chunk, for a file that is checked for damage.

    Raises ``PageIndexMistrust`` if rows have to be skipped or an index is wrong. If damage is not
    skipped, raises ``FormatError`` with the page.
    """
    problem = _problem_of(file, group, leaf, selection, dictionary, pages)
    if problem is not None:
        raise record_problem(file, group, leaf, selection, problem)


def record_undecodable(
    file: OpenedFile, selections: Iterable[tuple[int, int, ChunkSelection]], error: FormatError
) -> None:
    """Finds and records the damaged chunks after decoding failed.

    The pages of ``selections``, row groups and leaves with their selections, passed all checks.
    Raises the errors of ``check_selection``.
    """
    chunks = list(selections)
    if any(repair_footer(file, group, leaf) for group, leaf, _ in chunks):
        raise PageIndexMistrust from error
    damage_by_chunk = [
        _located(file, group, leaf, error.message, True) for group, leaf, _ in chunks
    ]
    # Damage without a page means that none was located. Other chunks' located pages explain it.
    located = [i for i, damage in enumerate(damage_by_chunk) if damage[0].where.page is not None]
    for i in located or range(len(chunks)):
        _record_lost(file, *chunks[i], damage_by_chunk[i], error.message)
    raise PageIndexMistrust from error


def located_error(
    file: OpenedFile, selections: Iterable[tuple[int, int, ChunkSelection]], error: FormatError
) -> FormatError:
    """Returns an error for the first damaged page of ``selections``, or else ``error``.

    Raises ``PageIndexMistrust`` if an index is wrong.
    """
    with quiet():
        for group, leaf, _ in selections:
            place = _located(file, group, leaf, error.message, True)[0]
            if place.where.page is not None:
                return FormatError(place.message, place.where)
    return error


def record_problem(
    file: OpenedFile, group: int, leaf: int, selection: ChunkSelection, problem: str
) -> PageIndexMistrust:
    """Locates and records the damage of a chunk. Returns the exception to raise, or raises one."""
    if repair_footer(file, group, leaf):
        return PageIndexMistrust()
    damage = _located(file, group, leaf, problem, False)
    _record_lost(file, group, leaf, selection, damage, problem)
    return PageIndexMistrust()


def _located(
    file: OpenedFile, group: int, leaf: int, reason: str, decode: bool
) -> list[CorruptData]:
    try:
        return locate(file, group, leaf, reason, decode=decode)
    except IndexIsWrong:
        raise PageIndexMistrust from None


def _record_lost(
    file: OpenedFile,
    group: int,
    leaf: int,
    selection: ChunkSelection,
    damage: Sequence[CorruptData],
    problem: str,
) -> None:
    """Records damage, or the whole chunk as lost if the damage does not explain the problem."""
    is_new = file.note_damage(group, leaf, damage)
    selected_rows = selection.rows.shift(int(file.row_group_starts[group]))
    if not is_new and not file.damage.is_lost(group, leaf, selected_rows):
        file.note_damage(group, leaf, [all_lost(file, group, leaf, problem)])


def _problem_of(
    file: OpenedFile,
    group: int,
    leaf: int,
    selection: ChunkSelection,
    dictionary: memoryview | None,
    pages: Sequence[memoryview],
) -> str | None:
    chunk, column = file.chunk(group, leaf), file.schema.leaves[leaf]
    limit = file.options.page_size_limit
    with_checksum = set()
    if dictionary is not None:
        page = check_page(dictionary, column, chunk, limit)
        is_one = page.header is not None and page.header.type == PageType.DICTIONARY_PAGE
        if page.problem or (is_one and page.size != dictionary.nbytes):
            return page.problem or "there is more than a dictionary before the first page"
    values = 0
    for part in pages:
        at = 0
        while at < part.nbytes and (selection.page_rows or values < chunk.num_values):
            page = check_page(part[at:], column, chunk, limit)
            if page.problem is not None or page.header is None:
                return page.problem
            if page.num_values is not None:
                with_checksum.add(page.header.crc is not None)
            values += page.num_values or 0
            at += page.size
        if selection.page_rows and at != part.nbytes:
            return "a page is not as long as the offset index says"
    if not selection.page_rows and values != chunk.num_values:
        return f"pages hold {values:,} values, the footer says {chunk.num_values:,}"
    return "some of its pages have checksums, but others do not" if len(with_checksum) > 1 else None


def checked_values(
    file: OpenedFile,
    group: int,
    leaf: int,
    chunk: ColumnMetaData,
    selection: ChunkSelection,
    pages: Sequence[memoryview],
) -> int:
    """Returns the number of values in the selected pages, and checks each page's row count.

    If the whole row group is selected, nothing is checked. Raises ``PageIndexMistrust`` if a page
    has another number of rows than the index says.
    """
    index = file.page_indexes.known_offsets(group, leaf)
    if index is None or not len(index) or selection.is_wanted_whole:
        return chunk.num_values
    counts: Sequence[int] = selection.page_rows
    if not counts:  # a whole chunk: the index divides it into pages
        if file.schema.leaves[leaf].max_repetition_level:
            return chunk.num_values  # bounds of repeated columns never exclude rows
        starts, stops = index.row_bounds(file.num_rows_in(group))
        counts = (stops - starts).tolist()
        pages = _pages_of(pages[0], index, selection.parts[0][0])
    values = 0
    for number, (count, page) in enumerate(zip(counts, pages, strict=True)):
        num_values_found, num_rows_found = _counts(page, file.schema.leaves[leaf], chunk.codec)
        if num_rows_found != count:
            has = (
                "is no complete data page"
                if num_rows_found is None
                else f"has {num_rows_found} rows"
            )
            reason = f"page {number} of those read {has}, but the offset index says {count} rows"
            if file.options.looks_for_damage:
                raise record_problem(file, group, leaf, selection, reason)
            file.page_indexes.distrust(group, leaf, reason)
            raise PageIndexMistrust
        values += num_values_found
    return values


def _counts(page: memoryview, leaf: Leaf, codec: int) -> tuple[int, int | None]:
    """Returns the values and rows of a page; rows are None unless it is a complete data page."""
    try:
        header, length = read_page_header(page)
        values = num_values(header)
        if values is None or length + header.compressed_page_size != page.nbytes:
            return 0, None
        if not leaf.max_repetition_level:
            return values, values
        return values, num_rows(header, page[length:], leaf, codec)
    except FormatError:
        return 0, None


def check_dictionary(file: OpenedFile, group: int, leaf: int, data: memoryview) -> None:
    """Raises ``PageIndexMistrust`` unless ``data`` is exactly one dictionary page."""
    if file.page_indexes.known_offsets(group, leaf) is None:
        return
    try:
        header, length = read_page_header(data)
        is_complete = length + header.compressed_page_size == data.nbytes
        is_dictionary = header.type == PageType.DICTIONARY_PAGE and is_complete
    except FormatError:
        is_dictionary = False
    if not is_dictionary:
        reason = "there is more than a dictionary before its first page"
        file.page_indexes.distrust(group, leaf, reason)
        raise PageIndexMistrust


def _pages_of(chunk: memoryview, index: OffsetIndex, start: int) -> list[memoryview]:
    """Divides a chunk's data, which starts at ``start``, into pages by the offset index."""
    offsets = (index.offset - start).tolist()
    sizes = index.compressed_page_size.tolist()
    return [chunk[at : at + size] for at, size in zip(offsets, sizes, strict=True)]
