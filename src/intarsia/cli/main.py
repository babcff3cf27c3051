"""Commands: each reads its arguments, calls the library, and prints."""

from __future__ import annotations

import codecs
import dataclasses
import io
import json
import sys
import warnings

import click
import pyarrow as pa

from intarsia.cli import INTERRUPTED, page, show, stream, terminal
from intarsia.cli.catalog import catalog
from intarsia.cli.demo import demo
from intarsia.cli.index import index
from intarsia.cli.inspect import inspect, pages
from intarsia.cli.options import (
    column_names,
    columns_option,
    html_option,
    limit_option,
    on_corrupt_option,
    page_size_limit_option,
    sidecar_folder_option,
    union_by_name_option,
    where_option,
)
from intarsia.cli.write import write
from intarsia.data.asked import check_columns
from intarsia.data.discover import dataset
from intarsia.errors import IntarsiaError
from intarsia.predicate.sql import parse_where
from intarsia.read.damage import OnCorrupt
from intarsia.report.query import SHOWN_FILES
from intarsia.report.render import query_html
from intarsia.verify.file import verify as verify_files
from intarsia.verify.findings import Finding, Severity, worst
from intarsia.version import __version__
from intarsia.write.recover import recover as recover_file

_TABLE_ROWS = 50
IN_SHELL = {
    "with sidecar=True": "with --sidecar",
    "sidecar='another/folder'": "--sidecar-folder another/folder",
    "build_catalog makes": "intarsia catalog build makes",
    "as schema_from": "by --schema-from",
    "a schema or union_by_name says": "--union-by-name says",
}
"""What messages advise, and what that is called here."""
_EXIT_CODES = {None: 0, Severity.WARNING: 3, Severity.ERROR: 4}


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
    except (OSError, pa.ArrowException) as error:
        said = " ".join(str(error).split())
        click.echo(f"intarsia: {_with_notes(said, error)}", err=True)
        sys.exit(1)


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


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="intarsia")
def cli() -> None:
    """Indexes inlaid in Parquet: see what files hold, add indexes, read by page."""


cli.add_command(catalog)
cli.add_command(demo)
cli.add_command(index)
cli.add_command(inspect)
cli.add_command(pages)
cli.add_command(write)


@cli.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a finding, one a line.")
@sidecar_folder_option
def verify(path: str, as_json: bool, sidecar_folder: str | None) -> None:
    """Check the files of PATH, a file, folder, glob or URI, from the first byte to the last.

    Pages, checksums, statistics, page indexes, bloom filters and embedded indexes are compared with
    the values. Prints one finding a line.

    The exit code is 0 where all is well, 3 where there are only warnings: answers stay right; 4
    where there are errors: damaged bytes, or claims that make readers fail or answer wrongly.
    """
    files: set[str] = set()
    with terminal.progress("verifying") as update:

        def progress(file: str, done: int, total: int) -> None:
            files.add(file)
            update(file, done, total)

        findings = verify_files(path, sidecar=sidecar_folder, progress=progress)
    for finding in findings:
        if as_json:
            click.echo(json.dumps(_finding(finding), ensure_ascii=False))
        else:
            click.echo(terminal.clean(str(finding)))
    counts = [sum(f.severity is s for f in findings) for s in (Severity.ERROR, Severity.WARNING)]
    click.echo(
        f"{terminal.plural(len(files), 'file')}: {terminal.plural(counts[0], 'error')}, "
        f"{terminal.plural(counts[1], 'warning')}",
        err=True,
    )
    sys.exit(_EXIT_CODES[worst(findings)])


