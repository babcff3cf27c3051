"""The commands of ``intarsia catalog``."""

from __future__ import annotations

from typing import Any

import click

from intarsia.cli.options import PATH, table_format_option, timeout_option

_json = click.option("--json", "as_json", is_flag=True, help="The report as one JSON document.")


@click.group()
def catalog() -> None:
    """Keep a catalog of many files, so that a query opens few of them."""


@catalog.command()
@click.argument("path", type=PATH)
@table_format_option
@timeout_option
@_json
def build(**options: Any) -> None:
    """Build the catalog of the data set in the folder PATH.

    It lies in _intarsia/ and holds footers, bounds of columns and the keys of lookups. It may be
    deleted at any time; answers do not depend on it.
    """
    from intarsia.cli.actions import catalog as body

    body.build(**options)


@catalog.command()
@click.argument("path", type=PATH)
@table_format_option
@timeout_option
@_json
def refresh(**options: Any) -> None:
    """Bring the catalog of PATH up to date. Only new and changed files are read."""
    from intarsia.cli.actions import catalog as body

    body.refresh(**options)


@catalog.command()
@click.argument("path", type=PATH)
@_json
def show(**options: Any) -> None:
    """Show what the catalog of PATH holds, and how many files were changed since."""
    from intarsia.cli.actions import catalog as body

    body.show(**options)


@catalog.command()
@click.argument("path", type=PATH)
def drop(**options: Any) -> None:
    """Remove the catalog of PATH. Sidecars stay."""
    from intarsia.cli.actions import catalog as body

    body.drop(**options)
