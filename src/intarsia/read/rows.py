"""Fetching and decoding: given rows of a file, their values in some of its columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from intarsia.decode.splice import ChunkBytes, RootTemplate, RowGroupBytes, decode_root
from intarsia.errors import FormatError, Where
from intarsia.format.metadata import PageType
from intarsia.format.page_header import checksum_problem, num_values, read_page_header
from intarsia.format.page_index import OffsetIndex
from intarsia.format.schema import Root
from intarsia.plan.pages import ChunkSelection, select_pages, whole_chunk
from intarsia.ranges import RowRanges
from intarsia.read.chunk import Chunk
from intarsia.read.opened import OpenedFile
from intarsia.source import ByteRange, Source

_SLICES = 64
"""Up to this many ranges, rows are cut out by slicing; beyond it by their positions."""


class PageIndexMistrust(Exception):  # noqa: N818 # a signal between readers, not an error
    """Pages do not hold the rows their index says; whoever relied on it must plan again."""


@dataclass(frozen=True, slots=True)
class ColumnRead:
    """The selections of one root: for each row group, one for each of its leaves."""

    root: Root
    groups: tuple[tuple[int, tuple[ChunkSelection, ...]], ...]


def groups_of(file: OpenedFile, rows: RowRanges) -> list[int]:
    """The row groups that hold any of ``rows``."""
    starts = file.row_group_starts
    return np.flatnonzero(rows.covers(starts[:-1], starts[1:])).tolist()


def select(file: OpenedFile, roots: Sequence[Root], rows: RowRanges) -> list[ColumnRead]:
    """Which parts of which chunks hold ``rows`` of ``roots``.

    Fetches the offset indexes this takes: none for row groups that are wanted whole.
    """
    wanted = {}
    for group in groups_of(file, rows):
        start, stop = file.row_group_starts[group : group + 2].tolist()
        wanted[group] = rows.clip(start, stop).shift(-start)
    paged = [leaf for root in roots for leaf in root.leaves if file.schema.leaves[leaf].is_flat]
    in_part = [g for g, part in wanted.items() if part.num_rows < file.num_rows_in(g)]
    file.load_page_indexes([(group, leaf) for group in in_part for leaf in paged], [])
    return [_select_root(file, root, wanted) for root in roots]


def _select_root(file: OpenedFile, root: Root, wanted: Mapping[int, RowRanges]) -> ColumnRead:
    selected = []
    for group, rows in wanted.items():
        count = file.num_rows_in(group)
        selections = []
        for leaf in root.leaves:
            chunk = file.chunk(group, leaf)
            if rows.num_rows == count or not file.schema.leaves[leaf].is_flat:
                selections.append(whole_chunk(chunk, count))
            else:
                selections.append(select_pages(chunk, file.offset_index(group, leaf), count, rows))
        selected.append((group, tuple(selections)))
    return ColumnRead(root, tuple(selected))


def ranges_of(reads: Iterable[ColumnRead]) -> list[ByteRange]:
    """The byte ranges of all selections, in order."""
    return [r for read in reads for _, parts in read.groups for s in parts for r in s.byte_ranges]


def read_rows(
    file: OpenedFile,
    roots: Sequence[Root],
    rows: RowRanges,
    *,
    physical: bool = False,
    source: Source | None = None,
) -> list[pa.ChunkedArray]:
    """The values of ``roots`` at ``rows``: one array a root, each of ``rows.num_rows`` values.

    ``source`` is what is read through, the file's own by default. ``physical`` gives flat columns
    in their physical type, without any annotation. Raises ``PageIndexMistrust`` where a page's
    header contradicts the page index, ``FormatError`` where bytes cannot be decoded.
    """
    reads = select(file, roots, rows)
    try:
        parts = iter((source or file.source).read(ranges_of(reads)))
    except FormatError as error:
        raise error.at(Where(file.name)) from error
    columns = []
    for read in reads:
        template = _template(file, read.root, physical)
        decoded, held = _decode(file, read, parts, template)
        columns.append(_cut(decoded, held, rows))
    return columns


def _template(file: OpenedFile, root: Root, physical: bool) -> RootTemplate:
    if physical:
        return file.templates.physical(file.schema, file.schema.leaves[root.leaves[0]])
    return file.templates.logical(root)


def _decode(
    file: OpenedFile, read: ColumnRead, parts: Iterable[memoryview], template: RootTemplate
) -> tuple[pa.ChunkedArray, RowRanges]:
    """All rows of the selected pages, and which rows of the file they are."""
    parts = iter(parts)
    groups, held = [], []
    for group, selections in read.groups:
        file.groups_read.add(group)
        chunks = []
        for leaf, selection in zip(read.root.leaves, selections, strict=True):
            dictionary = next(parts) if selection.dictionary else None
            pages = [next(parts) for _ in selection.parts]
            if dictionary is not None:
                _check_dictionary(file, group, leaf, dictionary)
            _check_pages(file, group, leaf, selection, pages)
            file.pages_read += len(selection.page_rows) or file.num_pages(group, leaf)
            chunk = file.chunk(group, leaf)
            count = sum(selection.page_rows) if selection.page_rows else chunk.num_values
            chunks.append(ChunkBytes(chunk, dictionary, pages, count))
        rows = selections[0].rows
        groups.append(RowGroupBytes(rows.num_rows, chunks))
        held.append(rows.shift(int(file.row_group_starts[group])))
    try:
        verify = file.page_checksum_verification
        return decode_root(template, groups, verify_checksums=verify), RowRanges.union(held)
    except FormatError as error:
        if file.page_checksum_verification:
            _find_damage(file, read)
        raise error.at(Where(file.name, column=read.root.name)) from error


def _find_damage(file: OpenedFile, read: ColumnRead) -> None:
    """Raise ``FormatError`` for the first page that belies its checksum, if there is one."""
    for group, _ in read.groups:
        for leaf in read.root.leaves:
            chunk = Chunk(file, group, leaf)
            for page in chunk.pages():
                problem = checksum_problem(page.header, chunk.body(page))
                if problem:
                    raise FormatError(problem, chunk.at(page))


def _check_pages(
    file: OpenedFile,
    group: int,
    leaf: int,
    selection: ChunkSelection,
    pages: Sequence[memoryview],
) -> None:
    """A page index that is off by rows would give wrong answers: ask every page's own header."""
    index = file.known_offset_index(group, leaf)
    if index is None or not len(index):
        return
    counts: Sequence[int] = selection.page_rows
    if not counts:  # a whole chunk: its pages are told apart by the index
        starts, stops = index.row_bounds(file.num_rows_in(group))
        counts = (stops - starts).tolist()
        pages = _pages_of(pages[0], index, selection.parts[0][0])
    for number, (count, page) in enumerate(zip(counts, pages, strict=True)):
        try:
            header, length = read_page_header(page)
            found = num_values(header)
            size = length + header.compressed_page_size
        except FormatError:
            found, size = None, -1
        if found != count or size != page.nbytes:
            reason = f"page {number} of those read has {found} values, not {count}"
            file.distrust_page_index(group, leaf, reason)
            raise PageIndexMistrust


