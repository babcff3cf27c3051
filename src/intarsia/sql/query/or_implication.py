"""What a condition implies about some of its parts: ``(a AND b) OR (c AND d)`` implies ``a OR c``.

Of an AND that is TRUE every part is, of an OR one is, so that what is made here is TRUE wherever
the condition is. NULL needs no care: nothing is said of where it is not TRUE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

Fits = Callable[[exp.Expr], bool]
"""Is a condition one of those that are looked for?"""


def implied(condition: exp.Expr, fits: Fits) -> exp.Expr | None:
    """The strongest condition made of parts that fit, by AND and OR, which ``condition`` implies.

    ``condition`` itself where that fits; None where nothing is implied.
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


def joined(how: type[exp.Expr], conditions: Sequence[exp.Expr]) -> exp.Expr:
    """Copies of ``conditions``, at least one of them, joined by AND or OR."""
    first, *rest = [exp.Paren(this=condition.copy()) for condition in conditions]
    found: exp.Expr = first
    for condition in rest:
        found = how(this=found, expression=condition)
    return found
