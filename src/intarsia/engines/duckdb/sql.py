"""``sql``: DuckDB runs a query, and reads only rows of its tables that may satisfy it."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from intarsia.dataset.dataset import Dataset
from intarsia.dataset.discovery import dataset
from intarsia.dataset.engine_hand_over import (
    HandOver,
    hand_over,
    has_page_index,
    is_current,
)
from intarsia.dataset.scan_source import ScanSource
from intarsia.dataset.top_k import first_rows
from intarsia.deadline import check, shown, time_limit
from intarsia.duckdb_session import (
    NotAnsweredError,
    asking_first,
    require_duckdb,
    session,
)
from intarsia.engines.arrow_types import as_in_duckdb, filters_by_other_types
from intarsia.engines.duckdb.join_keys import Joined
from intarsia.engines.duckdb.native_scan import create_view, drop_views, with_files
from intarsia.engines.duckdb.offset import from_offset
from intarsia.engines.duckdb.profile import profiled_scans
from intarsia.engines.duckdb.scalar_subqueries import with_values
from intarsia.engines.duckdb.scan_dataset import WatchedDataset
from intarsia.engines.duckdb.variables import (
    SupportsArrow,
    TableLike,
    is_lazy_frame,
    listed_variables,
    with_variables,
)
from intarsia.errors import public
from intarsia.io.file_handle import Version, version_of
from intarsia.io.storage import FileReplaced
from intarsia.scan.scan import Part
from intarsia.sql.constant_folding import Now
from intarsia.sql.query.limit_pushdown import First
from intarsia.sql.query.parameters import Parameters
from intarsia.sql.query.scans import Query, Scan, scans_of, seen_by_duckdb

if TYPE_CHECKING:
    import duckdb


FilesByName: TypeAlias = dict[str, tuple[ScanSource, HandOver]]
"""Files that DuckDB reads by itself, by the name of the scan or the table in the query."""


@public
def sql(
    query: str,
    parameters: Parameters = (),
    /,
    *,
    timeout: TableLike | float | None = None,
    **tables: TableLike,
) -> pa.Table:
    """Returns the result of a SQL query that DuckDB runs over data sets, paths and tables.

    Answers are DuckDB's own. Conditions that DuckDB does not push down (LIKE, functions, …) reach
    the scans as well, and so do join keys and the keys of ``IN``. The session's time zone is UTC.
    Queries can call ``contains_words(text, words)``, which is ``intarsia.contains_words``.

    Parameters
    ----------
    query : str
        The statement, in DuckDB's SQL.
    parameters : sequence or mapping
        The values of ``?``, of ``$1`` or, by name, of ``$name``.
    timeout : float, optional
        The most seconds that the query may take. A table may be called ``timeout`` as well: then
        only a surrounding limit applies.
    **tables : path, data set, table or frame
        The tables of the query, by name. ``intarsia.dataset`` opens paths. Objects that give an
        Arrow stream, such as tables of pyarrow and frames of Polars and pandas, are read as they
        are. Lazy frames are collected. For folders of Delta and Iceberg tables, give
        ``intarsia.dataset(path, table_format="ignore")``: their paths are refused.

    A table that is not among ``tables`` is a variable of the caller, local before global, if that
    is a data set, table or frame. Strings and paths are not looked up.

    Returns
    -------
    pyarrow.Table
        The result. A statement without a result gives a table without columns.

    Raises
    ------
    MissingDependencyError
        Without DuckDB 2.
    PathError
        If there is no file.
    QueryTimeoutError
        After ``timeout`` seconds.
    duckdb.Error
        If the query is wrong. Scans raise the errors of ``Dataset.to_table``.

    Examples
    --------
    >>> query = "SELECT trace_id FROM logs WHERE msg LIKE ? ORDER BY ts LIMIT 2"
    >>> ia.sql(query, ["%7 done%"], logs="logs.parquet").to_pylist()
    [{'trace_id': 't7'}, {'trace_id': 't17'}]
    >>> logs = ia.dataset("logs.parquet")
    >>> ia.sql("SELECT count(*) AS num_rows FROM logs").to_pylist()
    [{'num_rows': 1000}]
    """
    if timeout is None or isinstance(timeout, int | float):
        with time_limit(timeout, f"running {shown(query)}"):
            return _sql(query, parameters, tables)
    return _sql(query, parameters, {"timeout": timeout, **tables})


def _sql(query: str, parameters: Parameters, tables: Mapping[str, TableLike]) -> pa.Table:
    require_duckdb()
    if not isinstance(parameters, Sequence | Mapping) or isinstance(parameters, str | bytes):
        raise TypeError(f"parameters are given in a list or by name, not as {parameters!r}")
    named = with_variables(query, tables)
    opened = {name: opened_table(table) for name, table in named.items()}
    try:
        return run_query(query, parameters, opened)
    except require_duckdb().CatalogException as failure:
        failure.add_note(listed_variables())
        raise


def run_query(
    query: str, parameters: Parameters, opened: Mapping[str, pads.Dataset | pa.Table]
) -> pa.Table:
    """Returns the result of a query over opened tables."""
    with contextlib.suppress(_ReplacedError):
        return _run(query, parameters, opened)
    with session(shared=False) as connection:
        now = functools.cache(functools.partial(begin, connection))
        rewritten = rewrite_query(query, parameters, opened, now).read_once()
        return _answer(connection, rewritten, parameters, opened, hands_over=False)[0]


class _ReplacedError(Exception):
    """A file was replaced after a question before the query had read it."""


class _Versions:
    """The versions of all local files of a query's tables, from before its first question.

    A query that reads a file twice must see one version of it. Remote files are not compared,
    because each would take a request.
    """

    def __init__(self, tables: Mapping[str, pads.Dataset | pa.Table]) -> None:
        datasets = (table for table in tables.values() if isinstance(table, Dataset))
        self._tables = [table for table in datasets if table.scan_source.cache.is_local]
        self._known: list[Version] | None = None

    def note(self) -> None:
        """Notes the versions, before the first question."""
        if self._known is None:
            self._known = self._now()

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """Runs the query.

        Raises ``_ReplacedError`` at the end if a file was replaced since a first question, and in
        place of ``FileReplaced``.
        """
        try:
            yield
        except FileReplaced as error:
            raise _ReplacedError from error
        if self._known is not None and self._known != self._now():
            raise _ReplacedError

    def _now(self) -> list[Version]:
        return [version_of(file, data.filesystem) for data in self._tables for file in data.files]


def _run(
    query: str, parameters: Parameters, opened: Mapping[str, pads.Dataset | pa.Table]
) -> pa.Table:
    """Returns the result of a query, which may first ask for values of its subqueries.

    Raises ``_ReplacedError`` if a file was replaced meanwhile.
    """
    versions = _Versions(opened)
    # An error of another query may just have made the shared database unusable.
    with (
        contextlib.suppress(require_duckdb().FatalException, NotAnsweredError),
        session(shared=True) as connection,
    ):
        now = functools.cache(functools.partial(begin, connection))
        rewritten = rewrite_query(query, parameters, opened, now)
        if rewritten.is_one:
            schemas = {name: table.schema for name, table in opened.items()}
            value_of = functools.partial(_value, connection, now, opened, versions)
            planned = with_values(query, schemas, value_of)
            if planned != query:
                rewritten = rewrite_query(planned, parameters, opened, now)
            if rewritten.reads_ahead:
                versions.note()
            if planned == query:
                with versions.checked():
                    return _answer(connection, rewritten, parameters, opened)[0]
            now()  # both runs see the same time
            with asking_first(), versions.checked():  # errors must show the query as it was given
                return _answer(connection, rewritten, parameters, opened)[0]
    with session(shared=False) as connection:
        now = functools.cache(functools.partial(begin, connection))
        rewritten = rewrite_query(query, parameters, opened, now)
        if not rewritten.is_one:  # other statements may not be run twice
            return _answer(connection, rewritten, parameters, opened, hands_over=False)[0]
        if rewritten.reads_ahead:
            versions.note()
        with versions.checked():
            return _answer(connection, rewritten, parameters, opened, hands_over=False)[0]


def rewrite_query(
    query: str,
    parameters: Parameters,
    tables: Mapping[str, pads.Dataset | pa.Table],
    now: Now,
) -> Query:
    """Returns the query over scans. ``now`` gives the time of the connection's transaction."""
    schemas = {name: table.schema for name, table in tables.items()}
    return scans_of(query, schemas, seen=seen_by_duckdb(now), parameters=parameters)


