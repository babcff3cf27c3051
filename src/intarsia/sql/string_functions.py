"""SQL's searches in strings: functions, by DuckDB's names for them, and LIKE."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from intarsia.errors import PredicateError

SEARCHES: dict[str, Callable[[Any, str], pc.Expression]] = {
    "starts_with": pc.starts_with,
    "prefix": pc.starts_with,
    "ends_with": pc.ends_with,
    "suffix": pc.ends_with,
    "contains": pc.match_substring,
    "regexp_matches": pc.match_substring_regex,
}
_NODES: dict[type[exp.Expr], str] = {
    exp.StartsWith: "starts_with",
    exp.EndsWith: "ends_with",
    exp.Contains: "contains",
    exp.RegexpLike: "regexp_matches",
}


@dataclass(frozen=True, slots=True)
class TextSearch:
    """A call of one of ``SEARCHES`` that searches for ``pattern`` in ``subject``."""

    node: exp.Expr
    name: str
    subject: exp.Expr
    pattern: exp.Expr

    @property
    def flags(self) -> str | None:
        """DuckDB's regular expression options as a prefix for RE2, such as ``(?i)``.

        None if an option is not known to mean the same to RE2.
        """
        flag = self.node.args.get("flag")
        if flag is None:
            return ""
        if not isinstance(flag, exp.Literal) or not set(flag.this) <= set("is"):
            return None
        return f"(?{flag.this})" if flag.this else ""


def text_search_of(node: exp.Expr) -> TextSearch | None:
    """Returns the search for a string that a condition is, or None if it is none."""
    if type(node) in _NODES:
        return TextSearch(node, _NODES[type(node)], node.this, node.expression)
    if not isinstance(node, exp.Anonymous) or len(node.expressions) != 2:
        return None
    name = str(node.this).lower()
    return TextSearch(node, name, *node.expressions) if name in SEARCHES else None


def regex_problem(pattern: str) -> str | None:
    """Returns RE2's error for a regular expression, or None if the pattern is valid."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowException as error:
        return str(error)
    return None


def matches_like(
    value: pc.Expression, pattern: str, escape: str, *, ignore_case: bool = False
) -> pc.Expression:
    r"""Returns the condition that ``value`` matches a LIKE pattern with the given escape character.

    ``escape`` is empty if there is none. In pyarrow's patterns a backslash escapes. pyarrow reads
    two backslashes for one, as in ``%\\%``, as two: such a pattern becomes a regular expression.
    Raises ``PredicateError`` if ``escape`` is longer than one character, or the pattern ends with
    it.
    """
    if len(escape) > 1:
        raise PredicateError(f"ESCAPE names one character, not {escape!r}")
    tokens, characters = [], iter(pattern)
    for character in characters:
        is_escape = character == escape
        literal = next(characters, "") if is_escape else character
        if not literal:
            raise PredicateError(f"{pattern!r} ends with {escape!r}, its escape character")
        is_special = literal == "\\" or (is_escape and literal in "%_")
        tokens.append("\\" + literal if is_special else literal)
    if "\\\\" not in tokens:
        return pc.match_like(value, "".join(tokens), ignore_case=ignore_case)
    regex = "".join({"%": ".*", "_": "."}.get(token) or re.escape(token[-1]) for token in tokens)
    return pc.match_substring_regex(value, rf"(?s)\A{regex}\z", ignore_case=ignore_case)
