"""SQL queries over named tables → one scan an occurrence of a table, each with its own filter.

The query stays as it was written, but for the names of tables: every occurrence gets a name of its
own, under which the caller provides the rows its filter leaves. Conditions stay in the query, so a
filter only saves work, and where it is not certain that a condition can go below whatever lies
between (an outer join, a window, a LIMIT), it stays where it is.
"""

from __future__ import annotations

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

from intarsia.errors import PredicateError
from intarsia.expr.nested_types import Path
from intarsia.expr.sql_text import check_characters, text_of
from intarsia.sql.constant_folding import Now, folded
from intarsia.sql.engine_condition import exact_condition
from intarsia.sql.intervals import forget_spans, odd_span
from intarsia.sql.query.join_keys import keys_in
from intarsia.sql.query.limit_pushdown import UNTOLD, Need, need_of
from intarsia.sql.query.parameters import Parameters, numbered, put_in
from intarsia.sql.query.predicate_pushdown import conditions_of, unqualified
from intarsia.sql.query.projection_pushdown import paths_used
from intarsia.sql.query.table_references import occurrences, renamed, unused_prefix
from intarsia.sql.reserved_names import as_duckdb_folds, columns_taken, differ_beyond_ascii
from intarsia.sql.scope import Scopes, wheres
from intarsia.sql.where_clause import ODD

