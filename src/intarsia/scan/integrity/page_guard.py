"""Checking pages as they are read, where damage is to be named or left out (``on_corrupt``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from intarsia.decode.page_validation import check_page
from intarsia.errors import FormatError, quiet
from intarsia.file.corrupt_rows import CorruptData
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import PageType
from intarsia.plan.page_ranges import ChunkSelection
from intarsia.scan.integrity.damage_locator import IndexIsWrong, all_lost, locate
from intarsia.scan.integrity.footer_repair import mend

_RIVALS = 4
"""So many chunks that claim another's bytes are looked at: one that is wrong makes one rival."""


class PageIndexMistrust(Exception):  # noqa: N818 # a signal between readers, not an error
    """Pages do not hold the rows their index says; whoever relied on it must plan again.

    So it is where pages turned out to be damaged: the file's ``damage`` says which rows to leave
    out.
    """


def check_places(file: OpenedFile, selected: Iterable[tuple[int, int, ChunkSelection]]) -> None:
    """Check where chunks are that are about to be read, if only the footer says so.

    ``selected`` are row groups and leaves, and what was selected of each. A chunk outside the
    file's data, or whose bytes another one claims, is lost where it cannot be told who is right.
    Raises as ``check_selection`` does.
    """
    if not file.options.looks_for_damage or file.trusts_bounds:
        return
    is_doubted = False
    for group, leaf, selection in selected:
        if not selection.parts or file.chunk(group, leaf).num_values == 0:
            continue
        rivals = file.layout.rivals(group, leaf, _RIVALS)
        if file.layout.is_within(group, leaf) and not rivals:
            continue
        is_doubted = True  # planning again once for all of them takes linear time
        if any(mend(file, *id_) for id_ in [(group, leaf), *rivals]):
            continue
        problem = "another chunk claims its bytes" if rivals else "its chunk is not within the file"
        _leave_out(file, group, leaf, selection, [all_lost(file, group, leaf, problem)], problem)
    if is_doubted:
        raise PageIndexMistrust


def check_selection(
    file: OpenedFile,
    group: int,
    leaf: int,
    selection: ChunkSelection,
    dictionary: memoryview | None,
    pages: Sequence[memoryview],
) -> None:
    """Check what was read of a chunk, where the file is read so that damage is noticed.

    Raises ``PageIndexMistrust`` where rows have to be left out, or an index was found wrong;
    ``FormatError``, which names the page, where damage is not to be skipped.
    """
    if not file.options.looks_for_damage:
        return
    problem = _problem(file, group, leaf, selection, dictionary, pages)
    if problem is not None:
        raise doubt(file, group, leaf, selection, problem)


def blame(
    file: OpenedFile, read: Iterable[tuple[int, int, ChunkSelection]], error: FormatError
) -> None:
    """Find out which chunks of those ``read``, whose pages passed, cannot be decoded.

    ``read`` are row groups and leaves, and what was selected of each. Raises as ``check_selection``
    does.
    """
    chunks = list(read)
    if any(mend(file, group, leaf) for group, leaf, _ in chunks):
        raise PageIndexMistrust from error
    found = [_located(file, group, leaf, error.message, True) for group, leaf, _ in chunks]
    # A search names a whole chunk where it finds nothing; where others find pages, these did it.
    named = [i for i, places in enumerate(found) if places[0].where.page is not None]
    for i in named or range(len(chunks)):
        _leave_out(file, *chunks[i], found[i], error.message)
    raise PageIndexMistrust from error


def named(
    file: OpenedFile, read: Iterable[tuple[int, int, ChunkSelection]], error: FormatError
) -> FormatError:
    """``error`` of what was ``read``, as for ``blame``, or what is wrong with its first bad page.

    Raises ``PageIndexMistrust`` where an index is.
    """
    with quiet():
        for group, leaf, _ in read:
            place = _located(file, group, leaf, error.message, True)[0]
            if place.where.page is not None:
                return FormatError(place.message, place.where)
    return error


def doubt(
    file: OpenedFile, group: int, leaf: int, selection: ChunkSelection, problem: str
) -> PageIndexMistrust:
    """Find out what is wrong with a chunk that has a problem: what to raise, or raises itself."""
    if mend(file, group, leaf):
        return PageIndexMistrust()
    found = _located(file, group, leaf, problem, False)
    _leave_out(file, group, leaf, selection, found, problem)
    return PageIndexMistrust()


def _located(
    file: OpenedFile, group: int, leaf: int, reason: str, decode: bool
) -> list[CorruptData]:
    try:
        return locate(file, group, leaf, reason, decode=decode)
    except IndexIsWrong:
        raise PageIndexMistrust from None


def _leave_out(
    file: OpenedFile,
    group: int,
    leaf: int,
    selection: ChunkSelection,
    found: Sequence[CorruptData],
    problem: str,
) -> None:
    """Take note of what was found; of the whole chunk, where that does not explain the problem."""
    is_new = file.note_damage(group, leaf, found)
    held = selection.rows.shift(int(file.row_group_starts[group]))
    if not is_new and not file.damage.is_lost(group, leaf, held):
        file.note_damage(group, leaf, [all_lost(file, group, leaf, problem)])


def _problem(
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
    return "some of its pages have checksums, and others none" if len(with_checksum) > 1 else None
