"""The command ``write``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from intarsia.cli.options import (
    CODECS,
    FORMATS,
    PATH,
    Action,
    columns_option,
    dataset_options,
    layout_options,
    limit_option,
    on_corrupt_option,
    page_size_limit_option,
    report_json_option,
    where_option,
)

EXISTING = ("error", "append", "overwrite", "delete_matching", "overwrite_or_ignore")


def _types(_: Any, __: Any, given: Sequence[str]) -> Any:
    """Returns the types in ``--type``, by the columns' names."""
    from intarsia.cli.actions.write import types_of

    return types_of(given)


@click.command(cls=Action)
@click.argument("source", type=PATH)
@click.argument("out", type=PATH)
@layout_options
@click.option(
    "--from",
    "form",
    type=click.Choice(FORMATS),
    help="The format of SOURCE; by default that of its name, or its files' names.",
)
@where_option
@columns_option
@limit_option
@click.option(
    "--existing-data-behavior",
    type=click.Choice(EXISTING),
    help="What happens to files in the folder OUT; by default, they are an error.",
)
@click.option(
    "--max-rows-per-file",
    type=click.IntRange(1),
    metavar="ROWS",
    help="Rows of a file in the folder OUT.",
)
@click.option(
    "--compression", type=click.Choice(CODECS), help="By default that of the policy, else zstd."
)
@click.option("--compression-level", type=int, metavar="N", help="As the codec counts them.")
@click.option(
    "--checkpoint-row-groups",
    type=click.IntRange(1),
    metavar="N",
    help="Sync every Nth row group to the disk, so that recover gets all rows before it back.",
)
@click.option(
    "--keep-unfinished",
    is_flag=True,
    help="Leave what was written before an error, under its temporary name, for recover.",
)
@click.option("--delimiter", metavar="CHARACTER", help="Of CSV; by default a comma, in .tsv a tab.")
@click.option("--no-header", is_flag=True, help="Of CSV: columns are called f0, f1, ….")
@click.option(
    "--null", metavar="TEXT", help="Of CSV: stands for NULL, in strings too, without quotes."
)
@click.option(
    "--type",
    "types",
    metavar="COLUMN=TYPE",
    multiple=True,
    callback=_types,
    help="Of CSV and JSON: a column's type, as string, int64, double, decimal(9, 2), date32 or "
    "timestamp[us, tz=UTC]; SQL's names do as well. Of JSON, also map(varchar, bigint). May be "
    "given again.",
)
@click.option(
    "--schema-from",
    metavar="FILE",
    help="A Parquet file whose columns and types the rows get. JSON objects become maps and "
    "strings become dates, if its types say so.",
)
@on_corrupt_option
@page_size_limit_option
@dataset_options
@report_json_option
def write() -> None:
    """Write the rows of SOURCE to OUT, a Parquet file or a folder of files, with page indexes.

    \b
    intarsia write logs.csv logs.parquet --index "lookup(trace_id)" --index msg:ngram
    intarsia write lake/logs errors.parquet --where "status = 500" --columns ts,msg
    zcat logs.json.gz | intarsia write - logs.parquet --from json
    intarsia write new-logs/ lake --partition-by day --existing-data-behavior append

    SOURCE is a file, folder, glob or URI of Parquet, CSV, JSON lines, Arrow IPC (Feather) or ORC.
    It may be - for CSV, JSON or Arrow on standard input. CSV and JSON may be compressed (.gz,
    .zst). pyarrow infers their types from the first 16 MB. Several files must have the same
    columns, unless they are Parquet.

    Rows stay in their order unless --sort-by is given. One row group of them is in memory at a
    time; larger sorts use temporary files. OUT appears whole or not at all. An existing OUT is
    replaced; it must not be a file of SOURCE.

    OUT is a folder if it ends with /, or with one of --partition-by, --existing-data-behavior and
    --max-rows-per-file. Its new files appear at once when all are written, and replaced files
    disappear then. If the command is killed, intarsia recover OUT finishes or undoes the change.
    """
