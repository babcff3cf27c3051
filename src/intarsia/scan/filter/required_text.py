"""A text that every value has to contain for which a condition is true."""

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
from intarsia.pruning.predicates import How, Match
from intarsia.scan.filter.substring import Contained, encoded, is_text
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
_OF_SEVERAL_BYTES = re.compile(r"[^ -~]|[IKS]")
"""Beyond ASCII, and the letters to which characters from there are folded."""
_SHORTEST = 3
"""Bytes of a folded text: fewer are found too often."""
_LONGEST = 32


def needed_text(node: Node, schema: pa.Schema) -> Contained | None:
    """The longest text that is known to be needed for ``node`` to be true.

    None where none is, or of a column that ``schema`` has not as text.
    """
    found = _as_it_stands(node) or _in_any_case(node, schema)
    return found if found and is_text(schema.field(found.column).type) else None


def _as_it_stands(node: Node) -> Contained | None:
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
    return Contained(column, longest) if longest else None


def _in_any_case(node: Node, schema: pa.Schema) -> Contained | None:
    """Of pieces that are needed without their case, the longest that bytes can show."""
    if not isinstance(node, Call) or node.function not in _SEARCHES:
        return None
    found = pruning_of(node)
    for match in found.parts if isinstance(found, And) else (found,):
        if not isinstance(match, Match) or match.negated or match.nulls:
            continue
        path = match.term.path
        if len(path) != 1 or path[0] not in schema.names:
            continue
        texts = _texts(match, schema.field(path[0]).type)
        pieces = (piece for text in texts for piece in _OF_SEVERAL_BYTES.split(text))
        longest = max(pieces, key=len, default="")
        if len(longest) >= _SHORTEST:
            return Contained(path[0], longest.lower().encode(), any_case=True)
    return None


def _texts(match: Match, kind: pa.DataType) -> Iterable[str]:
    """Folded texts that all are needed."""
    if not is_text(kind):
        return []
    if match.how is How.WORDS and isinstance(match.pattern, str):
        return words_of(as_column(match.pattern, kind))
    read = PATTERNS.get(match.how)
    needed = read(match.pattern, latin=is_bytes(kind)) if read else None
    return [_common(part) for part in (needed.parts if isinstance(needed, AllOf) else (needed,))]


def _common(needed: Required | None) -> str:
    """A text that each of the alternatives holds, the longest of up to 32 characters."""
    match needed:
        case Has(text):
            return text
        case AnyOf(parts):
            texts = [part.text for part in parts if isinstance(part, Has)]
            first = min(texts, key=len)[:_LONGEST] if len(texts) == len(parts) else ""
            pieces = (first[i:j] for i in range(len(first)) for j in range(len(first), i, -1))
            return max((p for p in pieces if all(p in t for t in texts)), key=len, default="")
        case _:
            return ""
