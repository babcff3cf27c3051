"""The commands ``status``, ``usage`` and ``maintain``."""

from __future__ import annotations

import click

from intarsia.cli.options import (
    PATH,
    Action,
    html_option,
    report_json_option,
    resource_limit_options,
    sidecar_folder_option,
    table_format_option,
    timeout_option,
)


@click.command(cls=Action)
@click.argument("path", type=PATH)
@click.option(
    "--require",
    "requirements",
    metavar="INDEX>=PERCENT",
    multiple=True,
    help="Exit with code 6 if the index covers less of the rows. May be given again.",
)
@sidecar_folder_option
@table_format_option
@timeout_option
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON document.")
@html_option
def status() -> None:
    """Show which files of PATH have which indexes, how they are laid out, and what is stale.

    \b
    intarsia status lake --require "lookup(trace_id)>=100%"

    Rows of files that cannot have the index do not count. --html draws the files by folder and
    age: which have the indexes of the policy, how long their pages are, and their sizes.
    """


@click.command(cls=Action)
@click.argument("path", type=PATH)
@click.option(
    "--days",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="Count the queries of this many days, the last ones.",
)
@click.option("--folder", type=PATH, help="The folder that INTARSIA_USAGE or usage.enable named.")
@report_json_option
def usage() -> None:
    """Show which indexes of the folder PATH saved how many bytes in the last days.

    \b
    INTARSIA_USAGE=1 intarsia scan lake --where "trace_id = '596dcc'"
    intarsia usage lake

    Queries count only where the environment variable INTARSIA_USAGE is 1, or names a folder for
    the counts, and in Python after intarsia.usage.enable().
    """


@click.command(cls=Action)
@click.argument("path", type=PATH)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@table_format_option
@resource_limit_options
@report_json_option
def maintain() -> None:
    """Bring the files of the folder PATH in line with its policy.

    index add --keep and rewrite --keep write the policy. This command merges small files, rewrites
    those with long pages, and adds the indexes that files lack, as the policy says. It refreshes
    the catalog if there is one. It does nothing if nothing is due, so it can run from cron. A run
    that was killed is completed by the next one, unless it asks for intarsia recover PATH.

    Exit codes: 0 all is done, 3 some files could not be changed, 1 another error.
    """
