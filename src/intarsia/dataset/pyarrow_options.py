"""The options of pyarrow's scans: checks of their names and values."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import pyarrow.dataset as pads

_NAMES = {
    "batch_size",
    "batch_readahead",
    "fragment_readahead",
    "fragment_scan_options",
    "use_threads",
    "cache_metadata",
    "memory_pool",
}
_MIN_COUNTS = {"batch_size": 1, "batch_readahead": 0, "fragment_readahead": 1}
"""The smallest value of each count. With ``fragment_readahead=0``, pyarrow waits forever."""


def check_scan_options(options: Mapping[str, Any]) -> None:
    """Checks the options of a scan, by pyarrow or by our reader.

    Raises ``TypeError`` for an unknown option, and otherwise as ``check_counts`` does.
    """
    unknown = set(options) - _NAMES
    if unknown:
        hint = "; conditions are given as filter" if unknown & {"where", "filters"} else ""
        raise TypeError(f"unknown options: {', '.join(sorted(unknown))}{hint}")
    check_counts(options)


def check_counts(options: Mapping[str, Any]) -> None:
    """Checks the options of a scan that are counts. Other options are ignored.

    Raises ``TypeError`` for a count that is no integer, ``ValueError`` for one that is too small.
    """
    for name, least in _MIN_COUNTS.items():
        if name in options and operator.index(options[name]) < least:
            never_ends = name == "fragment_readahead" and options[name] == 0
            why = ": pyarrow's scan of no fragments ahead never ends" if never_ends else ""
            raise ValueError(f"{name} is {least} at least, not {options[name]}{why}")


def verifies_checksums(options: Mapping[str, Any]) -> bool:
    """True if a scan's ``fragment_scan_options`` ask for checks of the pages' checksums.

    Raises ``TypeError`` for options of other formats.
    """
    given = options.get("fragment_scan_options")
    if given is None:
        return False
    if not isinstance(given, pads.ParquetFragmentScanOptions):
        kind = type(given).__name__
        raise TypeError(f"fragment_scan_options are ParquetFragmentScanOptions, not {kind}")
    return bool(given.page_checksum_verification)
