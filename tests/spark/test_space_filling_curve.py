"""Space-filling curves: the tables against geometry, Spark's functions against brute force."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia as ia
import intarsia.spark as ias
from intarsia.spark.write.space_filling_curve import bits_of, place_on_curve, quantiles, states

NAN = float("nan")
VALUES = {
    "tinyint": [-128, -1, 0, 1, 127],
    "bigint": [-(2**63), -5, 0, 3, 2**63 - 1],
    "double": [float("-inf"), -1.5, -0.0, 0.0, 2.0**-1074, 1e300, float("inf"), NAN],
    "float": [float("-inf"), -1.5, 0.0, 2.5, float("inf"), NAN],
    "decimal(30,4)": [Decimal("-99999999999999999999.0001"), Decimal("0"), Decimal("12.3456")],
    "string": ["", "A", "a", "a\\'\"b", "a\n", "e", "z", "é", "né", "\ue000", "\U0001f600"],
    "binary": [b"", b"\x00", b"\x00\xff", b"a", b"\x80", b"\xff"],
    "boolean": [False, True],
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "timestamp": [dt.datetime(1969, 1, 1), dt.datetime(2024, 3, 31, 2, 30, 0, 1)],
    "timestamp_ntz": [dt.datetime(1969, 1, 1), dt.datetime(2024, 3, 31, 2, 30, 0, 1)],
}


def place(curve, ranks, bits):
    """The position of a cell on a curve, by the table alone."""
    table = states(curve, len(ranks))
    actual = state = 0
    for level in reversed(range(bits)):
        cell = sum((rank >> level & 1) << i for i, rank in enumerate(ranks))
        entry = table.entries[state << len(ranks) | cell]
        actual = actual << len(ranks) | entry >> table.state_bits
        state = entry & ((1 << table.state_bits) - 1)
    return actual


def interleaved(ranks, bits):
    return sum(
        (r >> b & 1) << (b * len(ranks) + i) for b in range(bits) for i, r in enumerate(ranks)
    )


@pytest.mark.parametrize(("columns", "bits"), [(2, 5), (3, 3), (4, 2), (5, 2)])
def test_hilberts_curve_goes_from_each_cell_to_an_adjacent_one(columns, bits):
    cells = list(itertools.product(range(1 << bits), repeat=columns))
    places = [place("hilbert", cell, bits) for cell in cells]
    assert sorted(places) == list(range(len(cells)))
    line = [cell for _, cell in sorted(zip(places, cells, strict=True))]
    for one, other in itertools.pairwise(line):
        assert sum(abs(a - b) for a, b in zip(one, other, strict=True)) == 1


@pytest.mark.parametrize("columns", [2, 3, 8])
def test_the_z_order_interleaves_bits(columns):
    for cell in itertools.islice(itertools.product(range(4), repeat=columns), 500):
        assert place("zorder", cell, 2) == interleaved(cell, 2)


@given(st.lists(st.integers(-20, 20) | st.none(), max_size=60), st.integers(1, 40))
def test_quantiles_divide_values_evenly(values, count):
    actual = quantiles(pa.array(values, pa.int64()), pa.array(np.ones(len(values))), count)
    known = sorted(value for value in values if value is not None)
    expected = [known[int(i * len(known) / count + 1e-9)] for i in range(count)] if known else []
    assert actual.to_pylist() == expected


def test_quantiles_use_weights():
    actual = quantiles(pa.array([1, 2, 3, None]), pa.array([8.0, 1.0, 1.0, 100.0]), 10)
    assert actual.to_pylist() == [1] * 8 + [2, 3]


# --- in Spark -----------------------------------------------------------------------------------


def as_spark_orders(value):
    if value is None:
        return (0, 0)
    if isinstance(value, float):
        return (1, value != value, 0.0 if value != value else value)
    return (1, value.encode() if isinstance(value, str) else value)


@pytest.mark.spark
@pytest.mark.parametrize("kind", VALUES)
def test_ranks_count_the_bounds_that_are_not_greater(kind, spark):
    bits = bits_of(2)
    values = [*VALUES[kind], None]
    df = spark.createDataFrame([(i, v) for i, v in enumerate(values)], f"i int, `v.1` {kind}")
    column = df.select("`v.1`").toArrow().column(0).combine_chunks()
    bounds = quantiles(column, pa.array(np.ones(len(values))), (1 << bits) - 1)
    one = pa.array(list(range(len(values))), pa.int32())
    both = {"v.1": bounds, "i": quantiles(one, pa.array(np.ones(len(one))), (1 << bits) - 1)}
    actual = df.select("i", place_on_curve("zorder", df.schema, both).alias("p")).collect()
    keys = sorted(map(as_spark_orders, VALUES[kind]))
    known = [keys[i * len(keys) // len(bounds)] for i in range(len(bounds))]
    for i, at in actual:
        rank = sum(bound <= as_spark_orders(values[i]) for bound in known)
        other = sum(bound <= i for bound in both["i"].to_pylist())
        assert at == interleaved([0 if values[i] is None else rank, other], bits), values[i]


@pytest.mark.spark
@pytest.mark.parametrize(("curve", "columns"), [("zorder", 3), ("hilbert", 2), ("hilbert", 5)])
def test_positions_equal_those_of_the_table(curve, columns, spark):
    bits = bits_of(columns)
    names = [f"c{i}" for i in range(columns)]
    random = np.random.default_rng(columns)
    data = random.integers(0, 1 << bits, (300, columns))
    df = spark.createDataFrame(data.tolist(), ", ".join(f"{name} int" for name in names))
    bounds = {name: pa.array(range(1, 1 << bits), pa.int32()) for name in names}  # rank = value
    actual = df.select(place_on_curve(curve, df.schema, bounds).alias("p")).collect()
    assert [row.p for row in actual] == [place(curve, row, bits) for row in data.tolist()]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("columns", "curve", "error", "message"),
    [
        (["a", "b"], "peano", ValueError, "curve must be one of zorder, hilbert"),
        (["a"], "hilbert", ValueError, "takes 2 to 5 columns"),
        (["a", "b", "c", "d", "e", "f"], "hilbert", ValueError, "takes 2 to 5 columns"),
        (["a", "list"], "zorder", ia.PredicateError, "'list'.* has no place on a curve"),
        (["a", "nowhere"], "zorder", ia.PredicateError, "'nowhere' is not there"),
    ],
)
def test_types_without_a_curve_are_refused(columns, curve, error, message, spark):
    numbers = [f"id AS {name}" for name in "abcdef"]
    data = spark.range(3).selectExpr(*numbers, "array(id) AS list")
    with pytest.raises(error, match=message):
        ias.cluster(data, columns, curve=curve)
