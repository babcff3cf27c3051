"""The command ``demo``."""

from __future__ import annotations

from typing import Any

import click


@click.command()
@click.argument("folder", default="intarsia-demo")
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="Rows of the table.",
)
def demo(**options: Any) -> None:
    """Write a table with indexes to FOLDER, and ask it five questions.

    The table is a log of made-up requests, always the same; a file logs.parquet that is there is
    replaced. FOLDER is intarsia-demo in the current folder by default, and stays, to be tried out:
    the last lines say how.

    Each answer is compared with brute force, pyarrow over every row of the same file, and the pages
    and bytes that it took are counted as they are read.

    The exit code is 1 where an answer differs.
    """
    from intarsia.cli.actions import demo as body

    body.demo(**options)
