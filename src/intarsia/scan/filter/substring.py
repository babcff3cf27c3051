"""Finding the values that contain a text: over the bytes of a column, not value by value."""

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
_ROWS_A_HIT = 64
"""Where hits are less than so many rows apart, looking at each value is as quick."""
_FREE_HITS = 64


class Contained(NamedTuple):
    """The condition that values of a column contain a text.

    Where ``any_case``, letters of ASCII in either case do, and perhaps a few other characters.
    """

    column: str
    text: bytes
    any_case: bool = False


def contained_of(node: Node) -> Contained | None:
    """``node`` as such a condition, if that is all it says."""
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
            return Contained(column, text) if text else None
    return None


def is_text(kind: pa.DataType) -> bool:
    """Are its values the bytes that a file stores?"""
    return any(kind == one for one in _OFFSETS)  # a type of a user's need have no hash


def encoded(text: str | bytes) -> bytes:
    """The bytes that a file stores."""
    return text.encode() if isinstance(text, str) else bytes(text)


def rows_containing(values: pa.ChunkedArray, wanted: Contained) -> Int64Array | None:
    """Positions of the values that contain the text, which is not empty; ascending.

    None where hits are many, or values of a type whose bytes do not lie together.
    """
    kind = _OFFSETS.get(values.type)
    if kind is None:
        return None
    found = [np.empty(0, dtype=np.int64)]
    before = 0
    for chunk in values.chunks:
        rows = _in_chunk(chunk, wanted, kind)
        if rows is None:
            return None
        found.append(rows + before)
        before += len(chunk)
    return np.concatenate(found)


def _in_chunk(chunk: pa.Array, wanted: Contained, kind: np.dtype[Any]) -> Int64Array | None:
    _, offset_buffer, data_buffer = chunk.buffers()
    if not len(chunk) or data_buffer is None:
        return np.empty(0, dtype=np.int64)
    offsets = np.frombuffer(offset_buffer, dtype=kind)[chunk.offset : chunk.offset + len(chunk) + 1]
    start, text = int(offsets[0]), wanted.text
    data = np.frombuffer(data_buffer, np.uint8)[start : int(offsets[-1])]
    most = _FREE_HITS + len(chunk) // _ROWS_A_HIT
    hits = places_of(data, text, most, any_case=wanted.any_case)
    if hits is None:
        return None
    hits += start
    rows = np.searchsorted(offsets, hits, side="right") - 1
    # Bytes of neighbours may make up the text as well, and so may those of a value that is NULL.
    rows = np.unique(rows[hits + len(text) <= offsets[rows + 1]])
    if chunk.null_count and len(rows):
        rows = rows[chunk.is_valid().take(pa.array(rows)).to_numpy(zero_copy_only=False)]
    return rows.astype(np.int64)