def _check_dictionary(file: OpenedFile, group: int, leaf: int, data: memoryview) -> None:
    """What lies before the first page of a page index has to be one dictionary page."""
    if file.known_offset_index(group, leaf) is None:
        return
    try:
        header, length = read_page_header(data)
        fits = length + header.compressed_page_size == data.nbytes
        sound = header.type == PageType.DICTIONARY_PAGE and fits
    except FormatError:
        sound = False
    if not sound:
        reason = "there is more than a dictionary before its first page"
        file.distrust_page_index(group, leaf, reason)
        raise PageIndexMistrust


def _pages_of(chunk: memoryview, index: OffsetIndex, start: int) -> list[memoryview]:
    """The pages of a chunk's data that starts at ``start``."""
    offsets = (index.offset - start).tolist()
    sizes = index.compressed_page_size.tolist()
    return [chunk[at : at + size] for at, size in zip(offsets, sizes, strict=True)]


def _cut(values: pa.ChunkedArray, held: RowRanges, rows: RowRanges) -> pa.ChunkedArray:
    """Of ``values`` at rows ``held``, those at ``rows``, a subset."""
    if held == rows:
        return values
    positions = held.positions(rows)
    if len(positions) <= _SLICES:
        slices = [values.slice(start, stop - start) for start, stop in positions]
        chunks = [chunk for part in slices for chunk in part.chunks]
        return pa.chunked_array(chunks, type=values.type)
    return values.take(pa.array(positions.rows()))
