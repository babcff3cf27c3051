"""The commands ``verify`` and ``recover``."""

from __future__ import annotations

import click

from intarsia.cli.options import (
    PATH,
    Action,
    report_json_option,
    resource_limit_options,
    sidecar_folder_option,
    table_format_option,
)


@click.command(cls=Action)
@click.argument("path", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a finding, one a line.")
@click.option("--strict", is_flag=True, help="Exit with 3 for notes as well.")
@sidecar_folder_option
@table_format_option
@resource_limit_options
def verify() -> None:
    """Check the files of PATH, a file, folder, glob or URI, from the first byte to the last.

    Pages, checksums, statistics, page indexes, bloom filters and embedded indexes are compared with
    the values. Prints one finding a line.

    The exit code is 0 if there are no findings, or only notes: a file lacks an index that others
    have. It is 3 for warnings: answers stay right. It is 4 for errors: damaged bytes, or claims
    that make readers fail or answer wrongly.
    """


@click.command(cls=Action)
@click.argument("torn", type=PATH)
@click.argument("out", type=PATH, required=False)
@click.option(
    "--schema-from",
    metavar="OTHER",
    help="A Parquet file of the same columns, for a file that has lost its footer.",
)
@report_json_option
@resource_limit_options
def recover() -> None:
    """Write to OUT the rows of TORN, a Parquet file that was cut short or damaged.

    Without OUT, TORN is a folder: finish or undo the writes to it that were interrupted, such as
    those of rewrite, and print what was removed. Call it only while nobody writes to the folder.

    TORN may be the file of a killed writer: .NAME.….intarsia-tmp. It is not changed. An existing
    OUT is replaced. Prints how many rows came back, how many bytes and rows are lost as far as
    they can be counted, where it stopped, and why.

    The exit code is 0 for a whole file. It is 3 for one that is not, even if all of its rows came
    back. It is 4 if nothing can be recovered.
    """
