"""Errors of tasks, raised again on the driver with their own types and messages."""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from collections.abc import Iterator
from typing import Any, TextIO, cast

import intarsia.errors as errors

_DAEMON = "pyspark/daemon.py"
_MISSING_PACKAGE = "ModuleNotFoundError: No module named 'intarsia'"
_RAISED = re.compile(r"^intarsia\.errors\.(\w+): (.*)$", re.MULTILINE)


@contextlib.contextmanager
def raising_task_errors() -> Iterator[None]:
    """Raises, in place of Spark's error, the error that a task raised (see ``original_error``)."""
    try:
        yield
    except Exception as error:
        original = original_error(error)
        if original is error:
            raise
        raise original from error


def original_error(error: BaseException) -> BaseException:
    """Returns the error that a task raised, or the reason why it could not start.

    Spark passes on only the task's traceback as text, inside its own. Returns ``error`` itself if
    that text names no error of Intarsia.
    """
    if isinstance(error, errors.IntarsiaError) or not isinstance(error, Exception):
        return error
    if _MISSING_PACKAGE in str(error):
        return errors.MissingDependencyError(
            "Spark's workers run a Python without intarsia: name one that has it by "
            "PYSPARK_PYTHON before the session starts, as intarsia.spark.session does, or send "
            "the package along"
        )
    matches = _RAISED.findall(str(error))
    if not matches:
        return error
    name, text = matches[-1]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.IntarsiaError)):
        return error
    return kind(text.strip())


class _QuietErrors:
    """Standard error of Spark's Python process without tracebacks of closed connections."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return len(text) if _is_of_daemon(sys.exception()) else self._stream.write(text)


def _is_of_daemon(error: BaseException | None) -> bool:
    """True if Spark's own loop could not write to its connection."""
    if not isinstance(error, BrokenPipeError | ConnectionResetError):
        return False
    *_, last = traceback.extract_tb(error.__traceback__)
    return last.filename.endswith(_DAEMON)


def silence_broken_pipes() -> None:
    """Prevents a printed traceback if the query stops early or cannot be planned.

    A query with a LIMIT closes the connection to the Python processes of its tasks. An error while
    planning closes the connection to the process that plans. Spark 4.3 then prints the traceback of
    a ``BrokenPipeError`` on the driver's standard error and ends the process. Only this traceback
    is left out.
    """
    if not isinstance(sys.stderr, _QuietErrors):
        sys.stderr = cast("TextIO", _QuietErrors(sys.stderr))