def _value(
    connection: duckdb.DuckDBPyConnection,
    now: Now,
    tables: Mapping[str, pads.Dataset | pa.Table],
    versions: _Versions,
    query: str,
) -> tuple[pa.Table, str]:
    """Returns the result of a subquery of one column, and DuckDB's type of it.

    It runs in the query's transaction. Raises ``NotAnsweredError`` if it fails.
    """
    versions.note()
    now()
    with asking_first():
        rows, types = _answer(connection, rewrite_query(query, (), tables, now), (), tables)
    return rows, types[0]


def _answer(
    connection: duckdb.DuckDBPyConnection,
    query: Query,
    parameters: Parameters,
    tables: Mapping[str, pads.Dataset | pa.Table],
    *,
    hands_over: bool = True,
) -> tuple[pa.Table, list[str]]:
    """Returns the result of a query, and DuckDB's types of its columns.

    With ``hands_over``, DuckDB's reader may read files. If that fails, raises ``NotAnsweredError``:
    then our reader either succeeds, or names the file and the place.
    """
    query, tables = from_offset(query, tables)
    hands_over = hands_over and query.is_one
    handed = _register(connection, query, tables, hands_over=hands_over)
    views = handed.keys() & set(query.others)
    inline = {name: files for name, (_, files) in handed.items() if name not in views}
    sql = with_files(query.sql, inline)
    watched = [table for table in tables.values() if isinstance(table, WatchedDataset)]
    for table in watched:  # errors of reading join keys
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
            with profiled_scans(connection, watched):
                result = answer.to_arrow_table()
            if views:
                connection.execute(drop_views(views))
            if not all(is_current(*one) for one in handed.values()):
                raise NotAnsweredError
            return result, types
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
                table.reread_for_errors()
        errors = [error for table in watched for error in table.errors]
        if not errors:
            if isinstance(failure, require_duckdb().CatalogException):
                failure.add_note("tables are given by name: intarsia.sql(query, NAME=PATH)")
            raise
    raise errors[0]


