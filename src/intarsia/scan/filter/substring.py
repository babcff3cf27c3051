"""Finds the values that contain a string, by one search of a column's bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from intarsia.expr.tree import Call, FieldRef, Node
from intarsia.row_ranges import Int64Array
from intarsia.strings.byte_search import places_of

_OFFSETS: dict[pa.DataType, np.dtype[Any]] = {
    pa.string(): np.dtype(np.int32),
    pa.binary(): np.dtype(np.int32),
    pa.large_string(): np.dtype(np.int64),
    pa.large_binary(): np.dtype(np.int64),
}
_MIN_ROWS_PER_HIT = 64
"""With more frequent hits, evaluating each value is as fast."""
_MIN_HITS_LIMIT = 64
"""Hits that are always allowed, so that short chunks are searched too."""


class SubstringSearch(NamedTuple):
    """The condition that values of a column contain a string, given as stored bytes.

    With ``any_case``, ASCII letters match in either case. A few other characters may match too.
    """

    column: str
    text: bytes
    any_case: bool = False


def substring_search_of(node: Node) -> SubstringSearch | None:
    """Returns ``node`` as such a condition; None if it is another condition."""
    match node:
        case Call("match_substring" | "match_like", (FieldRef((column,)),), options):
            text = encoded(options["pattern"].as_py())
            if options["ignore_case"].as_py():
                return None
            if node.function == "match_like":
                if len(text) < 2 or not text.startswith(b"%") or not text.endswith(b"%"):
                    return None
                text = text[1:-1]
                if any(special in text for special in (b"%", b"_", b"\\")):
                    return None
            return SubstringSearch(column, text) if text else None
    return None


def is_text(kind: pa.DataType) -> bool:
    """True if the type is a string or binary type whose values are the stored bytes."""
    return any(kind == other for other in _OFFSETS)  # user-defined types may not be hashable


def encoded(text: str | bytes) -> bytes:
    """Returns the bytes that a file stores for a string."""
    return text.encode() if isinstance(text, str) else bytes(text)


def rows_containing(values: pa.ChunkedArray, search: SubstringSearch) -> Int64Array | None:
    """Returns the ascending positions of the values that contain the string, which is not empty.

    Returns None if there are many hits, or if the type does not store values contiguously.
    """
    offset_type = _OFFSETS.get(values.type)
    if offset_type is None:
        return None
    positions = [np.empty(0, dtype=np.int64)]
    first_row = 0
    for chunk in values.chunks:
        rows = _in_chunk(chunk, search, offset_type)
        if rows is None:
            return None
        positions.append(rows + first_row)
        first_row += len(chunk)
    return np.concatenate(positions)


def _in_chunk(
    chunk: pa.Array, search: SubstringSearch, offset_type: np.dtype[Any]
) -> Int64Array | None:
    _, offset_buffer, data_buffer = chunk.buffers()
    if not len(chunk) or data_buffer is None:
        return np.empty(0, dtype=np.int64)
    offsets = np.frombuffer(offset_buffer, dtype=offset_type)[
        chunk.offset : chunk.offset + len(chunk) + 1
    ]
    start, text = int(offsets[0]), search.text
    data = np.frombuffer(data_buffer, np.uint8)[start : int(offsets[-1])]
    max_hits = _MIN_HITS_LIMIT + len(chunk) // _MIN_ROWS_PER_HIT
    hits = places_of(data, text, max_hits, any_case=search.any_case)
    if hits is None:
        return None
    hits += start
    rows = np.searchsorted(offsets, hits, side="right") - 1
    # A hit may span two values, or be in the bytes of a value that is NULL.
    rows = np.unique(rows[hits + len(text) <= offsets[rows + 1]])
    if chunk.null_count and len(rows):
        rows = rows[chunk.is_valid().take(pa.array(rows)).to_numpy(zero_copy_only=False)]
    return rows.astype(np.int64)
