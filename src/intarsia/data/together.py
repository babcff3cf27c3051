"""Decoding columns of many small files together: files of one shape, as row groups of one file.

::

    file 0   … [id] …     ┐
    file 1   … [id] …     ├─▶  PAR1 [id][id][id] … footer'  ─▶  one table
    file 2   … [id] …     ┘    a row group each

To plan and decode a file by itself takes a millisecond or two, however small it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from intarsia.decode.splice import ChunkBytes, RowGroupBytes, decode_roots
from intarsia.format.metadata import ColumnMetaData
from intarsia.format.schema import Root
from intarsia.read.columns import as_type
from intarsia.read.opened import OpenedFile
from intarsia.read.planner import Constants
from intarsia.read.units import decoded_bytes
from intarsia.source import ByteRange, Source, check_range

PORTION_BYTES = 4 * 1024 * 1024
"""Of columns that are decoded at once."""
_FIRST_FILES = 2
"""Decoded before it is known what files take; after each portion, eight times as many may be."""
_NEAR_BYTES = 64 * 1024


def decoded_together(
    files: Sequence[OpenedFile], roots: Sequence[Root], *, use_threads: bool = False
) -> Iterator[tuple[range, pa.Table]]:
    """All rows of ``files``, which are of one shape, in the types they are stored in.

    A table has those of one file or several, by their positions: of as many as take 4 MB or so.
    Where footers do not tell how long texts are, what the files before took does. There is none
    where pyarrow cannot decode these columns together. Errors as of ``decode_roots``.
    """
    template = files[0].templates.together(roots)
    if template is None:
        return
    sizes = [decoded_size(file, roots) for file in files]
    verified = files[0].options.page_checksum_verification
    start, most_files, times = 0, _FIRST_FILES, 1.0
    while start < len(files):
        stop, size = start + 1, sizes[start]
        while stop < min(start + most_files, len(files)):
            if (size + sizes[stop]) * times > PORTION_BYTES:
                break
            size += sizes[stop]
            stop += 1
        groups = [group for file in files[start:stop] for group in _row_groups(file, roots)]
        table = decode_roots(template, groups, verified, use_threads)
        times = max(times, table.nbytes / max(size, 1))
        yield range(start, stop), table.rename_columns([root.name for root in roots])
        start, most_files = stop, 8 * most_files


def decoded_size(file: OpenedFile, roots: Sequence[Root]) -> int:
    """Bytes that ``roots`` take decoded, as far as the footer tells."""
    groups = range(len(file.metadata.row_groups))
    leaves = [leaf for root in roots for leaf in root.leaves]
    return sum(decoded_bytes(file, group, leaf) for group in groups for leaf in leaves)


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
