"""Exit codes of the command line. 0 is success."""

from __future__ import annotations

import sys

from intarsia.errors import FormatError, IndexSpecError, PathError, PredicateError, UnsupportedError

OTHER_ERROR = 1
WRONG_USE = 2
"""An argument, condition, query or index is wrong, or does not fit the columns."""
PARTIAL_SUCCESS = 3
"""The output leaves something out: rows of damaged pages, or files that cannot be read.

``verify`` exits with it for warnings.
"""
BAD_DATA = 4
"""A file is damaged, or is no Parquet file. ``verify`` exits with it for errors."""
MISSING_PATH = 5
"""A path does not exist, or cannot be read or written."""
INTERRUPTED = 130
"""Ctrl-C ended the command."""
TIMED_OUT = 124
"""``--timeout`` ended the command. The command ``timeout`` has the same code."""
REQUIREMENT_UNMET = 6
"""A requirement of ``status --require`` does not hold."""


def code_of(error: Exception) -> int:
    """Returns the exit code for an error that ended a command."""
    wrong_queries = getattr(sys.modules.get("duckdb"), "ProgrammingError", ())
    match error:
        case PathError() | FileNotFoundError() | PermissionError():
            return MISSING_PATH
        case PredicateError() | IndexSpecError():
            return WRONG_USE
        case FormatError() if not isinstance(error, UnsupportedError):
            return BAD_DATA
    return WRONG_USE if isinstance(error, wrong_queries) else OTHER_ERROR
