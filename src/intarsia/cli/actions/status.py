"""The commands ``status``, ``usage`` and ``maintain`` of a data set."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import click

import intarsia.maintenance.maintain as maintenance_run
import intarsia.maintenance.status as maintenance
import intarsia.usage_counts.usage_file as usage_counts
from intarsia.cli.exit_codes import PARTIAL_SUCCESS, REQUIREMENT_UNMET
from intarsia.cli.input.table_source import table_or_path
from intarsia.cli.output import html_file, terminal
from intarsia.cli.output.json_document import json_text
from intarsia.cli.output.terminal import clean
from intarsia.redaction import redacted_in
from intarsia.report.render import lake_html
from intarsia.tables.data_files import TableFormatOption

_REQUIREMENT = re.compile(r"(.+?)\s*>=\s*(\d+(?:\.\d+)?)\s*%\s*", re.DOTALL)


def status(
    path: str,
    requirements: Sequence[str],
    sidecar: str | None,
    table_format: TableFormatOption,
    as_json: bool,
    html: str | None,
) -> None:
    """Shows the state of a data set. Exits with a code of its own if a requirement is not met."""
    html_file.check_option(html, as_json)
    required = [_required(text) for text in requirements]
    state = maintenance.status(
        table_or_path(path),
        indexes=list(dict.fromkeys(index for index, _ in required)),
        sidecar=sidecar,
        table_format=table_format,
    )
    unmet = []
    for index, percent in required:
        coverage = state.coverage(index)
        covered = 0.0 if coverage is None else 100 * coverage.share
        if covered < percent:
            unmet.append(f"{index} covers {covered:.4g} % of the rows, not {percent:g} %")
    if html is not None:
        html_file.save(html, lake_html(state.path, state.facts, state.lake_files))
    elif as_json:
        click.echo(json_text(redacted_in(state.to_dict()) | {"unmet": unmet}, indent=2))
    else:
        terminal.lines(state)
    for message in unmet:
        click.echo(f"intarsia: {clean(message)}", err=True)
    if unmet:
        sys.exit(REQUIREMENT_UNMET)


def usage(path: str, days: int, folder: str | None, as_json: bool) -> None:
    """Shows what the indexes of a data set saved."""
    used = usage_counts.report(path, days=days, folder=folder)
    if as_json:
        click.echo(json_text(redacted_in(used.to_dict()), indent=2))
    else:
        terminal.lines(used)


def _required(text: str) -> tuple[str, float]:
    """Returns the index and the percentage of a requirement. Raises ``UsageError``."""
    match = _REQUIREMENT.fullmatch(text.strip())
    if match is None or float(match[2]) > 100:
        raise click.UsageError(f"--require {text!r} is not INDEX>=PERCENT, as 'ts:minmax>=100%'")
    return match[1].strip(), float(match[2])


def maintain(path: str, dry_run: bool, table_format: TableFormatOption, as_json: bool) -> None:
    """Brings files in line with the policy. Exits with a code of its own if some files fail."""
    with terminal.progress("maintaining") as progress:
        report = maintenance_run.maintain(
            table_or_path(path), dry_run=dry_run, progress=progress, table_format=table_format
        )
    if as_json:
        click.echo(json_text(redacted_in(report.to_dict()), indent=2))
    else:
        terminal.lines(report)
    if report.failed:
        sys.exit(PARTIAL_SUCCESS)
