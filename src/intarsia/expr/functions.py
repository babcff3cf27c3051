"""Functions that pyarrow has no kernel for, for use within its Expressions.

Each is a call by name in an Expression, which pickles, prints and combines as any other; what
pyarrow cannot do is evaluate it, so ``evaluation`` computes the call's values first. A function is
one entry of ``FUNCTIONS``: what types it takes, and its values on arrays.
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
from intarsia.expr.nested_types import without_dictionary
from intarsia.row_ranges import Int64Array
from intarsia.strings import tokenizer as text_words
from intarsia.strings.code_points import is_text

CONTAINS_WORDS = "ia.contains_words"
LIST_CONTAINS = "ia.list_contains"
LIST_CONTAINS_ANY = "ia.list_contains_any"
LIST_CONTAINS_ALL = "ia.list_contains_all"
MAP_CONTAINS = "ia.map_contains"


class Function(NamedTuple):
    """A function of a column and a constant.

    ``check`` raises ``PredicateError`` for types it does not take. ``values`` gives one value for
    each of an array, of types that passed.
    """

    check: Callable[[pa.DataType, pa.DataType], None]
    values: Callable[[pa.Array, pa.Scalar], pa.Array]


@public
def contains_words(of: pc.Expression | str, words: str) -> pc.Expression:
    """TRUE where the text ``of`` has every word of ``words``, in any order and case, else FALSE.

    ``of`` is an Expression or a field's name. NULL where the text is; where ``words`` holds no
    word, every text has them. A word is a run of letters, digits, marks and connectors, or one
    ideograph (``text.words``). ``PredicateError`` is raised where the Expression is used on a field
    that is no text.
    """
    return pc.Expression._call(CONTAINS_WORDS, [_operand(of), pc.scalar(words)])


@public
def list_contains(of: pc.Expression | str, value: Any) -> pc.Expression:
    """TRUE where the list ``of`` has an element equal to ``value``, else FALSE.

    ``of`` is an Expression or a field's name, ``value`` a constant. NULL where the list is, and
    where ``value`` is, but for a list of nothing; elements that are NULL or NaN equal nothing, −0.0
    equals +0.0. A value that the elements' type cannot hold is in no list. ``PredicateError`` is
    raised where the Expression is used on a field that is no list, or whose elements do not compare
    with ``value``.
    """
    return pc.Expression._call(LIST_CONTAINS, [_operand(of), pc.scalar(value)])


@public
def list_contains_any(of: pc.Expression | str, values: Iterable[Any]) -> pc.Expression:
    """TRUE where the list ``of`` has an element equal to any of ``values``, NULLs among them aside.

    FALSE for no values; otherwise as ``list_contains``.
    """
    return pc.Expression._call(LIST_CONTAINS_ANY, [_operand(of), pc.scalar(_list_of(values))])


@public
def list_contains_all(of: pc.Expression | str, values: Iterable[Any]) -> pc.Expression:
    """TRUE where the list ``of`` has, for each of ``values`` but NULLs, an element equal to it.

    TRUE for no values, where the list is not NULL; otherwise as ``list_contains``.
    """
    return pc.Expression._call(LIST_CONTAINS_ALL, [_operand(of), pc.scalar(_list_of(values))])


@public
def map_contains(of: pc.Expression | str, key: Any) -> pc.Expression:
    """TRUE where the map ``of`` has a key equal to ``key``; otherwise as ``list_contains``."""
    return pc.Expression._call(MAP_CONTAINS, [_operand(of), pc.scalar(key)])


def _operand(of: pc.Expression | str) -> pc.Expression:
    return pc.field(of) if isinstance(of, str) else of


def _list_of(values: Iterable[Any]) -> pa.Scalar:
    if isinstance(values, str | bytes):
        raise TypeError("values is several values, not a text")
    if isinstance(values, pa.ListScalar):
        return values
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(list(values))
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return pa.ListArray.from_arrays([0, len(array)], array)[0]


# --- what types there may be --------------------------------------------------------------------


def is_list(kind: pa.DataType) -> bool:
    """Is it a type of lists, whatever their offsets?"""
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in checks) or _is_list_view(kind)


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def element_type(kind: pa.DataType) -> pa.DataType:
    """The type of a list's elements or a map's keys as ``elements_of`` gives them.

    Of dictionaries that is their values', of views the type of as many characters or bytes.
    """
    return plain_type(kind.key_type if pa.types.is_map(kind) else kind.value_type)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A type as ``plain_values`` have it."""
    kind = without_extension(without_dictionary(kind))
    return VIEWED.get(kind, kind)


