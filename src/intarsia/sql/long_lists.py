"""Long lists of integers and strings in ``IN``, as one node of sqlglot's tree each.

sqlglot takes 30 µs a value to read a list, and each pass over its tree takes another 2 µs a value.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from intarsia.expr.nested_types import without_dictionary
from intarsia.sql.literals import constant_of

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
_OTHER_QUOTING = re.compile(r"\\|\$\w*\$")
"""Strings with escapes, and strings between dollar signs."""
_KEYS = re.compile("'([0-9a-f]{32})'")
_MIN_VALUES = 100
"""Values of a list. Fewer take sqlglot few milliseconds."""
_META = "long_list"


class Shortened(NamedTuple):
    """SQL with a string in place of each long list.

    ``lists`` and ``originals`` have the values and the text of each list by its string.
    """

    text: str
    lists: dict[str, pa.Array]
    originals: dict[str, str]

    def restored(self, text: str) -> str:
        """Returns ``text``, which was made from this one, with the lists in it again."""
        return _KEYS.sub(lambda key: self.originals.get(key[1], key[0]), text)

    def attach(self, tree: exp.Expr) -> bool:
        """Makes each list the only member of its IN in ``tree``, sqlglot's tree of this text.

        Returns False if the tree has a list in another place.
        """
        remaining = dict(self.lists)
        for node in tree.find_all(exp.In) if remaining else ():
            members = node.expressions
            values = remaining.pop(members[0].name, None) if len(members) == 1 else None
            if values is not None:
                node.set("expressions", [_node_of(values)])
        return not remaining


class _Values:
    """The values of a list. Copies of a tree share them."""

    def __init__(self, values: pa.Array) -> None:
        self.array = values

    def __deepcopy__(self, _: object) -> _Values:
        return self


def _node_of(values: pa.Array) -> exp.Literal:
    node = exp.Literal.string(uuid.uuid4().hex)
    node.meta[_META] = _Values(values)
    return node


def node_of_values(values: Sequence[object]) -> exp.Literal | None:
    """Returns the node of a long list, or None if it is short or of other values."""
    if len(values) < _MIN_VALUES or set(map(type, values)) not in ({int}, {str}):
        return None
    try:
        return _node_of(pa.array(values, pa.int64() if type(values[0]) is int else pa.string()))
    except (OverflowError, UnicodeEncodeError, pa.ArrowException):
        return None


def long_list_of(node: exp.In) -> pa.Array | None:
    """Returns the values of IN if it has a long list as one node."""
    members = node.expressions
    values = members[0].meta_get(_META) if len(members) == 1 else None
    return values.array if isinstance(values, _Values) else None


def members_of(node: exp.In) -> list[exp.Expr]:
    """Returns a node for each member of IN."""
    values = long_list_of(node)
    if values is None:
        return list(node.expressions)
    members = map(constant_of, values.to_pylist())
    return [member for member in members if member is not None]


def without_long_lists(text: str) -> Shortened:
    """Returns a condition or a query without its long lists of integers or strings.

    Examples
    --------
    >>> short = without_long_lists(f"a IN ({', '.join(map(str, range(2000)))}) OR b = 'x'")
    >>> len(short.text) < 100, [len(values) for values in short.lists.values()]
    (True, [2000])
    """
    lists, originals = dict[str, pa.Array](), dict[str, str]()
    if len(text) < _MIN_CHARACTERS or _OTHER_QUOTING.search(text):
        return Shortened(text, lists, originals)
    parts, done, at = list[str](), 0, 0
    while (piece := _PIECES.search(text, at)) is not None:
        at = piece.end()
        if not piece[0].endswith("("):
            continue
        for kind, pattern in _LISTS.items():
            members = pattern.match(text, at)
            if members is not None and at + _MIN_CHARACTERS <= members.end():
                key = uuid.uuid4().hex
                originals[key] = text[at : members.end() - 1]
                lists[key] = _values(kind, originals[key])
                parts += [text[done:at], f"'{key}')"]
                done = at = members.end()
                break
    return Shortened("".join([*parts, text[done:]]), lists, originals)


def _values(kind: str, text: str) -> pa.Array:
    if kind == "integers":
        return pa.array(np.fromstring(text, dtype=np.int64, sep=","))
    return pa.array([value.replace("''", "'") for value in _STRING.findall(text)], pa.string())


def members_of_type(values: pa.Array | None, kind: pa.DataType | None) -> pa.Array | None:
    """Returns those of ``values`` that a column of type ``kind`` can hold, in that type.

    Returns None unless values and column are both integers, or both strings.
    """
    if values is None:
        return None
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
