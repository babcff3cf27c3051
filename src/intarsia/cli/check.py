"""The commands ``verify`` and ``recover``: what is wrong with files, and what is left of one."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter

import click

from intarsia.cli import terminal
from intarsia.cli.options import sidecar_folder_option, table_format_option
from intarsia.data.table_files import TableFormatOption
from intarsia.verify.file import verify as verify_files
from intarsia.verify.findings import Finding, Severity, worst
from intarsia.write.recover import recover as recover_file

_EXIT_CODES = {None: 0, Severity.NOTE: 0, Severity.WARNING: 3, Severity.ERROR: 4}


@click.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a finding, one a line.")
@click.option("--strict", is_flag=True, help="Exit with 3 where there are only notes, too.")
@sidecar_folder_option
@table_format_option
def verify(
    path: str,
    as_json: bool,
    strict: bool,
    sidecar_folder: str | None,
    table_format: TableFormatOption,
) -> None:
    """Check the files of PATH, a file, folder, glob or URI, from the first byte to the last.

    Pages, checksums, statistics, page indexes, bloom filters and embedded indexes are compared with
    the values. Prints one finding a line.

    The exit code is 0 where all is well, or there are only notes: a file lacks an index that others
    have. It is 3 where there are warnings: answers stay right; 4 where there are errors: damaged
    bytes, or claims that make readers fail or answer wrongly.
    """
    files: set[str] = set()
    with terminal.progress("verifying") as update:

        def progress(file: str, done: int, total: int) -> None:
            files.add(file)
            update(file, done, total)

        findings = verify_files(
            path, sidecar=sidecar_folder, progress=progress, table_format=table_format
        )
    for finding in findings:
        if as_json:
            click.echo(json.dumps(_finding(finding), ensure_ascii=False))
        else:
            click.echo(terminal.clean(str(finding)))
    counts = Counter(finding.severity for finding in findings)
    always = (Severity.ERROR, Severity.WARNING)
    told = [
        terminal.plural(counts[severity], severity.name.lower())
        for severity in reversed(Severity)
        if counts[severity] or severity in always
    ]
    click.echo(f"{terminal.plural(len(files), 'file')}: {', '.join(told)}", err=True)
    least = Severity.WARNING if strict and findings else None
    sys.exit(max(_EXIT_CODES[worst(findings)], _EXIT_CODES[least]))


@click.command()
@click.argument("torn")
@click.argument("out")
@click.option(
    "--schema-from",
    metavar="OTHER",
    help="A Parquet file of the same columns, for a file that has lost its footer.",
)
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON document.")
def recover(torn: str, out: str, schema_from: str | None, as_json: bool) -> None:
    """Write to OUT what is left of TORN, a Parquet file that was cut short or damaged.

    TORN may be what a writer that was killed has left: .NAME.….intarsia-tmp. It is not changed.
    An OUT that is there is replaced.
    Says how many rows came back, how many bytes and, as far as they can be counted, rows are gone,
    where it stopped, and why.

    The exit code is 0 for a file that is whole, 3 for one that is not, even where all that was
    written came back, 1 where nothing can be got back, as not even its columns are known, and for
    any error.
    """
    report = recover_file(torn, out, schema_from=schema_from)
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
    else:
        for line in str(report).splitlines():
            click.echo(terminal.clean(line))
    sys.exit(0 if report.is_whole else _EXIT_CODES[Severity.WARNING])


def _finding(finding: Finding) -> dict[str, str | int | None]:
    return {
        "severity": finding.severity.name.lower(),
        **dataclasses.asdict(finding.where),
        "message": finding.message,
    }
