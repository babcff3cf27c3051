"""Rewrites SQL queries over named tables: one scan per occurrence of a table, each with a filter.

The query's text stays, except for the names of tables. Every occurrence gets its own name, under
which the caller provides the rows that pass its filter. Conditions stay in the query, so a filter
only saves work. A condition stays where it is if it may not pass what lies between: an outer join,
a window, a LIMIT.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import TokenType, exp
from sqlglot.optimizer.scope import traverse_scope

from intarsia.errors import PredicateError
from intarsia.expr.nested_types import Path
from intarsia.expr.sql_text import check_characters, text_of
from intarsia.sql.constant_folding import Now, fold_constants
from intarsia.sql.dialect import parsed_as
from intarsia.sql.engine_condition import exact_condition
from intarsia.sql.intervals import clear_intervals, partial_interval
from intarsia.sql.long_lists import Shortened, without_long_lists
from intarsia.sql.query.join_keys import keys_in
from intarsia.sql.query.limit_pushdown import UNKNOWN_LIMIT, Need, need_of
from intarsia.sql.query.parameters import Parameters, numbered, substitute_parameters
from intarsia.sql.query.predicate_pushdown import conditions_of, unqualified
from intarsia.sql.query.projection_pushdown import paths_used
from intarsia.sql.query.table_references import occurrences, renamed, unused_prefix
from intarsia.sql.reserved_names import as_duckdb_folds, differ_beyond_ascii, misread_columns
from intarsia.sql.scope import Scopes, wheres
from intarsia.sql.where_clause import SQL_ERRORS

_LIKE_ESCAPE = {"spark": "\\"}
"""The escape character of LIKE without ESCAPE, by dialect. Others have none."""
_TABLE_STATEMENT = re.compile(r"\btable\s+[\"`]?([^\"`;()]*[^\"`;()\s])", re.IGNORECASE)
"""A table after ``TABLE``. The tree has no position for it if it is in parentheses."""
_READ_ONLY_FUNCTIONS = {
    *("range", "generate_series", "unnest", "repeat", "glob", "read_parquet", "parquet_scan"),
    *("read_csv", "read_csv_auto", "read_json", "read_json_auto", "read_text", "read_blob"),
}
"""Functions in FROM that are known to have no side effects, unlike ``enable_logging``."""
_PIPE = "|>"
_EXPLAIN = re.compile(r"(\s*explain\b(\s+analyze\b)?(\s*\([^()]*\))?\s*)+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Keys:
    """A scan's ``column`` holds only values that are among those of other scans' columns.

    ``origins`` are the names of these scans and columns.
    """

    column: str
    origins: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """One occurrence of a table: rows of ``table`` for the query's table ``name``.

    Attributes
    ----------
    paths : tuple of Path
        All columns and struct fields that the query may use.
    filter : pyarrow.compute.Expression or None
        TRUE for every row that the query needs. None if it may need any row.
    keys : tuple of Keys
        Each holds for every row that the query needs.
    need : Need or None
        The rows that the query needs among those that pass the filter. None for all of them.
    """

    name: str
    table: str
    paths: tuple[Path, ...]
    filter: pc.Expression | None
    keys: tuple[Keys, ...] = ()
    need: Need | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that the query uses as a whole or in part."""
        return tuple(dict.fromkeys(path[0] for path in self.paths))


@dataclass(frozen=True, slots=True)
class Query:
    """A query that reads ``scans`` instead of tables.

    ``others`` are tables that it may still mention by their own names. ``is_one`` is True if it is
    known to be a query that only reads.
    """

    sql: str
    scans: tuple[Scan, ...]
    others: tuple[str, ...] = ()
    is_one: bool = True

    def without_offset(self) -> Query | None:
        """Returns the query with 0 as its OFFSET, or None if no number follows OFFSET."""
        pairs = itertools.pairwise(sqlglot.tokenize(self.sql, read="duckdb"))
        kinds = TokenType.OFFSET, TokenType.NUMBER
        offsets = [
            following
            for token, following in pairs
            if (token.token_type, following.token_type) == kinds
        ]
        if not offsets:
            return None
        number = offsets[-1]
        return replace(self, sql=f"{self.sql[: number.start]}0{self.sql[number.end + 1 :]}")

    def read_once(self) -> Query:
        """Returns the query without keys and needs, so that no table is read ahead of the scans."""
        plain = (replace(scan, keys=(), need=None) for scan in self.scans)
        return replace(self, scans=tuple(plain))

    @property
    def reads_ahead(self) -> bool:
        """True if a table may be read ahead of the scans, to find out which rows are needed."""
        return any(scan.keys or (scan.need is not None and scan.need.firsts) for scan in self.scans)


