"""The commands of ``intarsia index``."""

from __future__ import annotations

import click

import intarsia.kind_names as kind_names
from intarsia.cli.options import (
    PATH,
    Action,
    ActionGroup,
    all_option,
    resource_limit_options,
    sidecar_folder_option,
    table_format_option,
)

_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a file, one a line.")


class _WithKinds(Action):
    """A command whose help ends with the names of index kinds."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.epilog = f"Kinds: {', '.join(kind_names.names())}."
        super().format_epilog(ctx, formatter)


@click.group(cls=ActionGroup)
def index() -> None:
    """Add, list, export and drop the indexes of files."""


@index.command("add", cls=_WithKinds)
@click.argument("path", type=PATH)
@click.argument("indexes", nargs=-1, required=True, metavar="INDEX…")
@click.option(
    "--sidecar",
    "in_sidecar",
    is_flag=True,
    help="In a file beside each, in _intarsia/: no file is changed.",
)
@sidecar_folder_option
@click.option(
    "--no-replace",
    "--missing",
    "missing",
    is_flag=True,
    help="Only to files that lack it. Settings count, except those of bloom filters.",
)
@click.option(
    "--page-index/--no-page-index",
    default=True,
    help="Also the page index, for files without one.  [default: page-index]",
)
@click.option(
    "--keep", is_flag=True, help="Also into the policy of the folder PATH, for files to come."
)
@click.option(
    "--rewrite",
    is_flag=True,
    help="First write files with long pages anew. Indexes save little there.",
)
@click.option("--all", "everything", is_flag=True, help="List the indexes of each file as well.")
@table_format_option
@resource_limit_options
@_json
def index_add() -> None:
    """Add each INDEX to PATH, a file, folder, glob or URI.

    \b
    trace_id:lookup                          an index on a column,
    lookup(trace_id, granule_rows=1024)      the same with a setting
    distinct(status)                         columns of few values: any condition
    lookup(lower(email))                     on a function of columns
    bloom(user_id, fpp=0.01)                 a bloom filter for each of its chunks
    page_index                               page indexes for all columns,
    page_index(ts, user_id)                  or for these

    Page indexes and bloom filters are the format's own: other readers use them as well. Chunks that
    have a page index keep it. Files without one get it along with an INDEX that finds rows.
    Quote an INDEX with parentheses.

    A file keeps all its bytes, and every other reader still reads it. A file that lacks the column
    of an INDEX gets none. If no file can have it, none is changed.

    Prints a line for each INDEX; with --all, also what each file has.
    """


@index.command("drop")
@click.argument("path", type=PATH)
@click.argument("indexes", nargs=-1, metavar="INDEX…")
@click.option("--all", "everything", is_flag=True, help="Every index that was added.")
@click.option(
    "--sidecar",
    "in_sidecar",
    is_flag=True,
    help="From the sidecars in _intarsia/: no file is changed.",
)
@sidecar_folder_option
@table_format_option
@_json
def index_drop() -> None:
    """Drop each INDEX of PATH, a file, folder, glob or URI, and free its space.

    \b
    trace_id:lookup                          an index, as it is listed
    user_id:bloom                            the bloom filters that were added to a column
    page_index                               the page indexes that were added

    Indexes that a file was written with stay, and are reported as kept. A file without added
    indexes is byte for byte what it was before.

    Prints a line for each index.
    """


@index.command("list")
@click.argument("path", type=PATH)
@sidecar_folder_option
@table_format_option
@all_option
@_json
def index_list() -> None:
    """List the indexes of the files of PATH: embedded, in sidecars, and the format's own."""


@index.command("export")
@click.argument("path", type=PATH)
@click.argument("index")
@click.argument("out", type=PATH)
@sidecar_folder_option
def index_export() -> None:
    """Write INDEX of the file PATH to OUT, a Parquet file that any tool reads.

    It has a row for each key and granule, or for each granule. An existing OUT is replaced.
    """


@index.command("advise")
@click.argument("path", type=PATH)
@click.option(
    "--where",
    "filters",
    metavar="SQL",
    multiple=True,
    required=True,
    help="A condition. May be given again.",
)
@table_format_option
@resource_limit_options
@click.option("--json", "as_json", is_flag=True, help="All of it as JSON.")
def index_advise() -> None:
    """Propose indexes of PATH for the conditions of queries, from a sample of its row groups.

    Give values that occur. Bounds alone may rule out others, which makes any index look useless.
    """
