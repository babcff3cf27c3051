"""Queries of one table that need only some of its rows, or only their number.

::

    SELECT … WHERE … LIMIT 10                     any ten
    SELECT … WHERE … ORDER BY ts DESC LIMIT 10    the ten that come first
    SELECT min(ts), max(ts) … WHERE …             the first, in either order
    SELECT count(*) … WHERE …                     their number
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from intarsia.sql.scope import PLAIN_TABLE, Sources, has_only, own_place

_UNDERSTOOD_CLAUSES = ("expressions", "from_", "where", "order", "limit", "offset")
_ROW_NODES = (
    exp.Alias,
    exp.Boolean,
    exp.Column,
    exp.Identifier,
    exp.Length,
    exp.Literal,
    exp.Lower,
    exp.Null,
    exp.Ordered,
    exp.Paren,
    exp.Star,
    exp.Upper,
)
"""Nodes that give one value for a row and never fail.

A row that is not read must not hide an error.
"""
_VALUE_NODES = (
    exp.Add,
    exp.Cast,
    exp.DataType,
    exp.Div,
    exp.Interval,
    exp.Literal,
    exp.Mul,
    exp.Neg,
    exp.Paren,
    exp.Sub,
    exp.Var,
)
"""Nodes that give the same result for the same values, however many rows hold them."""
UNKNOWN_LIMIT = 2**63 - 1
"""The limit if only the engine knows which rows it needs, and how many; it stops reading early."""


@dataclass(frozen=True, slots=True)
class First:
    """The first ``count`` rows by ``column``, as DuckDB orders its values."""

    column: str
    count: int
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """The rows of its table that a query needs, among those for which its WHERE is TRUE.

    Attributes
    ----------
    limit : int or None
        The query needs this many rows, and any rows will do.
    offset : int
        The query skips this many of the ``limit`` rows.
    firsts : tuple of First
        The query needs the rows that are first in one of these orders.
    is_number : bool
        The query needs, and returns, only the number of rows.
    """

    limit: int | None = None
    offset: int = 0
    firsts: tuple[First, ...] = ()
    is_number: bool = False


def need_of(select: exp.Expr, sources: Sources, outputs: Sequence[exp.Expr] | None) -> Need | None:
    """Returns what ``select``, a whole query, needs of the table in ``sources``; None for all rows.

    ``outputs`` are the query's outputs with ``*`` spelled out. Columns are in lower case.
    """
    if (
        not isinstance(select, exp.Select)
        or not has_only(select, _UNDERSTOOD_CLAUSES)
        or outputs is None
    ):
        return None
    if len(list(select.find_all(exp.Query))) > 1 or len(sources) != 1:
        return None
    table = select.args["from_"].this
    if not isinstance(table, exp.Table) or not has_only(table, PLAIN_TABLE[:2]):
        return None
    if not any(select.args.get(part) for part in ("order", "limit", "offset")):
        if all(_is_count(output.unalias()) for output in outputs):
            return Need(is_number=True)
        firsts = _firsts_of_extremes(outputs, sources)
        return Need(firsts=tuple(firsts)) if firsts else None
    order = select.args.get("order")
    limit = _limit_of(select)
    computed = [*outputs, *(order.expressions if order else ())]
    if limit is None or not all(isinstance(n, _ROW_NODES) for one in computed for n in one.walk()):
        return None
    if order is None:
        return Need(limit=limit, offset=_number_in(select, "offset") or 0)
    first = _first_of(order.expressions[0], limit, sources, outputs)
    return None if first is None else Need(firsts=(first,))


def _is_count(output: exp.Expr) -> bool:
    is_plain = isinstance(output, exp.Count) and has_only(output, ("this", "big_int"))
    return is_plain and isinstance(output.this, exp.Star)


def _firsts_of_extremes(outputs: Sequence[exp.Expr], sources: Sources) -> list[First]:
    """Returns the first rows whose values are the ``max`` and ``min`` in ``outputs``.

    Returns an empty list if an output depends on other rows.
    """
    firsts: list[First] = []
    pending = [output.unalias() for output in reversed(outputs)]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Max | exp.Min) and has_only(node, ("this",)):
            name = _column_of(node.this, sources)
            if name is None:
                return []
            firsts.append(First(name, 1, descending=isinstance(node, exp.Max)))
        elif isinstance(node, _VALUE_NODES):
            pending += node.iter_expressions(reverse=True)
        else:
            return []
    return firsts


def _limit_of(select: exp.Select) -> int | None:
    """Returns the sum of LIMIT and OFFSET, or None if one is not a number."""
    if type(select.args.get("limit")) is not exp.Limit:
        return None
    limit, offset = _number_in(select, "limit"), _number_in(select, "offset")
    return None if limit is None or offset is None else limit + offset


def _number_in(select: exp.Select, part: str) -> int | None:
    """Returns the number of a LIMIT or OFFSET, 0 without the clause, None if it is no number."""
    node = select.args.get(part)
    if node is None:
        return 0
    number = node.expression if has_only(node, ("expression",)) else None
    return int(number.name) if isinstance(number, exp.Literal) and number.is_int else None


def _first_of(
    ordered: exp.Ordered, count: int, sources: Sources, outputs: Sequence[exp.Expr]
) -> First | None:
    """Returns the first rows by the first key of ORDER BY, or None if that is not a column."""
    key = ordered.this
    if not has_only(ordered, ("this", "desc", "nulls_first")):
        return None
    if isinstance(key, exp.Literal):
        place = int(key.name) if key.is_int else 0
        key = outputs[place - 1].unalias() if 0 < place <= len(outputs) else key
    elif isinstance(key, exp.Column) and len(key.parts) == 1:
        # An output of that name takes precedence over the table's column.
        named = [o for o in outputs if o.alias_or_name.lower() == key.name.lower()]
        key = named[0].unalias() if len(named) == 1 else key
        if len(named) > 1:
            return None
    name = _column_of(key, sources)
    if name is None:
        return None
    return First(name, count, bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first")))


def _column_of(node: exp.Expr, sources: Sources) -> str | None:
    """Returns the column that ``node`` is, or None if it is none or ambiguous."""
    place = own_place(node, sources) if isinstance(node, exp.Column) else None
    return None if place is None else place[1]
