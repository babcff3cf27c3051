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
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(I)?)?B?\s*", re.IGNORECASE)


def size_of_text(text: str, kilo: int) -> int | None:
    """Returns a size in bytes, from text such as ``128 MB`` or ``1GiB``. None if it is none.

    KiB, MiB and so on are powers of 1,024. K, KB, M, MB and so on are powers of ``kilo``.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    number, letter, is_binary = match.groups("")
    power = " KMGT".index(letter.upper() or " ")
    return int(float(number) * (1024 if is_binary else kilo) ** power)


def number_of_bytes(limit: object) -> int | None:
    """Returns a memory limit in bytes, given as an integer or a string such as ``"256MB"``.

    None is no limit. Raises ``TypeError`` for another type, and ``ValueError`` for a limit that is
    malformed or below 64 MiB.
    """
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int | str):
        raise TypeError(f"a memory limit is a number of bytes or a string, not {limit!r}")
    size = size_of_text(str(limit), 1000)
    if size is None or size < MIN_MEMORY_LIMIT:
        raise ValueError(
            f"a memory limit is at least 64MiB, for example '256MB' or '1GiB', not {limit!r}"
        )
    return size


def check_claim(what: str, size: int, max_bytes: int) -> None:
    """Raises ``FormatError`` if ``what`` claims to have more than ``max_bytes`` bytes."""
    if size > max_bytes:
        raise FormatError(f"{what} claims {size:,} bytes; the limit is {max_bytes:,} bytes")
