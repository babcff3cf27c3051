"""``sql``: DuckDB runs a query, and reads of each table what the query's conditions leave."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from intarsia.dataset.dataset import Dataset
from intarsia.dataset.discovery import dataset
from intarsia.dataset.engine_hand_over import (
    HandOver,
    hand_over,
    has_bounds,
    has_page_index,
    is_current,
)
from intarsia.dataset.scan_source import ScanSource
from intarsia.dataset.top_k import first_rows
from intarsia.deadline import check, shown, time_limit
from intarsia.engines.arrow_types import as_in_duckdb, asks_of_other_types
from intarsia.engines.duckdb.connection import (
    NotAnsweredError,
    asking_first,
    require_duckdb,
    session,
)
from intarsia.engines.duckdb.join_keys import Joined
from intarsia.engines.duckdb.native_scan import create_view, drop_views, with_files
from intarsia.engines.duckdb.offset import from_offset
from intarsia.engines.duckdb.scalar_subqueries import with_values
from intarsia.engines.duckdb.scan_dataset import WatchedDataset
from intarsia.errors import public
from intarsia.io.file_handle import Version, version_of
from intarsia.io.storage import FileReplaced, PathLike
from intarsia.sql.constant_folding import Now
from intarsia.sql.query.limit_pushdown import First, Need
from intarsia.sql.query.parameters import Parameters
from intarsia.sql.query.scans import Query, Scan, scans_of, seen_by_duckdb

if TYPE_CHECKING:
    import duckdb
    import polars


@runtime_checkable
class SupportsArrow(Protocol):
    """What can be read as a stream of Arrow's C interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Handed: TypeAlias = dict[str, tuple[ScanSource, HandOver]]
"""Data sets whose files DuckDB reads by itself, by the name of the scan or table in the query."""
TableLike: TypeAlias = "pads.Dataset | PathLike | SupportsArrow | polars.LazyFrame"


@public
def sql(
    query: str,
    parameters: Parameters = (),
    /,
    *,
    timeout: TableLike | float | None = None,
    **tables: TableLike,
) -> pa.Table:
    """The answer of a SQL query, run by DuckDB over data sets, paths or tables, by name.

    ``intarsia.sql("SELECT * FROM logs WHERE msg LIKE ?", ["%full%"], logs="lake/logs")``: a path is
    opened as ``intarsia.dataset`` does, and what gives an Arrow stream, as tables of pyarrow and
    frames of Polars and pandas do, is joined as it is; lazy frames are collected. ``parameters``
    are the values of ``?``, ``$1`` or, by name, ``$name``, as DuckDB takes them. Conditions that
    DuckDB does not push by itself (LIKE, functions, …) reach the scans as well, as do the keys of
    what they are joined with or have to be IN. Answers are DuckDB's own either way. It is lent
    ``contains_words(text, words)``, which is ``intarsia.contains_words`` of it. The session's time
    zone is UTC. Folders of Delta and Iceberg tables are given as ``intarsia.dataset`` opens them
    with ``table_format="ignore"``, if at all: their paths are refused.

    Raises ``MissingDependencyError`` without DuckDB 2, ``PathError`` where there is no file, errors
    of reading as scans of data sets do, and DuckDB's for what is wrong with the query. A statement
    that gives nothing gives a table of nothing.

    After ``timeout`` seconds the query is stopped, and ``QueryTimeoutError`` raised. A table may be
    called ``timeout`` as well: then there is no limit but a surrounding one.
    """
    if timeout is None or isinstance(timeout, int | float):
        with time_limit(timeout, f"running {shown(query)}"):
            return _sql(query, parameters, tables)
    return _sql(query, parameters, {"timeout": timeout, **tables})


def _sql(query: str, parameters: Parameters, tables: Mapping[str, TableLike]) -> pa.Table:
    require_duckdb()
    if not isinstance(parameters, Sequence | Mapping) or isinstance(parameters, str | bytes):
        raise TypeError(f"parameters are given in a list or by name, not as {parameters!r}")
    opened = {name: _opened(table) for name, table in tables.items()}
    with contextlib.suppress(_ReplacedError):
        return _asked(query, parameters, opened)
    with session(shared=False) as connection:
        now = functools.cache(functools.partial(_begin, connection))
        rewritten = _rewritten(query, parameters, opened, now).read_once()
        return _answer(connection, rewritten, parameters, opened, hands_over=False)[0]


class _ReplacedError(Exception):
    """A file was replaced after a query had asked something of it first."""


class _Versions:
    """The versions of all local files of a query's tables, when something was first asked of them.

    A query that reads a file twice is to see one version of it. Of remote files, that would take a
    request each: they are not compared.
    """

    def __init__(self, tables: Mapping[str, pads.Dataset | pa.Table]) -> None:
        kept = (table for table in tables.values() if isinstance(table, Dataset))
        self._tables = [table for table in kept if table.scan_source.cache.is_local]
        self._known: list[Version] | None = None

    def note(self) -> None:
        """Note the versions, before the first question."""
        if self._known is None:
            self._known = self._now()

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """A context in which the query is answered.

        Raises ``_ReplacedError`` at its end if something was asked first, and a file was replaced
        since; and in the place of ``FileReplaced``.
        """
        try:
            yield
        except FileReplaced as error:
            raise _ReplacedError from error
        if self._known is not None and self._known != self._now():
            raise _ReplacedError

    def _now(self) -> list[Version]:
        return [version_of(file, data.filesystem) for data in self._tables for file in data.files]


