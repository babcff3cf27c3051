"""Where the text of a query mentions tables, and the text with other names for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sqlglot import exp

from intarsia.sql.scope import PLAIN_TABLE, has_only

_TABLE_STATEMENT = re.compile(r"\btable\s+$", re.IGNORECASE)
"""``TABLE t`` takes no alias."""


def occurrences(tree: exp.Expr, known: Mapping[str, str], query: str) -> list[exp.Table]:
    """Returns the mentions of tables in ``known`` that can be renamed, in the order of the text."""
    shadowed = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    # ``main.t.i`` and ``main.t.s.i`` do not refer to a table that is only called t.
    columns = [column for column in tree.find_all(exp.Column) if column.db]
    shadowed |= {name.lower() for column in columns for name in (column.table, column.db)}
    tables = [
        table
        for table in tree.find_all(exp.Table)
        if table.name.lower() in known
        and table.name.lower() not in shadowed
        and has_only(table, _allowed_parts(table))
        and isinstance(table.this, exp.Identifier)
        and not _names_a_column(table)
        and _text_of(table, query).strip('"`').lower() == table.name.lower()
        and not _TABLE_STATEMENT.search(query[: _position(table)[0]])
    ]
    return sorted(tables, key=lambda table: _position(table)[0])


def _allowed_parts(table: exp.Table) -> tuple[str, ...]:
    """Returns the parts a table may have: name, alias, and joins if the query begins with FROM."""
    is_first = isinstance(table.parent, exp.From)
    return PLAIN_TABLE if is_first else PLAIN_TABLE[:2]


def _names_a_column(table: exp.Table) -> bool:
    """True if the table is part of a subquery whose text is the name of a column."""
    node: exp.Expr | None = table
    while node is not None and node.parent is not None:
        is_output = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
        if is_output and not isinstance(node, exp.Alias):
            return True
        node = node.parent
    return False


def _position(table: exp.Table) -> tuple[int, int]:
    """Returns the start and the end, excluded, of the table's name in the query."""
    meta = table.this.meta
    return int(meta.get("start", 0)), int(meta.get("end", -1)) + 1


def _text_of(table: exp.Table, query: str) -> str:
    start, stop = _position(table)
    return query[start:stop]


def renamed(query: str, tables: Iterable[exp.Table], names: Iterable[str]) -> str:
    """Returns the query with other names for tables. Their old names become aliases."""
    parts, end = [], 0
    for table, name in zip(tables, names, strict=True):
        start, stop = _position(table)
        alias = "" if table.alias else f" AS {query[start:stop]}"
        parts += [query[end:start], name, alias]
        end = stop
    return "".join([*parts, query[end:]])


def unused_prefix(query: str) -> str:
    """Returns a prefix that no name in the query begins with."""
    prefix = "intarsia_scan_"
    while prefix in query.lower():
        prefix += "_"
    return prefix
