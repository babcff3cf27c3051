"""Templates of synthetic footers: the parts that do not depend on the spliced pages.

These are the schema elements of one or more roots, bit for bit, and the Arrow schema that the
writer stored for them. Further options say how pyarrow reads them.
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
_MAX_CACHED_TEMPLATES = 256
"""Templates that stay in the cache, one for each combination of columns."""
FAILURES = (pa.ArrowException, OSError, UnicodeDecodeError)
"""Exceptions that pyarrow raises for files that it cannot read."""
_TYPES_32 = [pa.string(), pa.binary()]
_TYPES_64 = [pa.large_string(), pa.large_binary()]
"""Types of strings and bytes, with 32-bit and with 64-bit offsets."""


@dataclass(frozen=True, slots=True)
class RootTemplate:
    """The parts of a synthetic footer that are the same for all pages of some roots."""

    fields: tuple[Span, ...]
    num_leaves: int = 1
    leaves: tuple[int, ...] = (0,)
    num_roots: int = 1
    as_dictionaries: tuple[str, ...] = ()
    """Dotted paths of string columns that are read as Arrow dictionaries."""
    int96_unit: str | None = None
    """Unit of timestamps stored as INT96. None is nanoseconds."""
    binary_type: pa.DataType | None = None
    """Arrow type of strings and bytes if no Arrow schema is stored."""
    wide: RootTemplate | None = dataclasses.field(default=None, compare=False)
    """The same roots, with ``large_string`` and ``large_binary`` for types with 32-bit offsets.

    pyarrow decodes these in two thirds of the time, as it need not check for offset overflow. None
    if there are no such columns, or the values might differ.
    """
    chunk_starts: dict[tuple[object, ...], bytes] = dataclasses.field(
        default_factory=dict, compare=False, repr=False
    )
    """The encoded fields of chunks before their sizes, by what these depend on. For ``splice``."""

    def opened(
        self,
        data: bytes | pa.Buffer | pa.NativeFile,
        verify_checksums: bool,
        metadata: pq.FileMetaData | None = None,
    ) -> pq.ParquetFile:
        """Returns a pyarrow file over bytes of these roots. Raises ``FAILURES``."""
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
        """Returns the same root with only ``leaves`` to read."""
        return replace(self, leaves=tuple(leaves))


class SchemaTemplates:
    """Templates for the roots of one file, made from the bytes of its footer."""

    def __init__(
        self,
        metadata: FileMetaData,
        footer: bytes,
        read_dictionary: Iterable[str] = (),
        int96_unit: str | None = None,
    ) -> None:
        """Prepares the parts that all templates share.

        ``footer`` is the encoded ``metadata``. ``read_dictionary`` has paths of leaves.
        """
        self._as_dictionaries, self._int96_unit = tuple(read_dictionary), int96_unit
        self._version = Span(1, _I32, zigzag(metadata.version))
        # The bytes are copied, as schema elements may have fields that are unknown here.
        self._elements = list_elements(field_value(footer, 2) or b"")
        self._schema = metadata.schema
        self._created_by = metadata.created_by
        self._orders = [encode(order) for order in metadata.column_orders or []]
        self._arrow_schema = _stored_arrow_schema(metadata)
        self._logical: dict[tuple[tuple[Root, ...], bool], RootTemplate] = {}

    @property
    def stored_metadata(self) -> dict[bytes, bytes] | None:
        """Metadata of the Arrow schema that the writer stored, which includes pandas' metadata."""
        return None if self._arrow_schema is None else self._arrow_schema.metadata

    @property
    def has_stored_schema(self) -> bool:
        """Whether the writer stored an Arrow schema."""
        return self._arrow_schema is not None

    def whole(
        self,
        roots: Iterable[Root],
        file: pa.NativeFile,
        metadata: pq.FileMetaData,
        verify_checksums: bool,
    ) -> pq.ParquetFile:
        """Returns a pyarrow file over the file itself. Raises ``FAILURES``."""
        template = self._all_roots_template(())
        template = replace(
            template, as_dictionaries=template.as_dictionaries + _dictionary_paths(roots)
        )
        return template.opened(file, verify_checksums, metadata=metadata)

    def _all_roots_template(self, fields: tuple[Span, ...]) -> RootTemplate:
        """Returns a template for all roots, under a footer with these fields."""
        return RootTemplate(
            fields, as_dictionaries=self._as_dictionaries, int96_unit=self._int96_unit
        )

    def arrow_schema(self) -> pa.Schema:
        """Returns the file's schema as pyarrow reads it, without key/value metadata."""
        orders = [list_span(7, self._orders)] if self._orders else []
        stored = self._key_values(self._arrow_schema)
        head = self._head(self._elements, stored, orders)
        footer = replace_fields(head, [Span(3, _I64, zigzag(0)), list_span(4, [])])
        file = self._all_roots_template(head).opened(MAGIC + framed(footer), False)
        return file.schema_arrow.remove_metadata()

    def logical(self, root: Root, *, storage: bool = False) -> RootTemplate:
        """Returns a template that decodes a root to its Arrow type.

        With ``storage``, extension types of more than one leaf are replaced by their storage types.
        pyarrow cannot make such a type when only some of its leaves are read.
        """
        return self._cached_template((root,), storage)

    def together(self, roots: Sequence[Root]) -> RootTemplate | None:
        """Returns a template that decodes several roots at once, as ``logical`` does for one.

        Returns None if the stored Arrow schema has a field for some of them only. pyarrow only uses
        a schema with a field for each root.
        """
        known = self._logical.get((tuple(roots), False))
        if known is not None:
            return known
        num_stored = sum(len(self._stored_field(root, False)) for root in roots)
        return self._cached_template(tuple(roots), False) if num_stored in (0, len(roots)) else None

    def _cached_template(self, roots: tuple[Root, ...], storage: bool) -> RootTemplate:
        template = self._logical.get((roots, storage))
        if template is None:
            if len(self._logical) >= _MAX_CACHED_TEMPLATES:  # queries of ever new combinations
                self._logical.clear()
            template = self._logical[roots, storage] = self._template_of(roots, storage)
        return template

    def _template_of(self, roots: tuple[Root, ...], storage: bool) -> RootTemplate:
        elements = [_with_children(self._elements[0], len(roots))]
        leaf_orders: list[bytes] = []
        stored: list[pa.Field] = []
        leaves: list[int] = []
        num_leaves = 0
        for root in roots:
            elements += _slice(self._elements, root.elements)
            leaf_orders += _slice(self._orders, root.all_leaves)
            stored += self._stored_field(root, storage)
            leaves += (num_leaves + leaf - root.all_leaves.start for leaf in root.leaves)
            num_leaves += len(root.all_leaves)
        orders = [list_span(7, leaf_orders)] if leaf_orders else []
        prefixes = tuple(f"{root.name}." for root in roots)
        dictionary_paths = tuple(
            path for path in self._as_dictionaries if f"{path}.".startswith(prefixes)
        )
        dictionary_paths += _dictionary_paths(roots)

        def head(fields: list[pa.Field]) -> tuple[Span, ...]:
            schema = self._key_values(pa.schema(fields) if fields else None)
            return self._head(elements, schema, orders)

        options = num_leaves, tuple(leaves), len(roots), dictionary_paths, self._int96_unit
        wide = None
        if not dictionary_paths and self._can_be_wide(roots, stored):
            fields = [
                field.with_type(_mapped_type(field.type, _TYPES_32, _TYPES_64)) for field in stored
            ]
            binary_type = None if stored else pa.large_binary()
            wide = RootTemplate(head(fields), *options, binary_type)
        return RootTemplate(head(stored), *options, wide=wide)

    def _can_be_wide(self, roots: tuple[Root, ...], stored: list[pa.Field]) -> bool:
        """True if only flat strings or bytes change by 64-bit offsets."""
        types = [_string_or_binary_type(self._schema[root.elements.start]) for root in roots]
        if stored:
            pairs = [
                (field.type, string_type) for field, string_type in zip(stored, types, strict=True)
            ]
            agree = all(
                type_ == string_type
                for type_, string_type in pairs
                if type_ in [*_TYPES_32, *_TYPES_64]
            )
            return agree and any(type_ in _TYPES_32 for type_, _ in pairs)
        elements = [self._schema[position] for root in roots for position in root.elements]
        num_bytes = sum(element.type == Type.BYTE_ARRAY for element in elements)
        return num_bytes == sum(string_type is not None for string_type in types) > 0

    def _stored_field(self, root: Root, storage: bool) -> list[pa.Field]:
        """Returns the field of the stored Arrow schema in a list, which is empty without one."""
        stored = self._arrow_schema
        index = -1 if stored is None else stored.get_field_index(root.name)
        if stored is None or index < 0:
            return []
        field = stored.field(index)
        return [field.with_type(as_storage(field.type)) if storage else field]

    def physical(self, schema: Schema, leaf: Leaf) -> RootTemplate:
        """Returns a template of one leaf, without siblings, as PLAIN stores it."""
        path = [schema.elements[position] for position in leaf.elements]
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
        wide = (
            RootTemplate(head, binary_type=pa.large_binary())
            if _string_or_binary_type(bare[0])
            else None
        )
        return RootTemplate(head, wide=wide)

    def required(self, leaf: Leaf, *, physical: bool = False) -> RootTemplate:
        """Returns a template of a leaf's values without levels, or as PLAIN has them."""
        encoded = self._elements[leaf.elements[-1]]
        if physical:
            element = leaf.element
            encoded = encode(
                SchemaElement(type=element.type, type_length=element.type_length, name=element.name)
            )
        required = [Span(3, _I32, zigzag(FieldRepetitionType.REQUIRED))]
        elements = [
            _with_children(self._elements[0], 1),
            replace_fields(spans(encoded)[0], required),
        ]
        return RootTemplate(self._head(elements, [], []))

    def _head(
        self, elements: list[bytes], key_values: list[Span], orders: list[Span]
    ) -> tuple[Span, ...]:
        writer = [string_span(6, self._created_by)] if self._created_by else []
        return (self._version, list_span(2, elements), *key_values, *writer, *orders)

    @staticmethod
    def _key_values(schema: pa.Schema | None) -> list[Span]:
        """Returns the stored Arrow schema, which has zones and dictionaries."""
        if schema is None:
            return []
        text = base64.b64encode(schema.serialize().to_pybytes()).decode()
        return [list_span(5, [encode(KeyValue(key=ARROW_SCHEMA, value=text))])]


