"""Limits on sizes that a file claims, and on conditions. ``docs/limits.md`` lists them.

A file or condition beyond a limit is rejected before memory is allocated for it.
"""

from __future__ import annotations

import re

from intarsia.errors import FormatError

MIB = 1024 * 1024

MAX_FOOTER_BYTES = 512 * MIB
"""Bytes of a Parquet footer. The footer of 1,000,000 column chunks takes about 100 MiB."""
MAX_DIRECTORY_BYTES = 32 * MIB
"""Bytes of the JSON document that lists a file's indexes. It has enough space for the checksums of
3,000,000 chunks. Decoded, JSON takes up to 25 times its bytes.
"""
MAX_POINTER_BYTES = 64 * 1024
"""Bytes of the JSON object at the end of a sidecar. Ours take about 300 bytes."""
MAX_SECTION_METADATA_BYTES = 256 * MIB
"""Bytes of the footer and the page indexes of one index section."""
MAX_CATALOG_POINTER_BYTES = 256 * MIB
"""Bytes of a catalog's pointer."""
MAX_POLICY_BYTES = 1 * MIB
"""Bytes of a data set's policy, which lists its indexes."""
MAX_USAGE_BYTES = 16 * MIB
"""Bytes of a file of usage counts: about 1,000 indexes with 400 days."""
MAX_COMMIT_LOG_BYTES = 256 * MIB
"""Bytes of a commit log, which lists the files of one commit: about 2,000,000 files."""

MAX_DECODED_CHUNK_BYTES = 8 * 1024 * MIB
"""Decoded bytes of one column chunk that is read completely. Values repeat dictionary entries, so a
megabyte of pages can contain a terabyte of values.
"""

MAX_EXPRESSION_DEPTH = 6_000
"""Nested calls in a filter. At 20,000, pyarrow overflows a stack of 8 MiB."""


MIN_MEMORY_LIMIT = 64 * MIB
"""Smallest memory limit of a call in bytes: a page of each column and its copies must fit."""
_BYTES_BY_UNIT = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES_BY_UNIT |= {f"{letter}IB": 1024**n for n, letter in enumerate("KMGT", 1)}


def number_of_bytes(limit: object) -> int | None:
    """Returns a memory limit in bytes, given as an integer or a string such as ``"256MB"``.

    None is no limit. Raises ``TypeError`` for another type, and ``ValueError`` for a limit that is
    malformed or below 64 MiB.
    """
    if limit is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(\w*)\s*", str(limit))
    unit = None if match is None else _BYTES_BY_UNIT.get(match[2].upper())
    if isinstance(limit, bool) or not isinstance(limit, int | str):
        raise TypeError(f"a memory limit is a number of bytes or a string, not {limit!r}")
    if match is None or unit is None or (size := int(float(match[1]) * unit)) < MIN_MEMORY_LIMIT:
        raise ValueError(
            f"a memory limit is at least 64MiB, for example '256MB' or '1GiB', not {limit!r}"
        )
    return size


def check_claim(what: str, size: int, max_bytes: int) -> None:
    """Raises ``FormatError`` if ``what`` claims to have more than ``max_bytes`` bytes."""
    if size > max_bytes:
        raise FormatError(f"{what} claims {size:,} bytes; the limit is {max_bytes:,} bytes")
