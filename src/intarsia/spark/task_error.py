"""What went wrong in a task, told on the driver as if it had been raised there."""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from collections.abc import Iterator
from typing import Any, TextIO, cast

from intarsia import errors

_DAEMON = "pyspark/daemon.py"
_LACKING = "ModuleNotFoundError: No module named 'intarsia'"
_RAISED = re.compile(r"^intarsia\.errors\.(\w+): (.*)$", re.MULTILINE)


@contextlib.contextmanager
def as_told() -> Iterator[None]:
    """A context that raises what tasks raised, as ``told`` tells it."""
    try:
        yield
    except Exception as error:
        found = told(error)
        if found is error:
            raise
        raise found from error


def told(error: BaseException) -> BaseException:
    """The error that a task raised, or why it could not start, where Spark says; else ``error``.

    Spark hands on no more than the traceback, with its own around it.
    """
    if isinstance(error, errors.IntarsiaError) or not isinstance(error, Exception):
        return error
    if _LACKING in str(error):
        return errors.MissingDependencyError(
            "Spark's workers run a Python without intarsia: name one that has it by "
            "PYSPARK_PYTHON before the session starts, as intarsia.spark.session does, or send "
            "the package along"
        )
    found = _RAISED.findall(str(error))
    if not found:
        return error
    name, text = found[-1]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.IntarsiaError)):
        return error
    return kind(text.strip())


class _QuietErrors:
    """Standard error of Spark's Python process, without what it prints when nobody reads on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return len(text) if _is_of_daemon(sys.exception()) else self._stream.write(text)


def _is_of_daemon(error: BaseException | None) -> bool:
    """True if Spark's own loop could not write to the connection of its process."""
    if not isinstance(error, BrokenPipeError | ConnectionResetError):
        return False
    *_, last = traceback.extract_tb(error.__traceback__)
    return last.filename.endswith(_DAEMON)


def silence_broken_pipes() -> None:
    """Keep this process from printing a traceback if the query stops early, or cannot be planned.

    A query with a LIMIT closes the connection to the Python processes of its tasks; an error while
    planning closes the one to the process that plans. Spark 4.3 has such a process print the
    traceback of a ``BrokenPipeError`` on the driver's standard error, and end. Only that traceback
    is left out.
    """
    if not isinstance(sys.stderr, _QuietErrors):
        sys.stderr = cast("TextIO", _QuietErrors(sys.stderr))
