"""The command line, ``intarsia``. Its libraries are the extra ``cli``."""

from __future__ import annotations

import contextlib
import os
import sys

from intarsia.cli.exit_codes import INTERRUPTED, TIMED_OUT


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
        from intarsia.cli.command_line import run

        run()
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.exit(f"intarsia: the command line needs {error.name}: install the extra, intarsia[cli]")
