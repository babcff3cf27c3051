"""Polars' searches in texts, and comparisons of texts in one case, as pyarrow's functions."""

from __future__ import annotations

import re

import polars as pl
import pyarrow.compute as pc

from intarsia.engines.polars.regex import is_alike

_OF_SEVERAL = re.compile("SS|FF|FI|FL|ST")
"""What Polars makes of one character in upper case (ß, ﬁ, …), and pyarrow does not."""


def searched(
    expr: pl.Expr, subject: pl.Expr, wanted: pl.Expr, field: pc.Expression, text: str
) -> pc.Expression | None:
    """``expr`` where it looks for ``wanted``, a constant that is ``text``, in ``field``."""
    if expr.meta.eq(subject.str.starts_with(wanted)):
        return pc.starts_with(field, text)
    if expr.meta.eq(subject.str.ends_with(wanted)):
        return pc.ends_with(field, text)
    if expr.meta.eq(subject.str.contains(wanted, literal=True)):
        return pc.match_substring(field, text)
    if expr.meta.eq(subject.str.contains(wanted)):
        if re.fullmatch(r"[\w ]*", text):
            return pc.match_substring(field, text)
        return pc.match_substring_regex(field, text) if is_alike(text) else None
    return None


def is_lowered(expr: pl.Expr, text: pl.Expr) -> bool:
    """Is ``expr`` what ``text`` is in lower case?"""
    return bool(expr.meta.eq(text.str.to_lowercase()))


def is_uppered(expr: pl.Expr, text: pl.Expr) -> bool:
    """Is ``expr`` what ``text`` is in upper case?"""
    return bool(expr.meta.eq(text.str.to_uppercase()))


def lowered_equals(field: pc.Expression, text: str) -> pc.Expression | None:
    """Is ``field`` in lower case ``text``? None where ``text`` is not all ASCII.

    To pyarrow İ in lower case is an i, to Polars an i and a dot. No other character is ASCII to one
    of them and something else to the other.
    """
    if not text.isascii():
        return None
    found = pc.utf8_lower(field) == text
    return found & ~pc.match_substring(field, "İ") if "i" in text else found


def uppered_equals(field: pc.Expression, text: str) -> pc.Expression | None:
    """Is ``field`` in upper case ``text``? None where ``text`` might come of fewer characters."""
    if not text.isascii() or _OF_SEVERAL.search(text):
        return None
    return pc.utf8_upper(field) == text


def lowered_searched(
    expr: pl.Expr, subject: pl.Expr, wanted: pl.Expr, field: pc.Expression, text: str
) -> pc.Expression | None:
    """``expr`` where it looks for ``wanted``, all ASCII, in ``field`` in lower case.

    Where ``text`` has an i, it may be found more often than Polars finds it, as of
    ``lowered_equals``.
    """
    if not text.isascii() or not re.fullmatch(r"[\w ]*", text):
        return None
    return searched(expr, subject, wanted, pc.utf8_lower(field), text)
