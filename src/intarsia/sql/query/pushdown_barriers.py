"""Which conditions on the outputs of a SELECT hold for its input as well.

A condition on a row passes DISTINCT, and one on grouping keys passes GROUP BY. One on keys of all
partitions passes windows. Each drops rows, groups or partitions as a whole. This is done only if
nothing computed for them can fail: a query must not lose an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from intarsia.expr.sql_text import sql_of
from intarsia.sql.scope import Sources, has_only, own_place, owner_of

_BARRIERS = ("limit", "offset", "windows")
_SAFE_NODES = (
    exp.Alias,
    exp.And,
    exp.Avg,
    exp.Boolean,
    exp.Column,
    exp.Count,
    exp.DenseRank,
    exp.Distinct,
    exp.EQ,
    exp.GT,
    exp.GTE,
    exp.Identifier,
    exp.In,
    exp.Is,
    exp.LT,
    exp.LTE,
    exp.Like,
    exp.Literal,
    exp.Lower,
    exp.Max,
    exp.Min,
    exp.NEQ,
    exp.Not,
    exp.Null,
    exp.Or,
    exp.Order,
    exp.Ordered,
    exp.Paren,
    exp.Qualify,
    exp.Filter,
    exp.Having,
    exp.Rank,
    exp.RowNumber,
    exp.Star,
    exp.Sum,
    exp.Upper,
    exp.Var,
    exp.Where,
    exp.Window,
)
"""Nodes that cannot raise an error."""


def cannot_fail(select: exp.Select) -> bool:
    """True if nothing that is computed from rows or groups may raise an error."""
    parts = [*select.expressions, select.args.get("having"), select.args.get("qualify")]
    return all(
        isinstance(node, _SAFE_NODES) for part in parts if part is not None for node in part.walk()
    )


def passes(
    select: exp.Select, used: Iterable[exp.Expr], outputs: Sequence[exp.Expr], sources: Sources
) -> bool:
    """True if a condition on ``used`` outputs of ``select`` may be applied to its input."""
    if any(select.args.get(name) for name in _BARRIERS):
        return False
    group, distinct = select.args.get("group"), select.args.get("distinct")
    parts = [*select.expressions, select.args.get("qualify")]
    windows = [call for part in parts if part for call in part.find_all(exp.Window)]
    if not (group or distinct or windows or select.args.get("having")):
        return not select.args.get("qualify")
    if not cannot_fail(select) or (distinct and distinct.args.get("on")):
        return False
    used_columns = {_resolved(output.unalias(), sources) for output in used}
    if (group or select.args.get("having")) and not used_columns <= group_keys(
        select, outputs, sources
    ):
        return False
    return all(used_columns <= _partition_keys(window, sources) for window in windows)


def group_keys(select: exp.Select, outputs: Sequence[exp.Expr], sources: Sources) -> set[str]:
    """Returns the grouping keys of ``select`` as ``_resolved`` text, an empty set if not plain."""
    group = select.args.get("group")
    if group is None or not has_only(group, ("expressions", "all")):
        return set()
    if group.args.get("all"):
        columns = [output.unalias() for output in outputs]
        return {_resolved(c, sources) for c in columns if isinstance(c, exp.Column)}
    keys: set[str] = set()
    for key in group.expressions:
        if isinstance(key, exp.Literal):
            position = int(key.this) - 1 if key.this.isdigit() else -1
            if not 0 <= position < len(outputs):
                return set()
            keys.add(_resolved(outputs[position].unalias(), sources))
        elif not isinstance(key, exp.Column) or owner_of(key, sources) is not None:
            keys.add(_resolved(key, sources))
        else:
            named = [o.unalias() for o in outputs if o.alias_or_name.lower() == key.name.lower()]
            if len(key.parts) > 1 or len(named) != 1:
                return set()
            keys.add(_resolved(named[0], sources))
    return keys


def is_key(
    column: exp.Column, keys: set[str], outputs: Sequence[exp.Expr], sources: Sources
) -> bool:
    """True if ``column`` in a HAVING means a grouping key of the input and nothing else."""
    resolved = _resolved(column, sources)
    others = [
        output
        for output in outputs
        if len(column.parts) == 1
        and output.alias_or_name.lower() == column.name.lower()
        and _resolved(output.unalias(), sources) != resolved
    ]
    return resolved in keys and not others


def _partition_keys(window: exp.Expr, sources: Sources) -> set[str]:
    if window.args.get("alias"):
        return set()  # defined elsewhere
    return {_resolved(key, sources) for key in window.args.get("partition_by") or ()}


def _resolved(node: exp.Expr, sources: Sources) -> str:
    """Returns ``node`` as text in which every column has the name of its source."""

    def qualify(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column):
            return part
        place = own_place(part, sources)
        if place is None:
            return part
        owner, name = place
        return exp.column(
            exp.to_identifier(name, quoted=True), exp.to_identifier(owner, quoted=True)
        )

    return sql_of(node.copy().transform(qualify))
