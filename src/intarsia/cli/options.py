"""Options that several commands share, and how a command runs."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from intarsia.writer.defaults import DEFAULT_ROW_GROUP_ROWS, INDEXED_PAGE_ROWS, PAGE_ROWS

_MOST_ROWS = 2**62
"""More rows than any file has. One more is still a 64-bit integer."""
CODECS = ("zstd", "snappy", "gzip", "brotli", "lz4", "none")
"""Codecs of files that are written."""
FORMATS = ("parquet", "csv", "json", "arrow", "orc")
"""Formats of files that rows are read from."""
_MOST_GROUP_ROWS = 2**31 - 1
_Command = Callable[..., Any]


class Action(click.Command):
    """A command whose work a function in ``cli/actions`` does.

    Module and function have the names of the command's own. The module is imported when the command
    runs, so that ``--help`` is quick.
    """

    def invoke(self, ctx: click.Context) -> Any:
        assert self.callback is not None
        module = import_module(self.callback.__module__.replace(".commands.", ".actions."))
        return ctx.invoke(getattr(module, self.callback.__name__), **ctx.params)


class ActionGroup(click.Group):
    """A group of such commands."""

    command_class = Action


def options(*several: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Returns a decorator that adds several options, in this order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(several):
            command = option(command)
        return command

    return decorate


def _start_limit(context: click.Context, _: click.Parameter, seconds: float | None) -> None:
    """Limits the time of the command that is about to run."""
    if seconds is not None and not context.resilient_parsing:
        from intarsia.deadline import time_limit

        context.with_resource(time_limit(seconds, f"running {context.command_path}"))


def _limit_memory(context: click.Context, _: click.Parameter, limit: str | None) -> None:
    """Limits the memory of the command that is about to run. Raises ``BadParameter``."""
    if limit is not None and not context.resilient_parsing:
        from intarsia.deadline import time_limit

        try:
            context.with_resource(time_limit(None, "", limit))
        except ValueError as error:
            raise click.BadParameter(str(error)) from error


class _Path(click.Path):
    """A path or URI, which may follow ``NAME=``, ``delta:`` and ``iceberg:``."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns the files after a prefix. Without one, the shell completes names of files.

        bash passes only the part after a prefix.
        """
        (prefix,) = re.findall(r"\A(?:[^=/]+=)?(?:delta:|iceberg:)?", incomplete)
        if not prefix:
            return super().shell_complete(ctx, param, incomplete)
        paths = sorted(glob.glob(f"{glob.escape(incomplete.removeprefix(prefix))}*"))
        return [CompletionItem(f"{prefix}{path}{'/' * os.path.isdir(path)}") for path in paths]


PATH = _Path(readable=False)
"""A path or URI."""

memory_limit_option = click.option(
    "--memory-limit",
    metavar="SIZE",
    callback=_limit_memory,
    expose_value=False,
    help="Take no more memory than this, as 256MB or 1GiB.",
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    callback=_start_limit,
    expose_value=False,
    help="Stop after this time, with exit code 124. Nothing unfinished is left behind.",
)
resource_limit_options = options(memory_limit_option, timeout_option)
"""The limits of a command."""
where_option = click.option(
    "--where", metavar="SQL", help="Only rows for which this condition holds."
)
columns_option = click.option(
    "--columns",
    metavar="A,B,…",
    help="Only these columns, in this order; all by default. A name with a comma goes in double "
    "quotes.",
)
union_by_name_option = click.option(
    "--union-by-name",
    is_flag=True,
    help="All columns of all files, NULL where one lacks them, instead of the first file's.",
)
partitioning_option = click.option(
    "--partitioning",
    type=click.Choice(["hive", "pyarrow", "none"]),
    default="hive",
    show_default=True,
    callback=lambda context, parameter, value: None if value == "none" else value,
    help="How key=value folders give columns: hive infers integers, dates and timestamps, pyarrow "
    "integers of 32 bits, none reads no folders.",
)
limit_option = click.option(
    "--limit", type=click.IntRange(0, _MOST_ROWS), help="At most this many rows."
)
on_corrupt_option = click.option(
    "--on-corrupt",
    type=click.Choice(["raise", "skip"]),
    help="Check every page that is read: stop at a damaged one, or leave out its rows.",
)
page_size_limit_option = click.option(
    "--page-size-limit",
    type=click.IntRange(1),
    metavar="BYTES",
    help="Stop at a page that holds more, decompressed, or with --on-corrupt skip leave out its "
    "rows: one of 100 KB can hold 2 GiB.",
)
sidecar_folder_option = click.option(
    "--sidecar-folder",
    "sidecar",
    metavar="FOLDER",
    help="Sidecars are in this folder, not beside files.",
)
table_format_option = click.option(
    "--table-format",
    type=click.Choice(["auto", "ignore"]),
    default="auto",
    help="ignore reads the folders of Delta, Iceberg and Hudi tables as plain files, deleted rows "
    "included; otherwise they are refused.",
)
dataset_options = options(
    union_by_name_option,
    partitioning_option,
    sidecar_folder_option,
    table_format_option,
    resource_limit_options,
)
"""How a data set is opened: arguments of ``dataset``, and the limits of the command."""
layout_options = options(
    click.option(
        "--index",
        "indexes",
        metavar="INDEX",
        multiple=True,
        help="An index to embed, as index add takes it. May be given again.",
    ),
    click.option(
        "--sort-by",
        metavar="A,B,…",
        help="Sort the rows by these columns, within each folder, NULL last.",
    ),
    click.option(
        "--partition-by",
        metavar="A,B,…",
        help="Write files to folders named after the values of these columns.",
    ),
    click.option(
        "--row-group-rows",
        "--row-group-size",
        "row_group_rows",
        type=click.IntRange(1, _MOST_GROUP_ROWS),
        metavar="ROWS",
        help=f"Rows of a row group; by default {DEFAULT_ROW_GROUP_ROWS:,}, or fewer that take "
        "256 MB.",
    ),
    click.option(
        "--rows-per-page",
        "--max-rows-per-page",
        "rows_per_page",
        type=click.IntRange(1),
        metavar="ROWS",
        help=f"Rows of a page; by default {INDEXED_PAGE_ROWS:,} with indexes, {PAGE_ROWS:,} "
        "without.",
    ),
)
"""How new files are laid out."""
report_json_option = click.option(
    "--json", "as_json", is_flag=True, help="The report as one JSON document."
)
html_option = click.option(
    "--html",
    metavar="FILE",
    help="Write a page with pictures to this file instead of printing; one that is there is "
    "replaced.",
)
all_option = click.option("--all", "everything", is_flag=True, help="Cut no list short.")
