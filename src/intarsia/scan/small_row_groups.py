"""Reading small chunks of many row groups whole, with what is wanted of them cut out afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from intarsia.decode.row_groups import PartsOfFile, decode_groups
from intarsia.decode.synthetic_footer import FAILURES
from intarsia.errors import FormatError
from intarsia.file.open_file import OpenedFile
from intarsia.io.coalesce import coalesce
from intarsia.io.source import ByteRange, Source
from intarsia.memory import has_limit
from intarsia.parquet.schema import Root
from intarsia.plan.page_ranges import whole_chunk
from intarsia.row_ranges import RowRanges
from intarsia.scan.integrity.row_counts import check_dictionary, checked_values
from intarsia.scan.page_selection import groups_of, load_offsets, rows_of
from intarsia.threads import THREADED_BYTES, all_of, may_divide

T = TypeVar("T")

_MANY = 64
"""Fewer chunks are spliced soon enough."""
_LEAST = 32
"""So is one chunk in so many of the file: pyarrow goes through the whole footer first."""
_SMALL_BYTES, _SPARED_BYTES = 128 * 1024, 16 * 1024
"""What chunks may have on average, and how much of that reading pages would spare."""
_FILE_BYTES = 256 * 1024
"""Of files with larger chunks, some of them are not looked for that are small."""


def read_small_groups(
    file: OpenedFile, roots: Sequence[Root], rows: RowRanges, source: Source
) -> tuple[pa.Table, RowRanges] | None:
    """A column for each of ``roots``, of the row groups that hold ``rows``, and all their rows.

    None where chunks are few or large, where pages are to be checked, or where pyarrow cannot read
    them: why, is found page by page. Raises ``PageIndexMistrust`` where pages contradict the page
    index, by which ``rows`` may have been found.
    """
    if not _may_be_small(file):
        return None
    groups = groups_of(file, rows)
    leaves = [leaf for root in roots for leaf in root.leaves]
    if not _are_many(file, len(groups) * len(leaves)):
        return None
    refused: set[tuple[int, ...]] = file.shape.kept("not read whole", set)
    if tuple(leaves) in refused:
        return None
    held = rows_of(file, groups)
    chunks = [chunk for group in groups for chunk in file.outlines(group, leaves)]
    size = sum(chunk.total_compressed_size for chunk in chunks)
    most = min(_SMALL_BYTES, _SPARED_BYTES * held.num_rows / max(held.num_rows - rows.num_rows, 1))
    if size > most * len(chunks):
        return None
    places = [(chunk.start, chunk.total_compressed_size) for chunk in chunks]
    wanted = [(one.offset, one.length) for one in coalesce(places, 0)]
    try:
        parts = source.read(wanted)
        _check_counts(file, groups, leaves, PartsOfFile(file.source.size, wanted, parts))
        table = _decoded(file, roots, groups, wanted, parts, size)
    except pa.ArrowNotImplementedError:  # by its types: dictionaries within structs or lists
        refused.add(tuple(leaves))
        return None
    except (FormatError, *FAILURES):
        return None
    if (table.num_rows, table.num_columns) != (held.num_rows, len(roots)):
        return None
    file.groups_read.update(groups)
    for group in groups:
        for leaf in leaves:
            file.profile.pages(group, leaf, None)
    file.pages_read += sum(file.page_indexes.num_pages(g, leaf) for g in groups for leaf in leaves)
    return table, held


def _may_be_small(file: OpenedFile) -> bool:
    """Are chunks small, on average, near, and is nothing but their values asked for?

    Of what is far, pages are fetched before they are asked for, and chunks would be once more.
    """
    options = file.options
    if options.looks_for_damage or options.page_size_limit is not None or file.mended:
        return False
    if has_limit():  # pages are looked at before they are decoded
        return False
    return not file.request_bytes and file.source.size <= _FILE_BYTES * _num_chunks(file)


def _num_chunks(file: OpenedFile) -> int:
    return len(file.metadata.row_groups) * len(file.schema.leaves)


def _are_many(file: OpenedFile, num_chunks: int) -> bool:
    """Are so many chunks many, also of those that pyarrow finds in the footer?"""
    return num_chunks >= max(_MANY, _num_chunks(file) // _LEAST)


def pages_spare_little(file: OpenedFile, num_groups: int) -> bool:
    """Are chunks of so many row groups read whole, whichever pages are wanted?"""
    are_tiny = file.source.size <= _SPARED_BYTES * _num_chunks(file)
    return are_tiny and _are_many(file, num_groups) and _may_be_small(file)


def know_page_indexes(file: OpenedFile, rows: RowRanges, leaves: Sequence[int]) -> None:
    """Have the page indexes by which ``rows``, parts of row groups, were found by who planned them.

    Where chunks are read whole, none would be looked at, and pages not be held against it.
    """
    if _may_be_small(file):
        load_offsets(file, leaves, rows)


def _check_counts(
    file: OpenedFile, groups: Sequence[int], leaves: Sequence[int], held: PartsOfFile
) -> None:
    """Ask pages for the rows that an index gives them, where it is known."""
    indexes = file.page_indexes
    for group, leaf in itertools.product(groups, leaves):
        repeats = file.schema.leaves[leaf].max_repetition_level > 0  # which choose no rows
        if repeats or (group, leaf) in indexes.confirmed:
            continue
        if indexes.known_offsets(group, leaf) is not None:
            chunk = file.chunk(group, leaf)
            selection = whole_chunk(chunk, RowRanges.all(file.num_rows_in(group)))
            if selection.dictionary is not None:
                check_dictionary(file, group, leaf, held.part(selection.dictionary))
            pages = [held.part(part) for part in selection.parts]
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
    """All of some row groups: by several threads, each some of the groups, or of the columns."""
    decode = partial(
        decode_groups,
        file.templates,
        file.pyarrows_metadata,
        verify_checksums=file.options.page_checksum_verification,
    )

    def task(groups: Sequence[int], roots: Sequence[Root]) -> pa.Table:
        return decode(PartsOfFile(file.source.size, places, parts), groups, roots)

    count = pa.cpu_count() if size >= THREADED_BYTES and may_divide() else 1
    if len(groups) >= count:
        tables = all_of(partial(task, some, roots) for some in _shares(groups, count))
        return pa.concat_tables(tables)
    tables = all_of(partial(task, groups, some) for some in _shares(roots, count))
    columns = [column for table in tables for column in table.columns]
    return pa.Table.from_arrays(columns, [str(number) for number in range(len(columns))])


def _shares(items: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    """``items`` in ``count`` portions, as far as there are so many."""
    for part in np.array_split(np.arange(len(items)), min(count, len(items))):
        yield items[part[0] : part[-1] + 1]