_MAX_CACHED_CHARACTERS = 10_000
"""Longest query whose tree is cached, so that memory stays bounded."""

Seen = Callable[[exp.Expr, pa.Schema], exp.Expr | None]
"""Returns a condition on a table with that schema in the form that ``exact_condition`` translates.

Returns None if the engine may evaluate the condition differently.
"""


def seen_by_duckdb(now: Now | None = None) -> Seen:
    """Returns a function that evaluates constant parts as DuckDB does, at the time ``now``."""
    return lambda condition, _: fold_constants(condition, now)


def scans_of(
    query: str,
    schemas: Mapping[str, pa.Schema],
    dialect: str = "duckdb",
    seen: Seen = seen_by_duckdb(),  # noqa: B008 # it has no state
    parameters: Parameters = (),
) -> Query:
    """Returns ``query`` with each occurrence of a table replaced by a scan of its own.

    Only conditions for which ``seen`` returns one become filters; the others stay with the engine.
    A query behind EXPLAIN is rewritten like a query without it. Some occurrences keep the table's
    own name: those with more than a name and an alias (PIVOT, TABLESAMPLE), and all in a query that
    sqlglot cannot parse.

    ``dialect`` is sqlglot's name for the engine's SQL. A string compared with a timestamp that has
    a time zone is read as UTC, so the engine must do so as well. ``parameters`` are values of its
    ``?``, which become ``$1`` and so on, or values by name. They are used in conditions and stay
    parameters in the query.

    Raises ``PredicateError`` if names of tables differ only in case.
    """
    check_characters(query, parameters)
    if explain := _EXPLAIN.match(query):
        explained = scans_of(query[explain.end() :], schemas, dialect, seen, parameters)
        plain = [_explained_scan(scan) for scan in explained.scans]
        return replace(explained, sql=explain.group() + explained.sql, scans=tuple(plain))
    table_names = {name.lower(): name for name in schemas}
    fold = as_duckdb_folds if dialect == "duckdb" else str.lower
    if len(set(map(fold, schemas))) < len(schemas):
        raise PredicateError(f"names of tables are not told apart by case: {', '.join(schemas)}")
    shortened, text, tree = _parsed(query, dialect, numbers=bool(parameters))
    query = shortened.restored(text)
    if tree is None:
        return Query(query, (), tuple(schemas), is_one=False)
    if dialect == "duckdb" and differ_beyond_ascii(tree, schemas, text):
        return Query(query, (), tuple(schemas), is_one=_only_reads(tree))
    if partial_interval(text, dialect) is not None:
        clear_intervals(tree)
    substitute_parameters(tree, parameters)
    tables = occurrences(tree, table_names, text)
    fields = {id(table): schemas[table_names[table.name.lower()]] for table in tables}
    if misread_columns(tree, fields.values(), text, dialect):
        return Query(query, (), tuple(schemas), is_one=_only_reads(tree))
    scopes = Scopes(tree, fields, table_names)
    try:
        conditions_by_table = conditions_of(tree, scopes)
    except RecursionError:
        conditions_by_table = {}
    lone, escape = _lone_source(tree, scopes), _LIKE_ESCAPE.get(dialect, "")
    prefix = unused_prefix(text)
    named = {id(table): f"{prefix}{number}" for number, table in enumerate(tables)}
    sql, scans = shortened.restored(renamed(text, tables, named.values())), []
    for table in tables:
        schema, conditions = fields[id(table)], conditions_by_table.get(id(table), ())
        exact = functools.cache(functools.partial(_exact_condition, schema, seen, escape))
        paths = tuple(paths_used(table, schema))
        keys = tuple(_keys(conditions, id(table), named, fields))
        row_filter = _filter(conditions, exact)
        name = named[id(table)]
        need = None
        if lone is not None and len(tables) == 1:
            need = _need_of_table(lone, schema, set(conditions), exact)
        scans.append(Scan(name, table_names[table.name.lower()], paths, row_filter, keys, need))
    remaining = {
        table.name.lower() for table in tree.find_all(exp.Table) if id(table) not in fields
    }
    remaining |= {name.lower() for name in _TABLE_STATEMENT.findall(text)}
    others = tuple(name for lower, name in table_names.items() if lower in remaining)
    return Query(sql, tuple(scans), others, is_one=_only_reads(tree))


