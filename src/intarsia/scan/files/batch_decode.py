"""Decodes columns of many small files together, as row groups of one spliced file.

::

    file 0   … [id] …     ┐
    file 1   … [id] …     ├─▶  PAR1 [id][id][id] … footer'  ─▶  one table
    file 2   … [id] …     ┘    a row group each

The files are of one schema group. Planning and decoding a file by itself takes a millisecond or two
even if it is tiny.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import pyarrow as pa

from intarsia.decode.splice import ChunkBytes, RowGroupBytes, decode_roots
from intarsia.file.open_file import OpenedFile
from intarsia.io.source import ByteRange
from intarsia.memory import has_limit
from intarsia.parquet.metadata import ColumnMetaData
from intarsia.parquet.schema import Root
from intarsia.plan.cost_model import COSTS
from intarsia.pruning.partition_pruning import Constants
from intarsia.scan.schema_adapter import as_type
from intarsia.threads import in_order, may_use_threads

T = TypeVar("T")


class SmallFile(NamedTuple):
    """A file with the chunks that are decoded, by column, and an estimate of their decoded size."""

    file: OpenedFile
    chunks: Sequence[Sequence[ColumnMetaData]]
    decoded_bytes: int


def of_portions(
    files: Sequence[SmallFile],
    roots: Sequence[Root],
    size_factors: dict[tuple[int, ...], float],
    act: Callable[[range, pa.Table], T],
) -> Iterator[T]:
    """Yields ``act(positions, table)`` for portions of ``files``, in order.

    The files are of one schema group. A portion is about ``portion_bytes`` of files, in stored
    types. Estimated sizes are corrected by ``size_factors``, the maximum ratios so far of a
    portion's decoded bytes to their estimate by the leaves, which are updated. Yields nothing if
    pyarrow cannot decode the columns together. Threads decode portions after the first; for tiny
    files, threads decode columns instead. Raises the errors of ``decode_roots``.
    """
    template = files[0].file.templates.together(roots)
    if template is None:
        return
    leaves = tuple([leaf for root in roots for leaf in root.leaves])
    sizes = [file.decoded_bytes for file in files]
    uses_threads = may_use_threads() and sum(sizes) >= COSTS.threaded_file_bytes * len(files)
    ahead = pa.cpu_count() if uses_threads else 0
    verifies_checksums = files[0].file.options.page_checksum_verification

    def decode_portion(positions: range) -> T:
        groups = [group for i in positions for group in _row_groups(files[i], leaves)]
        table = decode_roots(template, groups, verifies_checksums, not ahead and may_use_threads())
        factor = table.nbytes / max(sum([sizes[i] for i in positions]), 1)
        size_factors[leaves] = max(size_factors.get(leaves, 1.0), factor)
        return act(positions, table.rename_columns([root.name for root in roots]))

    portions_left = _portions(sizes, leaves, size_factors)
    yield decode_portion(next(portions_left))
    yield from in_order((partial(decode_portion, positions) for positions in portions_left), ahead)


def _portions(
    sizes: Sequence[int], leaves: tuple[int, ...], size_factors: Mapping[tuple[int, ...], float]
) -> Iterator[range]:
    """Yields the positions of each portion's files. The first are small if sizes are unknown."""
    start = 0
    most_files = len(sizes) if leaves in size_factors else COSTS.first_portion_files
    while start < len(sizes):
        stop, size, factor = start + 1, sizes[start], size_factors.get(leaves, 1.0)
        while stop < min(start + most_files, len(sizes)):
            if (size + sizes[stop]) * factor > COSTS.portion_bytes:
                break
            size += sizes[stop]
            stop += 1
        yield range(start, stop)
        start, most_files = stop, 8 * most_files


def may_be_together(file: OpenedFile) -> bool:
    """True if the file has default read options, its pages need no checks, and no defaults."""
    options = file.options
    return not (
        file.view.defaults
        or options.read_dictionary
        or options.on_corrupt
        or options.page_size_limit is not None
        or has_limit()
    )


def _row_groups(small: SmallFile, leaves: Sequence[int]) -> list[RowGroupBytes]:
    """Reads all row groups of a file, with all columns in one call."""
    file, starts = small.file, small.file.row_group_starts.tolist()
    chunks = [chunk for group in zip(*small.chunks, strict=True) for chunk in group]
    ranges = [(chunk.start, chunk.total_compressed_size) for chunk in chunks]
    chunk_data = map(_chunk_bytes, chunks, ranges, _read(file, ranges))
    file.groups_read.update(range(len(starts) - 1))
    if file.profile.is_recording:
        file.profile.whole_chunks(len(starts) - 1, leaves)
    return [
        RowGroupBytes(stop - start, list(itertools.islice(chunk_data, len(leaves))))
        for start, stop in itertools.pairwise(starts)
    ]


def _read(file: OpenedFile, ranges: Sequence[ByteRange]) -> list[memoryview]:
    """Reads ``ranges`` of a file, by one read if all of them are near each other."""
    start = min([offset for offset, _ in ranges], default=0)
    size = max([offset + length for offset, length in ranges], default=0) - start
    is_valid = min([length for _, length in ranges], default=0) >= 0
    if size > COSTS.single_read_bytes or not is_valid:
        return file.source.read(ranges)
    (whole,) = file.source.read([(start, size)])
    return [whole[offset - start :][:length] for offset, length in ranges]


def _chunk_bytes(chunk: ColumnMetaData, range_: ByteRange, data: memoryview) -> ChunkBytes:
    """Returns a whole chunk, with the dictionary page separate."""
    first = min(max(chunk.data_page_offset - range_[0], 0), data.nbytes)
    return ChunkBytes(chunk, data[:first] if first else None, [data[first:]], chunk.num_values)


def as_in_data_set(
    table: pa.Table,
    fields: Iterable[pa.Field],
    constants: Sequence[Constants],
    counts: Sequence[int],
) -> dict[str, pa.ChunkedArray]:
    """Returns the columns of ``fields``: partition values, cast columns of ``table``, or NULLs.

    ``table`` has rows of several files. ``counts`` are each file's rows, ``constants`` its
    partition values.
    """
    columns = {}
    for field in fields:
        name, kind = field.name, field.type
        if name in constants[0]:
            values = zip(constants, counts, strict=True)
            columns[name] = pa.chunked_array(
                [pa.repeat(values_of_file[name], n) for values_of_file, n in values], kind
            )
        elif name not in table.column_names:
            columns[name] = pa.chunked_array([pa.nulls(table.num_rows, kind)])
        else:
            columns[name] = as_type(table.column(name), kind)
    return columns
