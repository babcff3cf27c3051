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

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from intarsia.decode.merge import as_storage
from intarsia.errors import FormatError, UnsupportedError
from intarsia.format.compact import (
    Span,
    field_value,
    list_elements,
    list_span,
    replace_fields,
    spans,
    string_span,
    zigzag,
)
from intarsia.format.footer import MAGIC, framed
from intarsia.format.metadata import (
    ColumnChunk,
    ColumnMetaData,
    FieldRepetitionType,
    FileMetaData,
    KeyValue,
    SchemaElement,
)
from intarsia.format.schema import Leaf, Root, Schema
from intarsia.format.thrift import encode

_ARROW_SCHEMA = "ARROW:schema"
_I32, _I64 = 5, 6
_TEMPLATES = 256
"""More of them than this are not kept: there is one for each combination of columns."""


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


@dataclass(frozen=True, slots=True)
class RootTemplate:
    """The parts of a synthetic footer that are the same for all pages of one root, or of several.

    ``leaves`` are those that are read, by their positions among the roots' ``num_leaves``.
    """

    fields: tuple[Span, ...]
    num_leaves: int = 1
    leaves: tuple[int, ...] = (0,)
    num_roots: int = 1
    as_dictionaries: tuple[str, ...] = ()
    """Columns of text to be read as Arrow dictionaries, by their dotted paths."""
    int96_unit: str | None = None
    """The unit of INT96; nanoseconds without one."""

    def only(self, leaves: Sequence[int]) -> RootTemplate:
        """The same root, of which just ``leaves`` are read."""
        return replace(self, leaves=tuple(leaves))


