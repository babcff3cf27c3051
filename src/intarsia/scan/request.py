"""The request of a scan: output columns, and a filter prepared for pruning and evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_, or_
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sqlglot import exp

from intarsia.errors import PredicateError
from intarsia.expr.comparison_constants import with_comparable_constants
from intarsia.expr.comparison_operators import Op
from intarsia.expr.date_ranges import periods_as_ranges
from intarsia.expr.evaluate import evaluate
from intarsia.expr.filterable_types import filterable_schema
from intarsia.expr.tree import (
    ANDS,
    Call,
    Node,
    conjuncts,
    field_paths,
    read_expression,
    to_expression,
)
from intarsia.expr.tuple_membership import with_tuple_membership
from intarsia.process_state import cached_property
from intarsia.pruning.builder import complement_of, pruning_of
from intarsia.pruning.predicates import And, Comparison, Maybe, Or, Pruning, all_of
from intarsia.scan.filter.condition import Condition
from intarsia.scan.nested_projection import Projection, check_paths, pruned_to_fields
from intarsia.sql.where_clause import parse_where, read_where

FILENAME = "__filename"
"""pyarrow's name for the column of each row's file."""
ROW_NUMBER = "__row_number"
"""The column of each row's number in its file, from 0."""
PSEUDO_COLUMNS = pa.schema([(FILENAME, pa.string()), (ROW_NUMBER, pa.int64())])
FilterLike: TypeAlias = pc.Expression | str | list[Any] | None
"""A filter as users write it; None keeps all rows.

It is an Expression, a SQL condition (see ``parse_where``) or a list of tuples. Lists of lists of
tuples are alternatives, as in the argument ``filters`` of ``pyarrow.parquet.read_table``. Tuples
also take the operators of ``_SQL_OPERATORS``.
"""

_SQL_OPERATORS = ("like", "not like", "ilike", "not ilike", "is null", "is not null")
"""Operators of tuples that pyarrow lacks, with the meaning of SQL."""
_ROW_COLUMN = "__intarsia_row"
_PASS_SHARES = {
    Op.EQ: 0.01,
    Op.IN: 0.05,
    Op.NONE: 0.1,
    Op.NE: 0.9,
    Op.NOT_IN: 0.9,
    Op.ANY: 0.9,
}
"""Estimated shares of rows that pass a comparison. Only the order of evaluation depends on them."""
_RANGE_PASS_SHARE = 0.3
_UNKNOWN_PASS_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One of the conditions that a filter joins by AND.

    ``passing`` estimates the share of rows that pass, from 0 to 1.
    """

    condition: Condition
    columns: tuple[str, ...]
    passing: float


@dataclass(frozen=True)
class Filter:
    """A filter on columns of ``schema``, with what planning and reading need.

    ``pruning`` decides where the filter can be true. ``columns`` are the columns it reads, None if
    unknown. It reads only some fields of the columns in ``pruned``.
    """

    condition: Condition
    node: Node
    schema: pa.Schema
    pruning: Pruning
    columns: tuple[str, ...] | None
    pruned: Projection = field(default_factory=dict)

    @cached_property
    def paths(self) -> set[tuple[str, ...]] | None:
        """Paths of the columns and fields that the filter reads; None if unknown."""
        return field_paths(self.node)

    @cached_property
    def escapes(self) -> Pruning:
        """The predicates that decide where the filter can be FALSE or NULL."""
        return complement_of(self.node)

    @cached_property
    def conjuncts(self) -> tuple[Conjunct, ...]:
        """The conditions joined by AND; empty if there is only one or columns are unknown."""
        is_and = isinstance(self.node, Call) and self.node.function in ANDS
        is_usable = is_and and self.columns is not None
        return _conjuncts(self.node, self.schema) if is_usable else ()

    @classmethod
    def of(cls, expression: pc.Expression, schema: pa.Schema) -> Filter:
        """Checks ``expression`` against ``schema`` and prepares it.

        The result's schema is ``filterable_schema(schema)``. Raises ``PredicateError``.
        """
        node = with_comparable_constants(read_expression(expression), schema)
        return cls.of_tree(node, filterable_schema(schema))

    @classmethod
    def of_tree(cls, written: Node, schema: pa.Schema) -> Filter:
        """Does what ``of`` does, for a tree with comparable constants and a filterable schema."""
        paths = field_paths(written)
        check_paths(schema, paths or ())
        node = periods_as_ranges(written, schema)
        columns = _columns(node)
        condition = Condition.of(node, schema)
        if condition.comparison is None and condition.contained is None:
            # pyarrow rejects some comparisons only when there is a row, even one of NULLs.
            fields = [schema.field(name) for name in (schema.names if columns is None else columns)]
            nulls = [pa.nulls(1, field.type) for field in fields] or [pa.nulls(1)]
            names = [field.name for field in fields] or [_ROW_COLUMN]
            evaluate(condition.expression, pa.table(nulls, names))
        pruned = pruned_to_fields(schema, paths or ())
        pruning = pruning_of(node)
        if written is not node:  # there may be indexes for the filter as it was written
            pruning = all_of(pruning, pruning_of(written))
        return cls(condition, node, schema, pruning, columns, pruned)


def _columns(node: Node) -> tuple[str, ...] | None:
    paths = field_paths(node)
    return None if paths is None else tuple(dict.fromkeys(sorted(path[0] for path in paths)))


def _conjuncts(node: Node, schema: pa.Schema) -> tuple[Conjunct, ...]:
    return tuple(
        Conjunct(Condition.of(part, schema), _columns(part) or (), _pass_share(pruning_of(part)))
        for part in conjuncts(node)
    )


def _pass_share(pruning: Pruning) -> float:
    match pruning:
        case Comparison(op=op):
            return _PASS_SHARES.get(op, _RANGE_PASS_SHARE)
        case And(parts):
            return min(map(_pass_share, parts))
        case Or(parts):
            return min(sum(map(_pass_share, parts)), 1.0)
        case _:
            return _UNKNOWN_PASS_SHARE


@dataclass(frozen=True)
class Request:
    """The output columns, their types and the filter, for every file of a scan.

    ``schema`` is the data set's. A column that a file lacks is read as NULLs, and one of another
    type is cast. Output columns in ``pruned`` are read with some of their fields only.
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    filter: Filter | None = None
    pruned: Projection = field(default_factory=dict)

    @cached_property
    def output(self) -> pa.Schema:
        return pruned_schema(self.schema, self.columns, self.pruned)

    @cached_property
    def filter_columns(self) -> tuple[str, ...]:
        """Columns that are read to evaluate the filter."""
        if self.filter is None:
            return ()
        return tuple(self.schema.names) if self.filter.columns is None else self.filter.columns

    @cached_property
    def all_columns(self) -> tuple[str, ...]:
        """Output columns, then columns that only the filter reads."""
        return tuple(dict.fromkeys((*self.columns, *self.filter_columns)))

    def with_filter(self, filter_: Filter) -> Request:
        """Returns the same request with another filter on columns of the same schema."""
        changed = replace(self, filter=filter_)
        changed.__dict__["output"] = self.output
        return changed

    @cached_property
    def without_filter(self) -> Request:
        """The same request for rows that are known to match."""
        return replace(self, filter=None)

    @property
    def pruning(self) -> Pruning:
        return self.filter.pruning if self.filter else Maybe()


