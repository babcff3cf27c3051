"""Reads long lists of integers and strings in ``IN`` without sqlglot, which takes 30 µs a value."""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.nested_types import without_dictionary

_MIN_CHARACTERS = 4096
"""Characters of a list. Shorter ones take sqlglot some milliseconds."""
_PIECES = re.compile(
    r"""'[^']*' | "[^"]*" | --[^\n]* | /\*.*?\*/ | \bIN\s*\(""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
"""Strings, names, comments, and the beginnings of lists. Two quotes begin another string."""
_LISTS = {
    "integers": re.compile(r"\s*-?\d{1,18}(?:\s*,\s*-?\d{1,18})*\s*\)", re.ASCII),
    "strings": re.compile(r"\s*'(?:[^']|'')*'(?:\s*,\s*'(?:[^']|'')*')*\s*\)"),
}
_STRING = re.compile(r"'((?:[^']|'')*)'")
_OTHER_QUOTING = ("\\", "$")
"""Characters of strings with escapes, and of strings between dollar signs."""


class Shortened(NamedTuple):
    """A condition with a string in place of each long list, and the lists by these strings."""

    text: str
    lists: dict[str, pa.Array]


def without_long_lists(text: str) -> Shortened:
    """Returns a condition without its long lists of integers or strings.

    Examples
    --------
    >>> short, lists = without_long_lists(f"a IN ({', '.join(map(str, range(2000)))}) OR b = 'x'")
    >>> len(short) < 100, [len(values) for values in lists.values()]
    (True, [2000])
    """
    lists: dict[str, pa.Array] = {}
    if len(text) < _MIN_CHARACTERS or any(sign in text for sign in _OTHER_QUOTING):
        return Shortened(text, lists)
    parts, done, at = list[str](), 0, 0
    while (piece := _PIECES.search(text, at)) is not None:
        at = piece.end()
        if not piece[0].endswith("("):
            continue
        for kind, pattern in _LISTS.items():
            members = pattern.match(text, at)
            if members is not None and at + _MIN_CHARACTERS <= members.end():
                key = uuid.uuid4().hex
                lists[key] = _values(kind, text[at : members.end() - 1])
                parts += [text[done:at], f"'{key}')"]
                done = at = members.end()
                break
    return Shortened("".join([*parts, text[done:]]), lists)


def _values(kind: str, text: str) -> pa.Array:
    if kind == "integers":
        return pa.array(np.fromstring(text, dtype=np.int64, sep=","))
    return pa.array([value.replace("''", "'") for value in _STRING.findall(text)], pa.string())


def members_of_type(values: pa.Array, kind: pa.DataType | None) -> pa.Array | None:
    """Returns those of ``values`` that a column of type ``kind`` can hold, in that type.

    Returns None unless values and column are both integers, or both strings.
    """
    kind = None if kind is None else without_dictionary(kind)
    if pa.types.is_string(values.type):
        is_same = kind is not None and (pa.types.is_string(kind) or pa.types.is_large_string(kind))
        return values.cast(kind) if is_same else None
    if kind is None or not pa.types.is_integer(kind):
        return None
    limits = np.iinfo(kind.to_pandas_dtype())
    low, high = max(limits.min, -(2**63)), min(limits.max, 2**63 - 1)
    fits = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
    return values.filter(fits).cast(kind)
