"""The command line, ``intarsia``. Its libraries are the extra ``cli``."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The exit code of what Ctrl-C ended."""


def main() -> None:
    """Run the command line; tell how to install it where its libraries are missing."""
    try:
        _run()
    except KeyboardInterrupt:  # outside of commands, of which click makes its own error
        sys.exit(INTERRUPTED)


def _run() -> None:
    try:
        from intarsia.cli.main import run

        run()
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.exit(f"intarsia: the command line needs {error.name}: install the extra, intarsia[cli]")
