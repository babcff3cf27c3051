"""Queries of one table that need only some of its rows, or only how many there are.

::

    SELECT … WHERE … LIMIT 10                     any ten
    SELECT … WHERE … ORDER BY ts DESC LIMIT 10    the ten that come first
    SELECT min(ts), max(ts) … WHERE …             the first, either way
    SELECT count(*) … WHERE …                     their number
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from intarsia.sql.scope import PLAIN_TABLE, Sources, has_only, own_place

_PARTS = ("expressions", "from_", "where", "order", "limit", "offset")
_OF_A_ROW = (
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
"""What gives one value for a row, and never fails: an error of a row that is not read may not go
missing."""
_OF_VALUES = (
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
"""What gives the same for the same values, however many rows they were found in."""
UNTOLD = 2**63 - 1
"""So many rows, the engine knows which and how many: it stops reading before long."""


@dataclass(frozen=True, slots=True)
class First:
    """The first ``count`` rows by ``column``, as DuckDB orders its values."""

    column: str
    count: int
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """What a query needs of the rows of its table for which its WHERE is TRUE.

    ``limit``: any so many, of which it passes over ``offset``. ``firsts``: the rows that are first
    in one of these orders; ``are_bounds``: of their values it needs the least and the greatest
    alone. ``is_number``: just how many there are, which is all that it gives.
    """

    limit: int | None = None
    offset: int = 0
    firsts: tuple[First, ...] = ()
    is_number: bool = False
    are_bounds: bool = False


def need_of(select: exp.Expr, sources: Sources, outputs: Sequence[exp.Expr] | None) -> Need | None:
    """What ``select``, a whole query, needs of the one table in ``sources``; None for all its rows.

    ``outputs`` are what it gives, ``*`` spelled out. Columns are in lower case.
    """
    if not isinstance(select, exp.Select) or not has_only(select, _PARTS) or outputs is None:
        return None
    if len(list(select.find_all(exp.Query))) > 1 or len(sources) != 1:
        return None
    table = select.args["from_"].this
    if not isinstance(table, exp.Table) or not has_only(table, PLAIN_TABLE[:2]):
        return None
    if not any(select.args.get(part) for part in ("order", "limit", "offset")):
        if all(_is_count(output.unalias()) for output in outputs):
            return Need(is_number=True)
        firsts = _outermost(outputs, sources)
        return Need(firsts=tuple(firsts), are_bounds=True) if firsts else None
    order = select.args.get("order")
    limit = _limit_of(select)
    computed = [*outputs, *(order.expressions if order else ())]
    if limit is None or not all(isinstance(n, _OF_A_ROW) for one in computed for n in one.walk()):
        return None
    if order is None:
        return Need(limit=limit, offset=_number_in(select, "offset") or 0)
    first = _first_of(order.expressions[0], limit, sources, outputs)
    return None if first is None else Need(firsts=(first,))


def _is_count(output: exp.Expr) -> bool:
    is_plain = isinstance(output, exp.Count) and has_only(output, ("this", "big_int"))
    return is_plain and isinstance(output.this, exp.Star)


def _outermost(outputs: Sequence[exp.Expr], sources: Sources) -> list[First]:
    """The rows of which ``max`` and ``min`` of columns are the values, where no others count."""
    found: list[First] = []
    pending = [output.unalias() for output in reversed(outputs)]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Max | exp.Min) and has_only(node, ("this",)):
            name = _column_of(node.this, sources)
            if name is None:
                return []
            found.append(First(name, 1, descending=isinstance(node, exp.Max)))
        elif isinstance(node, _OF_VALUES):
            pending += node.iter_expressions(reverse=True)
        else:
            return []
    return found


def _limit_of(select: exp.Select) -> int | None:
    """How many rows a LIMIT and an OFFSET ask for together; None where they do not say."""
    if type(select.args.get("limit")) is not exp.Limit:
        return None
    limit, offset = _number_in(select, "limit"), _number_in(select, "offset")
    return None if limit is None or offset is None else limit + offset


def _number_in(select: exp.Select, part: str) -> int | None:
    """The number that a LIMIT or an OFFSET says, 0 of one that is not there; else None."""
    node = select.args.get(part)
    if node is None:
        return 0
    number = node.expression if has_only(node, ("expression",)) else None
    return int(number.name) if isinstance(number, exp.Literal) and number.is_int else None


def _first_of(
    ordered: exp.Ordered, count: int, sources: Sources, outputs: Sequence[exp.Expr]
) -> First | None:
    """The first rows by the first key of ORDER BY, if that is a column of the table."""
    key = ordered.this
    if not has_only(ordered, ("this", "desc", "nulls_first")):
        return None
    if isinstance(key, exp.Literal):
        place = int(key.name) if key.is_int else 0
        key = outputs[place - 1].unalias() if 0 < place <= len(outputs) else key
    elif isinstance(key, exp.Column) and len(key.parts) == 1:
        # What is selected under that name goes before the table's column.
        named = [o for o in outputs if o.alias_or_name.lower() == key.name.lower()]
        key = named[0].unalias() if len(named) == 1 else key
        if len(named) > 1:
            return None
    name = _column_of(key, sources)
    if name is None:
        return None
    return First(name, count, bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first")))


def _column_of(node: exp.Expr, sources: Sources) -> str | None:
    """The column that ``node`` is; None where it is none, or might be something else."""
    place = own_place(node, sources) if isinstance(node, exp.Column) else None
    return None if place is None else place[1]
