"""Reads small chunks of many row groups whole; the requested rows are cut out afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from intarsia.decode.row_groups import PartialFile, decode_groups
from intarsia.decode.synthetic_footer import FAILURES
from intarsia.errors import FormatError
from intarsia.file.open_file import OpenedFile
from intarsia.io.source import ByteRange, Source, coalesce
from intarsia.memory import has_limit
from intarsia.parquet.schema import Root
from intarsia.plan.cost_model import COSTS
from intarsia.plan.page_ranges import whole_chunk
from intarsia.row_ranges import RowRanges
from intarsia.scan.integrity.page_guard import check_dictionary, checked_values
from intarsia.scan.page_selection import groups_of, load_offsets, rows_of, select
from intarsia.threads import THREADED_BYTES, all_of, may_use_threads

T = TypeVar("T")


def read_small_groups(
    file: OpenedFile, roots: Sequence[Root], rows: RowRanges, source: Source
) -> tuple[pa.Table, RowRanges] | None:
    """Reads ``roots`` in all row groups that hold ``rows``. Returns the table and its rows.

    Returns None if chunks are few or large, if pages must be checked, or if pyarrow cannot read
    them; reading pages then reports the error. Raises ``PageIndexMistrust`` if pages contradict the
    page index.
    """
    if not _may_be_small(file):
        return None
    groups = groups_of(file, rows)
    leaves = [leaf for root in roots for leaf in root.leaves]
    if not _are_many(file, len(groups) * len(leaves)):
        return None
    unsupported: set[tuple[int, ...]] = file.shape.cached("not read whole", set)
    if tuple(leaves) in unsupported:
        return None
    group_rows = rows_of(file, groups)
    chunks = [chunk for group in groups for chunk in file.outlines(group, leaves)]
    size = sum(chunk.total_compressed_size for chunk in chunks)
    mean, share = size / len(chunks), rows.num_rows / group_rows.num_rows
    if mean > COSTS.chunk_bytes:
        return None
    if mean * (1 - share) > COSTS.skippable_bytes and _can_skip(file, roots, groups, rows):
        return None
    places = [(chunk.start, chunk.total_compressed_size) for chunk in chunks]
    ranges = [(merged.offset, merged.length) for merged in coalesce(places, 0)]
    try:
        parts = source.read(ranges)
        _check_counts(file, groups, leaves, PartialFile(file.source.size, ranges, parts))
        table = _decoded(file, roots, groups, ranges, parts, size)
    except pa.ArrowNotImplementedError:  # unsupported types: dictionaries in structs or lists
        unsupported.add(tuple(leaves))
        return None
    except (FormatError, *FAILURES):
        return None
    if (table.num_rows, table.num_columns) != (group_rows.num_rows, len(roots)):
        return None
    file.groups_read.update(groups)
    for group in groups:
        for leaf in leaves:
            file.profile.pages(group, leaf, None)
    file.pages_read += sum(file.page_indexes.num_pages(g, leaf) for g in groups for leaf in leaves)
    return table, group_rows


def _can_skip(
    file: OpenedFile, roots: Sequence[Root], groups: Sequence[int], rows: RowRanges
) -> bool:
    """True if pages without ``rows`` take many bytes, judging by some columns and row groups.

    A page is read for any of its rows, so long pages may leave nothing to skip.
    """
    rows = rows & rows_of(file, _sample(groups))
    selections = [one for read in select(file, _sample(roots), rows) for one in read.selections()]
    skipped = sum(
        chunk.total_compressed_size - selection.num_bytes
        for group, leaf, selection in selections
        for chunk in file.outlines(group, [leaf])
    )
    return skipped > COSTS.skippable_bytes * len(selections)


def _sample(items: Sequence[T]) -> Sequence[T]:
    return items[:: -(-len(items) // COSTS.sampled)]


def _may_be_small(file: OpenedFile) -> bool:
    """True if the file is local with small chunks on average, and pages need no checks.

    On remote storage pages are prefetched, and reading chunks would fetch them again.
    """
    options = file.options
    if options.looks_for_damage or options.page_size_limit is not None or file.repaired_chunks:
        return False
    if has_limit():  # pages are checked before they are decoded
        return False
    return not file.request_bytes and file.source.size <= COSTS.file_bytes_per_chunk * _num_chunks(
        file
    )


def _num_chunks(file: OpenedFile) -> int:
    return len(file.metadata.row_groups) * len(file.schema.leaves)


def _are_many(file: OpenedFile, num_chunks: int) -> bool:
    """True if the chunks are many, also compared with all chunks in the footer."""
    return num_chunks >= max(COSTS.many_chunks, _num_chunks(file) // COSTS.chunks_share)


def reads_whole_chunks(file: OpenedFile, num_groups: int) -> bool:
    """True if chunks of this many row groups are read whole, regardless of the pages selected."""
    are_tiny = file.source.size <= COSTS.skippable_bytes * _num_chunks(file)
    return are_tiny and _are_many(file, num_groups) and _may_be_small(file)


def load_page_indexes(file: OpenedFile, rows: RowRanges, leaves: Sequence[int]) -> None:
    """Loads the page indexes that an earlier plan used to select ``rows``.

    If chunks are read whole, nothing else would load them, and pages would not be compared with
    them.
    """
    if _may_be_small(file):
        load_offsets(file, leaves, rows)


def _check_counts(
    file: OpenedFile, groups: Sequence[int], leaves: Sequence[int], parts: PartialFile
) -> None:
    """Compares the row counts of pages with the offset indexes that are loaded."""
    indexes = file.page_indexes
    for group, leaf in itertools.product(groups, leaves):
        repeats = file.schema.leaves[leaf].max_repetition_level > 0  # their bounds exclude no rows
        if repeats or (group, leaf) in indexes.confirmed:
            continue
        if indexes.known_offsets(group, leaf) is not None:
            chunk = file.chunk(group, leaf)
            selection = whole_chunk(chunk, RowRanges.all(file.num_rows_in(group)))
            if selection.dictionary is not None:
                check_dictionary(file, group, leaf, parts.part(selection.dictionary))
            pages = [parts.part(part) for part in selection.parts]
            checked_values(file, group, leaf, chunk, selection, pages)
            indexes.confirmed.add((group, leaf))


def _decoded(
    file: OpenedFile,
    roots: Sequence[Root],
    groups: Sequence[int],
    places: Sequence[ByteRange],
    parts: Sequence[memoryview],
    size: int,
) -> pa.Table:
    """Decodes whole row groups; threads divide the groups or the columns."""
    decode = partial(
        decode_groups,
        file.templates,
        file.pyarrow_metadata,
        verify_checksums=file.options.page_checksum_verification,
    )

    def task(groups: Sequence[int], roots: Sequence[Root]) -> pa.Table:
        return decode(PartialFile(file.source.size, places, parts), groups, roots)

    count = pa.cpu_count() if size >= THREADED_BYTES and may_use_threads() else 1
    if len(groups) >= count:
        tables = all_of(partial(task, share, roots) for share in _shares(groups, count))
        return pa.concat_tables(tables)
    tables = all_of(partial(task, groups, share) for share in _shares(roots, count))
    columns = [column for table in tables for column in table.columns]
    return pa.Table.from_arrays(columns, [str(number) for number in range(len(columns))])


def _shares(items: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    """Divides ``items`` into ``count`` parts, or fewer if there are fewer items."""
    for part in np.array_split(np.arange(len(items)), min(count, len(items))):
        yield items[part[0] : part[-1] + 1]
