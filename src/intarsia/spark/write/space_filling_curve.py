"""Where a row lies on a space-filling curve, by Spark's own functions.

A column's values become ranks: how many of some 1,000 approximate quantiles are no greater. The
ranks' bits, level by level from the highest, walk a table of states, which gives the bits of the
place on the curve: the Z-order curve has one state, Hilbert's has those in which a cell can be
entered and left (C. Hamilton, Compact Hilbert Indices, Dalhousie University CS-2006-07). NULL has
the least rank, and NaN, as everywhere in Spark, the greatest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError
from intarsia.spark.column_names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

CURVES = ("zorder", "hilbert")
_MOST_BITS = 10
_LONG_BITS = 63
_MOST_COLUMNS = {"zorder": 8, "hilbert": 5}
_PREFIX = 64
"""Characters of texts, and bytes of binary values, that tell quantiles apart."""
# How values are compared, by the names of Spark's types: functions that keep their order.
_KEYS = {"date": "unix_date", "timestamp": "unix_micros", "binary": "hex"}
_BOUNDS = {"date": "int", "timestamp": "bigint", "binary": "string", "boolean": "boolean"}
_PLAIN = ("tinyint", "smallint", "int", "bigint", "float", "double", "string", "timestamp_ntz")


def check_curve(curve: str, schema: StructType, columns: Sequence[str]) -> None:
    """Raise ``ValueError`` or ``PredicateError`` unless rows can be put on the curve."""
    if curve not in CURVES:
        raise ValueError(f"curve must be one of {', '.join(CURVES)}, not {curve!r}")
    most = _MOST_COLUMNS[curve]
    if not 2 <= len(columns) <= most:
        raise ValueError(f"curve={curve!r} takes 2 to {most} columns, not {len(columns)}")
    for column in columns:
        kind = schema[column].dataType.simpleString()
        if _bounds_type(kind) is None:
            raise PredicateError(f"column {column!r}: {kind} has no place on a curve")


def place_on_curve(curve: str, schema: StructType, bounds: dict[str, pa.Array]) -> Column:
    """A bigint that orders rows along ``curve`` through the columns that ``bounds`` is of.

    ``bounds`` are sorted values of each, without NULL, at most 2^bits − 1; see ``bits_of``.
    """
    from pyspark.sql import functions as sf

    bits = bits_of(len(bounds))
    ranks = [
        sf.shiftleft(_rank(name, schema[name].dataType, values, bits), bits * i)
        for i, (name, values) in enumerate(bounds.items())
    ]
    packed = ranks[0]
    for rank in ranks[1:]:
        packed = packed.bitwiseOR(rank)
    return _bound(packed, lambda held: _walk(curve, len(bounds), bits, held))


def bits_of(num_columns: int) -> int:
    """Bits of a rank, so that the places on a curve through so many columns fit a bigint."""
    return min(_MOST_BITS, (_LONG_BITS - 8) // num_columns)


def quantiles(values: pa.Array, weights: pa.Array, count: int) -> pa.Array:
    """``count`` values that divide those given, each with its weight, into equal parts.

    Sorted as Spark sorts, without NULL; the least value is one. None of no values.
    """
    keep = values.is_valid()
    values, weights = values.filter(keep), weights.filter(keep)
    order = pc.sort_indices(values)
    values = values.take(order)
    reached = np.cumsum(weights.take(order).to_numpy())
    if not len(values):
        return values
    wanted = np.arange(count) * (reached[-1] / count)
    return values.take(pa.array(np.searchsorted(reached, wanted, side="right")))


def shortened(values: pa.Array) -> pa.Array:
    """Texts and binary values cut to a length that still tells quantiles apart."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return pc.utf8_slice_codeunits(values, 0, _PREFIX)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return pc.binary_slice(values, 0, _PREFIX)
    return values


# --- in Spark -----------------------------------------------------------------------------------


def _rank(name: str, kind: DataType, bounds: pa.Array, bits: int) -> Column:
    """How many of ``bounds`` are no greater than a value: a binary search in steps of halves."""
    from pyspark.sql import functions as sf

    spark_type = kind.simpleString()
    value = sf.col(quoted(name))
    if spark_type in _KEYS:
        value = sf.call_function(_KEYS[spark_type], value)
    known = _array(_texts(bounds, (1 << bits) - 1), _bounds_type(spark_type))
    steps = _array([str(1 << bit) for bit in reversed(range(bits))], "int")

    def search(held: Column) -> Column:
        def further(rank: Column, step: Column) -> Column:
            is_further = sf.element_at(known, rank + step) <= held
            return sf.when(is_further, rank + step).otherwise(rank)

        return sf.aggregate(steps, sf.lit(0), further)

    return _bound(value, search).cast("bigint")


