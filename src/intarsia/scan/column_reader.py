"""Fetches and decodes given rows of some columns of a file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter

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
from intarsia.memory import AllocationBudget
from intarsia.parquet.page_header import checksum_problem
from intarsia.parquet.schema import Root
from intarsia.process_state import ForkLock
from intarsia.row_ranges import RowRanges
from intarsia.scan.dictionary_codes import (
    NotDictionaryEncodedError,
    check_dictionary_encoding,
    check_distinct,
)
from intarsia.scan.integrity.damage_locator import all_lost
from intarsia.scan.integrity.oversized_pages import check_pages, reserve_page_memory
from intarsia.scan.integrity.page_guard import (
    PageIndexMistrust,
    check_dictionary,
    check_places,
    check_selection,
    checked_values,
    located_error,
    record_undecodable,
)
from intarsia.scan.page_selection import ColumnRead, ranges_of, select
from intarsia.scan.small_row_groups import read_small_groups
from intarsia.threads import THREADED_BYTES, all_of, may_use_threads

_DIVIDED_BYTES = 512 * 1024
"""From this many stored bytes, the pages of a single column are divided among threads."""
_MIN_SEPARATE_BYTES = 4 * 1024 * 1024
"""Below this many stored bytes, decoding several columns together is faster than one by one."""
_COLUMNS_PER_BLOCK = 16
"""Columns decoded together if there are many small ones."""
_MAX_SLICES, _MAX_RETAINED_RATIO = 64, 4
"""Rows in at most this many ranges are cut by slicing, others by position.