def _dictionary_paths(roots: Iterable[Root]) -> tuple[str, ...]:
    """Returns the paths of string columns that are read as Arrow dictionaries."""
    return tuple(path for root in roots for path in root.coded)


def _with_children(root: bytes, count: int) -> bytes:
    """Returns the schema's root element with ``count`` children."""
    fields, _ = spans(root)
    return replace_fields(fields, [Span(5, _I32, zigzag(count))])


def _slice(items: list[bytes], where: range) -> list[bytes]:
    return items[where.start : where.stop]


def _stored_arrow_schema(metadata: FileMetaData) -> pa.Schema | None:
    """Returns the Arrow schema that the writer stored, or None if it is absent or unreadable."""
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
    """Returns a ``wide`` table in plain types. Raises ``pa.ArrowInvalid`` if it is too large."""
    for number, field in enumerate(table.schema):
        if field.type in _TYPES_64:
            kind = _mapped_type(field.type, _TYPES_64, _TYPES_32)
            table = table.set_column(number, field.with_type(kind), table.column(number).cast(kind))
    return table


def _mapped_type(
    type_: pa.DataType, source_types: list[pa.DataType], target_types: list[pa.DataType]
) -> pa.DataType:
    """Returns the type at the position of ``type_`` in ``target_types``, or ``type_`` itself."""
    return target_types[source_types.index(type_)] if type_ in source_types else type_


def _string_or_binary_type(element: SchemaElement) -> pa.DataType | None:
    """Returns the Arrow type of a flat column of strings or bytes. None for any other column."""
    logical = element.logicalType
    if element.type != Type.BYTE_ARRAY or element.repetition_type == FieldRepetitionType.REPEATED:
        return None
    is_text = element.converted_type == ConvertedType.UTF8
    if logical == LogicalType(STRING=Empty()) or (logical is None and is_text):
        return pa.string()
    return pa.binary() if logical is None and element.converted_type is None else None
