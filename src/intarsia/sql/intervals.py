"""Spans of time in SQL text, of which sqlglot keeps what it understands and drops the rest.

``INTERVAL '1 day 02:03:04'`` is a day in its tree, as ``INTERVAL '1 day ago'`` is.
"""

from __future__ import annotations

import itertools
import re

import sqlglot
from sqlglot import exp

_COUNTED, _CLOCK = r"[+-]?\d+\s*[a-z]+\s*", r"[+-]?\d+:\d+:\d+(\.\d+)?"
_WHOLE = re.compile(rf"[+-]?\d+|({_COUNTED})+|{_CLOCK}", re.IGNORECASE | re.ASCII)


def odd_span(text: str, dialect: str) -> str | None:
    """The first span in SQL ``text`` that its tree has in part, if there is one."""
    if "interval" not in text.lower():
        return None
    for token, following in itertools.pairwise(sqlglot.tokenize(text, read=dialect)):
        is_span = token.token_type is sqlglot.TokenType.INTERVAL
        is_text = following.token_type is sqlglot.TokenType.STRING
        if is_span and is_text and not _WHOLE.fullmatch(following.text):
            return str(following.text)
    return None


def forget_spans(tree: exp.Expr) -> None:
    """Make every span in ``tree`` one that nobody knows the length of."""
    for span in tree.find_all(exp.Interval):
        span.set("this", exp.Literal.string(""))
        span.set("unit", None)
