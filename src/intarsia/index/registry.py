"""Which kinds of index there are, by name: those built in, registered, and installed.

A package declares kinds as entry points of the group ``intarsia.index_kinds``, named as the kind
is. They are imported when that name is asked for, or found in a file, and never otherwise.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Set
from typing import Any

from intarsia.errors import IndexSpecError, warn
from intarsia.index.base import Inverted, Summary, index_name
from intarsia.index.kinds.distinct import Distinct
from intarsia.index.kinds.distinct_idx1 import DistinctIDX1
from intarsia.index.kinds.elements import Elements
from intarsia.index.kinds.entries import Entries
from intarsia.index.kinds.lookup import Lookup
from intarsia.index.kinds.minmax import MinMax
from intarsia.index.kinds.ngram import NGram
from intarsia.index.kinds.words import Words
from intarsia.index.parquet_indexes import Bloom, PageIndex, Standard
from intarsia.index.spec import parsed, split, unquoted
from intarsia.index_kinds import installed, names

EmbeddedIndex = Inverted | Summary
IndexSpec = EmbeddedIndex | Standard
"""An index as it is asked for: one to embed, or one of the format's own."""
_BUILT_IN: dict[str, type[EmbeddedIndex]] = {
    Lookup.kind: Lookup,
    Distinct.kind: Distinct,
    Elements.kind: Elements,
    Entries.kind: Entries,
    DistinctIDX1.kind: DistinctIDX1,
    MinMax.kind: MinMax,
    NGram.kind: NGram,
    Words.kind: Words,
}
_STANDARD = (Bloom.kind, PageIndex.kind)
_FUNCTIONS: dict[type, tuple[str, str]] = {
    Inverted: ("keys_of_values", "keys_for"),
    Summary: ("summarize", "might_match"),
}
"""What a kind of either shape is made of."""
_registered: dict[str, type[EmbeddedIndex]] = {}


def register_index_kind(cls: type[EmbeddedIndex]) -> type[EmbeddedIndex]:
    """Make a kind of index known in this process. Returns it, to be used as a decorator.

    A kind of that name which was registered before is replaced. Raises ``IndexSpecError`` for what
    is no kind of index, or has the name of one that is built in.
    """
    problem = _problem(cls)
    if problem:
        raise IndexSpecError(f"{cls!r} is no kind of index: {problem}")
    if cls.kind in _BUILT_IN or cls.kind in _STANDARD:
        raise IndexSpecError(f"index kind {cls.kind!r} is built in")
    _registered[cls.kind] = cls
    return cls


def _problem(cls: object) -> str | None:
    if not isinstance(cls, type) or not issubclass(cls, Inverted | Summary):
        return "it is not derived from Inverted or Summary"
    name = getattr(cls, "kind", None)
    if not isinstance(name, str) or not name.isidentifier() or name != name.lower():
        return f"its name, {name!r}, is not an identifier in lower case"
    if not isinstance(cls.kind_version, int):
        return "it does not say its version"
    if not isinstance(getattr(cls, "serves", None), Set):
        return "it does not say what it serves: a set of Op and How"
    base = Inverted if issubclass(cls, Inverted) else Summary
    for name in _FUNCTIONS[base]:
        if getattr(cls, name) is getattr(base, name):
            return f"it does not define {name}"
    fields = {field.name for field in dataclasses.fields(cls)}
    for name, kind in inspect.get_annotations(cls).items():
        if name not in fields and "ClassVar" not in str(kind):
            return f"its parameter {name} is none: it lacks @dataclass(frozen=True)"
    return None


def known_kind(kind: str) -> type[EmbeddedIndex] | None:
    """The class of a kind that is embedded; None for an unknown one.

    A plugin that cannot be imported is warned of, once.
    """
    known = _BUILT_IN.get(kind) or _registered.get(kind)
    return known or (_installed(kind) if kind in installed() else None)


@functools.cache
def _installed(kind: str) -> type[EmbeddedIndex] | None:
    point = installed()[kind]
    try:
        found = point.load()
        problem = _problem(found)
        if problem is None and found.kind != kind:
            problem = f"it calls itself {found.kind!r}"
    except Exception as error:  # noqa: BLE001 # whatever a plugin raises, files are read without it
        problem = f"{type(error).__name__}: {error}"
    if problem:
        message = f"index kind {kind!r} of {point.value} cannot be used: {problem}"
        warn(message)
        return None
    return found  # type: ignore[no-any-return] # _problem has seen to it


def kinds() -> list[str]:
    """The names of all known kinds, sorted; those installed are not imported for it."""
    return sorted({*names(), *_registered})


