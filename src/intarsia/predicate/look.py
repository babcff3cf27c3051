"""A first look at a table: for which rows the WHERE of a query holds, told by its columns alone.

What an engine alone can compute of a WHERE, it has to be asked; that needs few columns, and the
others are wanted only of the rows for which it holds. It is computed once: the query then is asked
of these rows, without it.

::

    SELECT * FROM t WHERE hamming(name, 'duck') < 2 ORDER BY ts
                          ^───────────────────────^
    SELECT place FROM t WHERE hamming(name, 'duck') < 2       reads name
    SELECT * FROM found WHERE true ORDER BY ts                reads the rest
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import sqlglot
from sqlglot import Token, TokenType, exp

from intarsia.predicate.nested import Path
from intarsia.predicate.scope import PLAIN_TABLE, has_only
from intarsia.predicate.sql import ODD
from intarsia.predicate.used import NamedColumns

LOOKED_AT = "duckdb"
"""The dialect of queries that something is asked of first."""
_PARTS = (
    *("expressions", "distinct", "from_", "where", "group", "having", "windows", "qualify"),
    *("order", "limit", "offset"),
)
_ALONE = ("expressions", "from_", "where")
_AFTER_WHERE = {
    *(TokenType.GROUP_BY, TokenType.HAVING, TokenType.WINDOW, TokenType.QUALIFY),
    *(TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET, TokenType.SEMICOLON),
}


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What to ask about the scan ``name`` first, by columns and fields of it at ``paths``.

    As many rows as ``limit`` are enough, whichever they are; with None, all are needed.
    """

    name: str
    paths: tuple[Path, ...]
    limit: int | None
    _query: str
    _where: slice
    _alias: str

    def asked(self, select: str) -> str:
        """A query for what ``select`` says of the rows for which the WHERE holds."""
        condition = self._query[self._where]  # it may end in a comment
        return f"SELECT {select} FROM {self.name} AS {self._alias} WHERE {condition}\n"

    def answered(self) -> str:
        """The query, of rows for which its WHERE holds."""
        return f"{self._query[: self._where.start]}true{self._query[self._where.stop :]}"


def first_look(query: str, name: str, schema: pa.Schema, limit: int | None) -> FirstLook | None:
    """What to ask first for a query of the table ``name`` of that schema.

    None where its rows may also be chosen by something else than its WHERE and ``limit``.
    """
    tokens = sqlglot.tokenize(query, read=LOOKED_AT)
    where = _where(tokens)
    if not where:
        return None
    place = slice(where[0].start, where[-1].end + 1)
    tree, alone = (_select(sql) for sql in (query, f"SELECT 1 FROM t WHERE {query[place]}"))
    if tree is None or alone is None or not has_only(alone, _ALONE):
        return None
    if tree.args["where"] != alone.args["where"]:
        return None
    table = tree.args["from_"].this
    is_plain = isinstance(table, exp.Table) and has_only(table, PLAIN_TABLE[:2])
    if not is_plain or table.name != name or not has_only(table.args["alias"], ("this",)):
        return None
    known = {column.lower() for column in schema.names}
    condition = tree.args["where"]
    asked = {
        part.name.lower() for column in condition.find_all(exp.Column) for part in column.parts
    }
    stars = condition.find_all(exp.Star)  # which would be more columns than there are
    is_odd = condition.find(exp.Columns, exp.PositionalColumn) is not None
    if is_odd or any(not isinstance(star.parent, exp.Count) for star in stars):
        return None
    if table.alias.lower() in known | _bare_names(condition):
        return None
    if any(_is_renamed(output, asked) for output in tree.expressions):
        return None
    alias = exp.to_identifier(table.alias, quoted=True).sql(LOOKED_AT)
    named = NamedColumns(condition)
    paths = [path for f in schema if f.name.lower() in asked for path in named.paths_of(f)]
    return FirstLook(name, tuple(paths), limit, query, place, alias)


def _where(tokens: Sequence[Token]) -> list[Token]:
    """What the WHERE says that is in no parentheses itself."""
    found: list[Token] = []
    depth, is_within = 0, False
    for token in tokens:
        depth += token.token_type is TokenType.L_PAREN
        depth -= token.token_type is TokenType.R_PAREN
        if not depth and token.token_type in _AFTER_WHERE:
            is_within = False
        if is_within:
            found.append(token)
        if not depth and token.token_type is TokenType.WHERE:
            is_within = True
    return found


def _select(query: str) -> exp.Select | None:
    try:
        tree = sqlglot.parse_one(query, dialect=LOOKED_AT)
    except (RecursionError, *ODD):
        return None
    if not isinstance(tree, exp.Select) or not has_only(tree, _PARTS):
        return None
    return tree


def _bare_names(condition: exp.Expr) -> set[str]:
    """What columns are called by a name alone: a table is, where its rows are meant as a whole."""
    return {column.name.lower() for column in condition.find_all(exp.Column) if not column.table}


def _is_renamed(output: exp.Expr, asked: set[str]) -> bool:
    """Is an output called as something in the WHERE is, which may mean it?"""
    if not isinstance(output, exp.Alias) or output.alias.lower() not in asked:
        return False
    column = output.this
    return not isinstance(column, exp.Column) or column.name.lower() != output.alias.lower()
