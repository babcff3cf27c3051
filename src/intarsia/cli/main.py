"""The command line's entry: which commands there are, and how errors are told.

A command's module is imported when that command is called. ``--help`` and ``--version`` import
none.
"""

from __future__ import annotations

import codecs
import importlib
import io
import json
import sys
import warnings

import click

from intarsia.cli import INTERRUPTED
from intarsia.errors import IntarsiaError
from intarsia.version import __version__

COMMANDS = {
    "catalog": ("catalog", "Keep a catalog of many files, so that a query opens few of them."),
    "demo": ("demo", "Write a table with indexes to FOLDER, and ask it five questions."),
    "explain": (
        "scan",
        "Show which rows, pages and bytes of PATH a query touches, and which index cut what.",
    ),
    "index": ("index", "Add, list, export and drop the indexes of files."),
    "inspect": (
        "inspect",
        "Show what a Parquet file holds: columns, sizes, encodings, indexes, key/values.",
    ),
    "pages": (
        "inspect",
        "Show the pages of a Parquet file: rows, nulls, bounds, offsets, sizes, checksums.",
    ),
    "recover": (
        "check",
        "Write to OUT what is left of TORN, a Parquet file that was cut short or damaged.",
    ),
    "scan": ("scan", "Print the rows of PATH, a file, folder, glob or URI, that match."),
    "verify": (
        "check",
        "Check the files of PATH, a file, folder, glob or URI, from the first byte to the last.",
    ),
    "write": ("write", "Write the rows of SOURCE to OUT, one Parquet file with page indexes."),
}
"""By name: the module of ``intarsia.cli`` that has the command, and its help's first sentence."""
IN_SHELL = {
    "with sidecar=True": "with --sidecar",
    "table_format='ignore'": "--table-format ignore",
    "sidecar='another/folder'": "--sidecar-folder another/folder",
    "build_catalog makes": "intarsia catalog build makes",
    "as schema_from": "by --schema-from",
    "a schema or union_by_name says": "--union-by-name says",
}
"""What messages advise, and what that is called here."""


def run() -> None:
    """Run the command line: errors are one sentence, with exit code 1, or 2 for wrong usage."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]  # takes any further arguments
    if sys.stdout is None:  # it was closed
        sys.stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    codecs.register_error("as-json", _as_json)
    for out in (sys.stdout, sys.stderr):
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="as-json")
    try:
        cli(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("intarsia: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except IntarsiaError as error:
        click.echo(f"intarsia: {_with_notes(_in_shell(str(error)), error)}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except _other_errors() as error:
        said = " ".join(str(error).split())
        click.echo(f"intarsia: {_with_notes(said, error)}", err=True)
        sys.exit(1)


def _other_errors() -> tuple[type[Exception], ...]:
    """Returns the errors from elsewhere that are one sentence as well: pyarrow's, once imported."""
    pyarrow = sys.modules.get("pyarrow")
    return (OSError,) if pyarrow is None else (OSError, pyarrow.ArrowException)


def _in_shell(message: str) -> str:
    for said, here in IN_SHELL.items():
        message = message.replace(said, here)
    return message


def _with_notes(message: str, error: BaseException) -> str:
    """With what the error was told besides, as where an unfinished file is."""
    return "; ".join([message, *getattr(error, "__notes__", ())])


def _as_json(error: UnicodeError) -> tuple[str, int]:
    """What the terminal's encoding lacks, as JSON writes it in ASCII."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _show_warning(message: Warning | str, *_: object) -> None:
    click.echo(f"intarsia: warning: {message}", err=True)


class Commands(click.Group):
    """The commands, each imported when it is called."""

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        found: click.Command = getattr(importlib.import_module(f"intarsia.cli.{module}"), cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, COMMANDS))  # as click's own groups do
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, short_help(COMMANDS[name][1], limit)) for name in sorted(COMMANDS)]
            )


def short_help(sentence: str, limit: int) -> str:
    """Returns a command's short help, given its help's first sentence, as click cuts it."""
    return click.Command(None, help=sentence).get_short_help_str(limit)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="intarsia")
def cli() -> None:
    """Indexes inlaid in Parquet: see what files hold, add indexes, read by page."""
