"""What values and lists are called where room is short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from intarsia.cli.output.terminal import NONE, Column, escaped
from intarsia.parquet.column_order import order_of
from intarsia.parquet.schema import Leaf
from intarsia.parquet.value_order import Domain

_LONGEST = 1000
"""Characters of a value that are shown, however wide the terminal."""


def value_text(value: Any) -> str:
    """A readable value in one line."""
    match value:
        case None:
            return NONE
        case bool():
            return str(value).lower()
        case "":
            return '""'
        case str() if len(value) > _LONGEST:
            return f"{escaped(value[:_LONGEST])}…"
    return escaped(str(value))


def value_column(title: str, leaf: Leaf, values: Sequence[Any], rank: int) -> Column:
    """A column of a leaf's readable values: text may be cut, times after the seconds.

    Everything else is shown whole.
    """
    moments = order_of(leaf.element).domain is Domain.TIMESTAMP
    cells = [value_text(value) for value in values]
    whole = [len(c) for c, v in zip(cells, values, strict=True) if not isinstance(v, str)]
    right = any(isinstance(value, int | float) for value in values)
    return Column(title, cells, rank, right, least=max([20 if moments else 12, *whole]))


def listed(names: Iterable[str]) -> str:
    """Names in a cell."""
    return ",".join(dict.fromkeys(names)) or NONE
