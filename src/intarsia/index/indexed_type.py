"""The order of values of an Arrow type once Parquet stores them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from intarsia.expr.type_cache import cached_by_type
from intarsia.io.source import BufferSource
from intarsia.parquet.column_order import order_of
from intarsia.parquet.footer import read_footer
from intarsia.parquet.value_order import Domain, ValueOrder


@cached_by_type
def order_of_type(kind: pa.DataType) -> ValueOrder:
    """Returns the order of a column of this type, undefined unless pyarrow writes one leaf."""
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(pa.table({"value": pa.nulls(0, kind)}), sink, store_schema=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return ValueOrder(Domain.UNDEFINED)
    elements = read_footer(BufferSource(memoryview(sink.getvalue()))).metadata.schema
    if len(elements) != 2:
        return ValueOrder(Domain.UNDEFINED)
    return order_of(elements[1]).of_arrow(kind)
