"""Splicing: wanted pages of a column, concatenated under a synthetic footer, read by pyarrow.

::

    file      PAR1 [dict][p0][p1][p2][p3] … footer     the chunk of one column
    wanted         ^dict      ^p1     ^p3
    spliced   PAR1 [dict][p1][p3] footer'              a small Parquet file of that column alone

The synthetic footer carries the schema elements of one root, bit for bit, so pyarrow makes the same
Arrow type of it as it would reading the whole file. Several row groups become several row groups.

Of a root with many leaves, some can be read: the elements of all stay in the footer, so that types
come out as pyarrow prunes them, and the chunks of the others are there in name only. Leaves whose
pages hold different rows are read by themselves and joined by ``merge``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from intarsia.decode.empty_pages import without_empty
from intarsia.decode.synthetic_footer import FAILURES, RootTemplate, narrowed
from intarsia.errors import FormatError, OutOfMemoryError, UnsupportedError
from intarsia.parquet.compact_protocol import Span, list_span, replace_fields, zigzag
from intarsia.parquet.footer import MAGIC, framed
from intarsia.parquet.metadata import ColumnChunk, ColumnMetaData
from intarsia.parquet.thrift import encode

_I64 = 6
_WIDE_ROWS = 4096
"""Casting texts back takes longer than what decoding fewer as large ones saves."""


@dataclass(frozen=True, slots=True)
class ChunkBytes:
    """What is kept of one leaf's chunk: its dictionary page, if any, and whole data pages."""

    metadata: ColumnMetaData
    dictionary: memoryview | None
    pages: Sequence[memoryview]
    num_values: int


@dataclass(frozen=True, slots=True)
class RowGroupBytes:
    """The same ``num_rows`` rows of every leaf that is read of one root."""

    num_rows: int
    chunks: Sequence[ChunkBytes]


def decode_root(
    template: RootTemplate, groups: Sequence[RowGroupBytes], *, verify_checksums: bool = False
) -> pa.ChunkedArray:
    """All rows of ``groups``, in order, as pyarrow decodes them.

    Raises ``FormatError`` where pyarrow cannot decode the pages.
    """
    column: pa.ChunkedArray = decode_roots(template, groups, verify_checksums).column(0)
    return column


def decode_roots(
    template: RootTemplate,
    groups: Sequence[RowGroupBytes],
    verify_checksums: bool = False,
    use_threads: bool = False,
) -> pa.Table:
    """As ``decode_root``, of a template of several roots: a column each."""
    wide = template.wide
    if wide is not None and sum(group.num_rows for group in groups) >= _WIDE_ROWS:
        # What is wrong with the pages, the other says. Of more bytes than offsets of 32 bits can
        # tell, it makes several arrays.
        with contextlib.suppress(FormatError, UnsupportedError, pa.ArrowInvalid):
            return narrowed(_decoded(wide, groups, verify_checksums, use_threads))
    try:
        return _decoded(template, groups, verify_checksums, use_threads)
    except FormatError:
        kept = [_without_empty_pages(group) for group in groups]
        if _num_bytes(kept) == _num_bytes(groups):
            raise
    return _decoded(template, kept, verify_checksums, use_threads)


def _without_empty_pages(group: RowGroupBytes) -> RowGroupBytes:
    """Returns the row group without data pages that hold no values."""
    chunks = [
        replace(chunk, pages=without_empty(chunk.pages, chunk.num_values)) for chunk in group.chunks
    ]
    return replace(group, chunks=chunks)


def _num_bytes(groups: Sequence[RowGroupBytes]) -> int:
    """Returns the size of all data pages of ``groups``."""
    return sum(p.nbytes for group in groups for chunk in group.chunks for p in chunk.pages)


def _decoded(
    template: RootTemplate,
    groups: Sequence[RowGroupBytes],
    verify_checksums: bool,
    use_threads: bool,
) -> pa.Table:
    some = len(template.leaves) < template.num_leaves
    are_flat = template.num_leaves == template.num_roots
    if template.as_dictionaries and not are_flat and len(groups) > 1:
        return _each_decoded(template, groups, verify_checksums)
    order = _largest_first(groups) if use_threads and are_flat else []
    try:
        file = template.opened(splice(template, groups), verify_checksums)
        # By number: names that hold dots would stand for other leaves as well.
        columns = list(template.leaves) if some else order or None
        table = file.reader.read_all(column_indices=columns, use_threads=use_threads)
        if order:
            table = table.select(np.argsort(order).tolist())
    except FAILURES as error:
        if isinstance(error, pa.ArrowNotImplementedError) and len(groups) > 1:
            return _each_decoded(template, groups, verify_checksums)
        raise _failure(error) from error
    expected = sum(group.num_rows for group in groups)
    if table.num_rows != expected or table.num_columns != template.num_roots:
        raise _other_rows(table.num_rows, expected)
    return table


def _failure(error: Exception) -> FormatError | OutOfMemoryError:
    """Returns what to raise for an error of pyarrow's reader."""
    if isinstance(error, MemoryError):
        return OutOfMemoryError(f"cannot decode: {error}")
    kind = UnsupportedError if _is_beyond_pyarrow(error) else FormatError
    return kind(f"cannot decode: {error}")


def _other_rows(found: int, expected: int) -> FormatError:
    return FormatError(f"pages hold {found:,} rows where {expected:,} were expected")


