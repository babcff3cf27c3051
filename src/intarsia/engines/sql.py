"""``sql``: DuckDB runs a query, and reads of each table what the query's conditions leave."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from intarsia.data.dataset import Dataset
from intarsia.data.discover import dataset
from intarsia.engines.keys import Joined
from intarsia.engines.watched import WatchedDataset
from intarsia.errors import MissingDependencyError
from intarsia.predicate.parameters import Parameters
from intarsia.predicate.query import Query, scans_of, seen_by_duckdb
from intarsia.storage import PathLike
from intarsia.text.words import contains_words

if TYPE_CHECKING:
    import duckdb
    import polars

_WORDS = "contains_words"


@runtime_checkable
class SupportsArrow(Protocol):
    """What can be read as a stream of Arrow's C interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


TableLike: TypeAlias = "pads.Dataset | PathLike | SupportsArrow | polars.LazyFrame"


def sql(
    query: str,
    parameters: Parameters = (),
    /,
    **tables: TableLike,
) -> pa.Table:
    """The answer of a SQL query, run by DuckDB over data sets, paths or tables, by name.

    ``intarsia.sql("SELECT * FROM logs WHERE msg LIKE ?", ["%full%"], logs="lake/logs")``: a path is
    opened as ``intarsia.dataset`` does, and what gives an Arrow stream, as tables of pyarrow and
    frames of Polars and pandas do, is joined as it is; lazy frames are collected. ``parameters``
    are the values of ``?``, ``$1`` or, by name, ``$name``, as DuckDB takes them. Conditions that
    DuckDB does not push by itself (LIKE, functions, …) reach the scans as well, as do the keys of
    what they are joined with or have to be IN; answers are DuckDB's own either way. It is lent
    ``contains_words(text, words)``, which is ``intarsia.contains_words`` of it. The session's time
    zone is UTC. Raises ``MissingDependencyError`` without DuckDB, ``PathError`` where there is no
    file, errors of reading as scans of data sets do, and DuckDB's for what is wrong with the query.
    A statement that gives nothing gives a table of nothing.
    """
    engine = _require_duckdb()
    opened = {name: _opened(table) for name, table in tables.items()}
    schemas = {name: table.schema for name, table in opened.items()}
    with engine.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        now = functools.cache(functools.partial(_begin, connection))
        rewritten = scans_of(query, schemas, seen=seen_by_duckdb(now), parameters=parameters)
        _register(connection, rewritten, opened)
        watched = [table for table in opened.values() if isinstance(table, WatchedDataset)]
        for table in watched:  # what could not be read for keys
            table.errors.clear()
        if _WORDS in query.lower():
            text, answer_type = "VARCHAR", "BOOLEAN"
            connection.create_function(_WORDS, _words, [text, text], answer_type, type="arrow")
        try:
            answer = connection.sql(rewritten.sql, params=parameters or None)
            return pa.table({}) if answer is None else answer.to_arrow_table()
        except engine.Error:
            errors = [error for table in watched for error in table.errors]
            if not errors:
                raise
    raise errors[0]


def _begin(connection: duckdb.DuckDBPyConnection) -> datetime:
    """What ``now()`` is in the transaction that begins here."""
    connection.begin()
    [(since,)] = connection.sql("SELECT epoch_us(now())").fetchall()
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=since)


def _words(texts: pa.ChunkedArray, words: pa.ChunkedArray) -> pa.Array:
    """``contains_words`` as DuckDB calls it: values for the same rows, none of them NULL."""
    texts, words = texts.combine_chunks(), words.combine_chunks()
    found = pa.array(np.zeros(len(texts), dtype=np.bool_))
    for one in words.unique():
        holds = contains_words(texts, one.as_py())
        found = pc.or_(found, pc.and_(holds, pc.equal(words, one)))
    return found


def _opened(table: TableLike) -> pads.Dataset | pa.Table:
    if isinstance(table, str | os.PathLike):
        table = dataset(table)
    if isinstance(table, Dataset):
        return WatchedDataset.wrap(table)
    if isinstance(table, pads.Dataset):
        return table
    if isinstance(table, SupportsArrow):
        return pa.table(table)
    if "polars" in sys.modules and isinstance(table, sys.modules["polars"].LazyFrame):
        return pa.table(table.collect())
    kind = type(table).__name__
    raise TypeError(f"a {kind} is no data set, path, lazy frame or source of an Arrow stream")


def _register(
    connection: duckdb.DuckDBPyConnection,
    query: Query,
    tables: Mapping[str, pads.Dataset | pa.Table],
) -> None:
    """Every scan under its name, and every table under its own, for what was not rewritten.

    A scan is a filtered data set rather than a stream, so that DuckDB may read it twice, and asks
    for columns itself.
    """
    for name, table in tables.items():
        connection.register(name, table)
    joined = Joined(tables, {scan.name: scan for scan in query.scans})
    for scan in query.scans:
        table = tables[scan.table]
        if isinstance(table, Dataset):
            left = joined.filter_of(scan)
            table = table if left is None else table.filter(left)
        connection.register(scan.name, table)


def _require_duckdb() -> ModuleType:
    """DuckDB. Raises ``MissingDependencyError`` where it is not installed."""
    try:
        import duckdb
    except ImportError as error:
        message = "DuckDB is not installed: install the extra, intarsia[sql]"
        raise MissingDependencyError(message) from error
    return duckdb
