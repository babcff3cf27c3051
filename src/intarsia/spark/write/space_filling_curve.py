"""The position of a row on a space-filling curve, computed by Spark's own functions.

A column's values become ranks: the number of some 1,000 approximate quantiles that are not greater.
The bits of the ranks, from the highest level down, walk a table of states, which yields the bits of
the position. The Z-order curve has one state. Hilbert's curve has a state for each way in which a
cell can be entered and left (C. Hamilton, Compact Hilbert Indices, Dalhousie University
CS-2006-07). NULL has the lowest rank and NaN the highest, as in Spark's own order.
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
_MAX_RANK_BITS = 10
"""Maximum bits of a rank: there are at most 1,023 quantiles."""
_LONG_BITS = 63
"""Bits of a bigint without its sign."""
_MAX_COLUMNS = {"zorder": 8, "hilbert": 5}
"""Maximum columns of a curve: the tables of states of Hilbert's curve grow fast."""
_PREFIX_LENGTH = 64
"""Length of the quantiles of strings, in characters, and of binary values, in bytes."""
# Functions that keep the order of values, by the names of Spark's types.
_ORDER_FUNCTIONS = {"date": "unix_date", "timestamp": "unix_micros", "binary": "hex"}
_BOUND_TYPES = {"date": "int", "timestamp": "bigint", "binary": "string", "boolean": "boolean"}
_PLAIN_TYPES = (
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "timestamp_ntz",
)


def check_curve(curve: str, schema: StructType, columns: Sequence[str]) -> None:
    """Raises ``ValueError`` or ``PredicateError`` unless rows can be put on the curve."""
    if curve not in CURVES:
        raise ValueError(f"curve must be one of {', '.join(CURVES)}, not {curve!r}")
    most = _MAX_COLUMNS[curve]
    if not 2 <= len(columns) <= most:
        raise ValueError(f"curve={curve!r} takes 2 to {most} columns, not {len(columns)}")
    for column in columns:
        kind = schema[column].dataType.simpleString()
        if _bounds_type(kind) is None:
            raise PredicateError(f"column {column!r}: {kind} has no place on a curve")


def place_on_curve(curve: str, schema: StructType, bounds: dict[str, pa.Array]) -> Column:
    """Returns a bigint column that orders rows along ``curve`` through the columns in ``bounds``.

    ``bounds`` are sorted values of each column, without NULL, at most 2^bits − 1 of them; see
    ``bits_of``.
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
    return _computed_once(
        packed, lambda ranks_in_bits: _walk(curve, len(bounds), bits, ranks_in_bits)
    )


def bits_of(num_columns: int) -> int:
    """Returns the bits of a rank, so that positions on the curve fit a bigint."""
    return min(_MAX_RANK_BITS, (_LONG_BITS - 8) // num_columns)


def quantiles(values: pa.Array, weights: pa.Array, count: int) -> pa.Array:
    """Returns up to ``count`` sorted values that divide weighted ``values`` equally; no NULL."""
    is_valid = values.is_valid()
    values, weights = values.filter(is_valid), weights.filter(is_valid)
    order = pc.sort_indices(values)
    values = values.take(order)
    cumulative_weights = np.cumsum(weights.take(order).to_numpy())
    if not len(values):
        return values
    target_weights = np.arange(count) * (cumulative_weights[-1] / count)
    return values.take(pa.array(np.searchsorted(cumulative_weights, target_weights, side="right")))


def shortened(values: pa.Array) -> pa.Array:
    """Returns strings and binary values cut to a length that still distinguishes quantiles."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return pc.utf8_slice_codeunits(values, 0, _PREFIX_LENGTH)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return pc.binary_slice(values, 0, _PREFIX_LENGTH)
    return values


# --- in Spark -----------------------------------------------------------------------------------


def _rank(name: str, kind: DataType, bounds: pa.Array, bits: int) -> Column:
    """Returns how many of ``bounds`` are not greater than a value, by binary search."""
    from pyspark.sql import functions as sf

    spark_type = kind.simpleString()
    value = sf.col(quoted(name))
    if spark_type in _ORDER_FUNCTIONS:
        value = sf.call_function(_ORDER_FUNCTIONS[spark_type], value)
    known = _array(_bound_texts(bounds, (1 << bits) - 1), _bounds_type(spark_type))
    steps = _array([str(1 << bit) for bit in reversed(range(bits))], "int")

    def search(bound_value: Column) -> Column:
        def further(rank: Column, step: Column) -> Column:
            is_further = sf.element_at(known, rank + step) <= bound_value
            return sf.when(is_further, rank + step).otherwise(rank)

        return sf.aggregate(steps, sf.lit(0), further)

    return _computed_once(value, search).cast("bigint")


