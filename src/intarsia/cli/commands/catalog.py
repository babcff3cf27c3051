"""The commands of ``intarsia catalog``."""

from __future__ import annotations

import click

from intarsia.cli.options import (
    PATH,
    ActionGroup,
    report_json_option,
    table_format_option,
    timeout_option,
)


@click.group(cls=ActionGroup)
def catalog() -> None:
    """Keep a catalog of many files, so that a query opens few of them."""


@catalog.command()
@click.argument("path", type=PATH)
@table_format_option
@timeout_option
@report_json_option
def build() -> None:
    """Build the catalog of the data set in the folder PATH.

    It lies in _intarsia/ and holds footers, bounds of columns and the keys of lookups. It may be
    deleted at any time; answers do not depend on it.
    """


@catalog.command()
@click.argument("path", type=PATH)
@table_format_option
@timeout_option
@report_json_option
def refresh() -> None:
    """Bring the catalog of PATH up to date. Only new and changed files are read."""


@catalog.command()
@click.argument("path", type=PATH)
@report_json_option
def show() -> None:
    """Show what the catalog of PATH holds, and how many files were changed since."""


@catalog.command()
@click.argument("path", type=PATH)
def drop() -> None:
    """Remove the catalog of PATH. Sidecars stay."""
