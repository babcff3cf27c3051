"""The footer of one file, and the facts that follow from it without reading more of the file.

``ColumnTypes`` holds no reference to the file: files with the same schema share one object.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from intarsia.decode.synthetic_footer import ARROW_SCHEMA, FAILURES, SchemaTemplates
from intarsia.errors import FormatError, Where
from intarsia.file.file_view import ColumnMapping
from intarsia.file.read_options import ReadOptions
from intarsia.index.directory import binding_of
from intarsia.parquet.column_order import order_of
from intarsia.parquet.footer import Footer
from intarsia.parquet.footer_cache import FooterLayout
from intarsia.parquet.metadata import ColumnOrder, FileMetaData, Type
from intarsia.parquet.schema import Root, Schema, read_schema
from intarsia.parquet.thrift import amended, encode
from intarsia.parquet.value_order import Domain, ValueOrder
from intarsia.process_state import cached_property
from intarsia.row_ranges import Int64Array


class ColumnTypes:
    """The columns of files with the same ``schema``, by leaf number."""

    def __init__(
        self,
        schema: Schema,
        templates: SchemaTemplates,
        column_orders: Sequence[ColumnOrder] | None,
        int96_unit: str | None,
    ) -> None:
        """Truncates INT96 timestamps to ``int96_unit``, unless that is None."""
        self.schema = schema
        self._templates = templates
        self._column_orders = column_orders or ()
        self._cuts_int96 = int96_unit is not None
        self._orders: dict[int, ValueOrder] = {}

    @cached_property
    def schema_arrow(self) -> pa.Schema:
        """The schema as pyarrow reads it. Raises ``FormatError`` if pyarrow cannot read it."""
        try:
            schema = self._templates.arrow_schema()
            _ = schema.names  # names that are not UTF-8 show only now
        except FAILURES as error:
            raise FormatError(f"pyarrow cannot read the schema: {error}") from error
        # pyarrow's schema has groups without leaves, which its tables leave out.
        return pa.schema([f for f, r in zip(schema, self.schema.roots, strict=True) if r.leaves])

    def arrow_type(self, root: Root) -> pa.DataType:
        """Returns the type of a root with all of its leaves, as pyarrow reads it."""
        at = self.schema.leaves[root.all_leaves.start].root
        return self.schema_arrow.field(self._arrow_places[at]).type

    @cached_property
    def _arrow_places(self) -> list[int]:
        """The position of each root in the Arrow schema, which lacks roots without leaves."""
        have_leaves = (bool(root.all_leaves) for root in self.schema.roots)
        return list(itertools.accumulate(have_leaves, initial=0))

    def order(self, leaf: int) -> ValueOrder:
        """Returns how a column's values compare."""
        element = self.schema.leaves[leaf].element
        if element.type == Type.INT96 and self._cuts_int96:
            return ValueOrder(Domain.UNDEFINED)  # values are truncated, and bounds are not
        if leaf not in self._orders:
            order = order_of(element, self.column_order(leaf))
            is_plain = order.domain is Domain.INTEGER and element.type == Type.INT64
            self._orders[leaf] = order.of_arrow(self._leaf_type(leaf)) if is_plain else order
        return self._orders[leaf]

    def column_order(self, leaf: int) -> ColumnOrder | None:
        """Returns the order in which a column's bounds compare, or None if none is declared."""
        return self._column_orders[leaf] if leaf < len(self._column_orders) else None

    def _leaf_type(self, leaf: int) -> pa.DataType | None:
        """Returns the Arrow type of a column or a field of structs, None within lists and maps."""
        column = self.schema.leaves[leaf]
        try:
            kind = self.arrow_type(self.schema.roots[column.root])
        except FormatError:
            return None  # pyarrow cannot read the schema; reading a value raises the error
        for name in column.path[1:]:
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                return None
            kind = kind.field(name).type
        return kind


ChunkId = tuple[int, int]
"""A column chunk: the numbers of its row group and of its leaf column."""


