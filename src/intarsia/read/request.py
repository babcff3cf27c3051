"""What is asked of every file of a scan: columns, and a filter made ready for pruning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from intarsia.errors import PredicateError, unknown_column
from intarsia.parallel import may_divide
from intarsia.predicate.expression import (
    ANDS,
    Call,
    FieldRef,
    Literal,
    Node,
    conjuncts,
    field_paths,
    read_expression,
)
from intarsia.predicate.pruning import (
    COMPARISONS,
    And,
    Maybe,
    Op,
    Or,
    Pruning,
    Test,
    escapes_of,
    pruning_of,
)
from intarsia.read.projection import Projection, pruned_to_fields
from intarsia.read.substring import Contained, contained_of

FILENAME = "__filename"
"""pyarrow's name for the column of each row's file."""
ROW_NUMBER = "__row_number"
"""The column of each row's number in its file, from 0."""
PSEUDO_COLUMNS = pa.schema([(FILENAME, pa.string()), (ROW_NUMBER, pa.int64())])

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
_THREADED_ROWS = 64 * 1024
"""Fewer rows than this are filtered sooner than threads are woken."""


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One of the conditions that a filter joins by AND.

    ``passing`` is a guess at the share of rows for which it holds; ``contained`` is set where it
    only looks for a text.
    """

    expression: pc.Expression
    columns: tuple[str, ...]
    passing: float
    contained: Contained | None


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter and what is known of it.

    ``pruning`` tells where it can be true, ``escapes`` where it can be anything else. ``columns``
    are those it needs, None where that is unknown; of those in ``pruned`` it needs a part only.
    ``conjuncts`` are its parts where it has several and their columns are known; ``contained`` is
    set where it only looks for a text.
    """

    expression: pc.Expression
    pruning: Pruning
    escapes: Pruning
    columns: tuple[str, ...] | None
    conjuncts: tuple[Conjunct, ...]
    pruned: Projection = field(default_factory=dict)
    contained: Contained | None = None

    @classmethod
    def of(cls, expression: pc.Expression, schema: pa.Schema) -> Filter:
        """Check ``expression`` against ``schema``. Raises ``PredicateError``."""
        check_is_expression(expression)
        node = read_expression(expression)
        paths = field_paths(node)
        for path in paths or ():
            if path[0] not in schema.names:
                raise unknown_column(".".join(path), schema.names)
        columns = _columns(node)
        if not _compares(node, schema):
            # Some types are found not to compare only where there is a row, be it of NULLs.
            fields = [schema.field(name) for name in (schema.names if columns is None else columns)]
            nulls = [pa.nulls(1, field.type) for field in fields] or [pa.nulls(1)]
            names = [field.name for field in fields] or [_ROW]
            evaluate(expression, pa.table(nulls, names))
        is_and = isinstance(node, Call) and node.function in ANDS
        parts = _conjuncts(expression) if is_and and columns is not None else ()
        pruned = pruned_to_fields(schema, paths or ())
        prunings = pruning_of(node), escapes_of(node)
        return cls(expression, *prunings, columns, parts, pruned, contained_of(node))


def _compares(node: Node, schema: pa.Schema) -> bool:
    """Does it compare columns with numbers or texts of their own types, and so surely evaluate?"""
    match node:
        case Call(function, arguments) if function in (*ANDS, "or", "or_kleene", "invert"):
            return all(_compares(argument, schema) for argument in arguments)
        case Call(function, (FieldRef((name,)), Literal(value))) if function in COMPARISONS:
            kind = schema.field(name).type
            plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or kind == pa.string()
            return bool(plain and value.type == kind)
        case _:
            return False


def _columns(node: Node) -> tuple[str, ...] | None:
    paths = field_paths(node)
    return None if paths is None else tuple(dict.fromkeys(sorted(path[0] for path in paths)))


def _conjuncts(expression: pc.Expression) -> tuple[Conjunct, ...]:
    found = []
    for part in conjuncts(expression):
        node = read_expression(part)
        passing = _passing(pruning_of(node))
        found.append(Conjunct(part, _columns(node) or (), passing, contained_of(node)))
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


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of every file: output columns and their types, and a filter.

    ``schema`` is the data set's; a file that lacks a column gives NULLs, one that has it in another
    type is cast. Output columns in ``pruned`` are wanted in part only.
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    filter: Filter | None = None
    pruned: Projection = field(default_factory=dict)

    @property
    def output(self) -> pa.Schema:
        return pruned_schema(self.schema, self.columns, self.pruned)

    @property
    def filter_columns(self) -> tuple[str, ...]:
        """Columns read to evaluate the filter."""
        if self.filter is None:
            return ()
        return tuple(self.schema.names) if self.filter.columns is None else self.filter.columns

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Output columns, then those only the filter needs."""
        return tuple(dict.fromkeys((*self.columns, *self.filter_columns)))

    @property
    def pruning(self) -> Pruning:
        return self.filter.pruning if self.filter else Maybe()


def check_is_expression(filter_: object) -> None:
    """Raise ``TypeError`` for text, tuples and whatever else a filter might be thought to be."""
    if filter_ is not None and not isinstance(filter_, pc.Expression):
        kind = type(filter_).__name__
        raise TypeError(f"a filter is an Expression, not {kind}; explain takes SQL text as well")


def evaluate(expression: pc.Expression, table: pa.Table) -> pa.Table:
    """The rows of ``table`` for which ``expression`` is true.

    Raises ``PredicateError`` where it cannot be evaluated: types that do not compare, say.
    """
    use_threads = table.num_rows >= _THREADED_ROWS and may_divide()
    try:
        steps = [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
            acero.Declaration("filter", acero.FilterNodeOptions(expression)),
        ]
        return acero.Declaration.from_sequence(steps).to_table(use_threads=use_threads)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError) as error:
        raise PredicateError(f"cannot evaluate {expression}: {error}") from error


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
