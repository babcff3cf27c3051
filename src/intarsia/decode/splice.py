"""Splices pages of a column under a synthetic footer, for pyarrow to read.

::

    file      PAR1 [dict][p0][p1][p2][p3] … footer     the chunk of one column
    needed         ^dict      ^p1     ^p3
    spliced   PAR1 [dict][p1][p3] footer'              a small Parquet file of that column alone

The synthetic footer contains the schema elements of one root, bit for bit. So pyarrow gives it the
same Arrow type as in the whole file. Several row groups become several row groups.

Some leaves of a root can be read without the others. The footer then has the elements of all
leaves, so that types are pruned as pyarrow does it. Chunks of the others only have placeholders.
Leaves that need different pages are read separately and combined by ``nested_merge``.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from intarsia.decode.empty_pages import without_empty
from intarsia.decode.synthetic_footer import FAILURES, RootTemplate, narrowed
from intarsia.errors import FormatError, OutOfMemoryError, UnsupportedError
from intarsia.parquet.compact_protocol import (
    LIST,
    STRUCT,
    Span,
    joined,
    list_header,
    replace_fields,
    zigzag,
)
from intarsia.parquet.footer import MAGIC, framed
from intarsia.parquet.metadata import ColumnMetaData
from intarsia.parquet.thrift import encode

_I64 = 6
_NEXT_I64, _LATER_I64 = b"\x16", b"\x26"
"""Headers of i64 fields whose numbers are one and two more than that of the field before."""
_CHUNK_START = _LATER_I64 + b"\0\x1c"
"""Start of a ``ColumnChunk``: ``file_offset`` is 0, and ``meta_data`` follows."""
_ZEROS = 3 * (_NEXT_I64 + b"\0") + _LATER_I64 + b"\0\0"
"""End of a ``ColumnMetaData`` whose sizes and offset are 0, without a dictionary page."""
_MIN_WIDE_ROWS = 4096
"""Below this row count, casting strings back to 32-bit offsets costs more than 64-bit offsets
save.
"""


class ChunkBytes(NamedTuple):
    """Bytes that are read of one leaf's chunk: its dictionary page, if any, and whole data
    pages.
    """

    metadata: ColumnMetaData
    dictionary: memoryview | None
    pages: Sequence[memoryview]
    num_values: int


class RowGroupBytes(NamedTuple):
    """The pages of ``num_rows`` rows. Every leaf of one root that is read has the same rows."""

    num_rows: int
    chunks: Sequence[ChunkBytes]


def decode_root(
    template: RootTemplate, groups: Sequence[RowGroupBytes], *, verify_checksums: bool = False
) -> pa.ChunkedArray:
    """Returns all rows of ``groups``, in order, as pyarrow decodes them.

    Raises ``FormatError`` if pyarrow cannot decode the pages.
    """
    column: pa.ChunkedArray = decode_roots(template, groups, verify_checksums).column(0)
    return column


def decode_roots(
    template: RootTemplate,
    groups: Sequence[RowGroupBytes],
    verify_checksums: bool = False,
    use_threads: bool = False,
) -> pa.Table:
    """Returns a table with a column for each root of the template. See ``decode_root``."""
    wide = template.wide
    if wide is not None and sum(group.num_rows for group in groups) >= _MIN_WIDE_ROWS:
        # On failure the other template is used. It reports the error, or makes several arrays if
        # the bytes exceed 32-bit offsets.
        with contextlib.suppress(FormatError, UnsupportedError, pa.ArrowInvalid):
            return narrowed(_decoded(wide, groups, verify_checksums, use_threads))
    try:
        return _decoded(template, groups, verify_checksums, use_threads)
    except FormatError:
        nonempty = [_without_empty_pages(group) for group in groups]
        if _num_bytes(nonempty) == _num_bytes(groups):
            raise
    return _decoded(template, nonempty, verify_checksums, use_threads)


def _without_empty_pages(group: RowGroupBytes) -> RowGroupBytes:
    """Returns the row group without data pages that hold no values."""
    chunks = [
        chunk._replace(pages=without_empty(chunk.pages, chunk.num_values)) for chunk in group.chunks
    ]
    return group._replace(chunks=chunks)


def _num_bytes(groups: Sequence[RowGroupBytes]) -> int:
    """Returns the size of all data pages of ``groups``."""
    return sum(p.nbytes for group in groups for chunk in group.chunks for p in chunk.pages)


def _decoded(
    template: RootTemplate,
    groups: Sequence[RowGroupBytes],
    verify_checksums: bool,
    use_threads: bool,
) -> pa.Table:
    is_partial = len(template.leaves) < template.num_leaves
    are_flat = template.num_leaves == template.num_roots
    if template.as_dictionaries and not are_flat and len(groups) > 1:
        return _decoded_separately(template, groups, verify_checksums)
    order = _largest_first(groups) if use_threads and are_flat else []
    try:
        file = template.opened(splice(template, groups), verify_checksums)
        # By number: a name that contains dots could also select other leaves.
        columns = list(template.leaves) if is_partial else order or None
        table = file.reader.read_all(column_indices=columns, use_threads=use_threads)
        if order:
            table = table.select(np.argsort(order).tolist())
    except FAILURES as error:
        if isinstance(error, pa.ArrowNotImplementedError) and len(groups) > 1:
            return _decoded_separately(template, groups, verify_checksums)
        raise _decoding_error(error) from error
    expected = sum([group.num_rows for group in groups])
    if table.num_rows != expected or table.num_columns != template.num_roots:
        raise _row_count_error(table.num_rows, expected)
    return table


def _decoding_error(error: Exception) -> FormatError | OutOfMemoryError:
    """Returns what to raise for an error of pyarrow's reader."""
    if isinstance(error, MemoryError):
        return OutOfMemoryError(f"cannot decode: {error}")
    kind = UnsupportedError if _is_beyond_pyarrow(error) else FormatError
    return kind(f"cannot decode: {error}")


