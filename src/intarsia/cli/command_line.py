"""The command line's entry: its commands, and how errors are printed.

The module that does a command's work is imported when that command runs. ``--help``, of a command
as well, and ``--version`` import none.
"""

from __future__ import annotations

import codecs
import io
import json
import sys
import warnings
from functools import partial

import click

from intarsia.cli.commands.catalog import catalog
from intarsia.cli.commands.check import recover, verify
from intarsia.cli.commands.completion import completion
from intarsia.cli.commands.demo import demo
from intarsia.cli.commands.index import index
from intarsia.cli.commands.inspect import inspect, pages
from intarsia.cli.commands.rewrite import rewrite
from intarsia.cli.commands.scan import explain, scan, sql
from intarsia.cli.commands.status import maintain, status, usage
from intarsia.cli.commands.write import write
from intarsia.cli.exit_codes import (
    INTERRUPTED,
    OTHER_ERROR,
    PARTIAL_SUCCESS,
    TIMED_OUT,
    code_of,
)
from intarsia.control_characters import shown_in_text
from intarsia.deadline import Stopped
from intarsia.errors import CorruptDataWarning, IntarsiaError, QueryTimeoutError, public
from intarsia.redaction import redacted
from intarsia.version import __version__

IN_SHELL = {
    "with sidecar=True": "with --sidecar",
    "table_format='ignore'": "--table-format ignore",
    "sidecar='another/folder'": "--sidecar-folder another/folder",
    "build_catalog makes": "intarsia catalog build makes",
    "existing_data_behavior='append'": "--existing-data-behavior append",
    "them, 'overwrite' replaces": "them, overwrite replaces",
    "recover() finishes": "intarsia recover FOLDER finishes",
    "recover() removes": "intarsia recover FOLDER removes",
    "add_indexes(path, indexes, keep=True) writes": "intarsia index add PATH INDEX --keep writes",
    "intarsia.rewrite": "intarsia rewrite",
    "as schema_from": "by --schema-from",
    "a schema or union_by_name says": "--union-by-name says",
    "intarsia.sql(query, NAME=PATH)": "intarsia sql QUERY NAME=PATH",
}
"""Advice in messages of the library, and its name on the command line."""


def run() -> None:
    """Runs the command line. An error is one line, with the exit code of its kind."""
    shown: list[type[Warning]] = []
    warnings.showwarning = partial(_show_warning, shown)
    if sys.stdout is None:  # it was closed
        sys.stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    codecs.register_error("as-json", _as_json)
    for out in (sys.stdout, sys.stderr):
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="as-json")
    try:
        public(cli)(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("intarsia: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        out = io.StringIO()
        error.show(out)
        click.echo(_shown(out.getvalue()), err=True, nl=False)
        sys.exit(error.exit_code)
    except (Stopped, QueryTimeoutError) as late:
        _print_error(str(late.error if isinstance(late, Stopped) else late))
        sys.exit(TIMED_OUT)
    except IntarsiaError as error:
        _print_error(_in_shell(_with_notes(str(error), error)))
        sys.exit(code_of(error))
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(OTHER_ERROR)
    except _other_errors() as error:
        message = " ".join(str(error).split())
        _print_error(_in_shell(_with_notes(message, error)))
        sys.exit(code_of(error))
    if CorruptDataWarning in shown:
        sys.exit(PARTIAL_SUCCESS)


def _print_error(message: str) -> None:
    """Prints a message on standard error."""
    click.echo(f"intarsia: {_shown(message)}", err=True)


def _shown(message: str) -> str:
    """Returns a message without credentials, and without characters that act on a terminal."""
    return shown_in_text(redacted(message))


def _other_errors() -> tuple[type[Exception], ...]:
    """Returns the errors of other packages that are printed: pyarrow's and DuckDB's, if loaded."""
    names = (("pyarrow", "ArrowException"), ("duckdb", "Error"))
    return OSError, *(getattr(sys.modules[of], name) for of, name in names if of in sys.modules)


def _in_shell(message: str) -> str:
    for said, here in IN_SHELL.items():
        message = message.replace(said, here)
    return message


def _with_notes(message: str, error: BaseException) -> str:
    """Returns a message with the notes of its error, such as where an unfinished file is."""
    return "; ".join([message, *getattr(error, "__notes__", ())])


def _as_json(error: UnicodeError) -> tuple[str, int]:
    """Returns characters that the terminal's encoding lacks as JSON writes them in ASCII."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _show_warning(
    shown: list[type[Warning]], message: Warning | str, category: type[Warning], *_: object
) -> None:
    """Prints a warning, and adds its category to ``shown``."""
    shown.append(category)
    _print_error(f"warning: {_in_shell(str(message))}")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="intarsia")
def cli() -> None:
    """Indexes inlaid in Parquet: see what files hold, add indexes, read by page."""


for _command in (
    catalog,
    completion,
    demo,
    explain,
    index,
    inspect,
    maintain,
    pages,
    recover,
    rewrite,
    scan,
    sql,
    status,
    usage,
    verify,
    write,
):
    cli.add_command(_command)