def _explained_scan(scan: Scan) -> Scan:
    """Returns a scan for EXPLAIN: a query of only a number gets a plan instead."""
    return replace(scan, need=None) if scan.need is not None and scan.need.is_number else scan


def _parsed(query: str, dialect: str, *, numbers: bool) -> tuple[Shortened, str, exp.Query | None]:
    """Returns the query without long lists, its text, and a new tree of this text.

    ``numbers`` gives each ``?`` a number in the text. The tree is None if ``_parse`` returns None.
    """
    if len(query) > _MAX_CACHED_CHARACTERS:
        return _read(query, dialect, numbers)
    shortened, text, tree = _read_once(query, dialect, numbers)
    return shortened, text, None if tree is None else tree.copy()


def _read(query: str, dialect: str, numbers: bool) -> tuple[Shortened, str, exp.Query | None]:
    whole = Shortened(query, {}, {})
    for shortened in (without_long_lists(query) if dialect == "duckdb" else whole, whole):
        text = shortened.text
        with contextlib.suppress(*SQL_ERRORS):
            text = numbered(text, dialect) if numbers else text
        tree = _parse(text, dialect)
        if tree is None or shortened.attach(tree):
            break
    return shortened, text, tree


_read_once = functools.lru_cache(maxsize=128)(_read)


def _parse(query: str, dialect: str) -> exp.Query | None:
    """Returns the query's tree, or None if it is not a single query that sqlglot understands.

    Returns None for piped queries as well, as sqlglot loses the order of their steps.
    """
    try:
        if _PIPE in query and _is_piped(query, dialect):
            return None
        tree = sqlglot.parse_one(query, dialect=parsed_as(dialect))
    except (RecursionError, *SQL_ERRORS):
        return None
    return tree if isinstance(tree, exp.Query) else None


def tables_named_in(query: str) -> set[str]:
    """Returns the names of tables in DuckDB's SQL that the query itself does not define.

    Returns nothing for a query that sqlglot cannot parse.
    """
    if explain := _EXPLAIN.match(query):
        query = query[explain.end() :]
    names: set[str] = set()
    defined: set[str] = set()
    try:
        for tree in filter(None, sqlglot.parse(query, dialect="duckdb")):
            tables = [table for table in tree.find_all(exp.Table) if not table.db]
            common = {cte.alias for cte in tree.find_all(exp.CTE)}
            names |= {table.name for table in tables if table.name not in common}
            if common and isinstance(tree, exp.Query):  # one may read a table of its own name
                scopes = traverse_scope(tree)
                sources = [source for scope in scopes for source in scope.sources.values()]
                names |= {table.name for table in tables if table in sources}
            for create in tree.find_all(exp.Create):
                defined |= {table.name for table in create.this.find_all(exp.Table)}
    except (RecursionError, *SQL_ERRORS):
        return set()
    return names - defined


def _only_reads(tree: exp.Query) -> bool:
    """True if a query has nothing that may set or write something."""
    calls = (source.this for source in tree.find_all(exp.Table, exp.Lateral))
    names = {call.name.lower() for call in calls if isinstance(call, exp.Anonymous)}
    return tree.find(exp.DML) is None and names <= _READ_ONLY_FUNCTIONS


def _is_piped(query: str, dialect: str) -> bool:
    tokens = sqlglot.tokenize(query, read=dialect)
    return any(token.token_type is sqlglot.TokenType.PIPE_GT for token in tokens)


def _exact_condition(
    schema: pa.Schema, seen: Seen, like_escape: str, condition: exp.Expr
) -> pc.Expression:
    """Returns a condition as pyarrow evaluates it.

    Raises ``PredicateError`` if pyarrow and the engine may evaluate it differently.
    """
    engine_condition = seen(condition, schema)
    if engine_condition is None:
        raise PredicateError(f"{text_of(condition)!r} may mean something else to the engine")
    return exact_condition(engine_condition, schema, like_escape)


