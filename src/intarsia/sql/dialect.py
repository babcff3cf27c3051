"""DuckDB's SQL as sqlglot parses it, with paths in JSON as they are written."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

DUCKDB = "duckdb"


class _WrittenPaths(DuckDB):
    """DuckDB's dialect. sqlglot's own one reads the key ``'a.b'`` as the path ``'$.a.b'``."""

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        return path


def parsed_as(dialect: str) -> str | type[DuckDB]:
    """Returns the dialect by which sqlglot parses SQL that is written in ``dialect``."""
    return _WrittenPaths if dialect == DUCKDB else dialect