@dataclass(frozen=True, eq=False)
class FileFooter:
    """A file's name and size, its footer, and the options that decide its column types.

    Never changes. Holds neither the file's handle nor bytes of the file other than the footer. If
    a table gives the columns other names, ``metadata``, ``shape`` and ``schema`` have those.
    """

    name: str
    source_size: int
    """Bytes of the whole file."""
    raw: bytes
    """The footer's thrift bytes, as they are in the file."""
    offset: int
    """Where the footer begins in the file, in bytes."""
    metadata: FileMetaData
    shape: FooterLayout
    """The parts that this footer shares with those of other files."""
    schema: Schema
    options: ReadOptions
    stored: FileFooter | None = None
    """The footer with the file's own names. None if a table gives the columns no other names."""

    @classmethod
    def of(
        cls, footer: Footer, name: str, options: ReadOptions, mapping: ColumnMapping | None = None
    ) -> FileFooter:
        """Decodes the schema of a footer. Raises ``FormatError`` if that is damaged.

        ``mapping`` has the names that a table gives to the columns.
        """
        metadata, shape = footer.metadata, footer.shape
        schema = shape.cached("schema", lambda: read_schema(metadata.schema))
        size = footer.source.size
        made = cls(name, size, footer.raw, footer.offset, metadata, shape, schema, options)
        return made if mapping is None else made._mapped(mapping)

    def _mapped(self, mapping: ColumnMapping) -> FileFooter:
        """Returns this footer with the names that a table gives to the columns."""
        elements = self.metadata.schema

        def make() -> tuple[FooterLayout, Schema] | None:
            names = mapping.names(elements)
            if names == [element.name for element in elements]:
                return None
            pairs = zip(elements, names, strict=True)
            return FooterLayout(), read_schema([amended(one, name=name) for one, name in pairs])

        mapped = self.shape.cached(("mapped", mapping), make)
        if mapped is None:
            return self
        shape, schema = mapped
        # The stored Arrow schema has the file's names; a table has types of its own.
        entries = [one for one in self.metadata.key_value_metadata or [] if one.key != ARROW_SCHEMA]
        metadata = replace(self.metadata, schema=list(schema.elements), key_value_metadata=entries)
        return replace(self, metadata=metadata, shape=shape, schema=schema, stored=self)

    @cached_property
    def named_raw(self) -> bytes:
        """The footer's thrift bytes with the names that a table gives to the columns."""
        return self.raw if self.stored is None else encode(self.metadata)

    @cached_property
    def binding(self) -> str:
        """The hash that ties embedded indexes to this file: ``directory.binding_of``."""
        return binding_of(self.metadata)

    @cached_property
    def row_group_starts(self) -> Int64Array:
        """First row of each row group, then the number of rows. Shape ``(groups + 1,)``."""
        counts = [group.num_rows for group in self.metadata.row_groups]
        return np.array([0, *itertools.accumulate(counts)], dtype=np.int64)

    @property
    def num_rows(self) -> int:
        """Rows of all row groups. The footer's own total is not used: some writers get it wrong."""
        return int(self.row_group_starts[-1])

    def num_rows_in(self, row_group: int) -> int:
        """Returns the number of rows of one row group."""
        return int(self.row_group_starts[row_group + 1] - self.row_group_starts[row_group])

    @cached_property
    def templates(self) -> SchemaTemplates:
        """Synthetic footers that have pyarrow decode single columns. Shared by equal schemas."""
        return self.shape.cached(("templates", self.options.type_options), self._new_templates)

    def _new_templates(self) -> SchemaTemplates:
        leaves = {leaf.name for leaf in self.schema.leaves}
        read_dictionary = [path for path in self.options.read_dictionary if path in leaves]
        unit = self.options.coerce_int96_timestamp_unit
        return SchemaTemplates(self.metadata, self.named_raw, read_dictionary, unit)

    @cached_property
    def columns(self) -> ColumnTypes:
        """The types of the columns. Shared by files of equal schemas."""
        return self.shape.cached(("columns", self.options.type_options), self._new_columns)

    def _new_columns(self) -> ColumnTypes:
        orders, unit = self.metadata.column_orders, self.options.coerce_int96_timestamp_unit
        return ColumnTypes(self.schema, self.templates, orders, unit)

    @cached_property
    def schema_arrow(self) -> pa.Schema:
        """The schema as pyarrow reads it. Raises ``FormatError`` if pyarrow cannot read it."""
        try:
            return self.columns.schema_arrow
        except FormatError as error:
            raise error.at(Where(self.name)) from error

    def arrow_type(self, root: Root) -> pa.DataType:
        """Returns the type of a root with all of its leaves, as pyarrow reads it."""
        try:
            return self.columns.arrow_type(root)
        except FormatError as error:
            raise error.at(Where(self.name)) from error
