"""``intarsia rewrite``: the files of a data set made anew."""

from __future__ import annotations

from collections.abc import Sequence

import click

from intarsia.cli.column_names import split_names
from intarsia.cli.output import terminal
from intarsia.cli.output.json_document import json_text
from intarsia.errors import IntarsiaError
from intarsia.rewrite.rewrite import rewrite as rewrite_files


def rewrite(
    path: str,
    indexes: Sequence[str],
    no_index: bool,
    sort_by: str | None,
    rows_per_page: int | None,
    row_group_rows: int | None,
    target_file_size: str,
    partition_by: str | None,
    compression: str | None,
    where: str | None,
    output: str | None,
    only_small: bool,
    keep: bool,
    as_json: bool,
) -> None:
    """Rewrites the files of a data set."""
    if no_index and indexes:
        raise click.UsageError("--no-index and --index exclude each other")
    folders = None if partition_by is None else split_names(partition_by, "--partition-by")
    with terminal.progress("rewriting") as progress:
        try:
            report = rewrite_files(
                path,
                indexes=indexes if indexes or no_index else None,
                sort_by=() if sort_by is None else split_names(sort_by, "--sort-by"),
                rows_per_page=rows_per_page,
                row_group_rows=row_group_rows,
                target_file_size=None if target_file_size == "none" else target_file_size,
                partition_by=folders,
                compression=compression,
                where=where,
                output=output,
                only_small=only_small,
                keep=keep,
                progress=progress,
            )
        except IntarsiaError:
            raise
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json_text(report.to_dict()))
    click.echo(
        f"{terminal.plural(report.rows, 'row')}: {terminal.plural(report.files_before, 'file')}, "
        f"{report.bytes_before:,} bytes, became {terminal.plural(report.files_after, 'file')}, "
        f"{report.bytes_after:,} bytes, in {report.seconds:.1f} s",
        err=True,
    )
