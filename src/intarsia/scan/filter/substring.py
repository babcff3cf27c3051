"""Finds the values that contain a string, by one search of a column's bytes.

``required_text_of`` derives such a string from a condition that is true only for these values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from intarsia.expr.functions import CONTAINS_WORDS
from intarsia.expr.tree import Call, FieldRef, Literal, Node
from intarsia.index.kinds.ngram import PATTERNS
from intarsia.index.kinds.required_substrings import AllOf, AnyOf, Has, Required
from intarsia.pruning.builder import pruning_of
from intarsia.pruning.predicates import And, How, SearchPredicate
from intarsia.row_ranges import Int64Array, without_repeats
from intarsia.strings.byte_search import places_of
from intarsia.strings.code_points import as_column, is_bytes
from intarsia.strings.tokenizer import words_of

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
    rows = without_repeats(rows[hits + len(text) <= offsets[rows + 1]])
    if chunk.null_count and len(rows):
        rows = rows[chunk.is_valid().take(pa.array(rows)).to_numpy(zero_copy_only=False)]
    return rows.astype(np.int64)


_SEARCHES = frozenset(
    {
        "match_like",
        "match_substring",
        "match_substring_regex",
        "starts_with",
        "ends_with",
        CONTAINS_WORDS,
    }
)
_UNFOLDABLE = re.compile(r"[^ -~]|[IKS]")
"""Characters outside of ASCII, and letters that such characters are case-folded to.

Their bytes differ between spellings that match, so strings are split there.
"""
_MIN_BYTES = 3
"""Shorter case-folded strings occur too often to skip pages."""
_MAX_CHARACTERS = 32
"""Limits the time to compare alternatives."""


def required_text_of(node: Node, schema: pa.Schema) -> SubstringSearch | None:
    """Returns the longest string that values must contain for ``node`` to be true.

    Returns None if there is none, or if the column is not of a string or binary type.
    """
    search = _case_sensitive(node) or _case_insensitive(node, schema)
    return search if search and is_text(schema.field(search.column).type) else None


def _case_sensitive(node: Node) -> SubstringSearch | None:
    match node:
        case Call("equal", (FieldRef((column,)), Literal(value))) if value.is_valid:
            is_text_or_bytes = isinstance(value, pa.BinaryScalar)
            pieces = [value.as_buffer().to_pybytes()] if is_text_or_bytes else []
        case Call(
            "match_substring" | "starts_with" | "ends_with", (FieldRef((column,)),), options
        ) if not options["ignore_case"].as_py():
            pieces = [encoded(options["pattern"].as_py())]
        case Call("match_like", (FieldRef((column,)),), options):
            pattern = encoded(options["pattern"].as_py())
            is_plain = b"\\" not in pattern and not options["ignore_case"].as_py()
            pieces = re.split(rb"[%_]", pattern) if is_plain else []
        case _:
            return None
    longest = max(pieces, key=len, default=b"")
    return SubstringSearch(column, longest) if longest else None


def _case_insensitive(node: Node, schema: pa.Schema) -> SubstringSearch | None:
    """Returns the longest piece that is required in any case and can be compared as bytes."""
    if not isinstance(node, Call) or node.function not in _SEARCHES:
        return None
    pruning = pruning_of(node)
    for match in pruning.parts if isinstance(pruning, And) else (pruning,):
        if not isinstance(match, SearchPredicate) or match.negated or match.nulls:
            continue
        path = match.term.path
        if len(path) != 1 or path[0] not in schema.names:
            continue
        strings = _required_strings(match, schema.field(path[0]).type)
        pieces = (piece for string in strings for piece in _UNFOLDABLE.split(string))
        longest = max(pieces, key=len, default="")
        if len(longest) >= _MIN_BYTES:
            return SubstringSearch(path[0], longest.lower().encode(), any_case=True)
    return None


def _required_strings(match: SearchPredicate, kind: pa.DataType) -> Iterable[str]:
    """Returns case-folded strings that values must all contain."""
    if not is_text(kind):
        return []
    if match.how is How.WORDS and isinstance(match.pattern, str):
        return words_of(as_column(match.pattern, kind))
    read = PATTERNS.get(match.how)
    needed = read(match.pattern, latin=is_bytes(kind)) if read else None
    return [
        _common_substring(part)
        for part in (needed.parts if isinstance(needed, AllOf) else (needed,))
    ]


def _common_substring(needed: Required | None) -> str:
    """Returns the longest string, up to ``_MAX_CHARACTERS``, that all alternatives contain."""
    match needed:
        case Has(text):
            return text
        case AnyOf(parts):
            strings = [part.text for part in parts if isinstance(part, Has)]
            first = min(strings, key=len)[:_MAX_CHARACTERS] if len(strings) == len(parts) else ""
            pieces = (first[i:j] for i in range(len(first)) for j in range(len(first), i, -1))
            return max((p for p in pieces if all(p in t for t in strings)), key=len, default="")
        case _:
            return ""
