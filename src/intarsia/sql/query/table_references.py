"""Where a query's text mentions tables, and the text with other names for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sqlglot import exp

from intarsia.sql.scope import PLAIN_TABLE, has_only

_TABLE = re.compile(r"\btable\s+$", re.IGNORECASE)
"""``TABLE t`` takes no alias."""


def occurrences(tree: exp.Expr, known: Mapping[str, str], query: str) -> list[exp.Table]:
    """Mentions of the tables in ``known`` that can be renamed, as they follow in the text."""
    shadowed = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    # ``main.t.i`` is no column of anything that is only called t, nor is ``main.t.s.i``.
    columns = [column for column in tree.find_all(exp.Column) if column.db]
    shadowed |= {name.lower() for column in columns for name in (column.table, column.db)}
    found = [
        table
        for table in tree.find_all(exp.Table)
        if table.name.lower() in known
        and table.name.lower() not in shadowed
        and has_only(table, _may_have(table))
        and isinstance(table.this, exp.Identifier)
        and not _names_a_column(table)
        and _text_of(table, query).strip('"`').lower() == table.name.lower()
        and not _TABLE.search(query[: _place(table)[0]])
    ]
    return sorted(found, key=lambda table: _place(table)[0])


def _may_have(table: exp.Table) -> tuple[str, ...]:
    """What a table may come with: a name, an alias, and in a query that begins with FROM, joins."""
    is_first = isinstance(table.parent, exp.From)
    return PLAIN_TABLE if is_first else PLAIN_TABLE[:2]


def _names_a_column(table: exp.Table) -> bool:
    """Is the table part of a subquery that, for want of an alias, a column is called by?"""
    node: exp.Expr | None = table
    while node is not None and node.parent is not None:
        is_output = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
        if is_output and not isinstance(node, exp.Alias):
            return True
        node = node.parent
    return False


def _place(table: exp.Table) -> tuple[int, int]:
    """Where the table's name begins and ends in the query."""
    meta = table.this.meta
    return int(meta.get("start", 0)), int(meta.get("end", -1)) + 1


def _text_of(table: exp.Table, query: str) -> str:
    start, stop = _place(table)
    return query[start:stop]


def renamed(query: str, tables: Iterable[exp.Table], names: Iterable[str]) -> str:
    """The query with other names for tables, which keep what they were called as an alias."""
    parts, end = [], 0
    for table, name in zip(tables, names, strict=True):
        start, stop = _place(table)
        alias = "" if table.alias else f" AS {query[start:stop]}"
        parts += [query[end:start], name, alias]
        end = stop
    return "".join([*parts, query[end:]])


def unused_prefix(query: str) -> str:
    """What no name in the query begins with."""
    prefix = "intarsia_scan_"
    while prefix in query.lower():
        prefix += "_"
    return prefix