def _asked(
    query: str, parameters: Parameters, opened: Mapping[str, pads.Dataset | pa.Table]
) -> pa.Table:
    """The answer of a query, which may read parts of its tables first.

    Raises ``_ReplacedError`` if a file was replaced meanwhile.
    """
    versions = _Versions(opened)
    # Another query's error may just have made the shared database useless.
    with (
        contextlib.suppress(require_duckdb().FatalException, NotAnsweredError),
        session(shared=True) as connection,
    ):
        now = functools.cache(functools.partial(_begin, connection))
        rewritten = _rewritten(query, parameters, opened, now)
        if rewritten.is_one:
            schemas = {name: table.schema for name, table in opened.items()}
            value_of = functools.partial(_value, connection, now, opened, versions)
            planned = with_values(query, schemas, value_of)
            if planned != query:
                rewritten = _rewritten(planned, parameters, opened, now)
            if rewritten.reads_ahead:
                versions.note()
            if planned == query:
                with versions.checked():
                    return _answer(connection, rewritten, parameters, opened)[0]
            now()  # it is asked twice at one moment
            with asking_first(), versions.checked():  # errors are to show the query as it was given
                return _answer(connection, rewritten, parameters, opened)[0]
    with session(shared=False) as connection:
        now = functools.cache(functools.partial(_begin, connection))
        rewritten = _rewritten(query, parameters, opened, now)
        if not rewritten.is_one:  # other statements may not be run twice
            return _answer(connection, rewritten, parameters, opened, hands_over=False)[0]
        if rewritten.reads_ahead:
            versions.note()
        with versions.checked():
            return _answer(connection, rewritten, parameters, opened, hands_over=False)[0]


def _rewritten(
    query: str,
    parameters: Parameters,
    tables: Mapping[str, pads.Dataset | pa.Table],
    now: Now,
) -> Query:
    """The query over scans; ``now`` is what is now to the connection."""
    schemas = {name: table.schema for name, table in tables.items()}
    return scans_of(query, schemas, seen=seen_by_duckdb(now), parameters=parameters)


def _value(
    connection: duckdb.DuckDBPyConnection,
    now: Now,
    tables: Mapping[str, pads.Dataset | pa.Table],
    versions: _Versions,
    query: str,
) -> tuple[pa.Table, str]:
    """The answer of a subquery of one column, and its type, at the moment of the query.

    Raises ``NotAnsweredError``.
    """
    versions.note()
    now()
    with asking_first():
        found, types = _answer(connection, _rewritten(query, (), tables, now), (), tables)
    return found, types[0]


def _answer(
    connection: duckdb.DuckDBPyConnection,
    query: Query,
    parameters: Parameters,
    tables: Mapping[str, pads.Dataset | pa.Table],
    *,
    hands_over: bool = True,
) -> tuple[pa.Table, list[str]]:
    """The answer of a query, and DuckDB's types of its columns.

    If it ``hands_over`` files, DuckDB's reader may read them. ``NotAnsweredError`` is raised if
    that fails: our reader either succeeds, or names the file and the place.
    """
    query, tables = from_offset(query, tables)
    hands_over = hands_over and query.is_one
    handed = _register(connection, query, tables, hands_over=hands_over)
    views = handed.keys() & set(query.others)
    inline = {name: found for name, (_, found) in handed.items() if name not in views}
    sql = with_files(query.sql, inline)
    watched = [table for table in tables.values() if isinstance(table, WatchedDataset)]
    for table in watched:  # what could not be read for keys
        table.errors.clear()
        table.whole.clear()
    try:
        answer = connection.sql(sql, params=parameters or None)
        if answer is None:
            return pa.table({}), []
        count, types = (
            None if handed else _count(query, tables),
            [str(kind) for kind in answer.types],
        )
        if count is None:
            found = answer.to_arrow_table()
            if views:
                connection.execute(drop_views(views))
            if not all(is_current(*one) for one in handed.values()):
                raise NotAnsweredError
            return found, types
        return pa.table([pa.array([count])] * len(answer.columns), answer.columns), types
    except require_duckdb().Error as failure:
        check()
        for table in watched:
            for error in table.errors:
                if not isinstance(error, Exception):  # a scan was interrupted
                    raise error from None
        if handed:
            raise NotAnsweredError from failure
        if "reading the stream" in str(failure):
            for table in watched:
                table.read_again()
        errors = [error for table in watched for error in table.errors]
        if not errors:
            if isinstance(failure, require_duckdb().CatalogException):
                failure.add_note("tables are given by name: intarsia.sql(query, NAME=PATH)")
            raise
    raise errors[0]


