"""Short forms of values and lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from intarsia.cli.output.terminal import NONE, Column, escaped
from intarsia.parquet.column_order import order_of
from intarsia.parquet.schema import Leaf
from intarsia.parquet.value_order import Domain

_LONGEST = 1000
"""Characters of a value that are shown at most, on terminals of any width."""


def value_text(value: Any) -> str:
    """Returns a readable value in one line."""
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
    """Returns a column of readable values of a leaf.

    Strings may be cut, timestamps after the seconds. Other values are shown whole.
    """
    moments = order_of(leaf.element).domain is Domain.TIMESTAMP
    cells = [value_text(value) for value in values]
    whole = [len(c) for c, v in zip(cells, values, strict=True) if not isinstance(v, str)]
    right = any(isinstance(value, int | float) for value in values)
    return Column(title, cells, rank, right, least=max([20 if moments else 12, *whole]))


def listed(names: Iterable[str]) -> str:
    """Returns names in a cell."""
    return ",".join(dict.fromkeys(names)) or NONE
