"""The rows that writers take: tables, batches, readers, data sets and frames, as one stream."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

_READ_AHEAD = {"batch_readahead": 4, "fragment_readahead": 2}
"""Batches and files that pyarrow reads ahead of a data set. Fewer than its default, to bound
memory.
"""
_FRAME_ROWS = 128 * 1024
"""Rows of a Polars frame that are turned into Arrow's types at a time."""


def input_rows(data: Any, schema: pa.Schema | None = None) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Returns the schema of rows, and an iterator of tables with the rows.

    ``data`` is as for ``write_dataset``. A table comes whole, other rows batch by batch. If
    ``schema`` is given, rows are cast to it; their columns may have another order.

    Raises ``TypeError`` for other objects, and for an iterable without a schema. The iterator
    raises ``ValueError`` for rows of another schema, and for rows without columns.
    """
    own_schema, parts = _parts_of(data, schema)
    target = own_schema if schema is None else schema
    return target, (_conformed(part, target, is_cast=schema is not None) for part in parts)


def _parts_of(data: Any, schema: pa.Schema | None) -> tuple[pa.Schema, Iterable[Any]]:
    """Returns the schema of rows, and an iterable of tables, batches or frames."""
    if isinstance(data, pa.Table | pa.RecordBatch):
        return data.schema, [data]
    if isinstance(data, pads.Scanner):
        return data.projected_schema, data.to_batches()
    if isinstance(data, pads.Dataset):
        return data.schema, data.to_batches(**_READ_AHEAD)
    if is_of_polars(data, "DataFrame"):
        return data.clear().to_arrow().schema, data.iter_slices(_FRAME_ROWS)
    if is_of_polars(data, "LazyFrame"):
        empty = sys.modules["polars"].DataFrame(schema=data.collect_schema())
        return empty.to_arrow().schema, data.collect_batches(chunk_size=_FRAME_ROWS)
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, data
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, reader
    if hasattr(data, "__dataframe__"):
        import pyarrow.interchange as interchange

        table = interchange.from_dataframe(data)
        return table.schema, [table]
    if isinstance(data, list | tuple) and data and schema is None:
        first = _table_of(data[0])
        return first.schema, data
    is_iterable = isinstance(data, Iterable) and not isinstance(data, str | bytes | dict)
    if schema is None or not is_iterable:
        hint = "; an iterable of batches needs a schema" if is_iterable else ""
        raise TypeError(
            "data is a table, batches, a reader, a data set, a frame or a relation, not "
            f"{type(data).__name__}{hint}"
        )
    return schema, data


def is_of_polars(data: Any, name: str) -> bool:
    """True if ``data`` is of Polars' class of that name. Polars is not imported for it."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(data, getattr(polars, name))


def _table_of(part: Any) -> pa.Table:
    if isinstance(part, pa.Table):
        return part
    if isinstance(part, pa.RecordBatch):
        return pa.Table.from_batches([part])
    if is_of_polars(part, "DataFrame"):  # its stream has types that pyarrow does not write
        return part.to_arrow()
    if hasattr(part, "__arrow_c_stream__"):
        return pa.table(part)
    raise TypeError(f"an iterable of rows has tables and record batches, not {type(part).__name__}")


def _conformed(part: Any, schema: pa.Schema, *, is_cast: bool) -> pa.Table:
    table = _table_of(part)
    if table.num_rows and not table.num_columns:
        raise ValueError(f"{table.num_rows:,} rows without a column cannot be written")
    if table.schema.equals(schema, check_metadata=False):
        return table
    if not is_cast or sorted(table.schema.names) != sorted(schema.names):
        raise ValueError(f"rows of another schema: {table.schema}, not {schema}")
    return (table if table.schema.names == schema.names else table.select(schema.names)).cast(
        schema
    )
