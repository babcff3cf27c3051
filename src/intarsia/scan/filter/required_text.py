"""Derives a string that every value contains for which a condition is true."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from intarsia.expr.functions import CONTAINS_WORDS
from intarsia.expr.tree import Call, FieldRef, Literal, Node
from intarsia.index.kinds.ngram import PATTERNS
from intarsia.index.kinds.required_substrings import AllOf, AnyOf, Has, Required
from intarsia.pruning.builder import pruning_of
from intarsia.pruning.predicate_tree import And
from intarsia.pruning.predicates import How, SearchPredicate
from intarsia.scan.filter.substring import SubstringSearch, encoded, is_text
from intarsia.strings.code_points import as_column, is_bytes
from intarsia.strings.tokenizer import words_of

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
