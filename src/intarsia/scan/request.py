"""What is asked of every file of a scan: columns, and a filter made ready for pruning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from intarsia.errors import PredicateError
from intarsia.expr.comparison_constants import with_comparable_constants
from intarsia.expr.comparison_operators import Op
from intarsia.expr.date_ranges import without_periods
from intarsia.expr.evaluate import evaluate
from intarsia.expr.filterable_types import filterable_schema
from intarsia.expr.tree import ANDS, Call, Node, conjuncts, field_paths, read_expression
from intarsia.process_state import cached_property
from intarsia.pruning.builder import escapes_of, pruning_of
from intarsia.pruning.predicate_tree import And, Maybe, Or, Pruning, all_of
from intarsia.pruning.predicates import Test
from intarsia.scan.filter.condition import Condition
from intarsia.scan.nested_projection import Projection, check_paths, pruned_to_fields
from intarsia.sql.where_clause import parse_where

FILENAME = "__filename"
"""pyarrow's name for the column of each row's file."""
ROW_NUMBER = "__row_number"
"""The column of each row's number in its file, from 0."""
PSEUDO_COLUMNS = pa.schema([(FILENAME, pa.string()), (ROW_NUMBER, pa.int64())])
FilterLike: TypeAlias = pc.Expression | str | list[Any] | None
"""An Expression, a SQL condition as ``parse_where`` reads it, or tuples in a list, or in lists of
alternatives, as ``pyarrow.parquet.read_table`` takes them for ``filters``; None for all rows."""

_ROW = "__intarsia_row"
_PASSING = {
    Op.EQ: 0.01,
    Op.IN: 0.05,
    Op.NONE: 0.1,
    Op.NE: 0.9,
    Op.NOT_IN: 0.9,
    Op.ANY: 0.9,
}
_PASSING_RANGE = 0.3
_PASSING_UNKNOWN = 0.5


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One of the conditions that a filter joins by AND.

    ``passing`` is a guess at the share of rows for which it holds.
    """

    condition: Condition
    columns: tuple[str, ...]
    passing: float


@dataclass(frozen=True)
class Filter:
    """A filter, of columns of ``schema``, and what is known of it.

    ``pruning`` tells where it can be true. ``columns`` are those it needs, None where that is
    unknown; of those in ``pruned`` it needs a part only.
    """

    condition: Condition
    node: Node
    schema: pa.Schema
    pruning: Pruning
    columns: tuple[str, ...] | None
    pruned: Projection = field(default_factory=dict)

    @cached_property
    def paths(self) -> set[tuple[str, ...]] | None:
        """Those of the columns and fields it needs, None where that is unknown."""
        return field_paths(self.node)

    @cached_property
    def escapes(self) -> Pruning:
        """Where it can be anything but true."""
        return escapes_of(self.node)

    @cached_property
    def conjuncts(self) -> tuple[Conjunct, ...]:
        """Its parts, where it has several and their columns are known."""
        is_and = isinstance(self.node, Call) and self.node.function in ANDS
        known = is_and and self.columns is not None
        return _conjuncts(self.condition.expression, self.schema) if known else ()

    @classmethod
    def of(cls, expression: pc.Expression, schema: pa.Schema) -> Filter:
        """Checks ``expression`` against ``schema``, which becomes its ``filterable_schema``.

        Raises ``PredicateError``.
        """
        expression = with_comparable_constants(expression, schema)
        schema = filterable_schema(schema)
        node = read_expression(expression)
        paths = field_paths(node)
        check_paths(schema, paths or ())
        given = node
        expression, node = without_periods(expression, given, schema)
        columns = _columns(node)
        condition = Condition.of(expression, node, schema)
        if condition.comparison is None and condition.contained is None:
            # Some types are found not to compare only where there is a row, be it of NULLs.
            fields = [schema.field(name) for name in (schema.names if columns is None else columns)]
            nulls = [pa.nulls(1, field.type) for field in fields] or [pa.nulls(1)]
            names = [field.name for field in fields] or [_ROW]
            evaluate(expression, pa.table(nulls, names))
        pruned = pruned_to_fields(schema, paths or ())
        pruning = pruning_of(node)
        if given is not node:  # of which there may be indexes
            pruning = all_of(pruning, pruning_of(given))
        return cls(condition, node, schema, pruning, columns, pruned)


def _columns(node: Node) -> tuple[str, ...] | None:
    paths = field_paths(node)
    return None if paths is None else tuple(dict.fromkeys(sorted(path[0] for path in paths)))


def _conjuncts(expression: pc.Expression, schema: pa.Schema) -> tuple[Conjunct, ...]:
    found = []
    for part in conjuncts(expression):
        node = read_expression(part)
        condition = Condition.of(part, node, schema)
        found.append(Conjunct(condition, _columns(node) or (), _passing(pruning_of(node))))
    return tuple(found) if len(found) > 1 else ()


def _passing(pruning: Pruning) -> float:
    match pruning:
        case Test(op=op):
            return _PASSING.get(op, _PASSING_RANGE)
        case And(parts):
            return min(map(_passing, parts))
        case Or(parts):
            return min(sum(map(_passing, parts)), 1.0)
        case _:
            return _PASSING_UNKNOWN


@dataclass(frozen=True)
class Request:
    """What is asked of every file: output columns and their types, and a filter.

    ``schema`` is the data set's; a file that lacks a column gives NULLs, one that has it in another
    type is cast. Output columns in ``pruned`` are wanted in part only.
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
        """Columns read to evaluate the filter."""
        if self.filter is None:
            return ()
        return tuple(self.schema.names) if self.filter.columns is None else self.filter.columns

    @cached_property
    def all_columns(self) -> tuple[str, ...]:
        """Output columns, then those only the filter needs."""
        return tuple(dict.fromkeys((*self.columns, *self.filter_columns)))

    @property
    def pruning(self) -> Pruning:
        return self.filter.pruning if self.filter else Maybe()