def expression_of(filter_: object, schema: pa.Schema) -> pc.Expression | None:
    """Converts a filter of any form (see ``FilterLike``) to an Expression.

    Raises ``PredicateError`` if SQL or tuples are no valid condition, ``TypeError`` for any other
    type of filter.
    """
    if filter_ is None:
        return None
    if isinstance(filter_, str):
        return to_expression(with_tuple_membership(read_where(filter_, schema), schema))
    expression = _as_expression(filter_, schema)
    node = read_expression(expression)
    changed = with_tuple_membership(node, schema)
    return expression if changed is node else to_expression(changed)


def _as_expression(filter_: object, schema: pa.Schema) -> pc.Expression:
    if isinstance(filter_, list):
        try:
            alternatives = filter_ if isinstance(filter_[0], list) else [filter_]
            return reduce(or_, (_all_of(condition, schema) for condition in alternatives))
        except PredicateError:
            raise
        except (IndexError, ValueError, TypeError, pa.ArrowException) as error:
            raise PredicateError(
                f"{filter_!r} is no list of conditions (column, operator, value), with operators "
                f"=, !=, <, <=, >, >=, in, not in, {', '.join(_SQL_OPERATORS)}: {error}"
            ) from error
    if isinstance(filter_, pc.Expression):
        return filter_
    raise TypeError(
        f"a filter is an Expression, a SQL condition or a list of (column, operator, value), "
        f"not {type(filter_).__name__}"
    )


def _all_of(conditions: list[Any], schema: pa.Schema) -> pc.Expression:
    return reduce(and_, (_expression_of_tuple(condition, schema) for condition in conditions))


def _expression_of_tuple(condition: Any, schema: pa.Schema) -> pc.Expression:
    """Returns the Expression of a tuple (column, operator, value).

    Raises ``PredicateError`` for ``in`` with a string, which pyarrow reads as its letters.
    """
    if not isinstance(condition, tuple):
        raise TypeError(f"{condition!r} is no tuple")
    match condition:
        case (column, "is null" | "is not null" as operator, *values) if values in ([], [None]):
            return parse_where(f"{_quoted(column)} {operator}", schema)
        case (column, "like" | "ilike" | "not like" | "not ilike" as operator, str() as pattern):
            literal = exp.Literal.string(pattern).sql("duckdb")
            return parse_where(f"{_quoted(column)} {operator} {literal}", schema)
        case (_, "in" | "not in", str() | bytes() as value):
            raise PredicateError(f"{condition!r}: the values are a list, not {value!r}")
    return pq.filters_to_expression([condition])


def _quoted(column: str | tuple[str, ...]) -> str:
    """Returns a column, or the path of a field, as SQL writes it."""
    path = (column,) if isinstance(column, str) else column
    return ".".join(exp.to_identifier(name, quoted=True).sql("duckdb") for name in path)


def pruned_schema(schema: pa.Schema, columns: Sequence[str], pruned: Projection) -> pa.Schema:
    """Returns ``columns`` of ``schema``, with the pruned types of columns in ``pruned``."""
    if not pruned and schema.names == list(columns):
        return schema.remove_metadata()
    fields = [schema.field(name) for name in columns]
    return pa.schema(
        [
            field.with_type(pruned[field.name].type) if field.name in pruned else field
            for field in fields
        ]
    )


def without_rows(schema: pa.Schema) -> pa.Table:
    """Returns a table of no rows.

    ``Schema.empty_table`` does not support extension types within structs or lists.
    """
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def without_columns(num_rows: int) -> pa.Table:
    """Returns a table with rows and no columns, for counting."""
    return pa.table({_ROW_COLUMN: pa.nulls(num_rows)}).select([])
