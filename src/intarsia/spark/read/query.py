"""The description of a query: which columns and rows to read of a data set, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from intarsia.dataset.dataset import Dataset
from intarsia.errors import check_several, unknown_column
from intarsia.expr.nested_types import nullable
from intarsia.expr.tree import field_paths, read_expression
from intarsia.file.corrupt_rows import OnCorrupt
from intarsia.plan.plan import Plan
from intarsia.spark.read.spark_footer import check_meaning
from intarsia.spark.types import arrow_schema, spark_schema
from intarsia.sql.where_clause import parse_where


@dataclass(frozen=True, slots=True)
class Query:
    """What every task needs to know besides its files."""

    schema: pa.Schema
    columns: tuple[str, ...]
    where: pc.Expression | None
    output: pa.Schema
    """As Spark takes it."""
    filesystem: pafs.FileSystem
    on_corrupt: OnCorrupt | None = None
    page_size_limit: int | None = None

    @property
    def found(self) -> pa.Schema:
        """The columns as the data set has them; any may be NULL, where a file lacks it."""
        return _found(self.schema, self.columns)

    def plan(self, source: Dataset) -> Plan:
        """Which rows of which files there are to read."""
        return source.plan_of_left(self.columns, self.where)


def query_of(
    source: Dataset,
    columns: Sequence[str] | None,
    where: pc.Expression | str | None,
    stated: pa.Schema | None = None,
) -> Query:
    """``columns`` and a condition of a data set: all columns by default, or those that are stated.

    Raises ``PredicateError`` as ``read`` does.
    """
    check_several(columns=columns)
    if where is not None and not isinstance(where, str | pc.Expression):
        raise TypeError(
            f"where is SQL text or an Expression of pyarrow, not {type(where).__name__}"
        )
    known = source.schema if stated is None else stated
    names = tuple(known.names if columns is None else columns)
    for name in names:
        if name not in source.schema.names:
            raise unknown_column(name, source.schema.names)
    if isinstance(where, str):
        where = parse_where(where, source.schema)
    filtered = field_paths(read_expression(where)) if where is not None else ()
    needed = known.names if filtered is None else [*names, *sorted(p[0] for p in filtered)]
    if source.files:
        check_meaning(source.files[0], source.schema, dict.fromkeys(needed))
    output = arrow_schema(spark_schema(_found(source.schema, names)))
    return Query(source.schema, names, where, output, source.filesystem)


def _found(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([nullable(schema.field(name)) for name in names])