def _walk(curve: str, num_columns: int, bits: int, packed: Column) -> Column:
    """Returns the position on the curve of the ranks in ``packed``, each of ``bits`` bits."""
    from pyspark.sql import functions as sf

    table = states(curve, num_columns)
    entries = _array(map(str, table.entries), "bigint")
    levels = _array(map(str, reversed(range(bits))), "int")

    def step(position_and_state: Column, level: Column) -> Column:
        cell = position_and_state.bitwiseAND(sf.lit((1 << table.state_bits) - 1))
        cell = sf.shiftleft(cell, num_columns)
        for i in range(num_columns):
            at = sf.call_function("shiftright", packed, level + sf.lit(bits * i))
            cell = cell.bitwiseOR(sf.shiftleft(at.bitwiseAND(sf.lit(1)), i))
        parent_position = sf.shiftleft(
            sf.shiftright(position_and_state, table.state_bits), table.state_bits + num_columns
        )
        return parent_position + sf.element_at(entries, (cell + sf.lit(1)).cast("int"))

    walked = sf.aggregate(levels, sf.lit(0).cast("bigint"), step)
    return sf.shiftright(walked, table.state_bits)


def _array(texts: Iterable[str | None], kind: str | None) -> Column:
    """Returns a constant array. An array of literals would cost a call to the JVM for each."""
    from pyspark.sql import functions as sf

    return sf.from_json(sf.lit(json.dumps(list(texts))), "array<string>").cast(f"array<{kind}>")


def _computed_once(value: Column, use: Callable[[Column], Column]) -> Column:
    """Returns ``use(value)`` with ``value`` computed once, however often ``use`` refers to it."""
    from pyspark.sql import functions as sf

    return sf.element_at(sf.transform(sf.array(value), use), 1)


def _bounds_type(spark_type: str) -> str | None:
    if spark_type in _PLAIN_TYPES or spark_type.startswith("decimal"):
        return spark_type
    return _BOUND_TYPES.get(spark_type)


def _bound_texts(bounds: pa.Array, count: int) -> list[str | None]:
    """Returns values as text for a cast, padded with NULL, which no rank counts."""
    if pa.types.is_date32(bounds.type):
        bounds = bounds.cast(pa.int32())
    elif pa.types.is_timestamp(bounds.type) and bounds.type.tz is not None:
        bounds = bounds.cast(pa.int64())
    if pa.types.is_binary(bounds.type) or pa.types.is_large_binary(bounds.type):
        texts = [value.hex().upper() for value in bounds.to_pylist()]
    else:
        texts = bounds.cast(pa.string()).to_pylist()
    return [*texts, *[None] * (count - len(texts))]


# --- tables of states ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class States:
    """A curve as a table of states, one level at a time.

    ``entries[state << n | cell]`` is ``digit << state_bits | next state``. ``digit`` is the
    position on the curve, among the 2^n cells of a level, of the cell that a point lies in. The
    walk starts in state 0.
    """

    state_bits: int
    entries: tuple[int, ...]


@cache
def states(curve: str, num_columns: int) -> States:
    """Returns the table of a curve in ``num_columns`` dimensions; bit i of a cell is column i's."""
    if curve == "zorder":
        return States(0, tuple(range(1 << num_columns)))
    n = num_columns
    numbers, pending = {(0, 0): 0}, [(0, 0)]
    steps: list[tuple[int, int]] = []
    while pending:
        entry, direction = pending.pop(0)
        for cell in range(1 << n):
            digit = _gray_inverse(_rotated_right(cell ^ entry, direction + 1, n))
            rotated_entry = _rotated_right(_entry(digit), n - (direction + 1) % n, n)
            next_key = entry ^ rotated_entry, (direction + _direction(digit, n) + 1) % n
            if next_key not in numbers:
                numbers[next_key] = len(numbers)
                pending.append(next_key)
            steps.append((digit, numbers[next_key]))
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
    """Returns the corner at which the ``digit``-th cell is entered."""
    even = 2 * ((digit - 1) // 2) if digit else 0
    return even ^ even >> 1


def _direction(digit: int, n: int) -> int:
    """Returns the dimension along which the ``digit``-th cell is left, relative to its own."""
    if digit == 0:
        return 0
    odd = digit - 1 if digit % 2 == 0 else digit
    return ((odd ^ odd + 1).bit_length() - 1) % n
