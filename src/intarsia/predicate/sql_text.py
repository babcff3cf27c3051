"""Parts of a condition as text."""

from __future__ import annotations

from sqlglot import ErrorLevel, exp


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