def _row_count_error(actual: int, expected: int) -> FormatError:
    return FormatError(f"pages hold {actual:,} rows where {expected:,} were expected")


def _decoded_separately(
    template: RootTemplate, groups: Sequence[RowGroupBytes], verify_checksums: bool
) -> pa.Table:
    """Decodes one row group after the other, as ``_decoded`` does.

    pyarrow can only make one chunk from dictionaries within structs or lists.
    """
    tables = [_decoded(template, [group], verify_checksums, False) for group in groups]
    return pa.concat_tables(tables)


def _largest_first(groups: Sequence[RowGroupBytes]) -> list[int]:
    """Returns the numbers of the chunks, largest first, for threads to decode.

    The last chunks are then small, and no thread waits long for another.
    """
    sizes = [0.0] * len(groups[0].chunks) if groups else []
    for group in groups:
        for number, chunk in enumerate(group.chunks):
            stored = max(chunk.metadata.total_compressed_size, 1)
            share = sum(page.nbytes for page in chunk.pages) / stored
            sizes[number] += share * chunk.metadata.total_uncompressed_size
    return sorted(range(len(sizes)), key=lambda number: -sizes[number])


def _is_beyond_pyarrow(error: Exception) -> bool:
    """True if the error says that pyarrow does not support the file, which may be valid."""
    codecs = ("Unsupported compression codec", "supported by the Parquet format in general")
    messages = ("too deeply nested", "Due to column pruning", *codecs)
    return isinstance(error, pa.ArrowNotImplementedError) or any(t in str(error) for t in messages)


def leaf_batches(
    template: RootTemplate, group: RowGroupBytes, batch_rows: int
) -> Iterator[pa.Array]:
    """Yields the values of a physically decoded leaf, at most ``batch_rows`` rows at a time.

    NULLs are included unless the leaf is repeated. Strings and bytes have 64-bit offsets if that is
    faster. Pages are decompressed one after the other. Memory is bounded by the largest page and
    the size of ``batch_rows`` rows: no values are kept while the next ones are decoded. Raises the
    same errors as ``decode_root``.
    """
    num_rows = 0

    def leaf_of(batch: pa.RecordBatch) -> pa.Array:
        nonlocal num_rows
        num_rows += batch.num_rows
        return leaf_array(batch.column(0))

    try:
        file = (template.wide or template).opened(splice(template, [group]), False)
        # The variable of a loop would keep a batch.
        yield from map(leaf_of, file.iter_batches(batch_rows, use_threads=False))
    except FAILURES as error:
        raise _decoding_error(error) from error
    if num_rows != group.num_rows:
        raise _row_count_error(num_rows, group.num_rows)


