"""Decoding columns of many small files together: files of one shape, as row groups of one file.

::

    file 0   … [id] …     ┐
    file 1   … [id] …     ├─▶  PAR1 [id][id][id] … footer'  ─▶  one table
    file 2   … [id] …     ┘    a row group each

To plan and decode a file by itself takes a millisecond or two, however small it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa

from intarsia.decode.splice import ChunkBytes, RowGroupBytes, decode_roots
from intarsia.file.open_file import OpenedFile
from intarsia.io.source import ByteRange, Source, check_range
from intarsia.memory import has_limit
from intarsia.parquet.metadata import ColumnMetaData
from intarsia.parquet.schema import Root
from intarsia.pruning.partition_pruning import Constants
from intarsia.scan.schema_adapter import as_type
from intarsia.scan.units import decoded_bytes
from intarsia.threads import in_order, may_divide

T = TypeVar("T")

PORTION_BYTES = 4 * 1024 * 1024
"""Of columns that are decoded at once."""
_THREADED_BYTES = 128 * 1024
"""Files of fewer bytes take longer in threads, which wait for the interpreter's lock."""
_FIRST_FILES = 2
"""Decoded before it is known what files take; after each portion, eight times as many may be."""
_NEAR_BYTES = 64 * 1024


def of_portions(
    files: Sequence[OpenedFile], roots: Sequence[Root], act: Callable[[range, pa.Table], T]
) -> Iterator[T]:
    """What ``act`` makes of all rows of ``files``, which are of one shape, in order.

    It is given those of one file or several, by their positions, in the types they are stored in:
    of as many as take 4 MB or so. Where footers do not tell how long texts are, what files before
    took does. There is nothing where pyarrow cannot decode these columns together. Portions after
    the first are decoded, and acted on, on as many cores as pyarrow uses; of files that are so
    small that this is mostly the interpreter's work, columns are. Errors as of ``decode_roots``.
    """
    template = files[0].templates.together(roots)
    if template is None:
        return
    portions = _Portions(files, roots)
    ahead = pa.cpu_count() if may_divide() and portions.mean_size >= _THREADED_BYTES else 0

    def decoded(places: range) -> T:
        groups = [group for i in places for group in _row_groups(files[i], roots)]
        verified = files[0].options.page_checksum_verification
        table = decode_roots(template, groups, verified, not ahead and may_divide())
        portions.took(places, table.nbytes)
        return act(places, table.rename_columns([root.name for root in roots]))

    cut = iter(portions)
    yield decoded(next(cut))
    yield from in_order((partial(decoded, places) for places in cut), ahead)


class _Portions:
    """Files that are decoded at once, told as far as it is known what those before took."""

    def __init__(self, files: Sequence[OpenedFile], roots: Sequence[Root]) -> None:
        self._sizes = [decoded_size(file, roots) for file in files]
        self._times = 1.0
        """How many times their size by the footers files took, at most."""
        self.mean_size = sum(self._sizes) / len(self._sizes)
        """Bytes of a file, by the footers."""

    def took(self, places: range, size: int) -> None:
        """Those files took so many bytes."""
        told = sum(self._sizes[i] for i in places)
        self._times = max(self._times, size / max(told, 1))

    def __iter__(self) -> Iterator[range]:
        start, most_files = 0, _FIRST_FILES
        while start < len(self._sizes):
            stop, size = start + 1, self._sizes[start]
            while stop < min(start + most_files, len(self._sizes)):
                if (size + self._sizes[stop]) * self._times > PORTION_BYTES:
                    break
                size += self._sizes[stop]
                stop += 1
            yield range(start, stop)
            start, most_files = stop, 8 * most_files


def may_be_together(file: OpenedFile) -> bool:
    """Is a file to be read as most are, and no page of it to be looked at by itself?"""
    options = file.options
    return not (
        options.read_dictionary
        or options.on_corrupt
        or options.page_size_limit is not None
        or has_limit()
    )


def decoded_size(file: OpenedFile, roots: Sequence[Root]) -> int:
    """Bytes that ``roots`` take decoded, as far as the footer tells."""
    groups = range(len(file.metadata.row_groups))
    leaves = [leaf for root in roots for leaf in root.leaves]
    return sum(
        decoded_bytes(file.schema.leaves[leaf], chunk)
        for group in groups
        for leaf, chunk in zip(leaves, file.outlines(group, leaves), strict=True)
    )


def _row_groups(file: OpenedFile, roots: Sequence[Root]) -> list[RowGroupBytes]:
    """All row groups of a file, its columns read at once."""
    leaves = [leaf for root in roots for leaf in root.leaves]
    counts = [group.num_rows for group in file.metadata.row_groups]
    chunks = [file.chunk(group, leaf) for group in range(len(counts)) for leaf in leaves]
    pieces = _read(file.source, [(chunk.start, chunk.total_compressed_size) for chunk in chunks])
    held = map(_chunk_bytes, chunks, pieces)
    return [RowGroupBytes(count, list(itertools.islice(held, len(leaves)))) for count in counts]


def _read(source: Source, ranges: Sequence[ByteRange]) -> list[memoryview]:
    """As ``source.read``, by one read where all of ``ranges`` are near each other."""
    for range_ in ranges:
        check_range(range_, source.size)
    start = min((offset for offset, _ in ranges), default=0)
    size = max((offset + length for offset, length in ranges), default=0) - start
    if size > _NEAR_BYTES:
        return source.read(ranges)
    (whole,) = source.read([(start, size)])
    return [whole[offset - start :][:length] for offset, length in ranges]


def _chunk_bytes(chunk: ColumnMetaData, data: memoryview) -> ChunkBytes:
    """A whole chunk, its dictionary page told apart."""
    first = min(max(chunk.data_page_offset - chunk.start, 0), data.nbytes)
    return ChunkBytes(chunk, data[:first] if first else None, [data[first:]], chunk.num_values)


def as_in_data_set(
    table: pa.Table,
    fields: Iterable[pa.Field],
    constants: Sequence[Constants],
    counts: Sequence[int],
) -> dict[str, pa.ChunkedArray]:
    """The columns of ``fields``: of ``table``, cast; else fixed by a file's folder, else NULL.

    ``table`` has rows of several files, of each as many as ``counts`` says, and ``constants`` are
    the columns that the folder of each fixes.
    """
    columns = {}
    for field in fields:
        name, kind = field.name, field.type
        if name in constants[0]:
            values = zip(constants, counts, strict=True)
            columns[name] = pa.chunked_array([pa.repeat(own[name], n) for own, n in values], kind)
        elif name not in table.column_names:
            columns[name] = pa.chunked_array([pa.nulls(table.num_rows, kind)])
        else:
            columns[name] = as_type(table.column(name), kind)
    return columns
