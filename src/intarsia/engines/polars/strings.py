"""Polars' searches in strings, and comparisons of lower or upper case, as pyarrow's functions."""

from __future__ import annotations

import re

import polars as pl
import pyarrow.compute as pc

from intarsia.engines.polars.regex import means_the_same

_FROM_ONE_CHARACTER = re.compile("SS|FF|FI|FL|ST")
"""Letters that Polars, but not pyarrow, makes of one character in upper case (ß, ﬁ, …)."""


def convert_search(
    expr: pl.Expr, subject: pl.Expr, pattern: pl.Expr, field: pc.Expression, text: str
) -> pc.Expression | None:
    """Returns ``expr`` as pyarrow's function if it searches ``subject`` for a string, else None.

    ``field`` is pyarrow's ``subject``, and ``text`` the value of the constant ``pattern``.
    """
    if expr.meta.eq(subject.str.starts_with(pattern)):
        return pc.starts_with(field, text)
    if expr.meta.eq(subject.str.ends_with(pattern)):
        return pc.ends_with(field, text)
    if expr.meta.eq(subject.str.contains(pattern, literal=True)):
        return pc.match_substring(field, text)
    if expr.meta.eq(subject.str.contains(pattern)):
        if re.fullmatch(r"[\w ]*", text):
            return pc.match_substring(field, text)
        return pc.match_substring_regex(field, text) if means_the_same(text) else None
    return None


def is_lower_case(expr: pl.Expr, text: pl.Expr) -> bool:
    """True if ``expr`` is ``text`` in lower case."""
    return bool(expr.meta.eq(text.str.to_lowercase()))


def is_upper_case(expr: pl.Expr, text: pl.Expr) -> bool:
    """True if ``expr`` is ``text`` in upper case."""
    return bool(expr.meta.eq(text.str.to_uppercase()))


def lower_case_equals(field: pc.Expression, text: str) -> pc.Expression | None:
    """Returns the condition that ``field`` in lower case is ``text``, None if that is not ASCII.

    İ in lower case is i for pyarrow, and i with a combining dot for Polars. No other character is
    ASCII for only one of them.
    """
    if not text.isascii():
        return None
    is_equal = pc.utf8_lower(field) == text
    return is_equal & ~pc.match_substring(field, "İ") if "i" in text else is_equal


def upper_case_equals(field: pc.Expression, text: str) -> pc.Expression | None:
    """Returns the condition that ``field`` in upper case is ``text``.

    Returns None if ``text`` is not ASCII, or may come from a string of fewer characters.
    """
    if not text.isascii() or _FROM_ONE_CHARACTER.search(text):
        return None
    return pc.utf8_upper(field) == text


def convert_lower_case_search(
    expr: pl.Expr, subject: pl.Expr, pattern: pl.Expr, field: pc.Expression, text: str
) -> pc.Expression | None:
    """Returns ``expr`` if it searches ``field`` in lower case for a word of ASCII, else None.

    If ``text`` has an i, the result may match more strings than Polars does: see
    ``lower_case_equals``.
    """
    if not text.isascii() or not re.fullmatch(r"[\w ]*", text):
        return None
    return convert_search(expr, subject, pattern, pc.utf8_lower(field), text)