def _check_element(kind: pa.DataType, value: pa.DataType) -> None:
    if not is_list(kind):
        raise PredicateError(f"{kind} is no list")
    _check_alike(element_type(kind), value)


def _check_elements(kind: pa.DataType, values: pa.DataType) -> None:
    if not is_list(values):
        raise PredicateError(f"{values} is no list of values")
    _check_element(kind, values.value_type)


def _check_key(kind: pa.DataType, key: pa.DataType) -> None:
    if not pa.types.is_map(kind):
        raise PredicateError(f"{kind} is no map")
    _check_alike(element_type(kind), key)


def _check_alike(kind: pa.DataType, other: pa.DataType) -> None:
    if not compares(kind, other):
        raise PredicateError(f"{kind} does not compare with {other}")


def compares(kind: pa.DataType, other: pa.DataType) -> bool:
    """Can values of ``kind`` be equal to constants of type ``other``?"""
    try:
        pc.equal(pa.nulls(0, kind), pa.nulls(0, plain_type(other)))
    except pa.ArrowException:
        return False
    return True


def _check_words(kind: pa.DataType, words: pa.DataType) -> None:
    if not is_text(kind):
        raise PredicateError(f"{kind} is no text")
    if not (pa.types.is_string(words) or pa.types.is_large_string(words)):
        raise PredicateError(f"{words} is no text of words")


# --- values -------------------------------------------------------------------------------------


def _contains(lists: pa.Array, value: pa.Scalar) -> pa.Array:
    if value.is_valid:
        return _found(lists, pa.repeat(value, 1), all_needed=True)
    # Whether NULL is in a list is not known, unless that holds nothing.
    is_map = pa.types.is_map(lists.type)
    lengths = pa.array(np.diff(lists.offsets)) if is_map else pc.list_value_length(lists)
    is_empty = pc.and_(lists.is_valid(), pc.equal(lengths, 0))
    return pc.if_else(is_empty, False, pa.scalar(None, pa.bool_()))


def _contains_any(lists: pa.Array, values: pa.Scalar) -> pa.Array:
    return _found(lists, values.values, False) if values.is_valid else _no_values(lists)


def _contains_all(lists: pa.Array, values: pa.Scalar) -> pa.Array:
    return _found(lists, values.values, True) if values.is_valid else _no_values(lists)


def _contains_words(texts: pa.Array, words: pa.Scalar) -> pa.Array:
    if not words.is_valid:
        return _no_values(texts)
    return text_words.contains_words(texts, words.as_py())


def _no_values(lists: pa.Array) -> pa.Array:
    return pa.nulls(len(lists), pa.bool_())


FUNCTIONS: dict[str, Function] = {
    CONTAINS_WORDS: Function(_check_words, _contains_words),
    LIST_CONTAINS: Function(_check_element, _contains),
    LIST_CONTAINS_ANY: Function(_check_elements, _contains_any),
    LIST_CONTAINS_ALL: Function(_check_elements, _contains_all),
    MAP_CONTAINS: Function(_check_key, _contains),
}


def _found(lists: pa.Array, wanted: pa.Array, all_needed: bool) -> pa.Array:
    """For each list, whether all of ``wanted`` is in it, or any; NULL where the list is."""
    elements, rows_of = elements_of(lists)
    known, all_held = held_constants(wanted, elements.type)
    if all_needed and not all_held:
        found = np.zeros(len(lists), dtype=bool)
    elif len(known) > _FEW and _is_hashable(elements.type):
        found = _found_at_once(elements, known, rows_of, len(lists), all_needed)
    else:
        found = np.full(len(lists), all_needed)
        for value in dict.fromkeys(known):
            here = np.zeros(len(lists), dtype=bool)
            here[rows_of(_places(pc.equal(elements, value)))] = True
            found = found & here if all_needed else found | here
    return pa.array(found, mask=np.asarray(lists.is_null()))


