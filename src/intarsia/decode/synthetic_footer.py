"""Templates: the parts of a synthetic footer that are the same for whatever is spliced under it.

The schema elements of one root, or of several, bit for bit, the Arrow schema that the writer stored
for them, and how pyarrow is to read them.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from intarsia.decode.nested_merge import as_storage
from intarsia.parquet.compact_protocol import (
    Span,
    field_value,
    list_elements,
    list_span,
    replace_fields,
    spans,
    string_span,
    zigzag,
)
from intarsia.parquet.footer import MAGIC, framed
from intarsia.parquet.metadata import (
    ConvertedType,
    Empty,
    FieldRepetitionType,
    FileMetaData,
    KeyValue,
    LogicalType,
    SchemaElement,
    Type,
)
from intarsia.parquet.schema import Leaf, Root, Schema
from intarsia.parquet.thrift import encode

ARROW_SCHEMA = "ARROW:schema"
_I32, _I64 = 5, 6
_TEMPLATES = 256
"""More of them than this are not kept: there is one for each combination of columns."""
FAILURES = (pa.ArrowException, OSError, UnicodeDecodeError)
"""What comes of files that pyarrow cannot read."""
_NARROW = [pa.string(), pa.binary()]
_WIDE = [pa.large_string(), pa.large_binary()]
"""Types of texts and bytes, with offsets of 32 bits and of 64."""


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
    binary_type: pa.DataType | None = None
    """What texts and bytes are decoded as where no Arrow schema is stored."""
    wide: RootTemplate | None = dataclasses.field(default=None, compare=False)
    """The same roots with ``large_string`` and ``large_binary`` for types with offsets of 32 bits.

    pyarrow decodes them in two thirds of the time, as it need not look out for offsets that are
    full. None where there are no such columns, or it is not certain to give the same values.
    """

    def opened(
        self,
        data: bytes | pa.Buffer | pa.NativeFile,
        verify_checksums: bool,
        metadata: pq.FileMetaData | None = None,
    ) -> pq.ParquetFile:
        """A file of these roots to pyarrow, which decodes its footer unless that is given as
        ``metadata``. Raises one of ``FAILURES``.
        """
        return pq.ParquetFile(
            data if isinstance(data, pa.NativeFile) else pa.BufferReader(data),
            metadata=metadata,
            read_dictionary=list(self.as_dictionaries) or None,
            binary_type=self.binary_type,
            page_checksum_verification=verify_checksums,
            coerce_int96_timestamp_unit=self.int96_unit,
            pre_buffer=False,
            arrow_extensions_enabled=True,
        )

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
        self._schema = metadata.schema
        self._created_by = metadata.created_by
        self._orders = [encode(order) for order in metadata.column_orders or []]
        self._arrow_schema = _stored_arrow_schema(metadata)
        self._logical: dict[tuple[tuple[Root, ...], bool], RootTemplate] = {}

    @property
    def stored_metadata(self) -> dict[bytes, bytes] | None:
        """The metadata of the Arrow schema that the writer stored, pandas' own among it."""
        return None if self._arrow_schema is None else self._arrow_schema.metadata

    @property
    def has_stored_schema(self) -> bool:
        """Did the writer store an Arrow schema?"""
        return self._arrow_schema is not None

    def whole(
        self,
        roots: Iterable[Root],
        file: pa.NativeFile,
        metadata: pq.FileMetaData,
        verify_checksums: bool,
    ) -> pq.ParquetFile:
        """The file itself to pyarrow, by its own footer, to read ``roots``. Raises one of
        ``FAILURES``.
        """
        template = self._of_all(())
        template = replace(template, as_dictionaries=template.as_dictionaries + _coded(roots))
        return template.opened(file, verify_checksums, metadata=metadata)

    def _of_all(self, fields: tuple[Span, ...]) -> RootTemplate:
        """How all roots are read, under a footer of such fields."""
        return RootTemplate(
            fields, as_dictionaries=self._as_dictionaries, int96_unit=self._int96_unit
        )

    def arrow_schema(self) -> pa.Schema:
        """The file's schema as pyarrow reads it, without its key/value metadata."""
        orders = [list_span(7, self._orders)] if self._orders else []
        stored = self._key_values(self._arrow_schema)
        head = self._head(self._elements, stored, orders)
        footer = replace_fields(head, [Span(3, _I64, zigzag(0)), list_span(4, [])])
        file = self._of_all(head).opened(MAGIC + framed(footer), False)
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
        starts = tuple(f"{root.name}." for root in roots)
        texts = tuple(path for path in self._as_dictionaries if f"{path}.".startswith(starts))
        texts += _coded(roots)

        def head(fields: list[pa.Field]) -> tuple[Span, ...]:
            schema = self._key_values(pa.schema(fields) if fields else None)
            return self._head(elements, schema, orders)

        shape = num_leaves, tuple(wanted), len(roots), texts, self._int96_unit
        wide = None
        if not texts and self._can_be_wide(roots, stored):
            fields = [field.with_type(_changed(field.type, _NARROW, _WIDE)) for field in stored]
            binary_type = None if stored else pa.large_binary()
            wide = RootTemplate(head(fields), *shape, binary_type)
        return RootTemplate(head(stored), *shape, wide=wide)

    def _can_be_wide(self, roots: tuple[Root, ...], stored: list[pa.Field]) -> bool:
        """Are there flat texts or bytes among ``roots``, and nothing that would change with them?

        ``stored`` are the fields of the stored Arrow schema, one a root or none.
        """
        kinds = [_text_type(self._schema[root.elements.start]) for root in roots]
        if stored:
            pairs = [(field.type, kind) for field, kind in zip(stored, kinds, strict=True)]
            agree = all(type_ == kind for type_, kind in pairs if type_ in [*_NARROW, *_WIDE])
            return agree and any(type_ in _NARROW for type_, _ in pairs)
        elements = [self._schema[at] for root in roots for at in root.elements]
        num_bytes = sum(element.type == Type.BYTE_ARRAY for element in elements)
        return num_bytes == sum(kind is not None for kind in kinds) > 0

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
        head = self._head(elements, [], [])
        wide = RootTemplate(head, binary_type=pa.large_binary()) if _text_type(bare[0]) else None
        return RootTemplate(head, wide=wide)

    def required(self, leaf: Leaf, *, physical: bool = False) -> RootTemplate:
        """Decodes values of one leaf that stand alone, without levels, to their Arrow type.

        With ``physical`` this is the type of what PLAIN encoding holds.
        """
        alone = self._elements[leaf.elements[-1]]
        if physical:
            bare = leaf.element
            alone = encode(
                SchemaElement(type=bare.type, type_length=bare.type_length, name=bare.name)
            )
        required = [Span(3, _I32, zigzag(FieldRepetitionType.REQUIRED))]
        elements = [_with_children(self._elements[0], 1), replace_fields(spans(alone)[0], required)]
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
        return [list_span(5, [encode(KeyValue(key=ARROW_SCHEMA, value=text))])]


