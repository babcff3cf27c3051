"""The command line, ``intarsia``. Its libraries are the extra ``cli``."""

from __future__ import annotations

import contextlib
import os
import sys

INTERRUPTED = 130
"""The exit code if Ctrl-C ended a command."""
TIMED_OUT = 124
"""The exit code if ``--timeout`` ended a command. The command ``timeout`` has the same."""


def main() -> None:
    """Runs the command line. Says how to install it if its libraries are missing."""
    try:
        _run()
    except KeyboardInterrupt:  # outside of commands; within them click raises its own error
        _leave(INTERRUPTED)
    except SystemExit as end:
        if end.code in (INTERRUPTED, TIMED_OUT):
            _leave(end.code)
        raise


def _leave(code: int) -> None:
    """Exits without waiting for threads: one may wait for storage that does not answer."""
    for out in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            out.flush()
    os._exit(code)


def _run() -> None:
    try:
        from intarsia.cli.main import run

        run()
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.exit(f"intarsia: the command line needs {error.name}: install the extra, intarsia[cli]")
