"""Names of index kinds: built-in ones, and those that installed packages declare.

No kind is imported here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import importlib.metadata

GROUP = "intarsia.index_kinds"
"""The entry point group where packages declare index kinds."""
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
    """Returns the entry points of declared index kinds, by name."""
    import importlib.metadata  # slow to import: as slow as all other imports of --help

    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


def names() -> list[str]:
    """Returns the sorted names of all index kinds, built-in and installed."""
    return sorted({*BUILT_IN, *installed()})
