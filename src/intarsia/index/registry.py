"""Which kinds of index there are, by name."""

from __future__ import annotations

import re
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
        given = ", ".join(sorted(params))
        raise IndexSpecError(f"index {kind!r} on {on!r} does not take {given}") from error


def kinds_of(indexes: Any) -> list[InvertedKind]:
    """Indexes as they are asked for: one or several, as objects or as text for ``parse``.

    Raises ``IndexSpecError`` for anything else.
    """
    asked = [indexes] if isinstance(indexes, str) or hasattr(indexes, "kind") else list(indexes)
    found = [parse(index) if isinstance(index, str) else index for index in asked]
    for index in found:
        if not hasattr(index, "kind") or not hasattr(index, "on"):
            raise IndexSpecError(f"{index!r} is not an index; Lookup('column') is one")
    return found


def parse(text: str) -> InvertedKind:
    """An index as text: ``lookup(trace_id)``, ``lookup(trace_id, granule_rows=1024)``, or, as it is
    listed, ``trace_id:lookup``.

    Raises ``IndexSpecError`` for anything else.
    """
    called = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", text, re.DOTALL)
    if called:
        kind, (on, *settings) = called.group(1), called.group(2).split(",")
        return make(kind, on.strip(), dict(_setting(setting, text) for setting in settings))
    on, _, kind = text.strip().rpartition(":")
    if not on:
        raise IndexSpecError(f"{text!r} is not an index; write lookup(COLUMN) or COLUMN:lookup")
    return make(kind, on, {})


def _setting(setting: str, text: str) -> tuple[str, int]:
    name, _, value = (part.strip() for part in setting.partition("="))
    if not name.isidentifier() or not (value.isascii() and value.isdigit()):
        raise IndexSpecError(f"in index {text!r}: {setting.strip()!r} is not NAME=NUMBER")
    return name, int(value)


def known_version(kind: str) -> int | None:
    """The version of a kind that is understood here; None for an unknown kind."""
    known = _KINDS.get(kind)
    return known.kind_version if known else None
