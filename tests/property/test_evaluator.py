"""Each way of evaluating a condition passes the rows that pyarrow's engine passes.

Every type meets every operator, as plain values and as dictionary indices. The values include NULL,
NaN, −0.0 and the ends of each type's range.
"""

import datetime as dt
import decimal
import operator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from intarsia.row_ranges import RowRanges
from intarsia.scan.filter.condition import mask_of, passing
from intarsia.scan.request import Filter

NAN = float("nan")
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
MOMENTS = [dt.datetime(1970, 1, 1), dt.datetime(2024, 2, 29, 12, 0, 1), dt.datetime(1900, 1, 1)]
TEXTS = ["", "a", "ab", "é", "b%_", "abab", "B"]


def integers(name):
    limits = np.iinfo(name)
    return [limits.min, limits.max, 0, 1, limits.max - 1]


VALUES = {
    **{name: pa.array([*integers(name), None], name) for name in INTEGERS},
    "float": pa.array([0.0, -0.0, NAN, 1.5, float("inf"), -float("inf"), None], pa.float32()),
    "double": pa.array([0.0, -0.0, NAN, 1.5, 2.0**53, -float("inf"), None]),
    "bool": pa.array([True, False, None]),
    "string": pa.array([*TEXTS, None]),
    "large_string": pa.array([*TEXTS, None], pa.large_string()),
    "binary": pa.array([b"", b"a", b"\x00", b"\xff\xfe", b"ab", None]),
    "fixed": pa.array([b"aa", b"ab", b"\x00\x00", None], pa.binary(2)),
    "date": pa.array([*(one.date() for one in MOMENTS), None]),
    "timestamp": pa.array([*MOMENTS, None], pa.timestamp("us")),
    "zoned": pa.array([*MOMENTS, None], pa.timestamp("ns", "UTC")),
    "time": pa.array([dt.time(0), dt.time(23, 59, 59), None], pa.time64("us")),
    "duration": pa.array([dt.timedelta(0), dt.timedelta(-1), None], pa.duration("us")),
    "decimal": pa.array([decimal.Decimal("0.00"), decimal.Decimal("-1.50"), None]),
}
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
X = pc.field("x")


def conditions(values):
    """Conditions on the column ``x``: of each constant among the values, and of lists of them."""
    constants = [value for value in values if value.is_valid]
    for value in constants:
        yield from (compare(X, pc.scalar(value)) for compare in COMPARISONS)
        yield from (compare(pc.scalar(value), X) for compare in COMPARISONS[2:])
        yield ~(pc.scalar(value) > X)
        yield (pc.scalar(value) != X) & (constants[0] >= X) | X.is_null()
    plain = pa.array([value.as_py() for value in constants[:3]], values.type)
    yield X.isin(plain)
    yield ~X.isin(plain)
    yield X.isin(pa.concat_arrays([plain, pa.nulls(1, values.type)]))
    yield X.is_null(nan_is_null=pa.types.is_floating(values.type))
    yield X.is_valid()
    if values.type in (pa.string(), pa.large_string()):
        for text in TEXTS:
            yield pc.match_substring(X, text)
            yield ~pc.match_like(X, f"%{text}%")
            yield pc.starts_with(X, text, ignore_case=True)
            yield pc.match_substring(X, text) & (pc.scalar("a") <= X)


def column(values):
    """Every value twice, in two chunks, the second of which begins within its buffers."""
    return pa.chunked_array([values, pa.concat_arrays([values, values]).slice(len(values) // 2)])


def positions(mask):
    return pc.indices_nonzero(mask).to_pylist()


@pytest.mark.parametrize("name", VALUES)
def test_all_encodings_pass_the_rows_of_pyarrows_engine(name):
    plain = column(VALUES[name])
    table = pa.table({"x": plain, "row": np.arange(len(plain))})
    numbers = RowRanges.all(len(plain))
    seen = set()
    for expression in conditions(VALUES[name]):
        condition = Filter.of(expression, table.schema).condition
        expected = table.filter(expression)["row"].to_pylist()
        matching, rows = passing(condition, table, numbers)
        assert matching["row"].to_pylist() == expected, expression
        assert rows == RowRanges.from_rows(np.array(expected, np.int64)), expression
        encoded = pa.table({"x": plain.dictionary_encode()})
        for one in (table, encoded):
            mask = mask_of(condition, ["x"], one)
            if mask is not None:
                seen.add((one is table, condition.comparison is not None))
                assert positions(mask) == expected, expression
    is_text = name in ("string", "large_string")
    assert {has_kernel for _, has_kernel in seen} == ({True, False} if is_text else seen and {True})