def expression_of(filter_: object, schema: pa.Schema) -> pc.Expression | None:
    """The Expression that a filter is, or is in SQL, of columns of ``schema``.

    Raises ``PredicateError`` as ``parse_where`` does and for tuples that are no condition,
    ``TypeError`` for whatever else a filter might be thought to be.
    """
    if isinstance(filter_, str):
        return parse_where(filter_, schema)
    if isinstance(filter_, list):
        _check_members(filter_)
        try:
            return pq.filters_to_expression(filter_)
        except (ValueError, TypeError, pa.ArrowException) as error:
            raise PredicateError(
                f"{filter_!r} is no list of conditions (column, operator, value), with operators "
                f"=, !=, <, <=, >, >=, in and not in: {error}"
            ) from error
    if filter_ is None or isinstance(filter_, pc.Expression):
        return filter_
    raise TypeError(
        f"a filter is an Expression, a SQL condition or a list of (column, operator, value), "
        f"not {type(filter_).__name__}"
    )


def _check_members(conditions: list[Any]) -> None:
    """Raise ``PredicateError`` for membership of a text, which pyarrow takes for its letters."""
    for one in conditions:
        match one:
            case list():
                _check_members(one)
            case (_, "in" | "not in", str() | bytes() as text):
                raise PredicateError(f"{one!r}: what it is to be among is a list, not {text!r}")


def pruned_schema(schema: pa.Schema, columns: Sequence[str], pruned: Projection) -> pa.Schema:
    """``columns`` of ``schema``, some of them pruned."""
    fields = [schema.field(name) for name in columns]
    return pa.schema([f.with_type(pruned[f.name].type) if f.name in pruned else f for f in fields])


def without_rows(schema: pa.Schema) -> pa.Table:
    """A table of no rows; ``Schema.empty_table`` knows no extensions within structs or lists."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def without_columns(num_rows: int) -> pa.Table:
    """A table that has rows and no columns, as counting needs it."""
    return pa.table({_ROW: pa.nulls(num_rows)}).select([])