def spec_name(index: IndexSpec) -> str:
    """What an index is called: ``trace_id:lookup``; ``page_index``, which is of no one column."""
    return index.kind if isinstance(index, PageIndex) else index_name(index.on, index.kind)


def make(kind: str, on: str, params: Mapping[str, Any]) -> EmbeddedIndex:
    """An index of a kind that is embedded. Raises ``IndexSpecError`` as ``parse`` does."""
    known = known_kind(kind.lower())
    if known is None and on.lower() in kinds():
        raise IndexSpecError(f"there is no index kind {kind!r}; a {on} of it is {kind}:{on}")
    if known is None:
        others = [other for other in kinds() if other != kind.lower()]
        problem = "that can be used" if len(others) < len(kinds()) else "of that name"
        raise IndexSpecError(
            f"there is no index kind {kind!r} {problem}; there are: {', '.join(others)}"
        )
    if "on" in params:
        raise IndexSpecError(f"index {kind!r} is on {on!r}, and on {params['on']!r:.100}")
    made: EmbeddedIndex = _made(known, kind, {"on": on, **params})
    return made


def text_of(kind: str, on: str, params: Mapping[str, Any]) -> str:
    """Such an index as ``parse`` reads it, with the parameters that are not the kind's own."""
    try:
        own = make(kind, on, {}).params
    except IndexSpecError:
        own = {}
    others = [
        f"{name}={value!r}"
        for name, value in params.items()
        if name not in own or own[name] != value
    ]
    return f"{kind}({', '.join([on, *others])})" if others else index_name(on, kind)


def _made(cls: Callable[..., Any], kind: str, params: Mapping[str, Any]) -> Any:
    try:
        return cls(**params)
    except TypeError as error:
        given = ", ".join(sorted(params.keys() - {"on", "columns"}))
        taken = [field.name for field in dataclasses.fields(cls)] if isinstance(cls, type) else []
        taken = [name for name in taken if name not in ("on", "columns")]
        takes = f"it takes {', '.join(taken)}" if taken else "it takes none"
        raise IndexSpecError(f"index {kind!r} does not take {given:.200}: {takes}") from error
    except IndexSpecError:
        raise
    except Exception as error:  # of a kind from elsewhere, for what a file says
        problem = f"{type(error).__name__}: {error}"
        raise IndexSpecError(f"index {kind!r} cannot be made: {problem:.200}") from error


def kinds_of(indexes: Any) -> list[IndexSpec]:
    """Indexes as they are asked for: one or several, as objects or as text for ``parse``; in one
    text, several have commas between them.

    Raises ``IndexSpecError`` for anything else, or for the same index twice.
    """
    if isinstance(indexes, str):
        asked = [part for part in split(indexes) if part] or [indexes]
    else:
        asked = [indexes] if hasattr(indexes, "kind") else list(indexes)
    found = [parse(index) if isinstance(index, str) else index for index in asked]
    for index in found:
        check_is_index(index)
    names = [spec_name(index) for index in found]
    for name, count in Counter(names).items():
        if count > 1:
            twice = ", ".join(str(one) for one in found if spec_name(one) == name)
            raise IndexSpecError(f"index {name} is asked for twice: {twice}")
    return found


def check_is_index(index: object) -> None:
    """Raise ``IndexSpecError`` for what is none."""
    if not hasattr(index, "kind") or not (hasattr(index, "on") or isinstance(index, PageIndex)):
        raise IndexSpecError(f"{index!r} is not an index; Lookup('column') is one")


def parse(text: str) -> IndexSpec:
    """An index as text: ``lookup(trace_id)``, ``lookup(lower(email), granule_rows=1024)``, or, as
    it is listed, ``trace_id:lookup``; ``page_index`` alone, or ``page_index(ts, user_id)``. Names
    may be in quotes, ``"``, as in SQL.

    Raises ``IndexSpecError`` for anything else.
    """
    kind, given, settings = parsed(text)
    names = list(map(unquoted, given))
    if kind.lower() == PageIndex.kind:
        page_index: PageIndex = _made(
            PageIndex, kind, {"columns": tuple(names) or None, **settings}
        )
        return page_index
    if len(names) != 1:
        raise IndexSpecError(f"{text!r} is not an index; write lookup(COLUMN) or COLUMN:lookup")
    if kind.lower() == Bloom.kind:
        bloom: Bloom = _made(Bloom, kind, {"on": names[0], **settings})
        return bloom
    return make(kind, names[0], settings)


def known_version(kind: str) -> int | None:
    """The version of a kind that is understood here; None for an unknown kind."""
    known = known_kind(kind)
    return known.kind_version if known else None
