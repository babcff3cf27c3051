"""Which kinds of index there are, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from intarsia.errors import IndexSpecError
from intarsia.index.kind import InvertedKind, index_name
from intarsia.index.lookup import Lookup
from intarsia.index.standard import Bloom, PageIndex, Standard

T = TypeVar("T")

_KINDS: dict[str, type[InvertedKind]] = {Lookup.kind: Lookup}
IndexSpec = InvertedKind | Standard
"""An index as it is asked for: one to embed, or one of the format's own."""


def kinds() -> list[str]:
    """The names of all known kinds, sorted."""
    return sorted([*_KINDS, Bloom.kind, PageIndex.kind])


def spec_name(index: IndexSpec) -> str:
    """What an index is called: ``trace_id:lookup``; ``page_index``, which is of no one column."""
    return index.kind if isinstance(index, PageIndex) else index_name(index.on, index.kind)


def make(kind: str, on: str, params: Mapping[str, Any]) -> InvertedKind:
    """An index of a kind that is embedded. Raises ``IndexSpecError`` as ``parse`` does."""
    return _made(_known(_KINDS, kind), kind, on=on, **params)


def _known(table: Mapping[str, T], kind: str) -> T:
    known = table.get(kind.lower())
    if known is None:
        raise IndexSpecError(f"there is no index kind {kind!r}; there are: {', '.join(kinds())}")
    return known


def _made(cls: Callable[..., T], kind: str, **params: Any) -> T:
    try:
        return cls(**params)
    except TypeError as error:
        given = ", ".join(sorted(params.keys() - {"on", "columns"}))
        raise IndexSpecError(f"index {kind!r} does not take {given}") from error


def kinds_of(indexes: Any) -> list[IndexSpec]:
    """Indexes as they are asked for: one or several, as objects or as text for ``parse``.

    Raises ``IndexSpecError`` for anything else, or for the same index twice.
    """
    asked = [indexes] if isinstance(indexes, str) or hasattr(indexes, "kind") else list(indexes)
    found = [parse(index) if isinstance(index, str) else index for index in asked]
    for index in found:
        if not hasattr(index, "kind") or not (hasattr(index, "on") or isinstance(index, PageIndex)):
            raise IndexSpecError(f"{index!r} is not an index; Lookup('column') is one")
    names = [spec_name(index) for index in found]
    for name in names:
        if names.count(name) > 1:
            raise IndexSpecError(f"index {name} is asked for twice")
    return found


def parse(text: str) -> IndexSpec:
    """An index as text: ``lookup(trace_id)``, ``lookup(trace_id, granule_rows=1024)``, or, as it is
    listed, ``trace_id:lookup``; ``page_index`` alone, or ``page_index(ts, user_id)``.

    Raises ``IndexSpecError`` for anything else.
    """
    called = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", text, re.DOTALL)
    if called:
        kind, given = called.group(1), [part.strip() for part in called.group(2).split(",")]
        names = [part for part in given if part and "=" not in part]
        settings = dict(_setting(part, text) for part in given if "=" in part)
    else:
        on, _, kind = text.strip().rpartition(":")
        names, settings = [on] if on else [], {}
    if kind.lower() == PageIndex.kind:
        return _made(PageIndex, kind, columns=tuple(names) or None, **settings)
    if len(names) != 1:
        raise IndexSpecError(f"{text!r} is not an index; write lookup(COLUMN) or COLUMN:lookup")
    if kind.lower() == Bloom.kind:
        return _made(Bloom, kind, on=names[0], **settings)
    return make(kind, names[0], settings)


def _setting(setting: str, text: str) -> tuple[str, int | float]:
    name, _, value = (part.strip() for part in setting.partition("="))
    if name.isidentifier() and value.isascii():
        if value.isdigit():
            return name, int(value)
        if re.fullmatch(r"\d*\.\d+", value):
            return name, float(value)
    raise IndexSpecError(f"in index {text!r}: {setting.strip()!r} is not NAME=NUMBER")


def known_version(kind: str) -> int | None:
    """The version of a kind that is understood here; None for an unknown kind."""
    known = _KINDS.get(kind)
    return known.kind_version if known else None
