"""Connections to DuckDB.

Queries that only read share one database in memory, because it takes a while to open. Statements
that may change a database get one of their own.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import uuid
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import intarsia.deadline as deadline
import intarsia.memory as memory
from intarsia.errors import IntarsiaError, check_version, optional
from intarsia.process_state import ForkLock, SharedState, abandon, importing
from intarsia.strings.tokenizer import contains_words

if TYPE_CHECKING:
    import duckdb


class NotAnsweredError(Exception):
    """A question before the query failed. The query then runs unchanged in another session."""


@contextlib.contextmanager
def asking_first() -> Iterator[None]:
    """Runs a question before the query. Its errors become ``NotAnsweredError``.

    After an error, the transaction takes no other question. Errors that make the database unusable
    are raised as they are.
    """
    duckdb = require_duckdb()
    try:
        yield
    except (duckdb.InternalException, duckdb.FatalException):
        raise
    except (IntarsiaError, OSError, ValueError, duckdb.Error) as error:
        raise NotAnsweredError from error  # ValueError: a message is cut within a character


def require_duckdb() -> ModuleType:
    """Returns DuckDB. Raises ``MissingDependencyError`` without a supported version of it."""
    with optional("DuckDB is not installed: install the extra, intarsia[sql]", "duckdb"), importing:
        import duckdb
    check_version(duckdb)
    return duckdb


def ends_database(error: BaseException | None) -> bool:
    """True if a DuckDB error makes its database unusable."""
    duckdb = require_duckdb()
    return isinstance(error, duckdb.InternalException | duckdb.FatalException)


@contextlib.contextmanager
def session(*, shared: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens a connection in UTC that has ``contains_words``, and closes it at the end.

    A ``shared`` connection has tables and settings of its own, but sees what others create or set
    for the whole database. An internal error of DuckDB makes a database unusable: the next session
    opens a new one.
    """
    shared = shared and not memory.has_limit()  # a limit applies to the whole database
    database = _shared.get() if shared else _opened()
    try:
        opened = contextlib.closing(database.cursor() if shared else database)
        with opened as connection, _interrupted(connection):
            yield connection
    except (NotAnsweredError, require_duckdb().Error) as error:
        if ends_database(error) or ends_database(error.__cause__):
            _shared.forget(database)
        raise


@contextlib.contextmanager
def _interrupted(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Lets a time limit and Ctrl-C end the query that runs.

    Raises ``Stopped`` or ``KeyboardInterrupt`` for any error that DuckDB reports for these.
    """
    deadline.check()
    left = deadline.seconds_left()
    timer = None if left is None else threading.Timer(left, connection.interrupt)
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    except Exception as error:
        deadline.check()
        if is_interrupt(error):
            raise KeyboardInterrupt from None
        raise
    finally:
        if timer is not None:
            timer.cancel()
            timer.join()


def is_interrupt(error: BaseException) -> bool:
    """True if DuckDB reports Ctrl-C by this error."""
    return type(error) is RuntimeError and "Query interrupted" in str(error)


def _opened() -> duckdb.DuckDBPyConnection:
    # Otherwise DuckDB would look for a missing table among this package's variables.
    settings: dict[str, Any] = {"python_enable_replacements": False}
    limit = memory.memory_limit()
    if limit is not None:
        # DuckDB makes the folder when it needs it, and removes it at the end.
        folder = os.path.join(tempfile.gettempdir(), f"intarsia-duckdb-{uuid.uuid4().hex}")
        settings |= {"memory_limit": f"{limit // 2}B", "temp_directory": folder}
    opened: duckdb.DuckDBPyConnection = require_duckdb().connect(config=settings)
    opened.execute("SET GLOBAL TimeZone = 'UTC'")
    text, answer = "VARCHAR", "BOOLEAN"
    opened.create_function("contains_words", _words, [text, text], answer, type="arrow")  # type: ignore[call-overload]  # it takes Arrow arrays
    return opened


def _words(strings: pa.ChunkedArray, words: pa.ChunkedArray) -> pa.Array:
    """Evaluates ``contains_words`` for DuckDB. Both arrays have the same rows, without NULL."""
    strings, words = strings.combine_chunks(), words.combine_chunks()
    matches = pa.array(np.zeros(len(strings), dtype=np.bool_))
    for query in words.unique():
        has_words = contains_words(strings, query.as_py())
        matches = pc.or_(matches, pc.and_(has_words, pc.equal(words, query)))
    return matches


class _SharedDatabase(SharedState):
    """The database of queries that only read. It is opened when it is first used."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._database: duckdb.DuckDBPyConnection | None = None
        super().__init__()

    def get(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._database is None:
                self._database = _opened()
            return self._database

    def forget(self, database: duckdb.DuckDBPyConnection | None) -> None:
        """Makes the next session open a new database in place of ``database``."""
        with self._lock:
            if self._database is database:
                self._database = None

    def clear(self) -> None:
        self.forget(self._database)

    def after_fork(self) -> None:
        abandon(self._database)
        self.clear()


_shared = _SharedDatabase()
