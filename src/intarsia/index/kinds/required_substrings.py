"""The substrings that a string must contain to match a pattern: a formula of ANDs and ORs.

All substrings are case-folded (``strings.case_folding.folded``), so that one formula serves
searches with and without case. None stands for a pattern that requires nothing that is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from intarsia.strings.case_folding import folded

_MAX_PARTS = 16
"""Most parts of an AND. The longest are kept; each part costs a lookup."""


@dataclass(frozen=True, slots=True)
class Has:
    """Requires strings that contain ``text`` after case folding."""

    text: str


@dataclass(frozen=True, slots=True)
class AllOf:
    """Requires strings that meet every part."""

    parts: tuple[Required, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Requires strings that meet at least one part."""

    parts: tuple[Required, ...]


Required = Has | AllOf | AnyOf


def all_of(parts: Iterable[Required | None]) -> Required | None:
    """Returns the AND of the known parts, or None if no part is known."""
    flat: dict[Required, None] = {}
    for part in parts:
        if part is not None:
            flat.update(dict.fromkeys(part.parts if isinstance(part, AllOf) else (part,)))
    if len(flat) > _MAX_PARTS:
        flat = _longest(flat)
    minimal = tuple(part for part in flat if not _is_implied(part, flat))
    return AllOf(minimal) if len(minimal) > 1 else minimal[0] if minimal else None


def _longest(parts: Iterable[Required]) -> dict[Required, None]:
    """Returns the ``_MAX_PARTS`` parts that require the longest substrings, in their order."""
    all_parts = list(parts)
    ranked = sorted(range(len(all_parts)), key=lambda i: -_length(all_parts[i]))[:_MAX_PARTS]
    return dict.fromkeys(all_parts[i] for i in sorted(ranked))


def _length(part: Required) -> int:
    match part:
        case Has(text):
            return len(text)
        case AllOf(parts):
            return max(map(_length, parts))
        case AnyOf(parts):
            return min(map(_length, parts))


def _is_implied(part: Required, others: Iterable[Required]) -> bool:
    """True if ``part`` is contained in a longer required substring."""
    return isinstance(part, Has) and any(
        isinstance(other, Has) and len(other.text) > len(part.text) and part.text in other.text
        for other in others
    )


def any_of(parts: Iterable[Required | None]) -> Required | None:
    """Returns the OR of the parts, or None if one of them is unknown or there are none."""
    flat: dict[Required, None] = {}
    for part in parts:
        if part is None:
            return None
        flat.update(dict.fromkeys(part.parts if isinstance(part, AnyOf) else (part,)))
    alternatives = tuple(flat)
    return (
        AnyOf(alternatives) if len(alternatives) > 1 else alternatives[0] if alternatives else None
    )


def text_of(pattern: str | bytes, *, latin: bool) -> str | None:
    """Returns a pattern as a string, by byte if ``latin``, or None if it is not valid text."""
    try:
        if latin:
            raw = pattern.encode() if isinstance(pattern, str) else pattern
            return raw.decode("latin-1")
        text = pattern.decode() if isinstance(pattern, bytes) else pattern
        text.encode()  # fails for a lone surrogate
        return text
    except UnicodeError:
        return None


def required_by_literal(pattern: str | bytes, *, latin: bool = False) -> Required | None:
    """Returns what strings that contain, start with, end with or equal ``pattern`` must contain."""
    text = text_of(pattern, latin=latin)
    return Has(folded(text)) if text else None


def required_by_like(pattern: str | bytes, *, latin: bool = False) -> Required | None:
    r"""Returns what strings that match a LIKE pattern must contain.

    ``%`` and ``_`` are wildcards, ``\%`` and ``\_`` stand for themselves. pyarrow reads any other
    escaped character in two ways, so the substring ends there.
    """
    text = text_of(pattern, latin=latin)
    if text is None:
        return None
    pieces: list[list[str]] = [[]]
    characters = iter(text)
    for character in characters:
        if character in "%_":
            pieces.append([])
        elif character != "\\":
            pieces[-1].append(character)
        else:
            escaped = next(characters, "")
            if escaped in ("%", "_"):
                pieces[-1].append(escaped)
            else:
                pieces.append([] if escaped == "\\" else [escaped])
    return all_of(Has(folded("".join(piece))) for piece in pieces if any(piece))
