"""The command ``demo``."""

from __future__ import annotations

import click

from intarsia.cli.options import PATH, Action


@click.command(cls=Action)
@click.argument("folder", default="intarsia-demo", type=PATH)
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="Rows of the table.",
)
def demo() -> None:
    """Write a table with indexes to FOLDER, and ask it five questions.

    The table is a log of made-up requests, always the same. An existing file logs.parquet is
    replaced. FOLDER is intarsia-demo in the current folder by default. It stays: the last lines
    say what to try next.

    Each answer is compared with pyarrow's over every row of the same file. Pages and bytes are
    counted as they are read.

    The exit code is 1 if an answer differs.
    """
