"""Derives conditions on some parts of a condition: ``(a AND b) OR (c AND d)`` implies ``a OR c``.

If an AND is TRUE, all its parts are; if an OR is TRUE, one part is. So the result is TRUE wherever
the condition is. NULL needs no care: where the condition is not TRUE, nothing is implied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

Fits = Callable[[exp.Expr], bool]
"""True if a condition may be part of the result."""


def implied(condition: exp.Expr, fits: Fits) -> exp.Expr | None:
    """Returns the strongest AND and OR of fitting parts that ``condition`` implies.

    Returns ``condition`` itself if it fits, and None if nothing is implied.
    """
    if fits(condition):
        return condition
    node = condition.unnest()
    if not isinstance(node, exp.And | exp.Or):
        return None
    parts = [implied(part, fits) for part in node.flatten()]
    known = [part for part in parts if part is not None]
    if not known or (isinstance(node, exp.Or) and len(known) < len(parts)):
        return None
    return joined(type(node), known)


def joined(operator: type[exp.Expr], conditions: Sequence[exp.Expr]) -> exp.Expr:
    """Returns copies of ``conditions``, at least one, joined by AND or OR."""
    first, *rest = [exp.Paren(this=condition.copy()) for condition in conditions]
    result: exp.Expr = first
    for condition in rest:
        result = operator(this=result, expression=condition)
    return result
