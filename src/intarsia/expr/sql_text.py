"""SQL text of parts of a condition, and a check of its characters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import ErrorLevel, exp

from intarsia.control_characters import find_surrogate
from intarsia.errors import PredicateError

_MAX_SHOWN_CHARS = 500
"""An error message shows this many characters of SQL text."""


def check_characters(*given: Any) -> None:
    """Raises ``PredicateError`` for a lone surrogate in SQL text, or in strings given with it."""
    strings = [value for value in given if isinstance(value, str)]
    if find_surrogate("".join(strings)) is not None:  # one pass, as there may be millions
        for text in strings:
            surrogate = find_surrogate(text)
            if surrogate is not None:
                place, name = surrogate
                raise PredicateError(
                    f"{text[:_MAX_SHOWN_CHARS]!r}: there is a lone surrogate {name} at character "
                    f"{place + 1:,}; SQL text must be valid Unicode: remove the surrogate"
                )
    for value in given:
        if isinstance(value, Mapping):
            check_characters(*value, *value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            check_characters(*value)


def sql_of(node: exp.Expr) -> str:
    """Returns DuckDB's SQL for ``node``. sqlglot's own form stands for what DuckDB does not have.

    Raises ``ValueError`` if sqlglot has no text, as for bytes that are not valid.
    """
    return node.sql("duckdb", unsupported_level=ErrorLevel.IGNORE)


def text_of(node: exp.Expr) -> str:
    """Returns the SQL text of a part of a condition, for messages."""
    try:
        return sql_of(node)
    except ValueError:
        return f"a condition of {node.key}"