Slices are copied if they would keep more than ``_MAX_RETAINED_RATIO`` times their rows in memory.
"""


def read_rows(
    file: OpenedFile,
    roots: Sequence[Root],
    rows: RowRanges,
    *,
    physical: bool = False,
    source: Source | None = None,
) -> list[pa.ChunkedArray]:
    """Reads ``roots`` at ``rows``. Returns one array of ``rows.num_rows`` values for each root.

    A pruned root gives an array without its other leaves. ``source`` replaces the file's own
    source. ``physical`` reads flat columns in their physical type, without annotations. Raises
    ``PageIndexMistrust`` if a page contradicts the page index, ``FormatError`` if bytes cannot be
    decoded, ``NotDictionaryEncodedError`` if strings cannot be read as dictionary indices.
    """
    if not physical and not any(map(attrgetter("coded"), roots)):
        whole = read_small_groups(file, roots, rows, source or file.source)
        if whole is not None:
            columns: list[pa.ChunkedArray] = _Cutter(rows).table(*whole).columns
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
    check_places(file, (selection for read in reads for selection in read.selections()))
    ranges, room, cutter = ranges_of(reads), AllocationBudget(), _Cutter(rows)
    if room.is_limited:
        _take_room(room, file, reads)
    parts = iter((source or file.source).read(ranges))
    fetched = [_checked_chunks(file, read, parts, room) for read in reads]
    size = sum([length for _, length in ranges])
    columns: dict[int, pa.ChunkedArray] = {}
    flat = [] if physical else _with_same_rows(reads)
    if flat:
        flat_reads, chunks = [reads[i] for i in flat], [fetched[i] for i in flat]
        flat_size = size if len(flat) == len(reads) else _num_bytes(flat_reads)
        with contextlib.suppress(FormatError):  # decoding columns one by one names the damaged one
            decoded = _decode_together(file, flat_reads, chunks, cutter, flat_size)
            if decoded is not None and len(flat) == len(reads):
                return decoded
            columns = dict(zip(flat, decoded or (), strict=False))
    divides = len(reads) == 1 and size >= _DIVIDED_BYTES and may_use_threads()
    others = [i for i in range(len(reads)) if i not in columns]
    tasks = [
        partial(
            _decode_column, file, reads[i], fetched[i], cutter, physical=physical, divides=divides
        )
        for i in others
    ]
    arrays = all_of(tasks) if size >= THREADED_BYTES else [task() for task in tasks]
    columns |= zip(others, arrays, strict=True)
    return [columns[i] for i in range(len(reads))]


def _take_room(room: AllocationBudget, file: OpenedFile, reads: Sequence[ColumnRead]) -> None:
    """Reserves memory for the bytes to read, and for the copy that pyarrow decodes.

    Raises ``OutOfMemoryError``.
    """
    for read in reads:
        for group, leaf, selection in read.selections():
            with placed(Where(file.name, group, file.schema.leaves[leaf].name)):
                room.take(2 * sum(length for _, length in selection.byte_ranges), "its chunk")


def _with_same_rows(reads: Sequence[ColumnRead]) -> list[int]:
    """Returns the numbers of most roots of one leaf each that have the same rows selected.

    Returns [] if they are fewer than two.
    """
    flat = [i for i, read in enumerate(reads) if len(read.root.all_leaves) == 1]
    if len(flat) < 2:
        return []
    rows = [[parts[0].rows for _, parts in reads[i].groups] for i in flat]
    if rows.count(rows[0]) == len(rows):
        return flat
    by_rows: dict[tuple[RowRanges, ...], list[int]] = {}
    for i, own_rows in zip(flat, rows, strict=True):
        by_rows.setdefault(tuple(own_rows), []).append(i)
    most = max(by_rows.values(), key=len)
    return most if len(most) > 1 else []


def _num_bytes(reads: Iterable[ColumnRead]) -> int:
    """Returns the stored bytes of the selected pages."""
    return sum(selection.num_bytes for read in reads for *_, selection in read.selections())


def _decode_together(
    file: OpenedFile,
    reads: Sequence[ColumnRead],
    fetched: Sequence[Sequence[Sequence[ChunkBytes]]],
    cutter: _Cutter,
    size: int,
) -> list[pa.ChunkedArray] | None:
    """Decodes roots with the same rows selected together, if that is possible and faster."""
    count = len(reads)
    are_many = (
        count >= 2 * _COLUMNS_PER_BLOCK and size / count < _MIN_SEPARATE_BYTES / _COLUMNS_PER_BLOCK
    )
    if size >= _MIN_SEPARATE_BYTES and not are_many:
        return None
    step = count if size < _MIN_SEPARATE_BYTES else _COLUMNS_PER_BLOCK
    blocks = [slice(at, at + step) for at in range(0, count, step)]
    templates = [file.templates.together([read.root for read in reads[block]]) for block in blocks]
    use_threads = len(blocks) == 1 and size >= THREADED_BYTES and may_use_threads()
    tasks = [
        partial(_decode_block, file, template, reads[block], fetched[block], cutter, use_threads)
        for block, template in zip(blocks, templates, strict=True)
        if template is not None
    ]
    if len(tasks) < len(blocks):
        return None
    blocks_of_columns = all_of(tasks) if len(tasks) > 1 else [tasks[0]()]
    return [column for columns in blocks_of_columns for column in columns]


def _decode_block(
    file: OpenedFile,
    template: RootTemplate,
    reads: Sequence[ColumnRead],
    fetched: Sequence[Sequence[Sequence[ChunkBytes]]],
    cutter: _Cutter,
    use_threads: bool,
) -> list[pa.ChunkedArray]:
    """Decodes roots with the same rows selected as one spliced file instead of one for each."""
    groups_spliced = [
        RowGroupBytes(parts[0].rows.num_rows, [groups[i][0] for groups in fetched])
        for i, (_, parts) in enumerate(reads[0].groups)
    ]
    table = decode_roots(template, groups_spliced, _verifies_checksums(file), use_threads)
    for column, read in enumerate(reads):
        if read.root.coded:
            own_groups = [
                RowGroupBytes(group.num_rows, [group.chunks[column]]) for group in groups_spliced
            ]
            _check_distinct(
                file, read, table.column(column), own_groups, range(len(read.root.leaves))
            )
    cut: list[pa.ChunkedArray] = cutter.table(table, reads[0].selected_rows(file, 0)).columns
    return cut


def _decode_column(
    file: OpenedFile,
    read: ColumnRead,
    groups: Sequence[Sequence[ChunkBytes]],
    cutter: _Cutter,
    *,
    physical: bool = False,
    divides: bool = False,
) -> pa.ChunkedArray:
    """Decodes one root at ``rows``. ``divides`` splits its pages among threads, if it is flat."""
    portions = read.portions()
    if len(portions) > 1:
        return _decode_and_merge(file, read, groups, portions, cutter)
    template = _template(file, read.root, physical)
    values = _decode(file, read, groups, template, divides=divides)
    return cutter.column(values, read.selected_rows(file, 0))


def _template(file: OpenedFile, root: Root, physical: bool) -> RootTemplate:
    if physical:
        return file.templates.physical(file.schema, file.schema.leaves[root.leaves[0]])
    return file.templates.logical(root)


def _checked_chunks(
    file: OpenedFile, read: ColumnRead, parts: Iterator[memoryview], room: AllocationBudget
) -> list[list[ChunkBytes]]:
    """Returns for each row group the chunks of the leaves, checked against their indexes."""
    groups = []
    mistrust: PageIndexMistrust | None = None
    looks_for_damage, is_limited = file.options.looks_for_damage, room.is_limited
    for group, selections in read.groups:
        file.groups_read.add(group)
        chunks = []
        for leaf, selection in zip(read.root.leaves, selections, strict=True):
            dictionary = next(parts) if selection.dictionary else None
            pages = list(islice(parts, len(selection.parts)))
            if looks_for_damage:
                try:
                    check_selection(file, group, leaf, selection, dictionary, pages)
                except PageIndexMistrust as signal:  # raised once all chunks are checked, so that
                    mistrust = signal  # the caller plans again only once
                    continue
            check_pages(file, group, leaf, selection, dictionary, pages)
            if is_limited:
                read_parts = pages if dictionary is None else [dictionary, *pages]
                reserve_page_memory(room, file, group, leaf, selection, read_parts)
            if dictionary is not None:
                check_dictionary(file, group, leaf, dictionary)
            if read.root.coded and file.schema.leaves[leaf].name in read.root.coded:
                check_dictionary_encoding(file, group, leaf, dictionary, pages)
            chunk = file.chunk(group, leaf)
            count = checked_values(file, group, leaf, chunk, selection, pages)
            file.pages_read += len(selection.page_rows) or file.page_indexes.num_pages(group, leaf)
            if file.profile.is_recording:
                offsets = [offset for offset, _ in selection.parts] if selection.page_rows else None
                file.profile.pages(group, leaf, offsets)
            chunks.append(ChunkBytes(chunk, dictionary, pages, count))
        groups.append(chunks)
    if mistrust is not None:
        raise mistrust
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
    """Decodes all rows of the selected pages, for leaves with the same rows selected.

    ``portion`` are the positions of these leaves in the root; None means all.
    """
    leaves = range(len(read.root.leaves)) if portion is None else portion
    spliced = [
        RowGroupBytes(selections[leaves[0]].rows.num_rows, [chunks[i] for i in leaves])
        for (_, selections), chunks in zip(read.groups, groups, strict=True)
    ]

    def decode(part: Sequence[RowGroupBytes]) -> pa.ChunkedArray:
        values = decode_root(template, part, verify_checksums=_verifies_checksums(file))
        if read.root.coded:
            _check_distinct(file, read, values, part, leaves)
        return values

    try:
        if not divides or not file.schema.leaves[read.root.leaves[0]].is_flat:
            return decode(spliced)
        page_rows = [selections[0].page_rows for _, selections in read.groups]
        parts = shares(spliced, page_rows, pa.cpu_count())
        decoded = all_of(partial(decode, part) for part in parts)
        return pa.chunked_array(
            [chunk for array in decoded for chunk in array.chunks], decoded[0].type
        )
    except OutOfMemoryError as error:
        raise error.at(Where(file.name, column=read.root.name)) from error
    except FormatError as error:
        where = Where(file.name, _failing_group(read, spliced, decode), read.root.name)
        chunks = [(g, read.root.leaves[i], parts[i]) for g, parts in read.groups for i in leaves]
        are_known = all(is_known(file.chunk(group, leaf).codec) for group, leaf, _ in chunks)
        is_beyond_us = isinstance(error, UnsupportedError)
        if file.options.looks_for_damage and not (is_beyond_us and are_known):
            record_undecodable(file, chunks, error)
        if is_beyond_us:
            raise error.at(where) from error
        if file.options.page_checksum_verification:
            _find_damage(file, read)
        raise located_error(file, chunks, error).at(where) from error


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
    """Raises ``NotDictionaryEncodedError`` if indices in ``values`` may mean the wrong strings.

    ``leaves`` are the positions in the root of the leaves that were decoded.
    """
    for at, position in enumerate(leaves):
        leaf = read.root.leaves[position]
        column = file.schema.leaves[leaf]
        if column.name in read.root.coded:
            try:
                check_distinct(values, column.path, part, at)
            except NotDictionaryEncodedError:
                file.without_dictionary_indices.update((group, leaf) for group, _ in read.groups)
                raise


def _verifies_checksums(file: OpenedFile) -> bool:
    """True if pyarrow has to verify checksums, because fetching did not."""
    return file.options.page_checksum_verification and not file.options.looks_for_damage


def _decode_and_merge(
    file: OpenedFile,
    read: ColumnRead,
    groups: Sequence[Sequence[ChunkBytes]],
    portions: Sequence[tuple[int, ...]],
    cutter: _Cutter,
) -> pa.ChunkedArray:
    """Decodes leaves whose pages hold different rows, cuts each to ``rows``, and merges them.

    Raises ``PageIndexMistrust`` if that fails, because the root may be sound if read whole.
    """
    template = file.templates.logical(read.root, storage=True)
    parts = []
    try:
        for portion in portions:
            part = template.only([template.leaves[i] for i in portion])
            values = _decode(file, read, groups, part, portion)
            cut = cutter.column(values, read.selected_rows(file, portion[0]))
            parts.append(Part(part.leaves, cut))
        return merge(file.arrow_type(read.root), parts)
    except UnsupportedError:
        raise
    except FormatError as error:
        for group, selections in read.groups:
            for leaf, selection in zip(read.root.leaves, selections, strict=True):
                if file.damage.knows(group, leaf):  # else this would be tried again forever
                    file.note_damage(group, leaf, [all_lost(file, group, leaf, error.message)])
                elif selection.page_rows:
                    file.page_indexes.distrust(group, leaf, error.message)
        raise PageIndexMistrust from error


def _find_damage(file: OpenedFile, read: ColumnRead) -> None:
    """Raises ``FormatError`` for the first page that does not match its checksum, if any."""
    for group, _ in read.groups:
        for leaf in read.root.leaves:
            chunk = Chunk(file, group, leaf)
            for page in chunk.pages():
                problem = checksum_problem(page.header, chunk.body(page))
                if problem:
                    raise FormatError(problem, chunk.at(page))


class _Cutter:
    """Cuts decoded columns to ``rows``. Threads may share it.

    Columns whose pages hold the same rows share the positions, which take as long as cutting.
    """

    def __init__(self, rows: RowRanges) -> None:
        self._rows = rows
        self._positions: dict[RowRanges, tuple[RowRanges, pa.Array | None]] = {}
        self._lock = ForkLock()

    def column(self, values: pa.ChunkedArray, stored_rows: RowRanges) -> pa.ChunkedArray:
        """Returns the rows of one column, as ``table``."""
        if stored_rows == self._rows:
            return values
        column: pa.ChunkedArray = self.table(pa.table([values], [""]), stored_rows).column(0)
        return column

    def table(self, values: pa.Table, stored_rows: RowRanges) -> pa.Table:
        """Returns the rows of ``values``, which holds ``stored_rows``: these and maybe others."""
        if stored_rows == self._rows:
            return values
        positions, numbers = self._positions_among(stored_rows)
        if numbers is not None:
            return taken(values, numbers)
        is_small_part = positions.num_rows < values.num_rows / _MAX_RETAINED_RATIO
        if is_small_part and _is_contiguous(values):
            return taken(values, pa.array(positions.rows()))
        parts = [values.slice(start, stop - start) for start, stop in positions]
        cut = pa.concat_tables(parts)
        return taken(cut, pa.array(np.arange(cut.num_rows))) if is_small_part else cut

    def _positions_among(self, stored_rows: RowRanges) -> tuple[RowRanges, pa.Array | None]:
        """Returns the positions of the rows. They are numbers as well if the ranges are many."""
        with self._lock:
            if stored_rows not in self._positions:
                positions = stored_rows.positions(self._rows)
                are_many = len(positions) > _MAX_SLICES
                numbers = pa.array(positions.rows()) if are_many else None
                self._positions[stored_rows] = positions, numbers
            return self._positions[stored_rows]


def _is_contiguous(values: pa.Table) -> bool:
    return all(column.num_chunks == 1 for column in values.columns)
