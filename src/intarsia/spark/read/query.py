"""The description of a query: the columns, filter and options with which a data set is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from intarsia.dataset.dataset import Dataset
from intarsia.dataset.spark_footer import check_meaning
from intarsia.errors import check_is_list, unknown_column
from intarsia.expr.nested_types import nullable
from intarsia.expr.tree import field_paths, read_expression
from intarsia.file.corrupt_data import OnCorrupt
from intarsia.plan.plan import Plan
from intarsia.spark.types import arrow_schema, spark_schema
from intarsia.sql.where_clause import parse_where


@dataclass(frozen=True, slots=True)
class Query:
    """The part of a read that all its tasks share: columns, filter and options. Picklable."""

    schema: pa.Schema
    columns: tuple[str, ...]
    where: pc.Expression | None
    output: pa.Schema
    """The columns in the types in which Spark takes them."""
    filesystem: pafs.FileSystem
    on_corrupt: OnCorrupt | None = None
    page_size_limit: int | None = None

    @property
    def nullable_schema(self) -> pa.Schema:
        """The columns in the data set's types. All are nullable, as a file may lack a column."""
        return _nullable_fields(self.schema, self.columns)

    def plan(self, source: Dataset) -> Plan:
        """Returns the files, pages and rows that the filter leaves to read."""
        return source.plan_of_left(self.columns, self.where)


def query_of(
    source: Dataset,
    columns: Sequence[str] | None,
    where: pc.Expression | str | None,
    stated: pa.Schema | None = None,
) -> Query:
    """Returns a query of ``columns``, by default all or ``stated``. Raises ``PredicateError``."""
    check_is_list(columns=columns)
    if where is not None and not isinstance(where, str | pc.Expression):
        raise TypeError(
            f"where is SQL text or an Expression of pyarrow, not {type(where).__name__}"
        )
    default_schema = source.schema if stated is None else stated
    names = tuple(default_schema.names if columns is None else columns)
    for name in names:
        if name not in source.schema.names:
            raise unknown_column(name, source.schema.names)
    if isinstance(where, str):
        where = parse_where(where, source.schema)
    filter_paths = field_paths(read_expression(where)) if where is not None else ()
    needed = (
        default_schema.names
        if filter_paths is None
        else [*names, *sorted(p[0] for p in filter_paths)]
    )
    if source.files:
        check_meaning(source.files[0], source.schema, dict.fromkeys(needed))
    output = arrow_schema(spark_schema(_nullable_fields(source.schema, names)))
    return Query(source.schema, names, where, output, source.filesystem)


def _nullable_fields(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([nullable(schema.field(name)) for name in names])
