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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

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


def of_portions(
    files: Sequence[OpenedFile],
    sizes: Sequence[int],
    roots: Sequence[Root],
    act: Callable[[range, pa.Table], T],
) -> Iterator[T]:
    """Yields ``act(positions, table)`` for portions of ``files``, in order.

    The files are of one schema group. A portion is about ``portion_bytes`` of files, in stored
    types. ``sizes`` are estimates from footers, corrected by the portions before. Yields nothing if
    pyarrow cannot decode the columns together. Threads decode portions after the first; for tiny
    files, threads decode columns instead. Raises the errors of ``decode_roots``.
    """
    template = files[0].templates.together(roots)
    if template is None:
        return
    leaves = [leaf for root in roots for leaf in root.leaves]
    portions = _Portions(sizes)
    ahead = (
        pa.cpu_count()
        if may_use_threads() and portions.mean_size >= COSTS.threaded_file_bytes
        else 0
    )

    def decode_portion(positions: range) -> T:
        groups = [group for i in positions for group in _row_groups(files[i], leaves)]
        verifies_checksums = files[0].options.page_checksum_verification
        table = decode_roots(template, groups, verifies_checksums, not ahead and may_use_threads())
        portions.record_size(positions, table.nbytes)
        return act(positions, table.rename_columns([root.name for root in roots]))

    portions_left = iter(portions)
    yield decode_portion(next(portions_left))
    yield from in_order((partial(decode_portion, positions) for positions in portions_left), ahead)


class _Portions:
    """The division of files into portions, by their estimated decoded bytes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._size_factor = 1.0
        """Maximum ratio so far of a portion's decoded bytes to the estimate."""
        self.mean_size = sum(self._sizes) / len(self._sizes)
        """Estimated mean bytes of a file."""

    def record_size(self, positions: range, size: int) -> None:
        """Records the decoded bytes of a portion."""
        estimated = sum(self._sizes[i] for i in positions)
        self._size_factor = max(self._size_factor, size / max(estimated, 1))

    def __iter__(self) -> Iterator[range]:
        start, most_files = 0, COSTS.first_portion_files
        while start < len(self._sizes):
            stop, size = start + 1, self._sizes[start]
            while stop < min(start + most_files, len(self._sizes)):
                if (size + self._sizes[stop]) * self._size_factor > COSTS.portion_bytes:
                    break
                size += self._sizes[stop]
                stop += 1
            yield range(start, stop)
            start, most_files = stop, 8 * most_files


def may_be_together(file: OpenedFile) -> bool:
    """True if the file has default read options and its pages need no checks."""
    options = file.options
    return not (
        options.read_dictionary
        or options.on_corrupt
        or options.page_size_limit is not None
        or has_limit()
    )


def _row_groups(file: OpenedFile, leaves: Sequence[int]) -> list[RowGroupBytes]:
    """Reads all row groups of a file, with all columns in one call."""
    starts = file.row_group_starts.tolist()
    chunks = [chunk for group in zip(*map(file.chunks, leaves), strict=True) for chunk in group]
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