def begin(connection: duckdb.DuckDBPyConnection) -> datetime:
    """Begins a transaction. Returns the time that ``now()`` has in it."""
    connection.begin()
    [(since,)] = connection.sql("SELECT epoch_us(now())").fetchall()
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=since)


def opened_table(table: TableLike) -> pads.Dataset | pa.Table:
    """Returns a table of a query as DuckDB scans it. Raises ``TypeError`` for other objects."""
    if isinstance(table, str | os.PathLike):
        table = dataset(table)
    if isinstance(table, Dataset):
        schema = as_in_duckdb(table.schema)
        is_kept = schema == table.schema or filters_by_other_types(table, schema)
        return WatchedDataset.wrap(table, None if is_kept else schema)
    if isinstance(table, pads.Dataset):
        return table
    if isinstance(table, SupportsArrow):
        arrow_table = pa.table(table)
        schema = as_in_duckdb(arrow_table.schema)
        return arrow_table if schema == arrow_table.schema else arrow_table.cast(schema)
    if is_lazy_frame(table):
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
) -> FilesByName:
    """Registers every scan, and the tables that the query may name.

    Returns the files that DuckDB reads by itself. Tables of such files become views; scans of them
    are not registered. A scan is registered as a filtered data set, not as a stream, so that DuckDB
    can read it twice and chooses the columns.
    """
    handed: FilesByName = {}
    for name, table in tables.items():
        if query.is_one and name not in query.others:
            continue
        if hands_over and isinstance(table, WatchedDataset) and table.is_whole:
            files = hand_over(table.scan_source, table.schema.names)
            if isinstance(files, HandOver):
                handed[name] = table.scan_source, files
                try:
                    connection.execute(create_view(name, files))
                except require_duckdb().Error as failure:
                    raise NotAnsweredError from failure
                continue
        connection.register(name, table)
    joined = Joined(tables, {scan.name: scan for scan in query.scans})
    for scan in query.scans:
        table = tables[scan.table]
        if isinstance(table, WatchedDataset):
            read = _read(table, scan, joined.filter_of(scan), hands_over=hands_over)
            if isinstance(read, HandOver):
                handed[scan.name] = table.scan_source, read
                continue
            table = read
        connection.register(scan.name, table)
    return handed


def _read(
    table: WatchedDataset, scan: Scan, left: pc.Expression | None, *, hands_over: bool
) -> HandOver | pads.Dataset | pa.Table:
    """Returns the files that DuckDB reads by itself for a scan, or what it scans otherwise.

    The query needs no rows but those for which ``left`` is TRUE.
    """
    left = _first(table, scan, left, hands_over=hands_over)
    limit = None if scan.need is None else scan.need.limit
    is_number = scan.need is not None and scan.need.is_number
    parts: tuple[Part, ...] = ()
    if hands_over and table.is_whole and not (is_number and left is None):
        keeps_parts = bool(scan.columns) and not is_number
        files = hand_over(table.scan_source, scan.columns, left, limit, keeps_parts=keeps_parts)
        if isinstance(files, HandOver):
            return files
        parts = files.parts
    table = (table if left is None else table.filter(left)).of_fields(scan.paths)
    if limit is not None:
        table = table.limited(limit)
    # DuckDB's threads would plan the scan once more.
    return table.at(parts).to_table(list(scan.columns)) if parts else table


def _count(query: Query, tables: Mapping[str, pads.Dataset | pa.Table]) -> int | None:
    """Returns the count of a query that only counts rows of a data set; None for others."""
    for scan in query.scans:
        table = tables[scan.table]
        if scan.need is not None and scan.need.is_number and isinstance(table, Dataset):
            is_whole = not table.scan_source.options.looks_for_damage
            return table.count_rows(scan.filter) if is_whole else None
    return None


def _is_in_pages(table: WatchedDataset, first: First) -> bool:
    """True if a page index shows where the first rows are. NaN of floats may be in any page."""
    is_floating = pa.types.is_floating(table.schema.field(first.column).type)
    return not (is_floating and first.descending) and has_page_index(
        table.scan_source, first.column
    )


def _first(
    table: WatchedDataset, scan: Scan, left: pc.Expression | None, *, hands_over: bool
) -> pc.Expression | None:
    """Returns ``left``, joined with a condition for the first rows if the query needs only those.

    If DuckDB may read the files, only page indexes are used: DuckDB itself uses the bounds of row
    groups.
    """
    firsts = [] if scan.need is None else scan.need.firsts
    if hands_over and not all(_is_in_pages(table, first) for first in firsts):
        return left
    conditions = [first_rows(table, first, left) for first in firsts]
    if conditions and all(first is not None for first in conditions):
        first = functools.reduce(operator.or_, conditions)
        left = first if left is None else left & first
    return left