def _each_decoded(
    template: RootTemplate, groups: Sequence[RowGroupBytes], verify_checksums: bool
) -> pa.Table:
    """As ``_decoded``, one after the other.

    Of dictionaries within structs or lists, pyarrow makes arrays of one part only.
    """
    tables = [_decoded(template, [group], verify_checksums, False) for group in groups]
    return pa.concat_tables(tables)


def _largest_first(groups: Sequence[RowGroupBytes]) -> list[int]:
    """The numbers of the chunks, in the order in which threads are best given them.

    The last is then soon done, and no thread waits for long.
    """
    sizes = [0.0] * len(groups[0].chunks) if groups else []
    for group in groups:
        for number, chunk in enumerate(group.chunks):
            stored = max(chunk.metadata.total_compressed_size, 1)
            share = sum(page.nbytes for page in chunk.pages) / stored
            sizes[number] += share * chunk.metadata.total_uncompressed_size
    return sorted(range(len(sizes)), key=lambda number: -sizes[number])


def _is_beyond_pyarrow(error: Exception) -> bool:
    """Is the file sound, as far as this tells, and pyarrow not up to it?"""
    codecs = ("Unsupported compression codec", "supported by the Parquet format in general")
    known = ("too deeply nested", "Due to column pruning", *codecs)
    return isinstance(error, pa.ArrowNotImplementedError) or any(t in str(error) for t in known)


def leaf_batches(
    template: RootTemplate, group: RowGroupBytes, batch_rows: int
) -> Iterator[pa.Array]:
    """Yields the values of a physically decoded leaf, of up to ``batch_rows`` rows at a time.

    NULLs are among them unless the leaf is repeated. Strings and bytes have offsets of 64 bits if
    that is quicker. Pages are decompressed one after the other, so memory is bounded by the
    largest page and by what ``batch_rows`` rows take. Raises as ``decode_root`` does.
    """
    found = 0
    try:
        file = (template.wide or template).opened(splice(template, [group]), False)
        for batch in file.iter_batches(batch_rows, use_threads=False):
            found += batch.num_rows
            yield leaf_array(batch.column(0))
    except FAILURES as error:
        raise _failure(error) from error
    if found != group.num_rows:
        raise _other_rows(found, group.num_rows)


def leaf_array(values: pa.Array) -> pa.Array:
    """Returns the leaf within the lists and structs of a physically decoded root."""
    while pa.types.is_nested(values.type):
        values = values.flatten()[0] if pa.types.is_struct(values.type) else values.flatten()
    return values


def splice(template: RootTemplate, groups: Sequence[RowGroupBytes]) -> pa.Buffer:
    """The bytes of a Parquet file of one root that holds just ``groups``.

    Their chunks are those of the template's leaves. The memory is Arrow's: its threads may be the
    last to let go of it, and one that needs the interpreter for that while this exits ends the
    process.
    """
    parts: list[bytes | memoryview] = [MAGIC]
    at = len(MAGIC)
    encoded = []
    for group in groups:
        some = len(template.leaves) < template.num_leaves
        chunks: list[Any] = [_absent(group.num_rows) if some else None] * template.num_leaves
        for leaf, chunk in zip(template.leaves, group.chunks, strict=True):
            pieces = [*([chunk.dictionary] if chunk.dictionary else []), *chunk.pages]
            size = sum(piece.nbytes for piece in pieces)
            chunks[leaf] = _relocated(chunk, at, size)
            parts += pieces
            at += size
        encoded.append(_row_group(chunks, group.num_rows))
    rows = sum(group.num_rows for group in groups)
    footer = replace_fields(template.fields, [Span(3, _I64, zigzag(rows)), list_span(4, encoded)])
    return _joined([*parts, framed(footer)])


def _joined(parts: Sequence[bytes | memoryview]) -> pa.Buffer:
    joined = pa.allocate_buffer(sum(map(len, parts)))
    room, at = memoryview(joined).cast("B"), 0
    for part in parts:
        room[at : at + len(part)] = memoryview(part).cast("B")
        at += len(part)
    return joined


def _row_group(chunks: Sequence[ColumnChunk], num_rows: int) -> bytes:
    """An encoded RowGroup."""
    columns = list_span(1, [encode(chunk) for chunk in chunks])
    return replace_fields([columns, Span(2, _I64, zigzag(0)), Span(3, _I64, zigzag(num_rows))], [])


def _relocated(chunk: ChunkBytes, at: int, size: int) -> ColumnChunk:
    """The chunk's metadata with its bytes, ``size`` of them, at offset ``at``."""
    dictionary = chunk.dictionary.nbytes if chunk.dictionary else 0
    old = chunk.metadata
    metadata = ColumnMetaData(
        type=old.type,
        encodings=old.encodings,
        path_in_schema=old.path_in_schema,
        codec=old.codec,
        num_values=chunk.num_values,
        total_uncompressed_size=max(old.total_uncompressed_size, size),
        total_compressed_size=size,
        data_page_offset=at + dictionary,
        dictionary_page_offset=at if dictionary else None,
    )
    return ColumnChunk(file_offset=0, meta_data=metadata)


def _absent(num_rows: int) -> ColumnChunk:
    """A chunk that is not read. pyarrow reads a root until the values of its first chunk are up."""
    metadata = ColumnMetaData(
        type=0,
        encodings=[],
        path_in_schema=[],
        codec=0,
        num_values=num_rows,
        total_uncompressed_size=0,
        total_compressed_size=0,
        data_page_offset=len(MAGIC),
    )
    return ColumnChunk(file_offset=0, meta_data=metadata)
