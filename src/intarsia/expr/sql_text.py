"""Parts of a condition as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import ErrorLevel, exp

from intarsia.control_characters import half_character
from intarsia.errors import PredicateError

_SHOWN = 500
"""Characters of SQL text that an error shows."""


def check_characters(*given: Any) -> None:
    """Raises ``PredicateError`` for half a character in SQL text, or in strings given with it."""
    strings = [value for value in given if isinstance(value, str)]
    if half_character("".join(strings)) is not None:  # one pass, as there may be millions
        for text in strings:
            found = half_character(text)
            if found is not None:
                place, name = found
                raise PredicateError(
                    f"{text[:_SHOWN]!r}: there is a lone surrogate {name} at character "
                    f"{place + 1:,}; SQL is Unicode text, and half a character is none: take it out"
                )
    for value in given:
        if isinstance(value, Mapping):
            check_characters(*value, *value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            check_characters(*value)


def sql_of(node: exp.Expr) -> str:
    """DuckDB's SQL for ``node``; what DuckDB has not, sqlglot writes in its own way and logs not.

    Raises ``ValueError`` where sqlglot has no text, as for bytes that are none.
    """
    return node.sql("duckdb", unsupported_level=ErrorLevel.IGNORE)


def text_of(node: exp.Expr) -> str:
    """A part of a condition as it might have been written, for messages."""
    try:
        return sql_of(node)
    except ValueError:
        return f"a condition of {node.key}"