def leaf_array(values: pa.Array) -> pa.Array:
    """Returns the leaf values inside the lists and structs of a physically decoded root."""
    while pa.types.is_nested(values.type):
        values = values.flatten()[0] if pa.types.is_struct(values.type) else values.flatten()
    return values


def splice(template: RootTemplate, groups: Sequence[RowGroupBytes]) -> pa.Buffer:
    """Returns the bytes of a Parquet file that contains only ``groups``.

    Their chunks are those of the template's leaves. The memory belongs to Arrow, as its threads may
    be the last to release it. Releasing memory of Python objects while the interpreter exits would
    abort the process.
    """
    parts: list[bytes | memoryview] = [MAGIC]
    position, num_leaves = len(MAGIC), template.num_leaves
    columns_start = bytes([0x10 | LIST]) + list_header(num_leaves, STRUCT)
    starts = template.chunk_starts
    encoded: list[bytes | int] = []
    for group in groups:
        chunks: list[Sequence[bytes | int]] = [()] * num_leaves
        if len(template.leaves) < num_leaves:
            chunks = [_encoded_chunk(_UNREAD, group.num_rows, 0, 0, len(MAGIC))] * num_leaves
        for leaf, chunk in zip(template.leaves, group.chunks, strict=True):
            metadata, dictionary = chunk.metadata, chunk.dictionary
            key = metadata.type, metadata.codec, *metadata.encodings, *metadata.path_in_schema
            start = starts.get(key)
            if start is None:
                start = starts[key] = _start_of(metadata)
            pieces = [*([dictionary] if dictionary else []), *chunk.pages]
            size = sum(map(attrgetter("nbytes"), pieces))
            uncompressed = max(metadata.total_uncompressed_size, size)
            dictionary_size = dictionary.nbytes if dictionary else 0
            chunks[leaf] = _encoded_chunk(
                start, chunk.num_values, uncompressed, size, position, dictionary_size
            )
            parts += pieces
            position += size
        encoded += [columns_start, *itertools.chain.from_iterable(chunks)]
        encoded += [_NEXT_I64 + b"\0" + _NEXT_I64, group.num_rows, b"\0"]
    rows = sum([group.num_rows for group in groups])
    row_groups = Span(4, LIST, list_header(len(groups), STRUCT) + joined(encoded))
    footer = replace_fields(template.fields, [Span(3, _I64, zigzag(rows)), row_groups])
    return _joined([*parts, framed(footer)])


def _joined(parts: Sequence[bytes | memoryview]) -> pa.Buffer:
    joined = pa.allocate_buffer(sum(map(len, parts)))
    target, position = memoryview(joined).cast("B"), 0
    for part in parts:
        target[position : position + len(part)] = memoryview(part).cast("B")
        position += len(part)
    return joined


def _start_of(metadata: ColumnMetaData) -> bytes:
    """Returns the start of an encoded ``ColumnChunk``: all fields before the number of values."""
    start = ColumnMetaData(
        type=metadata.type,
        encodings=metadata.encodings,
        path_in_schema=metadata.path_in_schema,
        codec=metadata.codec,
        num_values=0,
        total_uncompressed_size=0,
        total_compressed_size=0,
        data_page_offset=0,
    )
    return _CHUNK_START + encode(start).removesuffix(_ZEROS) + _NEXT_I64


def _encoded_chunk(
    start: bytes,
    num_values: int,
    uncompressed: int,
    size: int,
    offset: int,
    dictionary_size: int = 0,
) -> tuple[bytes | int, ...]:
    """Returns the parts of an encoded ``ColumnChunk`` whose ``size`` bytes are at ``offset``."""
    places: tuple[bytes | int, ...] = (_LATER_I64, offset + dictionary_size)
    if dictionary_size:
        places = (*places, _LATER_I64, offset)
    values = start, num_values, _NEXT_I64, uncompressed, _NEXT_I64, size
    return *values, *places, b"\0\0"


_UNREAD = _CHUNK_START + b"\x15\0\x19\x05\x19\x08\x15\0" + _NEXT_I64
"""Start of a chunk that is not read: type 0, codec 0, and empty lists.

pyarrow reads a root until its first chunk has no more values, so it has as many as there are rows.
"""