@cli.command()
@click.argument("torn")
@click.argument("out")
@click.option(
    "--schema-from",
    metavar="OTHER",
    help="A Parquet file of the same columns, for a file that has lost its footer.",
)
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON document.")
def recover(torn: str, out: str, schema_from: str | None, as_json: bool) -> None:
    """Write to OUT what is left of TORN, a Parquet file that was cut short or damaged.

    TORN may be what a writer that was killed has left: .NAME.….intarsia-tmp. It is not changed.
    An OUT that is there is replaced.
    Says how many rows came back, how many bytes and, as far as they can be counted, rows are gone,
    where it stopped, and why.

    The exit code is 0 for a file that is whole, 3 for one that is not, even where all that was
    written came back, 1 where nothing can be got back, as not even its columns are known, and for
    any error.
    """
    report = recover_file(torn, out, schema_from=schema_from)
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
    else:
        for line in str(report).splitlines():
            click.echo(terminal.clean(line))
    sys.exit(0 if report.is_whole else _EXIT_CODES[Severity.WARNING])


@cli.command()
@click.argument("path")
@where_option
@columns_option
@limit_option
@click.option("--count", is_flag=True, help="Print how many rows there are instead.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="json is one object a line, bytes in base 64; table shows 50 rows unless --limit says "
    "otherwise.",
)
@on_corrupt_option
@page_size_limit_option
@union_by_name_option
@sidecar_folder_option
def scan(
    path: str,
    where: str | None,
    columns: str | None,
    limit: int | None,
    count: bool,
    form: str,
    on_corrupt: OnCorrupt | None,
    page_size_limit: int | None,
    union_by_name: bool,
    sidecar_folder: str | None,
) -> None:
    """Print the rows of PATH, a file, folder, glob or URI, that match.

    Rows with lists, structs or bytes are none of CSV's; JSON has them all.
    """
    source = dataset(
        path,
        union_by_name=union_by_name,
        sidecar=sidecar_folder,
        on_corrupt=on_corrupt,
        page_size_limit=page_size_limit,
    )
    names = column_names(source.schema, columns)
    expression = None if where is None else parse_where(where, source.schema)
    if count:
        check_columns(source.schema, names)
        found = source.count_rows(expression)
        click.echo(found if limit is None else min(found, limit))
        return
    if form == "table":
        shown = _TABLE_ROWS if limit is None else limit
        table = source.head(shown + 1, names, expression)
        is_cut = table.num_rows > shown
        show.rows(table.slice(0, shown) if is_cut else table, more=limit is None and is_cut)
        return
    schema = source.head(0, names).schema
    print_rows = stream.csv(schema) if form == "csv" else stream.json_lines(schema, names)
    if limit is not None:
        print_rows(source.head(limit, names, expression).to_batches())
    else:
        print_rows(source.to_batches(names, expression))


@cli.command()
@click.argument("path")
@where_option
@columns_option
@click.option(
    "--analyze", is_flag=True, help="Run the query as well; show what was read, and the time."
)
@click.option("--json", "as_json", is_flag=True, help="All of it, of every file, as JSON.")
@html_option
@union_by_name_option
@sidecar_folder_option
def explain(
    path: str,
    where: str | None,
    columns: str | None,
    analyze: bool,
    as_json: bool,
    html: str | None,
    union_by_name: bool,
    sidecar_folder: str | None,
) -> None:
    """Show which rows, pages and bytes of PATH a query touches, and which index cut what.

    20 files are shown, and the 20 columns of each that take most.

    --html draws the pages of each of these, by rows and by bytes, and which of them would be read.
    """
    page.check_option(html, as_json)
    source = dataset(path, union_by_name=union_by_name, sidecar=sidecar_folder)
    maps = 0 if html is None else SHOWN_FILES
    explanation = source.explain(
        column_names(source.schema, columns), where, analyze=analyze, maps=maps
    )
    if html is not None:
        page.save(html, query_html(explanation))
    elif as_json:
        click.echo(json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False))
    else:
        click.echo(explanation)


def _finding(finding: Finding) -> dict[str, str | int | None]:
    return {
        "severity": finding.severity.name.lower(),
        **dataclasses.asdict(finding.where),
        "message": finding.message,
    }
