"""The command ``status``."""

from __future__ import annotations

from typing import Any

import click

from intarsia.cli.options import sidecar_folder_option, table_format_option, timeout_option


@click.command()
@click.argument("path")
@click.option(
    "--require",
    "requirements",
    metavar="INDEX>=PERCENT",
    multiple=True,
    help="Exit with code 5 if the index covers less of the rows. May be given again.",
)
@sidecar_folder_option
@table_format_option
@timeout_option
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON document.")
def status(**options: Any) -> None:
    """Show which files of PATH have which indexes, how they are laid out, and what is stale.

    \b
    intarsia status lake --require "lookup(trace_id)>=100%"

    Rows of files that cannot have the index do not count.
    """
    from intarsia.cli.actions import status as body

    body.status(**options)
