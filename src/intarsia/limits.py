"""The limits on what a file may claim and what a condition may hold: ``docs/limits.md`` lists them.

A file or condition beyond a limit is refused before memory is allocated for it.
"""

from __future__ import annotations

import re

from intarsia.errors import FormatError

MIB = 1024 * 1024

MAX_FOOTER_BYTES = 512 * MIB
"""Of a Parquet footer; the footer of 1,000,000 chunks takes about 100 MiB."""
MAX_DIRECTORY_BYTES = 32 * MIB
"""Of the JSON document that lists a file's indexes. Decoded, JSON takes up to 25 times its bytes;
the checksums of 3,000,000 chunks fit."""
MAX_POINTER_BYTES = 64 * 1024
"""Of the JSON object that ends a sidecar; one written here takes about 300 bytes."""
MAX_SECTION_METADATA_BYTES = 256 * MIB
"""Of the footer and page indexes of one index section."""
MAX_CATALOG_POINTER_BYTES = 256 * MIB
"""Of a catalog's pointer."""
MAX_COMMIT_LOG_BYTES = 256 * MIB
"""Of one commit's log, which names its files: about 2,000,000 of them fit."""

MAX_DECODED_CHUNK_BYTES = 8 * 1024 * MIB
"""Decoded bytes of one column chunk of which every value is read. Values repeat the entries of a
dictionary, so a megabyte of pages can hold a terabyte of values."""

MAX_EXPRESSION_DEPTH = 6_000
"""Calls within one another in a filter; at 20,000, pyarrow overflows a stack of 8 MiB."""


MIN_MEMORY_LIMIT = 64 * MIB
"""The least memory limit of a call: less would not hold a page of each column and its copies."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {f"{letter}IB": 1024**n for n, letter in enumerate("KMGT", 1)}


def number_of_bytes(limit: object) -> int | None:
    """Returns a memory limit in bytes, which may be given as ``"256MB"``. None is no limit.

    Raises ``TypeError`` or ``ValueError`` for a limit of another kind or below 64 MiB.
    """
    if limit is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(\w*)\s*", str(limit))
    unit = None if found is None else _UNITS.get(found[2].upper())
    if isinstance(limit, bool) or not isinstance(limit, int | str):
        raise TypeError(f"a memory limit is a number of bytes or a string, not {limit!r}")
    if found is None or unit is None or (size := int(float(found[1]) * unit)) < MIN_MEMORY_LIMIT:
        raise ValueError(f"a memory limit is 64MiB at least, as '256MB' or '1GiB', not {limit!r}")
    return size


def check_claim(what: str, size: int, most: int) -> None:
    """Raise ``FormatError`` where ``what`` claims more than ``most`` bytes."""
    if size > most:
        raise FormatError(f"{what} claims {size:,} bytes; the limit is {most:,} bytes")
