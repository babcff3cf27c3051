"""SQL's functions that look for a text in one, by DuckDB's names for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc
from sqlglot import exp

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
    """A call of one of ``SEARCHES``: ``subject`` is where, ``wanted`` what is looked for."""

    node: exp.Expr
    name: str
    subject: exp.Expr
    wanted: exp.Expr

    @property
    def flags(self) -> str | None:
        """DuckDB's options of a regular expression as RE2 takes them before one.

        None for those that are not known to mean the same.
        """
        flag = self.node.args.get("flag")
        if flag is None:
            return ""
        if not isinstance(flag, exp.Literal) or not set(flag.this) <= set("is"):
            return None
        return f"(?{flag.this})" if flag.this else ""


def text_search_of(node: exp.Expr) -> TextSearch | None:
    """What a condition looks for in a text, or in a list; None where it is another."""
    if type(node) in _NODES:
        return TextSearch(node, _NODES[type(node)], node.this, node.expression)
    if not isinstance(node, exp.Anonymous) or len(node.expressions) != 2:
        return None
    name = str(node.this).lower()
    return TextSearch(node, name, *node.expressions) if name in SEARCHES else None