def _coded(roots: Iterable[Root]) -> tuple[str, ...]:
    """The paths of texts that are to come as Arrow dictionaries."""
    return tuple(path for root in roots for path in root.coded)


def _with_children(root: bytes, count: int) -> bytes:
    """The schema's root element with ``count`` children instead of however many it has."""
    fields, _ = spans(root)
    return replace_fields(fields, [Span(5, _I32, zigzag(count))])


def _slice(items: list[bytes], where: range) -> list[bytes]:
    return items[where.start : where.stop]


def _stored_arrow_schema(metadata: FileMetaData) -> pa.Schema | None:
    """The Arrow schema that the writer stored, where it is there and readable."""
    stored = metadata.key_value(ARROW_SCHEMA)
    if not stored:
        return None
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError):
        return None


def narrowed(table: pa.Table) -> pa.Table:
    """What was decoded by a ``wide`` template, in the types of the other.

    Raises ``pa.ArrowInvalid`` where an array has more bytes than these can hold.
    """
    for number, field in enumerate(table.schema):
        if field.type in _WIDE:
            kind = _changed(field.type, _WIDE, _NARROW)
            table = table.set_column(number, field.with_type(kind), table.column(number).cast(kind))
    return table


def _changed(kind: pa.DataType, one: list[pa.DataType], other: list[pa.DataType]) -> pa.DataType:
    """The type at the same place of ``other`` as ``kind`` is of ``one``; itself if it is not."""
    return other[one.index(kind)] if kind in one else kind


def _text_type(element: SchemaElement) -> pa.DataType | None:
    """The Arrow type of a flat column of texts or bytes; None of any other column."""
    logical = element.logicalType
    if element.type != Type.BYTE_ARRAY or element.repetition_type == FieldRepetitionType.REPEATED:
        return None
    is_text = element.converted_type == ConvertedType.UTF8
    if logical == LogicalType(STRING=Empty()) or (logical is None and is_text):
        return pa.string()
    return pa.binary() if logical is None and element.converted_type is None else None
