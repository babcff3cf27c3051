"""Columns by the names on the command line."""

from __future__ import annotations

import csv
from collections.abc import Sequence

import click
import pyarrow as pa

from intarsia.errors import unknown_column
from intarsia.parquet.schema import Leaf, Schema


def selected(schema: Schema, names: Sequence[str]) -> list[Leaf]:
    """Returns the leaves of these names, by default all. Raises ``PredicateError`` if unknown."""
    if not names:
        return list(schema.leaves)
    leaves = [leaf for name in names for leaf in _named(schema, name)]
    return list({leaf.index: leaf for leaf in leaves}.values())


def _named(schema: Schema, name: str) -> Sequence[Leaf]:
    leaves = [leaf for leaf in schema.leaves if leaf.name == name]
    if leaves:
        return leaves
    root = schema.root(name)
    if root is None or not root.leaves:
        raise unknown_column(name, (leaf.name for leaf in schema.leaves))
    return schema.leaves[root.all_leaves.start : root.all_leaves.stop]


def column_names(schema: pa.Schema, columns: str | None) -> list[str]:
    """Returns the names in ``--columns``, by default those of all columns."""
    if columns is None:
        return list(schema.names)
    return [name if name in schema.names else name.strip() for name in split_names(columns)]


def split_names(columns: str, option: str = "--columns") -> list[str]:
    """Returns the names in an option. Raises ``UsageError`` for unbalanced quotes."""
    try:
        return next(csv.reader([columns], skipinitialspace=True)) or [""]
    except csv.Error as error:
        raise click.UsageError(f"{option} {columns!r}: {error}") from error