def _begin(connection: duckdb.DuckDBPyConnection) -> datetime:
    """What ``now()`` is in the transaction that begins here."""
    connection.begin()
    [(since,)] = connection.sql("SELECT epoch_us(now())").fetchall()
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=since)


def _opened(table: TableLike) -> pads.Dataset | pa.Table:
    if isinstance(table, str | os.PathLike):
        table = dataset(table)
    if isinstance(table, Dataset):
        schema = as_in_duckdb(table.schema)
        is_kept = schema == table.schema or asks_of_other_types(table, schema)
        return WatchedDataset.wrap(table, None if is_kept else schema)
    if isinstance(table, pads.Dataset):
        return table
    if isinstance(table, SupportsArrow):
        found = pa.table(table)
        schema = as_in_duckdb(found.schema)
        return found if schema == found.schema else found.cast(schema)
    if "polars" in sys.modules and isinstance(table, sys.modules["polars"].LazyFrame):
        return pa.table(table.collect())
    kind = type(table).__name__
    if isinstance(table, list | tuple):
        raise TypeError(f"a {kind} is no data set; intarsia.dataset({kind}) makes one of paths")
    raise TypeError(f"{kind} is no data set, path, lazy frame or source of an Arrow stream")


def _register(
    connection: duckdb.DuckDBPyConnection,
    query: Query,
    tables: Mapping[str, pads.Dataset | pa.Table],
    *,
    hands_over: bool,
) -> Handed:
    """Registers every scan under its name, and tables under their own that may be mentioned.

    Returns what DuckDB reads by itself: tables of it become views, and scans are left out. A scan
    is a filtered data set rather than a stream, so that DuckDB may read it twice, and asks for
    columns itself.
    """
    handed: Handed = {}
    for name, table in tables.items():
        if query.is_one and name not in query.others:
            continue
        if hands_over and _hand_over(handed, name, table, table.schema.names):
            try:
                connection.execute(create_view(name, handed[name][1]))
            except require_duckdb().Error as failure:
                raise NotAnsweredError from failure
        else:
            connection.register(name, table)
    joined = Joined(tables, {scan.name: scan for scan in query.scans})
    for scan in query.scans:
        table = tables[scan.table]
        if isinstance(table, WatchedDataset):
            left = joined.filter_of(scan)
            are_told = hands_over and left is None and _are_in_footers(table, scan.need)
            if are_told and _hand_over(handed, scan.name, table, scan.columns):
                continue
            left = _first(table, scan, left, hands_over=hands_over)
            limit = None if scan.need is None else scan.need.limit
            is_in_footers = left is None and scan.need is not None and scan.need.is_number
            is_read = hands_over and not is_in_footers
            if is_read and _hand_over(handed, scan.name, table, scan.columns, left, limit):
                continue
            table = (table if left is None else table.filter(left)).of_fields(scan.paths)
            if limit is not None:
                table = table.limited(limit)
        connection.register(scan.name, table)
    return handed


def _hand_over(
    handed: Handed,
    name: str,
    table: pads.Dataset | pa.Table,
    columns: Sequence[str],
    left: pc.Expression | None = None,
    limit: int | None = None,
) -> bool:
    """True if DuckDB is to read the files of ``table`` by itself, which ``handed`` gets to know."""
    if not isinstance(table, WatchedDataset) or not table.is_whole:
        return False
    found = hand_over(table.scan_source, columns, left, limit)
    if isinstance(found, HandOver):
        handed[name] = table.scan_source, found
    return isinstance(found, HandOver)


def _are_in_footers(table: WatchedDataset, need: Need | None) -> bool:
    """True if DuckDB finds the least and the greatest values of a query in footers."""
    if need is None or not need.are_bounds:
        return False
    return all(has_bounds(table.scan_source, first.column) for first in need.firsts)


def _count(query: Query, tables: Mapping[str, pads.Dataset | pa.Table]) -> int | None:
    """What a query gives that just counts rows of a data set; None for others."""
    for scan in query.scans:
        table = tables[scan.table]
        if scan.need is not None and scan.need.is_number and isinstance(table, Dataset):
            is_whole = not table.scan_source.options.looks_for_damage
            return table.count_rows(scan.filter) if is_whole else None
    return None


def _is_in_pages(table: WatchedDataset, first: First) -> bool:
    """True if a page index tells where the first rows are: of floats, NaN may be anywhere."""
    is_floating = pa.types.is_floating(table.schema.field(first.column).type)
    return not (is_floating and first.descending) and has_page_index(
        table.scan_source, first.column
    )


def _first(
    table: WatchedDataset, scan: Scan, left: pc.Expression | None, *, hands_over: bool
) -> pc.Expression | None:
    """``left``, and the rows that come first, if the query needs only those.

    If files may be handed over, page indexes alone tell: DuckDB goes by those of row groups itself.
    """
    firsts = [] if scan.need is None else scan.need.firsts
    if hands_over and not all(_is_in_pages(table, first) for first in firsts):
        return left
    found = [first_rows(table, first, left) for first in firsts]
    if found and all(first is not None for first in found):
        first = functools.reduce(operator.or_, found)
        left = first if left is None else left & first
    return left