def _walk(curve: str, num_columns: int, bits: int, packed: Column) -> Column:
    """The place on the curve of ranks of ``bits`` bits each that ``packed`` holds."""
    from pyspark.sql import functions as sf

    table = states(curve, num_columns)
    entries = _array(map(str, table.entries), "bigint")
    levels = _array(map(str, reversed(range(bits))), "int")

    def step(held: Column, level: Column) -> Column:
        cell = held.bitwiseAND(sf.lit((1 << table.state_bits) - 1))
        cell = sf.shiftleft(cell, num_columns)
        for i in range(num_columns):
            at = sf.call_function("shiftright", packed, level + sf.lit(bits * i))
            cell = cell.bitwiseOR(sf.shiftleft(at.bitwiseAND(sf.lit(1)), i))
        above = sf.shiftleft(sf.shiftright(held, table.state_bits), table.state_bits + num_columns)
        return above + sf.element_at(entries, (cell + sf.lit(1)).cast("int"))

    walked = sf.aggregate(levels, sf.lit(0).cast("bigint"), step)
    return sf.shiftright(walked, table.state_bits)


def _array(texts: Iterable[str | None], kind: str | None) -> Column:
    """A constant array. One of literals would be a call to the JVM for each."""
    from pyspark.sql import functions as sf

    return sf.from_json(sf.lit(json.dumps(list(texts))), "array<string>").cast(f"array<{kind}>")


def _bound(value: Column, use: Callable[[Column], Column]) -> Column:
    """``use(value)``, where ``value`` is computed once, however often it is used."""
    from pyspark.sql import functions as sf

    return sf.element_at(sf.transform(sf.array(value), use), 1)


def _bounds_type(spark_type: str) -> str | None:
    if spark_type in _PLAIN or spark_type.startswith("decimal"):
        return spark_type
    return _BOUNDS.get(spark_type)


def _texts(bounds: pa.Array, count: int) -> list[str | None]:
    """Values as Spark casts them from text; NULL, which is never less, where they are too few."""
    if pa.types.is_date32(bounds.type):
        bounds = bounds.cast(pa.int32())
    elif pa.types.is_timestamp(bounds.type) and bounds.type.tz is not None:
        bounds = bounds.cast(pa.int64())
    if pa.types.is_binary(bounds.type) or pa.types.is_large_binary(bounds.type):
        found = [value.hex().upper() for value in bounds.to_pylist()]
    else:
        found = bounds.cast(pa.string()).to_pylist()
    return [*found, *[None] * (count - len(found))]


# --- tables of states ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class States:
    """A curve, one level at a time.

    ``entries[state << n | cell]`` is ``digit << state_bits | next state``: the cell of 2^n that a
    point lies in has that place on the curve. State 0 comes first.
    """

    state_bits: int
    entries: tuple[int, ...]


@cache
def states(curve: str, num_columns: int) -> States:
    """The table of a curve in ``num_columns`` dimensions; bit i of a cell is column i's."""
    if curve == "zorder":
        return States(0, tuple(range(1 << num_columns)))
    n = num_columns
    numbers, pending = {(0, 0): 0}, [(0, 0)]
    steps: list[tuple[int, int]] = []
    while pending:
        entry, direction = pending.pop(0)
        for cell in range(1 << n):
            digit = _gray_inverse(_rotated_right(cell ^ entry, direction + 1, n))
            turned = _rotated_right(_entry(digit), n - (direction + 1) % n, n)
            following = entry ^ turned, (direction + _direction(digit, n) + 1) % n
            if following not in numbers:
                numbers[following] = len(numbers)
                pending.append(following)
            steps.append((digit, numbers[following]))
    state_bits = (len(numbers) - 1).bit_length()
    return States(state_bits, tuple(digit << state_bits | state for digit, state in steps))


def _gray_inverse(code: int) -> int:
    number = code
    while code := code >> 1:
        number ^= code
    return number


def _rotated_right(bits: int, by: int, n: int) -> int:
    by %= n
    return (bits >> by | bits << (n - by)) & ((1 << n) - 1)


def _entry(digit: int) -> int:
    """The corner at which the ``digit``-th cell is entered."""
    even = 2 * ((digit - 1) // 2) if digit else 0
    return even ^ even >> 1


def _direction(digit: int, n: int) -> int:
    """The dimension along which the ``digit``-th cell is left, counted from its own."""
    if digit == 0:
        return 0
    odd = digit - 1 if digit % 2 == 0 else digit
    return ((odd ^ odd + 1).bit_length() - 1) % n
