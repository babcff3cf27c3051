"""The commands ``verify`` and ``recover``."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter

import click

from intarsia.cli.exit_codes import BAD_DATA, PARTIAL_SUCCESS
from intarsia.cli.output import terminal
from intarsia.cli.output.json_document import json_text
from intarsia.commit.recover import recover_dataset
from intarsia.recovery.recover import recover as recover_file
from intarsia.redaction import redacted
from intarsia.tables.data_files import TableFormatOption
from intarsia.verify.file import verify as verify_files
from intarsia.verify.finding import Finding, Severity, worst

_EXIT_CODES = {
    None: 0,
    Severity.NOTE: 0,
    Severity.WARNING: PARTIAL_SUCCESS,
    Severity.ERROR: BAD_DATA,
}


def verify(
    path: str,
    as_json: bool,
    strict: bool,
    sidecar: str | None,
    table_format: TableFormatOption,
) -> None:
    """Prints findings, and exits with a code for the worst one."""
    files: set[str] = set()
    with terminal.progress("verifying") as update:

        def progress(file: str, done: int, total: int) -> None:
            files.add(file)
            update(file, done, total)

        findings = verify_files(path, sidecar=sidecar, progress=progress, table_format=table_format)
    for finding in findings:
        if as_json:
            click.echo(json_text(_finding(finding)))
        else:
            click.echo(terminal.clean(str(finding)))
    counts = Counter(finding.severity for finding in findings)
    always = (Severity.ERROR, Severity.WARNING)
    parts = [
        terminal.plural(counts[severity], severity.name.lower())
        for severity in reversed(Severity)
        if counts[severity] or severity in always
    ]
    click.echo(f"{terminal.plural(len(files), 'file')}: {', '.join(parts)}", err=True)
    least = Severity.WARNING if strict and findings else None
    sys.exit(max(_EXIT_CODES[worst(findings)], _EXIT_CODES[least]))


def recover(torn: str, out: str | None, schema_from: str | None, as_json: bool) -> None:
    """Writes the rows that can be recovered from a file, or ends the writes to a folder."""
    if out is None:
        if schema_from is not None:
            raise click.UsageError("--schema-from goes with OUT")
        removed = recover_dataset(torn)
        for line in [json_text(removed)] if as_json else map(terminal.clean, removed):
            click.echo(line)
        return
    report = recover_file(torn, out, schema_from=schema_from)
    if as_json:
        click.echo(json_text(report.to_dict(), indent=2))
    else:
        terminal.lines(report)
    sys.exit(0 if report.is_whole else PARTIAL_SUCCESS)


def _finding(finding: Finding) -> dict[str, str | int | None]:
    return {
        "severity": finding.severity.name.lower(),
        **dataclasses.asdict(finding.where),
        "message": redacted(finding.message),
    }
