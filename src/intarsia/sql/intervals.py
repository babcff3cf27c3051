"""SQL intervals that sqlglot understands only in part, and silently shortens.

Its tree has one day for ``INTERVAL '1 day 02:03:04'``, and for ``INTERVAL '1 day ago'`` as well.
"""

from __future__ import annotations

import itertools
import re

import sqlglot
from sqlglot import exp

_COUNTED, _CLOCK = r"[+-]?\d+\s*[a-z]+\s*", r"[+-]?\d+:\d+:\d+(\.\d+)?"
_UNDERSTOOD = re.compile(rf"[+-]?\d+|({_COUNTED})+|{_CLOCK}", re.IGNORECASE | re.ASCII)


def partial_interval(text: str, dialect: str) -> str | None:
    """Returns the first interval in ``text`` that its tree holds only in part, or None."""
    if "interval" not in text.lower():
        return None
    for token, following in itertools.pairwise(sqlglot.tokenize(text, read=dialect)):
        is_interval = token.token_type is sqlglot.TokenType.INTERVAL
        is_text = following.token_type is sqlglot.TokenType.STRING
        if is_interval and is_text and not _UNDERSTOOD.fullmatch(following.text):
            return str(following.text)
    return None


def clear_intervals(tree: exp.Expr) -> None:
    """Replaces every interval in ``tree`` by one of unknown length."""
    for span in tree.find_all(exp.Interval):
        span.set("this", exp.Literal.string(""))
        span.set("unit", None)
