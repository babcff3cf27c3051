"""The types of a file's columns, and how their values compare.

Holds no reference to the file: files with the same schema share one object.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pyarrow as pa

from intarsia.decode.synthetic_footer import FAILURES, SchemaTemplates
from intarsia.errors import FormatError
from intarsia.parquet.column_order import order_of
from intarsia.parquet.metadata import ColumnOrder, Type
from intarsia.parquet.schema import Root, Schema
from intarsia.parquet.value_order import Domain, ValueOrder
from intarsia.process_state import cached_property


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
