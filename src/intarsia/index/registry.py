"""Which kinds of index there are, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from intarsia.errors import IndexSpecError
from intarsia.index.kind import InvertedKind
from intarsia.index.lookup import Lookup

_KINDS: dict[str, type[InvertedKind]] = {Lookup.kind: Lookup}


def kinds() -> list[str]:
    """The names of all known kinds, sorted."""
    return sorted(_KINDS)


def make(kind: str, on: str, params: Mapping[str, Any]) -> InvertedKind:
    """An index of a known kind. Raises ``IndexSpecError`` for another, or wrong parameters."""
    known = _KINDS.get(kind.lower())
    if known is None:
        raise IndexSpecError(f"there is no index kind {kind!r}; there are: {', '.join(kinds())}")
    try:
        return known(on=on, **params)  # type: ignore[call-arg]  # a kind's own constructor
    except TypeError as error:
        raise IndexSpecError(f"index {kind!r} on {on!r}: {error}") from error


def known_version(kind: str) -> int | None:
    """The version of a kind that is understood here; None for an unknown kind."""
    known = _KINDS.get(kind)
    return known.kind_version if known else None