@dataclass(frozen=True, slots=True)
class _LoneSource:
    """The only source of a SELECT, a table or a subquery.

    ``conditions`` are those of the WHERE; their columns have no alias. ``need`` is the query's need
    of the source, if that is a table.
    """

    conditions: tuple[exp.Expr, ...]
    need: Need | None


def _lone_source(tree: exp.Query, scopes: Scopes) -> _LoneSource | None:
    sources = scopes.sources(tree) if isinstance(tree, exp.Select) else None
    if not isinstance(tree, exp.Select) or sources is None or len(sources) != 1:
        return None
    ((alias, source),) = sources.items()
    own = (unqualified(condition, alias, source.names or ()) for condition in wheres(tree))
    return _LoneSource(tuple(own), need_of(tree, sources, scopes.outputs(tree)))


def _need_of_table(
    lone: _LoneSource,
    schema: pa.Schema,
    conditions: Collection[exp.Expr],
    exact: Callable[[exp.Expr], pc.Expression],
) -> Need | None:
    """Returns the need of a query of one table, or None for all rows.

    ``conditions`` hold for every row of the table that the query needs. If other conditions decide
    on the LIMIT, the need only says that there is a LIMIT.
    """
    need = lone.need
    if need is None:
        return None
    if not all(one in conditions and _is_exact(one, exact) for one in lone.conditions):
        return None if need.limit is None else Need(limit=UNKNOWN_LIMIT)
    firsts = [(first, _name_in_schema(first.column, schema)) for first in need.firsts]
    known_firsts = [replace(first, column=name) for first, name in firsts if name is not None]
    return replace(need, firsts=tuple(known_firsts)) if len(known_firsts) == len(firsts) else None


def _is_exact(condition: exp.Expr, exact: Callable[[exp.Expr], pc.Expression]) -> bool:
    """True if a condition is TRUE and FALSE in the same rows for the scan and the engine.

    A translation that may find too many rows is rejected under NOT.
    """
    opposite = exp.Not(this=exp.Paren(this=condition))
    return _is_translated(condition, exact) and _is_translated(opposite, exact)


def _is_translated(condition: exp.Expr, exact: Callable[[exp.Expr], pc.Expression]) -> bool:
    try:
        exact(condition)
    except PredicateError:
        return False
    return True


def _keys(
    conditions: Iterable[exp.Expr],
    table: int,
    named: Mapping[int, str],
    fields: Mapping[int, pa.Schema],
) -> Iterator[Keys]:
    """Yields the ``Keys`` in ``conditions`` on a table. Tables are given by ``id``."""
    for column, origins in dict.fromkeys(itertools.chain.from_iterable(map(keys_in, conditions))):
        own = _name_in_schema(column, fields[table])
        places = [(named[other], _name_in_schema(name, fields[other])) for other, name in origins]
        if own is not None and all(name is not None for _, name in places):
            yield Keys(own, tuple((scan, name) for scan, name in places if name is not None))


def _name_in_schema(lower: str, schema: pa.Schema) -> str | None:
    """Returns the name of the column whose name in lower case is ``lower``, or None."""
    names: list[str] = schema.names
    return next((name for name in names if name.lower() == lower), None)


def _filter(
    conditions: Iterable[exp.Expr], exact: Callable[[exp.Expr], pc.Expression]
) -> pc.Expression | None:
    """Returns the conditions that pyarrow can evaluate, joined by AND, or None."""
    expressions = [_weakened(condition, exact) for condition in conditions]
    known = [condition for condition in expressions if condition is not None]
    return functools.reduce(operator.and_, known) if known else None


def _weakened(node: exp.Expr, exact: Callable[[exp.Expr], pc.Expression]) -> pc.Expression | None:
    """Returns an Expression that is TRUE wherever ``node`` is, and perhaps in more rows.

    Returns None if it might be TRUE anywhere.
    """
    try:
        return exact(node)
    except PredicateError:
        node = node.unnest()
    if not isinstance(node, exp.And | exp.Or):
        return None  # it stays with the engine
    parts = [_weakened(part, exact) for part in node.flatten()]
    known = [part for part in parts if part is not None]
    if not known or (isinstance(node, exp.Or) and len(known) < len(parts)):
        return None
    return functools.reduce(operator.and_ if isinstance(node, exp.And) else operator.or_, known)
