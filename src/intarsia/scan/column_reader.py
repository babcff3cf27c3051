"""Fetching and decoding: given rows of a file, their values in some of its columns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from intarsia.decode.nested_merge import Part, merge
from intarsia.decode.page_data import is_known
from intarsia.decode.splice import ChunkBytes, RowGroupBytes, decode_root, decode_roots
from intarsia.decode.synthetic_footer import RootTemplate
from intarsia.decode.thread_split import shares
from intarsia.errors import FormatError, OutOfMemoryError, UnsupportedError, Where, placed
from intarsia.expr.filterable_types import taken
from intarsia.file.chunk_reader import Chunk
from intarsia.file.open_file import OpenedFile
from intarsia.io.source import Source
from intarsia.memory import Room
from intarsia.parquet.page_header import checksum_problem
from intarsia.parquet.schema import Root
from intarsia.row_ranges import RowRanges
from intarsia.scan.dictionary_codes import NotCodedError, check_codes, check_distinct
from intarsia.scan.integrity.damage_locator import all_lost
from intarsia.scan.integrity.oversized_pages import check_pages, take_room
from intarsia.scan.integrity.page_guard import (
    PageIndexMistrust,
    blame,
    check_places,
    check_selection,
    named,
)
from intarsia.scan.integrity.row_counts import check_dictionary, checked_values
from intarsia.scan.page_selection import ColumnRead, ranges_of, select
from intarsia.scan.small_row_groups import read_small_groups
from intarsia.threads import THREADED_BYTES, all_of, may_divide

_DIVIDED_BYTES = 512 * 1024
"""Less than this of a lone column is decoded by one core."""
_TOGETHER_BYTES = 4 * 1024 * 1024
"""Less than this, of several columns, is decoded sooner at once than column by column."""
_BLOCK = 16
"""Of many columns that are small each, so many are decoded at once."""
_SLICES, _KEPT_ALIVE = 64, 4
"""Rows are cut out by slicing where that takes so many slices at most, and by their positions where
it takes more. Slices that would keep more than so many times their memory alive are copied."""


def read_rows(
    file: OpenedFile,
    roots: Sequence[Root],
    rows: RowRanges,
    *,
    physical: bool = False,
    source: Source | None = None,
) -> list[pa.ChunkedArray]:
    """The values of ``roots`` at ``rows``: one array a root, each of ``rows.num_rows`` values.

    A pruned root gives its array without the other leaves. ``source`` is what is read through, the
    file's own by default. ``physical`` gives flat columns in their physical type, without any
    annotation. Raises ``PageIndexMistrust`` where a page contradicts the page index,
    ``FormatError`` where bytes cannot be decoded, ``NotCodedError`` for codes that are not to be
    had.
    """
    if not physical and not any(root.coded for root in roots):
        whole = read_small_groups(file, roots, rows, source or file.source)
        if whole is not None:
            columns: list[pa.ChunkedArray] = _cut(*whole, rows).columns
            return columns
    with placed(Where(file.name)):
        return _read_rows(file, roots, rows, physical, source)


def _read_rows(
    file: OpenedFile,
    roots: Sequence[Root],
    rows: RowRanges,
    physical: bool,
    source: Source | None,
) -> list[pa.ChunkedArray]:
    reads = select(file, roots, rows)
    check_places(file, (one for read in reads for one in read.selections()))
    ranges, room = ranges_of(reads), Room()
    if room.is_limited:
        _take_room(room, file, reads)
    parts = iter((source or file.source).read(ranges))
    fetched = [_fetched(file, read, parts, room) for read in reads]
    size = sum(length for _, length in ranges)
    if not physical and _are_alike(reads):
        with contextlib.suppress(FormatError):  # which of them, decoding them one by one will say
            found = _together(file, reads, fetched, rows, size)
            if found is not None:
                return found
    divides = len(reads) == 1 and size >= _DIVIDED_BYTES and may_divide()
    tasks = [
        partial(_decoded, file, read, groups, rows, physical=physical, divides=divides)
        for read, groups in zip(reads, fetched, strict=True)
    ]
    return all_of(tasks) if size >= THREADED_BYTES else [task() for task in tasks]


def _take_room(room: Room, file: OpenedFile, reads: Sequence[ColumnRead]) -> None:
    """Counts what is about to be read, and the copy that pyarrow decodes.

    Raises ``OutOfMemoryError``.
    """
    for read in reads:
        for group, leaf, selection in read.selections():
            with placed(Where(file.name, group, file.schema.leaves[leaf].name)):
                room.take(2 * sum(length for _, length in selection.byte_ranges), "its chunk")


def _are_alike(reads: Sequence[ColumnRead]) -> bool:
    """Are there several roots, of a leaf each, and their pages of the same rows?"""
    return len(reads) > 1 and all(
        len(read.root.all_leaves) == 1
        and all(
            parts[0].rows == others[0].rows
            for (_, parts), (_, others) in zip(read.groups, reads[0].groups, strict=True)
        )
        for read in reads
    )


def _together(
    file: OpenedFile,
    reads: Sequence[ColumnRead],
    fetched: Sequence[Sequence[Sequence[ChunkBytes]]],
    rows: RowRanges,
    size: int,
) -> list[pa.ChunkedArray] | None:
    """The values of roots that are alike, several at once, where that is quicker and can be."""
    count = len(reads)
    are_many = count >= 2 * _BLOCK and size / count < _TOGETHER_BYTES / _BLOCK
    if size >= _TOGETHER_BYTES and not are_many:
        return None
    step = count if size < _TOGETHER_BYTES else _BLOCK
    blocks = [slice(at, at + step) for at in range(0, count, step)]
    templates = [file.templates.together([read.root for read in reads[b]]) for b in blocks]
    use_threads = len(blocks) == 1 and size >= THREADED_BYTES and may_divide()
    tasks = [
        partial(_decoded_together, file, template, reads[b], fetched[b], rows, use_threads)
        for b, template in zip(blocks, templates, strict=True)
        if template is not None
    ]
    if len(tasks) < len(blocks):
        return None
    found = all_of(tasks) if len(tasks) > 1 else [tasks[0]()]
    return [column for columns in found for column in columns]


def _decoded_together(
    file: OpenedFile,
    template: RootTemplate,
    reads: Sequence[ColumnRead],
    fetched: Sequence[Sequence[Sequence[ChunkBytes]]],
    rows: RowRanges,
    use_threads: bool,
) -> list[pa.ChunkedArray]:
    """The values of roots that are alike: one file to pyarrow instead of one each."""
    spliced = [
        RowGroupBytes(parts[0].rows.num_rows, [groups[i][0] for groups in fetched])
        for i, (_, parts) in enumerate(reads[0].groups)
    ]
    table = decode_roots(template, spliced, _verified(file), use_threads)
    for at, read in enumerate(reads):
        if read.root.coded:
            own = [RowGroupBytes(one.num_rows, [one.chunks[at]]) for one in spliced]
            _check_distinct(file, read, table.column(at), own, range(len(read.root.leaves)))
    cut: list[pa.ChunkedArray] = _cut(table, reads[0].held(file, 0), rows).columns
    return cut


def _decoded(
    file: OpenedFile,
    read: ColumnRead,
    groups: Sequence[Sequence[ChunkBytes]],
    rows: RowRanges,
    *,
    physical: bool = False,
    divides: bool = False,
) -> pa.ChunkedArray:
    """The values of one root at ``rows``; ``divides`` its pages among cores, if it is flat."""
    portions = read.portions()
    if len(portions) > 1:
        return _merged(file, read, groups, portions, rows)
    template = _template(file, read.root, physical)
    values = _decode(file, read, groups, template, divides=divides)
    return _cut_column(values, read.held(file, 0), rows)


def _template(file: OpenedFile, root: Root, physical: bool) -> RootTemplate:
    if physical:
        return file.templates.physical(file.schema, file.schema.leaves[root.leaves[0]])
    return file.templates.logical(root)


def _fetched(
    file: OpenedFile, read: ColumnRead, parts: Iterator[memoryview], room: Room
) -> list[list[ChunkBytes]]:
    """For each row group the chunks of the leaves that are read, checked against their indexes."""
    groups = []
    doubt: PageIndexMistrust | None = None
    for group, selections in read.groups:
        file.groups_read.add(group)
        chunks = []
        for leaf, selection in zip(read.root.leaves, selections, strict=True):
            dictionary = next(parts) if selection.dictionary else None
            pages = [next(parts) for _ in selection.parts]
            try:
                check_selection(file, group, leaf, selection, dictionary, pages)
            except PageIndexMistrust as signal:  # raised once all chunks are checked: the caller
                doubt = signal  # plans all of them again
                continue
            check_pages(file, group, leaf, selection, dictionary, pages)
            if room.is_limited:
                read_parts = pages if dictionary is None else [dictionary, *pages]
                take_room(room, file, group, leaf, selection, read_parts)
            if dictionary is not None:
                check_dictionary(file, group, leaf, dictionary)
            if read.root.coded and file.schema.leaves[leaf].name in read.root.coded:
                check_codes(file, group, leaf, dictionary, pages)
            chunk = file.chunk(group, leaf)
            count = checked_values(file, group, leaf, chunk, selection, pages)
            file.pages_read += len(selection.page_rows) or file.page_indexes.num_pages(group, leaf)
            offsets = [offset for offset, _ in selection.parts] if selection.page_rows else None
            file.profile.pages(group, leaf, offsets)
            chunks.append(ChunkBytes(chunk, dictionary, pages, count))
        groups.append(chunks)
    if doubt is not None:
        raise doubt
    return groups


def _decode(
    file: OpenedFile,
    read: ColumnRead,
    groups: Sequence[Sequence[ChunkBytes]],
    template: RootTemplate,
    portion: Sequence[int] | None = None,
    *,
    divides: bool = False,
) -> pa.ChunkedArray:
    """All rows of the selected pages, of leaves that have the same rows selected.

    ``portion`` are these leaves' positions among those that are read; None stands for all.
    """
    leaves = range(len(read.root.leaves)) if portion is None else portion
    spliced = [
        RowGroupBytes(selections[leaves[0]].rows.num_rows, [chunks[i] for i in leaves])
        for (_, selections), chunks in zip(read.groups, groups, strict=True)
    ]

    def decode(part: Sequence[RowGroupBytes]) -> pa.ChunkedArray:
        values = decode_root(template, part, verify_checksums=_verified(file))
        if read.root.coded:
            _check_distinct(file, read, values, part, leaves)
        return values

    try:
        if not divides or not file.schema.leaves[read.root.leaves[0]].is_flat:
            return decode(spliced)
        page_rows = [selections[0].page_rows for _, selections in read.groups]
        parts = shares(spliced, page_rows, pa.cpu_count())
        found = all_of(partial(decode, part) for part in parts)
        return pa.chunked_array([chunk for one in found for chunk in one.chunks], found[0].type)
    except OutOfMemoryError as error:
        raise error.at(Where(file.name, column=read.root.name)) from error
    except FormatError as error:
        where = Where(file.name, _failing_group(read, spliced, decode), read.root.name)
        chunks = [(g, read.root.leaves[i], parts[i]) for g, parts in read.groups for i in leaves]
        are_known = all(is_known(file.chunk(group, leaf).codec) for group, leaf, _ in chunks)
        is_beyond_us = isinstance(error, UnsupportedError)
        if file.options.looks_for_damage and not (is_beyond_us and are_known):
            blame(file, chunks, error)
        if is_beyond_us:
            raise error.at(where) from error
        if file.options.page_checksum_verification:
            _find_damage(file, read)
        raise named(file, chunks, error).at(where) from error


def _failing_group(
    read: ColumnRead,
    spliced: Sequence[RowGroupBytes],
    decode: Callable[[Sequence[RowGroupBytes]], pa.ChunkedArray],
) -> int | None:
    """Returns the first row group that cannot be decoded by itself, None if each can."""
    for (group, _), part in zip(read.groups, spliced, strict=True):
        try:
            decode([part])
        except FormatError:
            return group
    return None


def _check_distinct(
    file: OpenedFile,
    read: ColumnRead,
    values: pa.ChunkedArray,
    part: Sequence[RowGroupBytes],
    leaves: Sequence[int],
) -> None:
    """Raise ``NotCodedError`` where codes are not those of the texts they should be.

    ``values`` are of those ``leaves`` of the root, by their positions.
    """
    for at, position in enumerate(leaves):
        leaf = read.root.leaves[position]
        column = file.schema.leaves[leaf]
        if column.name in read.root.coded:
            try:
                check_distinct(values, column.path, part, at)
            except NotCodedError:
                file.not_coded.update((group, leaf) for group, _ in read.groups)
                raise


def _verified(file: OpenedFile) -> bool:
    """Is pyarrow to compare checksums? Not where it was done as pages were fetched."""
    return file.options.page_checksum_verification and not file.options.looks_for_damage


def _merged(
    file: OpenedFile,
    read: ColumnRead,
    groups: Sequence[Sequence[ChunkBytes]],
    portions: Sequence[tuple[int, ...]],
    rows: RowRanges,
) -> pa.ChunkedArray:
    """Leaves whose pages hold different rows: each cut to ``rows``, then joined.

    Raises ``PageIndexMistrust`` where that fails: read whole, the root may be sound all the same.
    """
    template = file.templates.logical(read.root, storage=True)
    parts = []
    try:
        for portion in portions:
            part = template.only([template.leaves[i] for i in portion])
            values = _decode(file, read, groups, part, portion)
            cut = _cut_column(values, read.held(file, portion[0]), rows)
            parts.append(Part(part.leaves, cut))
        return merge(file.arrow_type(read.root), parts)
    except UnsupportedError:
        raise
    except FormatError as error:
        for group, selections in read.groups:
            for leaf, selection in zip(read.root.leaves, selections, strict=True):
                if file.damage.knows(group, leaf):  # what is left of it must not be tried for ever
                    file.note_damage(group, leaf, [all_lost(file, group, leaf, error.message)])
                elif selection.page_rows:
                    file.page_indexes.distrust(group, leaf, error.message)
        raise PageIndexMistrust from error


def _find_damage(file: OpenedFile, read: ColumnRead) -> None:
    """Raise ``FormatError`` for the first page that belies its checksum, if there is one."""
    for group, _ in read.groups:
        for leaf in read.root.leaves:
            chunk = Chunk(file, group, leaf)
            for page in chunk.pages():
                problem = checksum_problem(page.header, chunk.body(page))
                if problem:
                    raise FormatError(problem, chunk.at(page))


def _cut_column(values: pa.ChunkedArray, held: RowRanges, rows: RowRanges) -> pa.ChunkedArray:
    if held == rows:
        return values
    column: pa.ChunkedArray = _cut(pa.table([values], [""]), held, rows).column(0)
    return column


def _cut(values: pa.Table, held: RowRanges, rows: RowRanges) -> pa.Table:
    """Of ``values`` at rows ``held``, those at ``rows``, a subset."""
    if held == rows:
        return values
    positions = held.positions(rows)
    is_little = positions.num_rows < values.num_rows / _KEPT_ALIVE
    if len(positions) > _SLICES or (is_little and _is_of_one_part(values)):
        return taken(values, pa.array(positions.rows()))
    parts = [values.slice(start, stop - start) for start, stop in positions]
    cut = pa.concat_tables(parts)
    return taken(cut, pa.array(np.arange(cut.num_rows))) if is_little else cut


def _is_of_one_part(values: pa.Table) -> bool:
    return all(column.num_chunks == 1 for column in values.columns)
