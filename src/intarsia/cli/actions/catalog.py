"""``intarsia catalog``: building, refreshing, showing and dropping the catalog of a data set."""

from __future__ import annotations

import dataclasses

import click

from intarsia.catalog.build import CatalogReport, build_catalog, drop_catalog
from intarsia.catalog.describe import CatalogState, show_catalog
from intarsia.cli.output import terminal
from intarsia.cli.output.json_document import json_text
from intarsia.redaction import redacted_in
from intarsia.tables.data_files import TableFormatOption


def build(path: str, table_format: TableFormatOption, as_json: bool) -> None:
    """Builds the catalog of a folder."""
    _print(build_catalog(path, table_format=table_format), as_json)


def refresh(path: str, table_format: TableFormatOption, as_json: bool) -> None:
    """Brings the catalog of a folder up to date."""
    _print(build_catalog(path, refresh=True, table_format=table_format), as_json)


def show(path: str, as_json: bool) -> None:
    """Shows what the catalog of a folder holds."""
    _print(show_catalog(path), as_json)


def drop(path: str) -> None:
    """Removes the catalog of a folder."""
    click.echo(f"{terminal.plural(drop_catalog(path), 'file')} removed")


def _print(report: CatalogReport | CatalogState, as_json: bool) -> None:
    document = redacted_in(dataclasses.asdict(report))
    if as_json:
        click.echo(json_text(document, indent=2))
        return
    indexes = document.pop("indexes", ())
    for name, value in document.items():
        if isinstance(value, str):
            shown = terminal.clean(value)
        else:
            shown = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
        click.echo(f"{name:<9} {shown}")
    for index in indexes:
        files = terminal.plural(index["files"], "file")
        click.echo(
            f"index {terminal.clean(index['name'])}: {files}, {index['keys']:,} keys, "
            f"{index['bytes']:,} bytes"
        )
