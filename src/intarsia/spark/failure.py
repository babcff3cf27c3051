"""What went wrong in a task, told on the driver as if it had been raised there."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from intarsia import errors

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