_FEW = 4
"""More values than this are looked up together rather than one after the other."""


def _is_hashable(kind: pa.DataType) -> bool:
    try:
        pc.index_in(pa.nulls(0, kind), pa.nulls(0, kind).unique())
    except pa.ArrowException:
        return False
    return True


def _found_at_once(
    elements: pa.Array,
    known: pa.Array,
    rows_of: Callable[[Int64Array], Int64Array],
    num_rows: int,
    all_needed: bool,
) -> NDArray[np.bool_]:
    if pa.types.is_floating(elements.type):  # there are two zeros, which are equal
        zero = pa.scalar(0, elements.type)
        elements, known = pc.add(elements, zero), pc.add(known, zero)
    known = known.unique()
    codes = pc.index_in(elements, known)
    places = _places(codes.is_valid())
    rows = rows_of(places)
    which = codes.take(pa.array(places)).to_numpy()
    distinct = np.unique(rows * len(known) + which) // len(known)
    counts = np.bincount(distinct, minlength=num_rows)
    return counts == len(known) if all_needed else counts > 0


def _places(where: pa.Array) -> Int64Array:
    """Positions of the TRUEs."""
    return np.flatnonzero(where.fill_null(False).to_numpy(zero_copy_only=False))


def held_constants(constants: pa.Array, kind: pa.DataType) -> tuple[pa.Array, bool]:
    """Those of ``constants`` that lists of ``kind`` can hold, as ``kind``; and whether all are.

    NULLs do not count. Nothing holds what changes when it is made ``kind``, nor NaN, which equals
    nothing.
    """
    constants = plain_values(constants).drop_null()
    cast = _cast(constants, kind)
    try:
        equal = pc.equal(cast, constants).fill_null(False)
    except pa.ArrowException:
        return pa.array([], kind), not len(constants)
    return cast.filter(equal), bool(pc.all(equal, min_count=0).as_py())


def _cast(constants: pa.Array, kind: pa.DataType) -> pa.Array:
    """Constants as ``kind``; NULL for those that cannot be."""
    try:
        if pa.types.is_integer(constants.type) and pa.types.is_decimal(kind):
            constants = constants.cast(pa.decimal256(_DIGITS, kind.scale))
        return constants.cast(kind)
    except pa.ArrowException:
        if len(constants) < 2:
            return pa.nulls(len(constants), kind)
    half = len(constants) // 2
    return pa.concat_arrays([_cast(constants[:half], kind), _cast(constants[half:], kind)])


_DIGITS = 76
"""The most a decimal has in Arrow, which wants room for all digits of an integer's type."""


def elements_of(lists: pa.Array) -> tuple[pa.Array, Callable[[Int64Array], Int64Array]]:
    """What ``n`` lists or maps hold, one after the other, and which positions have which lists.

    The function takes places among what they hold and gives positions, 0 to ``n - 1``. Lists that
    are NULL may hold something all the same.
    """
    if pa.types.is_fixed_size_list(lists.type):
        size = lists.type.list_size
        elements = lists.values.slice(lists.offset * size, len(lists) * size)
        return plain_values(elements), lambda places: places // max(size, 1)
    if _is_list_view(lists.type):
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
        rows = np.repeat(np.arange(len(lists)), lengths)
        return plain_values(lists.flatten()), lambda places: rows[places]
    held = lists.keys if pa.types.is_map(lists.type) else lists.values
    offsets = np.asarray(lists.offsets).astype(np.int64)
    start, stop = (int(offsets[0]), int(offsets[-1])) if len(lists) else (0, 0)

    def rows_of(places: Int64Array) -> Int64Array:
        return np.searchsorted(offsets, places + start, side="right") - 1

    return plain_values(held.slice(start, stop - start)), rows_of


def plain_values(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Values without Arrow's dictionary, not as views, nor as UUIDs or JSON."""
    return values.cast(plain_type(values.type))
