"""Checking pages as they are read, where damage is to be named or left out (``on_corrupt``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from intarsia.decode.page_check import check_page
from intarsia.errors import FormatError
from intarsia.format.metadata import PageType
from intarsia.plan.pages import ChunkSelection
from intarsia.read.damage import CorruptData
from intarsia.read.locate import IndexIsWrong, locate
from intarsia.read.opened import OpenedFile


class PageIndexMistrust(Exception):  # noqa: N818 # a signal between readers, not an error
    """Pages do not hold the rows their index says; whoever relied on it must plan again.

    So it is where pages turned out to be damaged: the file's ``damage`` says which rows to leave
    out.
    """


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
    if file.options.on_corrupt is None:
        return
    problem = _problem(file, group, leaf, selection, dictionary, pages)
    if problem is not None:
        raise doubt(file, group, leaf, problem)


def blame(file: OpenedFile, chunks: Iterable[tuple[int, int]], error: FormatError) -> None:
    """Find out which of ``chunks``, whose checksums fit, cannot be decoded. Raises as above."""
    ids = list(chunks)
    suspects = [(id_, found) for id_ in ids if (found := _located(file, *id_, error.message, True))]
    # Each search names a whole chunk where it finds nothing; only then is the whole to blame.
    named = [(id_, found) for id_, found in suspects if found[0].where.page is not None]
    for id_, found in named or suspects:
        file.note_damage(*id_, found)
    raise PageIndexMistrust from error


def _located(
    file: OpenedFile, group: int, leaf: int, reason: str, decode: bool
) -> list[CorruptData]:
    try:
        return locate(file, group, leaf, reason, decode=decode)
    except IndexIsWrong:
        raise PageIndexMistrust from None


def doubt(file: OpenedFile, group: int, leaf: int, problem: str) -> PageIndexMistrust:
    """Find out what is wrong with a chunk that has a problem: what to raise, or raises itself."""
    file.note_damage(group, leaf, _located(file, group, leaf, problem, False))
    return PageIndexMistrust()


def _problem(
    file: OpenedFile,
    group: int,
    leaf: int,
    selection: ChunkSelection,
    dictionary: memoryview | None,
    pages: Sequence[memoryview],
) -> str | None:
    chunk, column = file.chunk(group, leaf), file.schema.leaves[leaf]
    with_checksum = set()
    if dictionary is not None:
        page = check_page(dictionary, column, chunk)
        is_one = page.header is not None and page.header.type == PageType.DICTIONARY_PAGE
        if page.problem or (is_one and page.size != dictionary.nbytes):
            return page.problem or "there is more than a dictionary before the first page"
    values = 0
    for part in pages:
        at = 0
        while at < part.nbytes and (selection.page_rows or values < chunk.num_values):
            page = check_page(part[at:], column, chunk)
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
