"""Functions that pyarrow has no kernel for, for use in its Expressions.

Each is a call by name in an Expression, which can be pickled, printed and combined like any other.
pyarrow cannot evaluate such a call, so ``evaluate`` computes its values first. A function is one
entry of ``FUNCTIONS``: a check of the types it takes, and its values on arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from intarsia.errors import PredicateError, public
from intarsia.expr.casts import without_extension
from intarsia.expr.filterable_types import VIEWED
from intarsia.expr.json_text import json_text, written_path
from intarsia.expr.nested_types import without_dictionary
from intarsia.pyarrow_internals import call
from intarsia.row_ranges import Int64Array, distinct
from intarsia.strings import tokenizer as text_words
from intarsia.strings.code_points import is_text

CONTAINS_WORDS = "ia.contains_words"
LIST_CONTAINS = "ia.list_contains"
LIST_CONTAINS_ANY = "ia.list_contains_any"
LIST_CONTAINS_ALL = "ia.list_contains_all"
MAP_CONTAINS = "ia.map_contains"
JSON_EXTRACT_STRING = "ia.json_extract_string"


class Function(NamedTuple):
    """A function of a column and a constant.

    ``check`` raises ``PredicateError`` for types that the function does not take. ``values``
    returns one value for each value of an array whose type passed ``check``.
    """

    check: Callable[[pa.DataType, pa.DataType], None]
    values: Callable[[pa.Array, pa.Scalar], pa.Array]


@public
def contains_words(of: pc.Expression | str, words: str) -> pc.Expression:
    """Returns a condition that is TRUE where a string has all given words, in any order and case.

    A word is a run of letters, digits, marks and connectors, or one ideograph.

    Parameters
    ----------
    of : pyarrow.compute.Expression or str
        The strings to search: an Expression, or the name of a field.
    words : str
        The words. If there is none, every string has them all.

    Returns
    -------
    pyarrow.compute.Expression
        TRUE or FALSE; NULL where the string is NULL.

    Raises
    ------
    PredicateError
        When a filter with the condition is evaluated and ``of`` is not a column of strings.

    Examples
    --------
    >>> ia.dataset("logs.parquet").count_rows(filter=ia.contains_words("msg", "done 17"))
    1
    """
    return call(CONTAINS_WORDS, [_operand(of), pc.scalar(words)])


@public
def list_contains(of: pc.Expression | str, value: Any) -> pc.Expression:
    """Returns a condition that is TRUE where a list has an element equal to ``value``.

    NULL and NaN elements equal nothing; −0.0 equals +0.0. A value that the elements' type cannot
    hold is in no list.

    Parameters
    ----------
    of : pyarrow.compute.Expression or str
        The lists to search: an Expression, or the name of a field.
    value : Any
        The constant to search for.

    Returns
    -------
    pyarrow.compute.Expression
        TRUE or FALSE. NULL where the list is NULL, and NULL for lists with elements if ``value`` is
        None.

    Raises
    ------
    PredicateError
        When a filter with the condition is evaluated and ``of`` is not a column of lists, or its
        elements do not compare with ``value``.

    Examples
    --------
    >>> ia.list_contains("tags", "error")
    <pyarrow.compute.Expression ia.list_contains(tags, "error")>
    """
    return call(LIST_CONTAINS, [_operand(of), pc.scalar(value)])


@public
def list_contains_any(of: pc.Expression | str, values: Iterable[Any]) -> pc.Expression:
    """Returns a condition that is TRUE where a list has an element equal to one of ``values``.

    Elements compare as in ``list_contains``.

    Parameters
    ----------
    of : pyarrow.compute.Expression or str
        The lists to search: an Expression, or the name of a field.
    values : iterable
        The constants to search for. NULLs among them are ignored.

    Returns
    -------
    pyarrow.compute.Expression
        TRUE or FALSE; FALSE if ``values`` is empty, NULL where the list is NULL.

    Raises
    ------
    TypeError
        If ``values`` is a string or bytes.
    PredicateError
        When a filter with the condition is evaluated and ``of`` is not a column of lists, or its
        elements do not compare with ``values``.

    Examples
    --------
    >>> ia.list_contains_any("tags", ["error", "fatal"])
    <pyarrow.compute.Expression ia.list_contains_any(tags, list<item: string>[error, fatal])>
    """
    return call(LIST_CONTAINS_ANY, [_operand(of), pc.scalar(_list_scalar(values))])


@public
def list_contains_all(of: pc.Expression | str, values: Iterable[Any]) -> pc.Expression:
    """Returns a condition that is TRUE where a list has, for each of ``values``, an equal element.

    Elements compare as in ``list_contains``.

    Parameters
    ----------
    of : pyarrow.compute.Expression or str
        The lists to search: an Expression, or the name of a field.
    values : iterable
        The constants to search for. NULLs among them are ignored.

    Returns
    -------
    pyarrow.compute.Expression
        TRUE or FALSE; TRUE if ``values`` is empty, NULL where the list is NULL.

    Raises
    ------
    TypeError
        If ``values`` is a string or bytes.
    PredicateError
        When a filter with the condition is evaluated and ``of`` is not a column of lists, or its
        elements do not compare with ``values``.

    Examples
    --------
    >>> ia.list_contains_all("tags", ["error", "disk"])
    <pyarrow.compute.Expression ia.list_contains_all(tags, list<item: string>[error, disk])>
    """
    return call(LIST_CONTAINS_ALL, [_operand(of), pc.scalar(_list_scalar(values))])


@public
def map_contains(of: pc.Expression | str, key: Any) -> pc.Expression:
    """Returns a condition that is TRUE where a map has a key equal to ``key``.

    Keys compare like elements in ``list_contains``.

    Parameters
    ----------
    of : pyarrow.compute.Expression or str
        The maps to search: an Expression, or the name of a field.
    key : Any
        The key to search for.

    Returns
    -------
    pyarrow.compute.Expression
        TRUE or FALSE. NULL where the map is NULL, and NULL for maps with entries if ``key`` is
        None.

    Raises
    ------
    PredicateError
        When a filter with the condition is evaluated and ``of`` is not a column of maps, or its
        keys do not compare with ``key``.

    Examples
    --------
    >>> ia.map_contains("attributes", "http.method")
    <pyarrow.compute.Expression ia.map_contains(attributes, "http.method")>
    """
    return call(MAP_CONTAINS, [_operand(of), pc.scalar(key)])


@public
def json_extract_string(of: pc.Expression | str, path: str) -> pc.Expression:
    """Returns the values at a path of JSON documents, as DuckDB's function of this name does.

    Strings lose their quotes; objects, lists, numbers and booleans are their JSON text. A filter
    with this function needs DuckDB, which computes it.

    Parameters
    ----------
    of : pyarrow.compute.Expression or str
        The strings that hold JSON: an Expression, or the name of a field.
    path : str
        ``"$.user.id"``, ``"/user/id"``, or the name of a key.

    Returns
    -------
    pyarrow.compute.Expression
        Strings. NULL where the document is NULL or lacks the path, or has ``null`` there.

    Raises
    ------
    PredicateError
        When a filter with the value is evaluated: if ``of`` is not a column of strings, if a
        document is not JSON, or if the path is invalid or leads to several values.
    MissingDependencyError
        When the value is evaluated without DuckDB.

    Examples
    --------
    >>> ia.json_extract_string("payload", "$.user.id")
    <pyarrow.compute.Expression ia.json_extract_string(payload, "$.user.id")>
    """
    return call(JSON_EXTRACT_STRING, [_operand(of), pc.scalar(written_path(path))])


def _operand(of: pc.Expression | str) -> pc.Expression:
    return pc.field(of) if isinstance(of, str) else of


def _list_scalar(values: Iterable[Any]) -> pa.Scalar:
    if isinstance(values, str | bytes):
        raise TypeError("values must be an iterable of values, not a string or bytes")
    if isinstance(values, pa.ListScalar):
        return values
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(list(values))
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return pa.ListArray.from_arrays([0, len(array)], array)[0]


# --- type checks --------------------------------------------------------------------------------


def is_list(kind: pa.DataType) -> bool:
    """True if ``kind`` is a list type: with 32-bit or 64-bit offsets, of fixed size, or a view."""
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in checks) or _is_list_view(kind)


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def element_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a list's elements or a map's keys as ``elements_of`` returns them."""
    return plain_type(kind.key_type if pa.types.is_map(kind) else kind.value_type)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Returns a type without dictionary, view, UUID or JSON, as ``plain_values`` returns it.

    Views become the type of strings or bytes of the same length.
    """
    kind = without_extension(without_dictionary(kind))
    return VIEWED.get(kind, kind)


def _check_element(kind: pa.DataType, value: pa.DataType) -> None:
    if not is_list(kind):
        raise PredicateError(f"{kind} is not a list type")
    _check_alike(element_type(kind), value)


def _check_elements(kind: pa.DataType, values: pa.DataType) -> None:
    if not is_list(values):
        raise PredicateError(f"{values} is not a list of values")
    _check_element(kind, values.value_type)


def _check_key(kind: pa.DataType, key: pa.DataType) -> None:
    if not pa.types.is_map(kind):
        raise PredicateError(f"{kind} is not a map type")
    _check_alike(element_type(kind), key)


def _check_alike(kind: pa.DataType, other: pa.DataType) -> None:
    if not compares(kind, other):
        raise PredicateError(f"{kind} does not compare with {other}")


def compares(kind: pa.DataType, other: pa.DataType) -> bool:
    """True if pyarrow compares values of ``kind`` with constants of type ``other``."""
    try:
        pc.equal(pa.nulls(0, kind), pa.nulls(0, plain_type(other)))
    except pa.ArrowException:
        return False
    return True


def _check_words(kind: pa.DataType, words: pa.DataType) -> None:
    if not is_text(kind):
        raise PredicateError(f"{kind} is not a string type")
    if not (pa.types.is_string(words) or pa.types.is_large_string(words)):
        raise PredicateError(f"{words} is not a string of words")


def _check_json(kind: pa.DataType, path: pa.DataType) -> None:
    if not is_text(plain_type(kind)):
        raise PredicateError(f"{kind} is not a string type, so it holds no JSON")
    if not pa.types.is_string(path):
        raise PredicateError(f"{path} is not a string, so it is no path in JSON")


# --- values -------------------------------------------------------------------------------------


def _contains(lists: pa.Array, value: pa.Scalar) -> pa.Array:
    if value.is_valid:
        return _lists_contain(lists, pa.repeat(value, 1), all_needed=True)
    # Whether NULL is in a list is unknown, unless the list is empty.
    is_map = pa.types.is_map(lists.type)
    lengths = pa.array(np.diff(lists.offsets)) if is_map else pc.list_value_length(lists)
    is_empty = pc.and_(lists.is_valid(), pc.equal(lengths, 0))
    return pc.if_else(is_empty, False, pa.scalar(None, pa.bool_()))


def _contains_any(lists: pa.Array, values: pa.Scalar) -> pa.Array:
    return _lists_contain(lists, values.values, False) if values.is_valid else _all_null(lists)


def _contains_all(lists: pa.Array, values: pa.Scalar) -> pa.Array:
    return _lists_contain(lists, values.values, True) if values.is_valid else _all_null(lists)


def _contains_words(strings: pa.Array, words: pa.Scalar) -> pa.Array:
    if not words.is_valid:
        return _all_null(strings)
    return text_words.contains_words(strings, words.as_py())


def _json_text(documents: pa.Array, path: pa.Scalar) -> pa.Array:
    return json_text(plain_values(documents), path)


def _all_null(lists: pa.Array) -> pa.Array:
    return pa.nulls(len(lists), pa.bool_())


FUNCTIONS: dict[str, Function] = {
    CONTAINS_WORDS: Function(_check_words, _contains_words),
    LIST_CONTAINS: Function(_check_element, _contains),
    LIST_CONTAINS_ANY: Function(_check_elements, _contains_any),
    LIST_CONTAINS_ALL: Function(_check_elements, _contains_all),
    MAP_CONTAINS: Function(_check_key, _contains),
    JSON_EXTRACT_STRING: Function(_check_json, _json_text),
}


def _lists_contain(lists: pa.Array, constants: pa.Array, all_needed: bool) -> pa.Array:
    """Returns whether each list holds all of ``constants``, or any. NULL where the list is NULL."""
    elements, rows_of = elements_of(lists)
    representable, all_representable = representable_constants(constants, elements.type)
    if all_needed and not all_representable:
        contained = np.zeros(len(lists), dtype=bool)
    elif len(representable) > _MAX_SINGLE_LOOKUPS and _is_hashable(elements.type):
        contained = _lists_contain_many(elements, representable, rows_of, len(lists), all_needed)
    else:
        contained = np.full(len(lists), all_needed)
        for value in dict.fromkeys(representable):
            contains_value = np.zeros(len(lists), dtype=bool)
            contains_value[rows_of(_true_positions(pc.equal(elements, value)))] = True
            contained = contained & contains_value if all_needed else contained | contains_value
    return pa.array(contained, mask=np.asarray(lists.is_null()))


_MAX_SINGLE_LOOKUPS = 4
"""Up to this many constants are searched one after the other, more are searched together."""


def _is_hashable(kind: pa.DataType) -> bool:
    try:
        pc.index_in(pa.nulls(0, kind), pa.nulls(0, kind).unique())
    except pa.ArrowException:
        return False
    return True


def _lists_contain_many(
    elements: pa.Array,
    constants: pa.Array,
    rows_of: Callable[[Int64Array], Int64Array],
    num_rows: int,
    all_needed: bool,
) -> NDArray[np.bool_]:
    if pa.types.is_floating(elements.type):  # adding 0 turns −0.0 into +0.0
        zero = pa.scalar(0, elements.type)
        elements, constants = pc.add(elements, zero), pc.add(constants, zero)
    constants = constants.unique()
    constant_indices = pc.index_in(elements, constants)
    positions = _true_positions(constant_indices.is_valid())
    rows = rows_of(positions)
    constant_at = constant_indices.take(pa.array(positions)).to_numpy()
    matching_rows = distinct(rows * len(constants) + constant_at) // len(constants)
    counts = np.bincount(matching_rows, minlength=num_rows)
    return counts == len(constants) if all_needed else counts > 0


def _true_positions(where: pa.Array) -> Int64Array:
    """Returns the positions of the TRUEs."""
    return np.flatnonzero(where.fill_null(False).to_numpy(zero_copy_only=False))


def representable_constants(constants: pa.Array, kind: pa.DataType) -> tuple[pa.Array, bool]:
    """Returns the ``constants`` that lists of ``kind`` can hold, as ``kind``, and whether all can.

    NULLs are dropped. No list holds a constant that the cast to ``kind`` changes, nor NaN, which
    equals nothing.
    """
    constants = plain_values(constants).drop_null()
    cast = _cast_or_null(constants, kind)
    try:
        equal = pc.equal(cast, constants).fill_null(False)
    except pa.ArrowException:
        return pa.array([], kind), not len(constants)
    return cast.filter(equal), bool(pc.all(equal, min_count=0).as_py())


def _cast_or_null(constants: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns constants as ``kind``, with NULL for those that cannot be cast."""
    try:
        if pa.types.is_integer(constants.type) and pa.types.is_decimal(kind):
            constants = constants.cast(pa.decimal256(_MAX_DECIMAL_DIGITS, kind.scale))
        return constants.cast(kind)
    except pa.ArrowException:
        if len(constants) < 2:
            return pa.nulls(len(constants), kind)
    half = len(constants) // 2
    return pa.concat_arrays(
        [_cast_or_null(constants[:half], kind), _cast_or_null(constants[half:], kind)]
    )


