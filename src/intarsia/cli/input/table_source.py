"""Tables as the PATH of a command, such as ``delta:lake/events``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from intarsia.dataset.dataset import Dataset
from intarsia.dataset.discovery import dataset
from intarsia.tables.data_files import Data
from intarsia.tables.delta import delta
from intarsia.tables.iceberg import iceberg

_OPENERS: Mapping[str, Callable[..., Dataset]] = {"delta": delta, "iceberg": iceberg}
"""The functions that open a table, by the prefix of its path."""


def opened(path: str, *, sidecar: str | None = None, **options: Any) -> Dataset:
    """Returns the data set at a path, which may be that of a table.

    ``options`` are those of ``intarsia.dataset``. Raises ``UsageError`` if one is set and the path
    is that of a table.
    """
    kind, prefix, rest = path.partition(":")
    if not prefix or kind not in _OPENERS:
        return dataset(path, sidecar=sidecar, **options)
    for name, value in options.items():
        if value not in (None, False, "auto", "hive"):
            raise click.UsageError(f"--{name.replace('_', '-')} does not go with {kind}:PATH")
    return _OPENERS[kind](rest, sidecar=sidecar)


def table_or_path(path: str) -> Data:
    """Returns the data set of a table, or any other path as it is."""
    return opened(path) if path.partition(":")[0] in _OPENERS and ":" in path else path
