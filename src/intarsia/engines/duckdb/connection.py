"""DuckDB to run a query in: what only reads shares one database in memory, which takes a while to
make; what may leave something behind has one of its own.
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

from intarsia import deadline, memory
from intarsia.errors import IntarsiaError, check_version, optional
from intarsia.process_state import ForkLock, SharedState, abandon, importing
from intarsia.strings.tokenizer import contains_words

if TYPE_CHECKING:
    import duckdb


class NotAnsweredError(Exception):
    """What was asked before a query failed: it is to be answered as it is, in another session."""


@contextlib.contextmanager
def asking_first() -> Iterator[None]:
    """A context of a question before the query, whose errors become ``NotAnsweredError``.

    After one, nothing can be asked in the same transaction. Those that leave the database of no use
    stay.
    """
    duckdb = require_duckdb()
    try:
        yield
    except (duckdb.InternalException, duckdb.FatalException):
        raise
    except (IntarsiaError, OSError, ValueError, duckdb.Error) as error:
        raise NotAnsweredError from error  # of values: a message that is cut within a character


def require_duckdb() -> ModuleType:
    """Returns DuckDB. Raises ``MissingDependencyError`` without a supported version of it."""
    with optional("DuckDB is not installed: install the extra, intarsia[sql]", "duckdb"), importing:
        import duckdb
    check_version(duckdb)
    return duckdb


def ends_database(error: BaseException | None) -> bool:
    """True if a DuckDB error leaves its database of no use."""
    duckdb = require_duckdb()
    return isinstance(error, duckdb.InternalException | duckdb.FatalException)


@contextlib.contextmanager
def session(*, shared: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection in UTC that knows ``contains_words``, closed in the end.

    Tables and settings of one that is ``shared`` are its own; what a statement creates or sets for
    all of a database, others see. An error of DuckDB's own making leaves a database of no use: the
    next session has a new one.
    """
    shared = shared and not memory.has_limit()  # a limit is of the whole database
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
    """A context in which a time limit and Ctrl-C end the query that runs.

    Raises ``Stopped`` or ``KeyboardInterrupt``, whatever DuckDB makes of these.
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
    """True for the error by which DuckDB reports Ctrl-C."""
    return type(error) is RuntimeError and "Query interrupted" in str(error)


def _opened() -> duckdb.DuckDBPyConnection:
    # Or a table that is not there would be looked for among this package's variables.
    settings: dict[str, Any] = {"python_enable_replacements": False}
    limit = memory.memory_limit()
    if limit is not None:
        # DuckDB makes the folder when it needs it, and removes it in the end.
        folder = os.path.join(tempfile.gettempdir(), f"intarsia-duckdb-{uuid.uuid4().hex}")
        settings |= {"memory_limit": f"{limit // 2}B", "temp_directory": folder}
    opened: duckdb.DuckDBPyConnection = require_duckdb().connect(config=settings)
    opened.execute("SET GLOBAL TimeZone = 'UTC'")
    text, answer = "VARCHAR", "BOOLEAN"
    opened.create_function("contains_words", _words, [text, text], answer, type="arrow")  # type: ignore[call-overload]  # it takes Arrow's arrays
    return opened


def _words(texts: pa.ChunkedArray, words: pa.ChunkedArray) -> pa.Array:
    """``contains_words`` as DuckDB calls it: values for the same rows, none of them NULL."""
    texts, words = texts.combine_chunks(), words.combine_chunks()
    found = pa.array(np.zeros(len(texts), dtype=np.bool_))
    for one in words.unique():
        holds = contains_words(texts, one.as_py())
        found = pc.or_(found, pc.and_(holds, pc.equal(words, one)))
    return found


class _SharedDatabase(SharedState):
    """The database of what only reads, opened when it is first asked for."""

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
        """Have the next session open another one than ``database``."""
        with self._lock:
            if self._database is database:
                self._database = None

    def clear(self) -> None:
        self.forget(self._database)

    def after_fork(self) -> None:
        abandon(self._database)
        self.clear()


_shared = _SharedDatabase()
