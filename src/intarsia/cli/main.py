"""Commands: each reads its arguments, calls the library, and prints."""

from __future__ import annotations

import base64
import itertools
import json
import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import click
import pyarrow as pa
import pyarrow.csv as pacsv
from rich.progress import Progress

from intarsia.cli import show
from intarsia.errors import IntarsiaError
from intarsia.index.registry import kinds, parse
from intarsia.predicate.sql import parse_where
from intarsia.read.dataset import Dataset, dataset
from intarsia.read.file import ParquetFile
from intarsia.version import __version__
from intarsia.write.embed import add_indexes, list_indexes

_TABLE_ROWS = 50
_where = click.option("--where", metavar="SQL", help="Only rows for which this condition holds.")
_columns = click.option(
    "--columns", metavar="A,B,…", help="Only these columns, in this order; all by default."
)


def run() -> None:
    """Run the command line: errors are one sentence, with exit code 1, or 2 for wrong usage."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]  # takes any further arguments
    try:
        cli(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except IntarsiaError as error:
        click.echo(f"intarsia: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except (OSError, pa.ArrowException) as error:
        click.echo(f"intarsia: {' '.join(str(error).split())}", err=True)
        sys.exit(1)


def _show_warning(message: Warning | str, *_: object) -> None:
    click.echo(f"intarsia: warning: {message}", err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="intarsia")
def cli() -> None:
    """Indexes inlaid in Parquet: see what files hold, add indexes, read by page."""


@cli.command()
@click.argument("file")
def inspect(file: str) -> None:
    """Show what a Parquet FILE holds: columns, sizes, encodings, indexes, key/values."""
    show.file(ParquetFile(file), file)


@cli.command()
@click.argument("path")
@_where
@_columns
@click.option("--limit", type=click.IntRange(0), help="At most this many rows.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="json is one object a line; table shows 50 rows unless --limit says otherwise.",
)
def scan(path: str, where: str | None, columns: str | None, limit: int | None, form: str) -> None:
    """Print the rows of PATH, a file, folder, glob or URI, that match."""
    source = dataset(path)
    names = _names(source, columns)
    expression = None if where is None else parse_where(where, source.schema)
    if form == "table":
        shown = _TABLE_ROWS if limit is None else limit
        table = source.head(shown + 1, names, expression)
        show.rows(table.slice(0, shown), more=limit is None and table.num_rows > shown)
        return
    schema = pa.schema([source.schema.field(name) for name in names])
    if form == "csv":
        _need_flat(schema)
    if limit is not None:
        _stream(source.head(limit, names, expression).to_batches(), schema, form)
    else:
        _stream(source.to_batches(names, expression), schema, form)


@cli.command()
@click.argument("path")
@_where
@_columns
@click.option("--analyze", is_flag=True, help="Run the query as well; show what was read.")
def explain(path: str, where: str | None, columns: str | None, analyze: bool) -> None:
    """Show which rows, pages and bytes of PATH a query touches, and which index cut what."""
    source = dataset(path)
    click.echo(source.explain(_names(source, columns), where, analyze=analyze))


@cli.group()
def index() -> None:
    """Add and list the indexes embedded in files."""


@index.command("add")
@click.argument("path")
@click.argument("indexes", nargs=-1, required=True, metavar="INDEX…")
def index_add(path: str, indexes: Sequence[str]) -> None:
    """Add each INDEX, such as trace_id:lookup or "lookup(trace_id, granule_rows=1024)", to PATH.

    PATH is a file, folder, glob or URI. A file keeps all its bytes; every other reader still reads
    it.
    """
    wanted = [parse(text) for text in indexes]
    quiet = not show.errors.is_terminal
    with Progress(console=show.errors, transient=True, disable=quiet) as bar:
        task = bar.add_task("indexing", total=None)

        def progress(file: str, done: int, total: int) -> None:
            bar.update(task, description=f"indexing {file}", completed=done, total=total)

        reports = add_indexes(path, wanted, progress=progress)
    show.indexes(reports)


@index.command("list")
@click.argument("path")
def index_list(path: str) -> None:
    """List the indexes embedded in the files of PATH."""
    show.indexes(list_indexes(path))


index_add.help = f"{index_add.help}\n\nKinds: {', '.join(kinds())}."


def _names(source: Dataset, columns: str | None) -> list[str]:
    if columns is None:
        return list(source.schema.names)
    return [name.strip() for name in columns.split(",")]


def _stream(batches: Iterable[pa.RecordBatch], schema: pa.Schema, form: str) -> None:
    if form == "csv":
        with pacsv.CSVWriter(sys.stdout.buffer, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return
    for row in itertools.chain.from_iterable(batch.to_pylist() for batch in batches):
        click.echo(json.dumps(_jsonable(row), default=str, ensure_ascii=False, allow_nan=False))


def _need_flat(schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_nested(field.type):
            raise click.UsageError(f"column {field.name} is nested: --format json can print it")


def _jsonable(value: Any) -> Any:
    """``value`` with what JSON lacks as text: NaN and infinities by name, bytes in base 64."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(key): _jsonable(item) for key, item in value.items()}
        case list() | tuple():
            return [_jsonable(item) for item in value]
    return value
