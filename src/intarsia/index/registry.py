"""The index kinds by name: built in, registered in this process, and installed.

A package declares kinds as entry points of the group ``intarsia.index_kinds``, each with the name
of its kind. An entry point is imported only if a user names the kind or a file contains it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Set
from typing import Any, TypeVar

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
from intarsia.index.spec import parsed, quoted, split, unquoted
from intarsia.kind_names import installed, names

EmbeddedIndex = Inverted | Summary
KindClass = TypeVar("KindClass", bound=type[Inverted] | type[Summary])
IndexSpec = EmbeddedIndex | Standard
"""An index as users request it: one to embed, or a page index or bloom filter."""
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
"""The functions that a kind must define, by base class."""
_registered: dict[str, type[EmbeddedIndex]] = {}


def register_index_kind(cls: KindClass) -> KindClass:
    """Registers an index kind in this process. Returns it, so that it can be a decorator.

    Replaces a registered kind of the same name.

    Parameters
    ----------
    cls : type
        A frozen dataclass derived from ``Inverted`` or ``Summary``.

    Returns
    -------
    type
        ``cls``.

    Raises
    ------
    IndexSpecError
        If ``cls`` is not an index kind, or has the name of a built-in one.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import pyarrow.compute as pc
    >>> from intarsia.index import Inverted, Keys, Op, fingerprints
    >>> @ia.register_index_kind
    ... @dataclass(frozen=True)
    ... class Host(Inverted):
    ...     kind = "host"
    ...     serves = frozenset({Op.EQ, Op.IN})
    ...     def keys_of_values(self, values):
    ...         return fingerprints(pc.utf8_lower(values)), np.arange(len(values))
    ...     def keys_for(self, predicate, of):
    ...         return Keys(fingerprints(pc.utf8_lower(predicate.values)))
    >>> report, = ia.add_indexes("logs.parquet", ["trace_id:host"])
    >>> report.added
    ('trace_id:host',)
    """
    problem = _problem(cls)
    if problem:
        raise IndexSpecError(f"{cls!r} is not an index kind: {problem}")
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
        return "its kind_version is not an integer"
    if not isinstance(getattr(cls, "serves", None), Set):
        return "it does not say what it serves: a set of Op and How"
    base = Inverted if issubclass(cls, Inverted) else Summary
    for name in _FUNCTIONS[base]:
        if getattr(cls, name) is getattr(base, name):
            return f"it does not define {name}"
    fields = {field.name for field in dataclasses.fields(cls)}
    for name, kind in inspect.get_annotations(cls).items():
        if name not in fields and "ClassVar" not in str(kind):
            return f"its parameter {name} is not a field: it lacks @dataclass(frozen=True)"
    return None


def known_kind(kind: str) -> type[EmbeddedIndex] | None:
    """Returns the class of a kind, or None. Warns once of one that cannot be imported."""
    cls = _BUILT_IN.get(kind) or _registered.get(kind)
    return cls or (_installed(kind) if kind in installed() else None)


@functools.cache
def _installed(kind: str) -> type[EmbeddedIndex] | None:
    entry_point = installed()[kind]
    try:
        cls = entry_point.load()
        problem = _problem(cls)
        if problem is None and cls.kind != kind:
            problem = f"it calls itself {cls.kind!r}"
    except Exception as error:  # noqa: BLE001 # files are read without a broken plugin
        problem = f"{type(error).__name__}: {error}"
    if problem:
        message = f"index kind {kind!r} of {entry_point.value} cannot be used: {problem}"
        warn(message)
        return None
    return cls  # type: ignore[no-any-return] # checked by _problem


def kinds() -> list[str]:
    """Returns the names of all known kinds, sorted. Installed kinds are not imported."""
    return sorted({*names(), *_registered})


def spec_name(index: IndexSpec) -> str:
    """Returns the name of an index: ``trace_id:lookup``, or ``page_index`` for page indexes."""
    return index.kind if isinstance(index, PageIndex) else index_name(index.on, index.kind)


def spec_text(index: IndexSpec) -> str:
    """Returns what ``parse`` reads as ``index``, with names quoted where they need it."""
    short = spec_name(index)
    columns = (index.columns or ()) if isinstance(index, PageIndex) else (index.on,)
    settings = [
        f"{field.name}={getattr(index, field.name)!r}"
        for field in dataclasses.fields(index)
        if field.name not in ("on", "columns") and getattr(index, field.name) != field.default
    ]
    for text in (short, f"{index.kind}({', '.join([*columns, *settings])})"):
        with contextlib.suppress(IndexSpecError):
            if parse(text) == index:
                return text
    return f"{index.kind}({', '.join([*map(quoted, columns), *settings])})"


def make(kind: str, on: str, params: Mapping[str, Any]) -> EmbeddedIndex:
    """Returns an embedded index of a kind. Raises ``IndexSpecError`` as ``parse`` does."""
    cls = known_kind(kind.lower())
    if cls is None and on.lower() in kinds():
        raise IndexSpecError(f"there is no index kind {kind!r}; a {on} of it is {kind}:{on}")
    if cls is None:
        others = [other for other in kinds() if other != kind.lower()]
        problem = " that can be used" if len(others) < len(kinds()) else ""
        raise IndexSpecError(
            f"there is no index kind {kind!r}{problem}; there are: {', '.join(others)}"
        )
    if "on" in params:
        raise IndexSpecError(f"index {kind!r} has two columns: {on!r} and {params['on']!r:.100}")
    index: EmbeddedIndex = _make_index(cls, kind, {"on": on, **params})
    return index


def text_of(kind: str, on: str, params: Mapping[str, Any]) -> str:
    """Returns a specification that ``parse`` reads, with the parameters that are not defaults."""
    try:
        defaults = make(kind, on, {}).params
    except IndexSpecError:
        defaults = {}
    settings = [
        f"{name}={value!r}"
        for name, value in params.items()
        if name not in defaults or defaults[name] != value
    ]
    return f"{kind}({', '.join([on, *settings])})" if settings else index_name(on, kind)


def _make_index(cls: Callable[..., Any], kind: str, params: Mapping[str, Any]) -> Any:
    try:
        return cls(**params)
    except TypeError as error:
        given = ", ".join(sorted(params.keys() - {"on", "columns"}))
        supported = (
            [field.name for field in dataclasses.fields(cls)] if isinstance(cls, type) else []
        )
        supported = [name for name in supported if name not in ("on", "columns")]
        supported_text = f"it takes {', '.join(supported)}" if supported else "it takes none"
        raise IndexSpecError(
            f"index {kind!r} does not take {given:.200}: {supported_text}"
        ) from error
    except IndexSpecError:
        raise
    except Exception as error:  # raised by a plugin for parameters in a file
        problem = f"{type(error).__name__}: {error}"
        raise IndexSpecError(f"index {kind!r} cannot be created: {problem:.200}") from error


def parse_indexes(indexes: Any) -> list[IndexSpec]:
    """Returns a list of indexes from one or several objects or specifications.

    One string may hold several specifications, separated by commas. Raises ``IndexSpecError`` for
    anything else, or if an index occurs twice.
    """
    if isinstance(indexes, str):
        specs = [part for part in split(indexes) if part] or [indexes]
    else:
        specs = [indexes] if hasattr(indexes, "kind") else list(indexes)
    parsed_indexes = [parse(index) if isinstance(index, str) else index for index in specs]
    for index in parsed_indexes:
        check_is_index(index)
    names = [spec_name(index) for index in parsed_indexes]
    for name, count in Counter(names).items():
        if count > 1:
            twice = ", ".join(str(other) for other in parsed_indexes if spec_name(other) == name)
            raise IndexSpecError(f"index {name} is asked for twice: {twice}")
    return parsed_indexes


def check_is_index(index: object) -> None:
    """Raises ``IndexSpecError`` if ``index`` is not an index."""
    if not hasattr(index, "kind") or not (hasattr(index, "on") or isinstance(index, PageIndex)):
        raise IndexSpecError(f"{index!r} is not an index; Lookup('column') is one")


def parse(text: str) -> IndexSpec:
    """Parses one index specification.

    Accepts ``lookup(trace_id)``, ``lookup(lower(email), granule_rows=1024)``, ``trace_id:lookup``,
    ``page_index`` and ``page_index(ts, user_id)``. Names may be in double quotes, as in SQL. Raises
    ``IndexSpecError`` for anything else.
    """
    kind, quoted_names, settings = parsed(text)
    names = list(map(unquoted, quoted_names))
    if kind.lower() == PageIndex.kind:
        page_index: PageIndex = _make_index(
            PageIndex, kind, {"columns": tuple(names) or None, **settings}
        )
        return page_index
    if len(names) != 1:
        raise IndexSpecError(f"{text!r} is not an index; write lookup(COLUMN) or COLUMN:lookup")
    if kind.lower() == Bloom.kind:
        bloom: Bloom = _make_index(Bloom, kind, {"on": names[0], **settings})
        return bloom
    return make(kind, names[0], settings)


def known_version(kind: str) -> int | None:
    """Returns the supported version of a kind, or None if the kind is unknown."""
    cls = known_kind(kind)
    return cls.kind_version if cls else None
