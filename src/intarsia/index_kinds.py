"""The names of index kinds: those built in, and those that installed packages declare.

Nothing here imports a kind.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import importlib.metadata

GROUP = "intarsia.index_kinds"
"""The group of entry points by which packages declare kinds."""
BUILT_IN = (
    "bloom",
    "distinct",
    "distinct_idx1",
    "elements",
    "entries",
    "lookup",
    "minmax",
    "ngram",
    "page_index",
    "words",
)


@functools.cache
def installed() -> Mapping[str, importlib.metadata.EntryPoint]:
    """Returns the entry points of kinds that packages declare, by their names."""
    import importlib.metadata  # takes as long as all else that help needs

    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


def names() -> list[str]:
    """Returns the names of all kinds that are built in or installed, sorted."""
    return sorted({*BUILT_IN, *installed()})
