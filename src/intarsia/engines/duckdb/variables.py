"""Tables of a query that are variables where it is called, as ``duckdb.sql`` uses them."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Mapping, Set
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import pyarrow.dataset as pads

from intarsia.errors import caller_frame
from intarsia.io.storage import PathLike
from intarsia.sql.query.scans import tables_named_in
from intarsia.writer.input_rows import is_of_polars

if TYPE_CHECKING:
    import polars

_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Names of frames that see the variables of the function around them."""
_NAME = re.compile(r"[^\W\d]\w*")
_MAX_LISTED = 20
"""Variables that an error lists."""


@runtime_checkable
class SupportsArrow(Protocol):
    """An object that gives a stream of Arrow's C interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


TableLike: TypeAlias = "pads.Dataset | PathLike | SupportsArrow | polars.LazyFrame"


def with_variables(query: str, tables: Mapping[str, TableLike]) -> dict[str, TableLike]:
    """Returns ``tables``, and the caller's variables that the query names as other tables."""
    given = {name.lower() for name in tables}
    words = {word for word in set(_NAME.findall(query)) if word.lower() not in given}
    variables = _visible(words)
    names = {word for word in words & variables.keys() if _is_table(variables[word])}
    if names:
        names &= tables_named_in(query)
    return {**tables, **{name: variables[name] for name in names}}


def listed_variables() -> str:
    """Returns a sentence for errors: the caller's variables that can be tables of a query."""
    names = [name for name, value in _visible().items() if _is_table(value)]
    return f"variables that are tables: {', '.join(sorted(names)[:_MAX_LISTED]) or 'none'}"


def _visible(words: Set[str] | None = None) -> dict[str, Any]:
    """Returns the caller's variables, local ones first. Only some are needed, given ``words``."""
    frame, _ = caller_frame()
    scopes = [_locals(frame, words)]
    while frame.f_code.co_name in _COMPREHENSIONS and frame.f_back is not None:
        if frame.f_code not in frame.f_back.f_code.co_consts:
            break
        frame = frame.f_back
        scopes.append(_locals(frame, words))
    return {**frame.f_globals, **ChainMap(*scopes)}


def _locals(frame: FrameType, words: Set[str] | None) -> dict[str, Any]:
    """Returns local variables of a frame: none if it has none of ``words``.

    Python copies the variables of a function to read them. The function keeps the copy, and all
    objects in it, until it ends.
    """
    code = frame.f_code
    is_copied = bool(code.co_flags & CO_OPTIMIZED)
    names = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    return {} if words is not None and is_copied and words.isdisjoint(names) else frame.f_locals


def is_lazy_frame(value: object) -> TypeGuard[polars.LazyFrame]:
    """True if ``value`` is a lazy frame of Polars."""
    return is_of_polars(value, "LazyFrame")


def _is_table(value: object) -> TypeGuard[TableLike]:
    """True if ``value`` has rows and named columns. Paths, arrays and series have not."""
    has_columns = hasattr(type(value), "schema") or hasattr(type(value), "columns")
    is_arrow = has_columns and not isinstance(value, type) and isinstance(value, SupportsArrow)
    return is_arrow or isinstance(value, pads.Dataset) or is_lazy_frame(value)