_LIKE_ESCAPE = {"spark": "\\"}
_WHOLE_TABLE = re.compile(r"\btable\s+[\"`]?([^\"`;()]*[^\"`;()\s])", re.IGNORECASE)
"""A table after ``TABLE``, of which the tree does not tell where that stands in parentheses."""
_READING = {
    *("range", "generate_series", "unnest", "repeat", "glob", "read_parquet", "parquet_scan"),
    *("read_csv", "read_csv_auto", "read_json", "read_json_auto", "read_text", "read_blob"),
}
"""Functions in FROM that are known to leave nothing behind: ``enable_logging`` does."""
_PIPE = "|>"
_EXPLAIN = re.compile(r"(\s*explain\b(\s+analyze\b)?(\s*\([^()]*\))?\s*)+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Keys:
    """A scan's ``column`` holds a value that is among those of some scans' columns.

    ``origins`` are the names of these scans and columns.
    """

    column: str
    origins: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """One occurrence of a table: rows of ``table`` for the query's table ``name``.

    ``paths`` are all columns and fields that the query may use. ``filter`` is TRUE for every row it
    needs, None where that may be any. Of ``keys``, each holds for all of these rows. ``need`` says
    what it needs of the rows for which the filter is TRUE, None where that may be all of them.
    """

    name: str
    table: str
    paths: tuple[Path, ...]
    filter: pc.Expression | None
    keys: tuple[Keys, ...] = ()
    need: Need | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that the query may use, or use a field of."""
        return tuple(dict.fromkeys(path[0] for path in self.paths))


@dataclass(frozen=True, slots=True)
class Query:
    """A query that reads ``scans`` instead of tables.

    ``others`` are tables that it may still mention by their own names. ``is_one``: it is known to
    be a query, which only reads.
    """

    sql: str
    scans: tuple[Scan, ...]
    others: tuple[str, ...] = ()
    is_one: bool = True

    def without_offset(self) -> Query | None:
        """The query, which has a number as its OFFSET, where it passes over nothing.

        None where that is not written so.
        """
        pairs = itertools.pairwise(sqlglot.tokenize(self.sql, read="duckdb"))
        kinds = TokenType.OFFSET, TokenType.NUMBER
        found = [two for one, two in pairs if (one.token_type, two.token_type) == kinds]
        if not found:
            return None
        number = found[-1]
        return replace(self, sql=f"{self.sql[: number.start]}0{self.sql[number.end + 1 :]}")

    def read_once(self) -> Query:
        """The query where no table is read beforehand, to tell which rows are needed."""
        plain = (replace(scan, keys=(), need=None) for scan in self.scans)
        return replace(self, scans=tuple(plain))

    @property
    def reads_ahead(self) -> bool:
        """True if a table may be read beforehand, to tell which rows are needed."""
        return any(scan.keys or (scan.need is not None and scan.need.firsts) for scan in self.scans)


Seen = Callable[[exp.Expr, pa.Schema], exp.Expr | None]
"""A condition on a table of that schema, as ``exact_condition`` sees it just as an engine does.

None where there is no such condition.
"""


def seen_by_duckdb(now: Now | None = None) -> Seen:
    """What DuckDB computes of constants alone is worked out; ``now`` is what is now to it."""
    return lambda condition, _: folded(condition, now)


def scans_of(
    query: str,
    schemas: Mapping[str, pa.Schema],
    dialect: str = "duckdb",
    seen: Seen = seen_by_duckdb(),  # noqa: B008 # it has no state
    parameters: Parameters = (),
) -> Query:
    """``query`` with each occurrence of a table replaced by a scan of its own.

    ``dialect`` is sqlglot's name of the engine's SQL. Text beside a time zone is UTC, so the engine
    has to see it so. Occurrences that are more than a name and an alias (PIVOT, TABLESAMPLE), and
    all of a query that sqlglot cannot parse, keep the table's own name. Conditions of which
    ``seen`` gives none stay with the engine. What is behind EXPLAIN is rewritten as it would be
    without. ``parameters`` are values of its ``?``, which become ``$1`` and so on, or by name; they
    count for conditions and stay parameters. Raises ``PredicateError`` for tables whose names
    differ by case only.
    """
    check_characters(query, parameters)
    if explain := _EXPLAIN.match(query):
        explained = scans_of(query[explain.end() :], schemas, dialect, seen, parameters)
        shown = [_as_explained(scan) for scan in explained.scans]
        return replace(explained, sql=explain.group() + explained.sql, scans=tuple(shown))
    known = {name.lower(): name for name in schemas}
    fold = as_duckdb_folds if dialect == "duckdb" else str.lower
    if len(set(map(fold, schemas))) < len(schemas):
        raise PredicateError(f"names of tables are not told apart by case: {', '.join(schemas)}")
    tree = _parse(query, dialect)
    if tree is not None and parameters:
        query = numbered(query, dialect)
        tree = _parse(query, dialect)
    if tree is None:
        return Query(query, (), tuple(schemas), is_one=False)
    if dialect == "duckdb" and differ_beyond_ascii(tree, schemas, query):
        return Query(query, (), tuple(schemas), is_one=_only_reads(tree))
    if odd_span(query, dialect) is not None:
        forget_spans(tree)
    put_in(tree, parameters)
    tables = occurrences(tree, known, query)
    fields = {id(table): schemas[known[table.name.lower()]] for table in tables}
    if columns_taken(tree, fields.values(), query, dialect):
        return Query(query, (), tuple(schemas), is_one=_only_reads(tree))
    scopes = Scopes(tree, fields, known)
    try:
        wanted = conditions_of(tree, scopes)
    except RecursionError:
        wanted = {}
    lone, escape = _lone_source(tree, scopes), _LIKE_ESCAPE.get(dialect, "")
    prefix = unused_prefix(query)
    named = {id(table): f"{prefix}{number}" for number, table in enumerate(tables)}
    text, scans = renamed(query, tables, named.values()), []
    for table in tables:
        schema, conditions = fields[id(table)], wanted.get(id(table), ())
        exact = functools.cache(functools.partial(_exact, schema, seen, escape))
        paths = tuple(paths_used(table, schema))
        keys = tuple(_keys(conditions, id(table), named, fields))
        found = _filter(conditions, exact)
        name = named[id(table)]
        need = None
        if lone is not None and len(tables) == 1:
            need = _need(lone, schema, set(conditions), exact)
        scans.append(Scan(name, known[table.name.lower()], paths, found, keys, need))
    left = {table.name.lower() for table in tree.find_all(exp.Table) if id(table) not in fields}
    left |= {name.lower() for name in _WHOLE_TABLE.findall(query)}
    others = tuple(name for lower, name in known.items() if lower in left)
    return Query(text, tuple(scans), others, is_one=_only_reads(tree))


def _as_explained(scan: Scan) -> Scan:
    """What gives a number gives a plan instead."""
    return replace(scan, need=None) if scan.need is not None and scan.need.is_number else scan


def _parse(query: str, dialect: str) -> exp.Query | None:
    """The query's tree; None for whatever is no single query that sqlglot understands.

    Nor for one in pipes, of which sqlglot forgets the order.
    """
    try:
        if _PIPE in query and _is_piped(query, dialect):
            return None
        tree = sqlglot.parse_one(query, dialect=dialect)
    except (RecursionError, *ODD):
        return None
    return tree if isinstance(tree, exp.Query) else None


def _only_reads(tree: exp.Query) -> bool:
    """Is there nothing in a query that may set or write something?"""
    calls = (source.this for source in tree.find_all(exp.Table, exp.Lateral))
    names = {call.name.lower() for call in calls if isinstance(call, exp.Anonymous)}
    return tree.find(exp.DML) is None and names <= _READING


def _is_piped(query: str, dialect: str) -> bool:
    tokens = sqlglot.tokenize(query, read=dialect)
    return any(token.token_type is sqlglot.TokenType.PIPE_GT for token in tokens)


def _exact(schema: pa.Schema, seen: Seen, like_escape: str, condition: exp.Expr) -> pc.Expression:
    """A condition as pyarrow evaluates it. Raises ``PredicateError``."""
    found = seen(condition, schema)
    if found is None:
        raise PredicateError(f"{text_of(condition)!r} may mean something else to the engine")
    return exact_condition(found, schema, like_escape)


@dataclass(frozen=True, slots=True)
class _LoneSource:
    """What a SELECT is from, that one source alone: a table or something else.

    ``conditions`` are those of its WHERE, by names of columns without an alias. ``need`` is what
    it needs of the source, where it is a table's.
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


def _need(
    lone: _LoneSource,
    schema: pa.Schema,
    conditions: Collection[exp.Expr],
    exact: Callable[[exp.Expr], pc.Expression],
) -> Need | None:
    """What a query of one table needs of it; of a LIMIT that others decide, that there is one.

    ``conditions`` are those that hold for every row of the table that it needs.
    """
    need = lone.need
    if need is None:
        return None
    if not all(one in conditions and _is_exact(one, exact) for one in lone.conditions):
        return None if need.limit is None else Need(limit=UNTOLD)
    firsts = [(first, _spelt(first.column, schema)) for first in need.firsts]
    known = [replace(first, column=name) for first, name in firsts if name is not None]
    return replace(need, firsts=tuple(known)) if len(known) == len(firsts) else None


def _is_exact(condition: exp.Expr, exact: Callable[[exp.Expr], pc.Expression]) -> bool:
    """Is a condition TRUE and FALSE for the scan just where it is for the engine?

    Under NOT, what finds more rows than there are is refused.
    """
    opposite = exp.Not(this=exp.Paren(this=condition))
    return _is_seen(condition, exact) and _is_seen(opposite, exact)


def _is_seen(condition: exp.Expr, exact: Callable[[exp.Expr], pc.Expression]) -> bool:
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
    """What ``conditions`` on a table say of keys; it and all others by ``id``."""
    for column, origins in dict.fromkeys(itertools.chain.from_iterable(map(keys_in, conditions))):
        own = _spelt(column, fields[table])
        places = [(named[other], _spelt(name, fields[other])) for other, name in origins]
        if own is not None and all(name is not None for _, name in places):
            yield Keys(own, tuple((scan, name) for scan, name in places if name is not None))


def _spelt(lower: str, schema: pa.Schema) -> str | None:
    """The name of the column that is called so in lower case, if there is one."""
    names: list[str] = schema.names
    return next((name for name in names if name.lower() == lower), None)


def _filter(
    conditions: Iterable[exp.Expr], exact: Callable[[exp.Expr], pc.Expression]
) -> pc.Expression | None:
    """The conditions that can be evaluated by pyarrow, joined by AND."""
    found = [_weaker(condition, exact) for condition in conditions]
    known = [condition for condition in found if condition is not None]
    return functools.reduce(operator.and_, known) if known else None


def _weaker(node: exp.Expr, exact: Callable[[exp.Expr], pc.Expression]) -> pc.Expression | None:
    """TRUE wherever ``node`` is, and perhaps elsewhere; None where that may be anywhere."""
    try:
        return exact(node)
    except PredicateError:
        node = node.unnest()
    if not isinstance(node, exp.And | exp.Or):
        return None  # it stays with the engine
    parts = [_weaker(part, exact) for part in node.flatten()]
    known = [part for part in parts if part is not None]
    if not known or (isinstance(node, exp.Or) and len(known) < len(parts)):
        return None
    return functools.reduce(operator.and_ if isinstance(node, exp.And) else operator.or_, known)
