"""What texts must contain to match a pattern: a formula of ANDs and ORs of pieces of text.

All pieces are folded (``fold.folded``), so that one formula serves searches with and without regard
to case. ``None`` stands for a pattern that asks for nothing that could be told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from intarsia.strings.case_folding import folded

_MOST_PARTS = 16
"""Of a longer conjunction the longest texts are kept: others may be left out, and each costs."""


@dataclass(frozen=True, slots=True)
class Has:
    """Texts that hold ``text``, once folded."""

    text: str


@dataclass(frozen=True, slots=True)
class AllOf:
    """Texts that meet every part."""

    parts: tuple[Required, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Texts that meet at least one part."""

    parts: tuple[Required, ...]


Required = Has | AllOf | AnyOf


def all_of(parts: Iterable[Required | None]) -> Required | None:
    """Every part that is told; ``None`` where none is."""
    flat: dict[Required, None] = {}
    for part in parts:
        if part is not None:
            flat.update(dict.fromkeys(part.parts if isinstance(part, AllOf) else (part,)))
    if len(flat) > _MOST_PARTS:
        flat = _longest(flat)
    kept = tuple(part for part in flat if not _implied(part, flat))
    return AllOf(kept) if len(kept) > 1 else kept[0] if kept else None


def _longest(parts: Iterable[Required]) -> dict[Required, None]:
    """The ``_MOST_PARTS`` parts that ask for most, in their order."""
    listed = list(parts)
    ranked = sorted(range(len(listed)), key=lambda i: -_length(listed[i]))[:_MOST_PARTS]
    return dict.fromkeys(listed[i] for i in sorted(ranked))


def _length(part: Required) -> int:
    match part:
        case Has(text):
            return len(text)
        case AllOf(parts):
            return max(map(_length, parts))
        case AnyOf(parts):
            return min(map(_length, parts))


def _implied(part: Required, others: Iterable[Required]) -> bool:
    """Is ``part`` a piece of a longer piece that is needed?"""
    return isinstance(part, Has) and any(
        isinstance(other, Has) and len(other.text) > len(part.text) and part.text in other.text
        for other in others
    )


def any_of(parts: Iterable[Required | None]) -> Required | None:
    """Any of the parts; ``None`` where one of them is not told, or there are none."""
    flat: dict[Required, None] = {}
    for part in parts:
        if part is None:
            return None
        flat.update(dict.fromkeys(part.parts if isinstance(part, AnyOf) else (part,)))
    kept = tuple(flat)
    return AnyOf(kept) if len(kept) > 1 else kept[0] if kept else None


def text_of(pattern: str | bytes, *, latin: bool) -> str | None:
    """A pattern as characters; ``latin``: of a column of bytes. ``None`` where it is no text."""
    try:
        if latin:
            raw = pattern.encode() if isinstance(pattern, str) else pattern
            return raw.decode("latin-1")
        text = pattern.decode() if isinstance(pattern, bytes) else pattern
        text.encode()  # a lone surrogate is no character
        return text
    except UnicodeError:
        return None


def of_literal(pattern: str | bytes, *, latin: bool = False) -> Required | None:
    """Texts that contain, begin with, end with or equal ``pattern``."""
    text = text_of(pattern, latin=latin)
    return Has(folded(text)) if text else None


def of_like(pattern: str | bytes, *, latin: bool = False) -> Required | None:
    r"""Texts that match a LIKE pattern: ``%`` and ``_``, and ``\%`` and ``\_`` for themselves.

    Another escaped character is read in two ways by pyarrow: a piece ends there.
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