_MAX_DECIMAL_DIGITS = 76
"""The digits of Arrow's widest decimal.

Casts to decimal require space for all digits of an integer type.
"""


def elements_of(lists: pa.Array) -> tuple[pa.Array, Callable[[Int64Array], Int64Array]]:
    """Returns the elements of ``n`` lists or maps, and a function from elements to their lists.

    The function takes positions of elements and returns the positions of their lists, 0 to
    ``n - 1``. A NULL list may have elements as well.
    """
    if pa.types.is_fixed_size_list(lists.type):
        size = lists.type.list_size
        elements = lists.values.slice(lists.offset * size, len(lists) * size)
        return plain_values(elements), lambda positions: positions // max(size, 1)
    if _is_list_view(lists.type):
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
        rows = np.repeat(np.arange(len(lists)), lengths)
        return plain_values(lists.flatten()), lambda positions: rows[positions]
    children = lists.keys if pa.types.is_map(lists.type) else lists.values
    offsets = np.asarray(lists.offsets).astype(np.int64)
    start, stop = (int(offsets[0]), int(offsets[-1])) if len(lists) else (0, 0)

    def rows_of(positions: Int64Array) -> Int64Array:
        return np.searchsorted(offsets, positions + start, side="right") - 1

    return plain_values(children.slice(start, stop - start)), rows_of


def plain_values(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Returns values in their ``plain_type``."""
    return values.cast(plain_type(values.type))
