"""``intarsia catalog``: building, refreshing, showing and dropping the catalog of a data set."""

from __future__ import annotations

import dataclasses
import json

import click

from intarsia.cli import terminal
from intarsia.cli.options import table_format_option
from intarsia.data.table_files import TableFormatOption
from intarsia.write.catalog import CatalogReport, build_catalog, drop_catalog
from intarsia.write.catalog_show import CatalogState, show_catalog

_json = click.option("--json", "as_json", is_flag=True, help="The report as one JSON document.")


@click.group()
def catalog() -> None:
    """Keep a catalog of many files, so that a query opens few of them."""


@catalog.command()
@click.argument("path")
@table_format_option
@_json
def build(path: str, table_format: TableFormatOption, as_json: bool) -> None:
    """Build the catalog of the data set in the folder PATH.

    It lies in _intarsia/ and holds footers, bounds of columns and the keys of indexes that have
    some, as lookups do. It may be deleted at any time; answers do not depend on it.
    """
    _print(build_catalog(path, table_format=table_format), as_json)


@catalog.command()
@click.argument("path")
@table_format_option
@_json
def refresh(path: str, table_format: TableFormatOption, as_json: bool) -> None:
    """Bring the catalog of PATH up to date: only files that are new or were changed are read."""
    _print(build_catalog(path, refresh=True, table_format=table_format), as_json)


@catalog.command()
@click.argument("path")
@_json
def show(path: str, as_json: bool) -> None:
    """Show what the catalog of PATH holds, and how many files were changed since."""
    _print(show_catalog(path), as_json)


@catalog.command()
@click.argument("path")
def drop(path: str) -> None:
    """Remove the catalog of PATH. Sidecars stay."""
    click.echo(f"{terminal.plural(drop_catalog(path), 'file')} removed")


def _print(report: CatalogReport | CatalogState, as_json: bool) -> None:
    document = dataclasses.asdict(report)
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
        return
    indexes = document.pop("indexes", ())
    for name, value in document.items():
        shown = terminal.clean(value) if isinstance(value, str) else f"{value:,}"
        click.echo(f"{name:<9} {shown}")
    for index in indexes:
        files = terminal.plural(index["files"], "file")
        click.echo(
            f"index {terminal.clean(index['name'])}: {files}, {index['keys']:,} keys, "
            f"{index['bytes']:,} bytes"
        )
