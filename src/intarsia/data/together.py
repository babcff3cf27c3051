"""Decoding columns of many small files together: files of one shape, as row groups of one file.

::

    file 0   … [id] …     ┐
    file 1   … [id] …     ├─▶  PAR1 [id][id][id] … footer'  ─▶  one table
    file 2   … [id] …     ┘    a row group each

To plan and decode a file by itself takes a millisecond or two, however small it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import pyarrow as pa

from intarsia.decode.splice import ChunkBytes, RowGroupBytes, decode_roots
from intarsia.format.metadata import ColumnMetaData
from intarsia.format.schema import Root
from intarsia.read.opened import OpenedFile
from intarsia.read.planner import Constants
from intarsia.source import ByteRange, Source, check_range

_NEAR_BYTES = 64 * 1024


def decoded_together(
    files: Sequence[OpenedFile], roots: Sequence[Root], *, use_threads: bool = False
) -> pa.Table | None:
    """All rows of ``files``, which are of one shape, in the types they are stored in.

    None where pyarrow cannot decode these columns together. Errors as of ``decode_roots``.
    """
    template = files[0].templates.together(roots)
    if template is None:
        return None
    groups = [group for file in files for group in _row_groups(file, roots)]
    verified = files[0].options.page_checksum_verification
    table = decode_roots(template, groups, verified, use_threads)
    return table.rename_columns([root.name for root in roots])


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
            found = table.column(name)
            columns[name] = found if found.type == kind else found.cast(kind)
    return columns