class SchemaTemplates:
    """Templates for the roots of one file, cut from the bytes of its footer."""

    def __init__(
        self,
        metadata: FileMetaData,
        footer: bytes,
        read_dictionary: Iterable[str] = (),
        int96_unit: str | None = None,
    ) -> None:
        """``footer`` is the encoded ``metadata``; ``read_dictionary`` are leaves of it."""
        self._as_dictionaries, self._int96_unit = tuple(read_dictionary), int96_unit
        self._version = Span(1, _I32, zigzag(metadata.version))
        # Schema elements may carry fields this version does not know: their bytes are kept.
        self._elements = list_elements(field_value(footer, 2) or b"")
        self._created_by = metadata.created_by
        self._orders = [encode(order) for order in metadata.column_orders or []]
        self._arrow_schema = _stored_arrow_schema(metadata)
        self._logical: dict[tuple[tuple[Root, ...], bool], RootTemplate] = {}

    @property
    def stored_metadata(self) -> dict[bytes, bytes] | None:
        """The metadata of the Arrow schema that the writer stored, pandas' own among it."""
        return None if self._arrow_schema is None else self._arrow_schema.metadata

    def arrow_schema(self) -> pa.Schema:
        """The file's schema as pyarrow reads it, without its key/value metadata."""
        orders = [list_span(7, self._orders)] if self._orders else []
        stored = self._key_values(self._arrow_schema)
        head = self._head(self._elements, stored, orders)
        footer = replace_fields(head, [Span(3, _I64, zigzag(0)), list_span(4, [])])
        file = _open(MAGIC + framed(footer), False, self._as_dictionaries, self._int96_unit)
        return file.schema_arrow.remove_metadata()

    def logical(self, root: Root, *, storage: bool = False) -> RootTemplate:
        """Decodes a root to its Arrow type.

        ``storage`` leaves extensions of more than one leaf out of it: pyarrow makes no such type of
        some of its leaves.
        """
        return self._kept((root,), storage)

    def together(self, roots: Sequence[Root]) -> RootTemplate | None:
        """Decodes several roots at once, as ``logical`` does one.

        None where the stored Arrow schema knows some of them only: pyarrow goes by one that has a
        field for each, or by none.
        """
        known = sum(len(self._stored_field(root, False)) for root in roots)
        return self._kept(tuple(roots), False) if known in (0, len(roots)) else None

    def _kept(self, roots: tuple[Root, ...], storage: bool) -> RootTemplate:
        known = self._logical.get((roots, storage))
        if known is None:
            if len(self._logical) >= _TEMPLATES:  # queries for ever other columns
                self._logical.clear()
            known = self._logical[roots, storage] = self._template_of(roots, storage)
        return known

    def _template_of(self, roots: tuple[Root, ...], storage: bool) -> RootTemplate:
        elements = [_with_children(self._elements[0], len(roots))]
        of_leaves: list[bytes] = []
        stored: list[pa.Field] = []
        wanted: list[int] = []
        num_leaves = 0
        for root in roots:
            elements += _slice(self._elements, root.elements)
            of_leaves += _slice(self._orders, root.all_leaves)
            stored += self._stored_field(root, storage)
            wanted += (num_leaves + leaf - root.all_leaves.start for leaf in root.leaves)
            num_leaves += len(root.all_leaves)
        orders = [list_span(7, of_leaves)] if of_leaves else []
        schema = self._key_values(pa.schema(stored) if stored else None)
        head = self._head(elements, schema, orders)
        starts = tuple(f"{root.name}." for root in roots)
        texts = tuple(path for path in self._as_dictionaries if f"{path}.".startswith(starts))
        return RootTemplate(head, num_leaves, tuple(wanted), len(roots), texts, self._int96_unit)

    def _stored_field(self, root: Root, storage: bool) -> list[pa.Field]:
        """The field of the stored Arrow schema, if there is one."""
        stored = self._arrow_schema
        at = -1 if stored is None else stored.get_field_index(root.name)
        if stored is None or at < 0:
            return []
        field = stored.field(at)
        return [field.with_type(as_storage(field.type)) if storage else field]

    def physical(self, schema: Schema, leaf: Leaf) -> RootTemplate:
        """Decodes one leaf, without its siblings, to the values that PLAIN encoding would hold:
        within plain lists and structs, where it is nested.
        """
        path = [schema.elements[at] for at in leaf.elements]
        bare = [
            SchemaElement(
                type=element.type,
                type_length=element.type_length,
                repetition_type=element.repetition_type,
                name=element.name,
                num_children=None if element is path[-1] else 1,
            )
            for element in path
        ]
        elements = [_with_children(self._elements[0], 1), *map(encode, bare)]
        return RootTemplate(self._head(elements, [], []))

    def required(self, leaf: Leaf) -> RootTemplate:
        """Decodes values of one leaf that stand alone, without levels, to their Arrow type."""
        element = spans(self._elements[leaf.elements[-1]])[0]
        alone = replace_fields(element, [Span(3, _I32, zigzag(FieldRepetitionType.REQUIRED))])
        elements = [_with_children(self._elements[0], 1), alone]
        return RootTemplate(self._head(elements, [], []))

    def _head(
        self, elements: list[bytes], key_values: list[Span], orders: list[Span]
    ) -> tuple[Span, ...]:
        writer = [string_span(6, self._created_by)] if self._created_by else []
        return (self._version, list_span(2, elements), *key_values, *writer, *orders)

    @staticmethod
    def _key_values(schema: pa.Schema | None) -> list[Span]:
        """Arrow's own type of the root; without it, time zones and dictionaries are lost."""
        if schema is None:
            return []
        text = base64.b64encode(schema.serialize().to_pybytes()).decode()
        return [list_span(5, [encode(KeyValue(key=_ARROW_SCHEMA, value=text))])]


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
    some = len(template.leaves) < template.num_leaves
    are_flat = template.num_leaves == template.num_roots
    order = _largest_first(groups) if use_threads and are_flat else []
    try:
        data = splice(template, groups)
        file = _open(data, verify_checksums, template.as_dictionaries, template.int96_unit)
        # By number: names that hold dots would stand for other leaves as well.
        columns = list(template.leaves) if some else order or None
        table = file.reader.read_all(column_indices=columns, use_threads=use_threads)
        if order:
            table = table.select(np.argsort(order).tolist())
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, pa.ArrowNotImplementedError) and len(groups) > 1:
            # Dictionaries within structs or lists: pyarrow makes such arrays of one part only.
            tables = [decode_roots(template, [group], verify_checksums) for group in groups]
            return pa.concat_tables(tables)
        kind = UnsupportedError if _is_beyond_pyarrow(error) else FormatError
        raise kind(f"cannot decode: {error}") from error
    expected = sum(group.num_rows for group in groups)
    if table.num_rows != expected or table.num_columns != template.num_roots:
        raise FormatError(f"pages hold {table.num_rows:,} rows where {expected:,} were expected")
    return table


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
    known = ("too deeply nested", "Due to column pruning")
    return isinstance(error, pa.ArrowNotImplementedError) or any(t in str(error) for t in known)


def leaf_values(values: pa.ChunkedArray) -> pa.Array:
    """The values of a physically decoded leaf, one after the other, without NULLs."""
    parts = []
    for part in values.chunks:
        while pa.types.is_nested(part.type):
            part = part.flatten()[0] if pa.types.is_struct(part.type) else part.flatten()
        parts.append(part.drop_null())
    if not parts:
        return pa.array([], values.type)
    return pa.concat_arrays(parts)


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


def _open(
    data: bytes | pa.Buffer,
    verify_checksums: bool,
    as_dictionaries: Sequence[str],
    int96_unit: str | None,
) -> pq.ParquetFile:
    return pq.ParquetFile(
        pa.BufferReader(data),
        read_dictionary=list(as_dictionaries) or None,
        page_checksum_verification=verify_checksums,
        coerce_int96_timestamp_unit=int96_unit,
        pre_buffer=False,
    )


def _with_children(root: bytes, count: int) -> bytes:
    """The schema's root element with ``count`` children instead of however many it has."""
    fields, _ = spans(root)
    return replace_fields(fields, [Span(5, _I32, zigzag(count))])


def _slice(items: list[bytes], where: range) -> list[bytes]:
    return items[where.start : where.stop]


def _stored_arrow_schema(metadata: FileMetaData) -> pa.Schema | None:
    """The Arrow schema that the writer stored, where it is there and readable."""
    stored = metadata.key_value(_ARROW_SCHEMA)
    if not stored:
        return None
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
    except (pa.ArrowException, OSError, ValueError):
        return None
