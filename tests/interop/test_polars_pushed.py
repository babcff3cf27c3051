"""Which comparisons ``ia.polars.scan`` pushes down, by column type, constant type and operator.

Each answer is that of Polars over the same data in memory. A comparison that excludes rows must be
pushed down so that fewer rows are read, unless ``NOT_PUSHED`` names it.
"""

from __future__ import annotations

import datetime as dt
import operator
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import intarsia as ia

ROWS, PAGE_ROWS = 48, 4
NAN = float("nan")
START = dt.datetime(2020, 1, 1)
c = pl.col


def _numbers(kind: pa.DataType, first: int, step: int = 1) -> pa.Array:
    return pa.array([None if n % 11 == 5 else first + n * step for n in range(ROWS)], kind)


def _edges(kind: pa.DataType, low: int, high: int) -> pa.Array:
    """The least and greatest values of a type, and values around 2⁵³ if it has them."""
    near = [n for n in range(2**53 - 8, 2**53 + 8) if n <= high]
    others = [low, low + 1, -1, 0, 1, 2, high - 1, high]
    values = sorted({*(n for n in others if n >= low), *near})
    return pa.array((values + [high] * ROWS)[:ROWS], kind)


def _decimals(kind: pa.DataType, step: str) -> pa.Array:
    values = [None if n % 11 == 5 else (n - 8) * Decimal(step) for n in range(ROWS)]
    return pa.array(values, kind)


def _moments(kind: pa.DataType, step: dt.timedelta) -> pa.Array:
    return pa.array([None if n % 11 == 5 else START + n * step for n in range(ROWS)], kind)


def _floats(kind: pa.DataType) -> pa.Array:
    values = [-0.0, 0.0, 0.1, 1.5, 2.0, NAN, None, float("inf"), float("-inf"), 16777216.0]
    return pa.array([*values, *(n / 4 for n in range(ROWS - len(values)))], kind)


def _integers() -> dict[str, pa.Array]:
    columns = {}
    for bits in (8, 32, 64):
        signed, unsigned = getattr(pa, f"int{bits}")(), getattr(pa, f"uint{bits}")()
        columns[f"i{bits}"] = _numbers(signed, 0, 2)
        columns[f"u{bits}"] = _numbers(unsigned, 0, 2)
        if bits == 32:
            continue
        columns[f"i{bits}_edges"] = _edges(signed, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        columns[f"u{bits}_edges"] = _edges(unsigned, 0, 2**bits - 1)
    return columns


def _times() -> dict[str, pa.Array]:
    hour, seconds = dt.timedelta(hours=1), [dt.timedelta(seconds=n) for n in range(ROWS)]
    columns = {
        "date": _moments(pa.date32(), dt.timedelta(days=1)),
        "far_date": pa.array([dt.date(1 + 200 * n, 1, 1) for n in range(ROWS)], pa.date32()),
        "time": pa.array([dt.time(n // 2, n % 60) for n in range(ROWS)], pa.time64("us")),
        "time_ms": pa.array([dt.time(n // 2, n % 60) for n in range(ROWS)], pa.time32("ms")),
    }
    for unit in ("s", "ms", "us", "ns"):
        columns[f"at_{unit}"] = _moments(pa.timestamp(unit), hour)
        columns[f"span_{unit}"] = pa.array([None, *seconds[1:]], pa.duration(unit))
    return columns | {
        "utc": _moments(pa.timestamp("us", "UTC"), hour),
        "paris": _moments(pa.timestamp("ms", "Europe/Paris"), hour),
    }


def _others() -> dict[str, pa.Array]:
    texts = [None if n % 11 == 5 else f"k{n:02}" for n in range(ROWS)]
    return {
        "text": pa.array(texts),
        "large_text": pa.array(texts, pa.large_string()),
        "bytes": pa.array([text and text.encode() for text in texts], pa.binary()),
        "flag": pa.array([None if n % 11 == 5 else n >= ROWS // 2 for n in range(ROWS)]),
        "category": pa.array(texts).dictionary_encode(),
        "list": pa.array([[n, n + 1] for n in range(ROWS)]),
        "struct": pa.array([{"a": n, "d": Decimal(n)} for n in range(ROWS)]),
        "nothing": pa.nulls(ROWS, pa.int64()),
    }


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table(
        {
            **_integers(),
            "f32": _floats(pa.float32()),
            "f64": _floats(pa.float64()),
            "dec_0": _decimals(pa.decimal128(5, 0), "1"),
            "dec_2": _decimals(pa.decimal128(9, 2), "0.37"),
            "dec_4": _decimals(pa.decimal128(38, 4), "0.1111"),
            "dec_18": _decimals(pa.decimal128(20, 18), "0.1"),
            "dec_small": _decimals(pa.decimal32(7, 3), "0.125"),
            **_times(),
            **_others(),
        }
    )


@pytest.fixture(scope="module")
def data(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("pushed") / "t.parquet"
    layout = {"max_rows_per_page": PAGE_ROWS, "write_batch_size": PAGE_ROWS}
    ia.write_table(table, path, row_group_size=ROWS // 2, **layout)
    return ia.dataset(path)


NUMBERS = [3, -1, 300, 7.0, 1.5, float(2**53), NAN, Decimal(4), Decimal("0.37"), Decimal("0.375")]
NUMBERS += [Decimal("9007199254740993.5"), 2**53 + 1]
MORE_NUMBERS = [0, 2**63, 2**70, -0.0, 1e300, float("inf"), 0.1, Decimal("1e20"), Decimal("-0.1")]
MORE_NUMBERS += [pl.lit(4, dtype) for dtype in (pl.Int8, pl.UInt64, pl.Int128, pl.Float32)]
MOMENTS = [
    START,
    START.date(),
    START + dt.timedelta(hours=30, microseconds=1),
    START.date() + dt.timedelta(days=20),
    dt.datetime(9999, 12, 31),
    (START + dt.timedelta(hours=6)).replace(tzinfo=dt.UTC),
    pl.lit(START + dt.timedelta(hours=6)).cast(pl.Datetime("ns")),
    pl.lit(START + dt.timedelta(hours=6)).cast(pl.Datetime("ms")),
]
TIMES = [dt.time(3, 6), dt.time(3, 6, 0, 1), dt.time(0), dt.time(23, 59, 59, 999_999)]
SPANS = [
    dt.timedelta(seconds=7),
    dt.timedelta(0),
    dt.timedelta(days=-1),
    dt.timedelta(seconds=7, microseconds=1),
    dt.timedelta(days=40),
    pl.lit(dt.timedelta(seconds=7)).cast(pl.Duration("ns")),
    pl.lit(dt.timedelta(seconds=7)).cast(pl.Duration("ms")),
]
DECIMALS = ["dec_0", "dec_2", "dec_4", "dec_18", "dec_small"]
TEXTS = ["k07", "k0", "", "zz"]
CONSTANTS = {
    **dict.fromkeys([*_integers(), "f32", "f64", *DECIMALS], NUMBERS),
    **dict.fromkeys(["i8", "dec_2", "f64", "i64_edges", "u64_edges"], NUMBERS + MORE_NUMBERS),
    **dict.fromkeys(["date", "far_date"], MOMENTS),
    **dict.fromkeys(["at_s", "at_ms", "at_us", "at_ns", "utc", "paris"], MOMENTS),
    **dict.fromkeys(["span_s", "span_ms", "span_us", "span_ns"], SPANS),
    **dict.fromkeys(["time", "time_ms"], TIMES),
    **dict.fromkeys(["text", "large_text", "category"], TEXTS),
    "bytes": [b"k07", b"", b"\xff"],
    "flag": [True, False],
    "list": [pl.lit([3, 4])],
    "nothing": [3, 1.5],
}


def _literal(value):
    return value if isinstance(value, pl.Expr) else pl.lit(value)


COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "eq_missing": lambda column, value: column.eq_missing(value),
    "ne_missing": lambda column, value: column.ne_missing(value),
    "not ==": lambda column, value: ~(column == value),
    "not <": lambda column, value: ~(column < value),
    "mirrored <": lambda column, value: _literal(value) < column,
    "is_in": lambda column, value: column.is_in([value]),
    "is_in with NULL": lambda column, value: column.is_in([value, None]),
    "not is_in": lambda column, value: ~column.is_in([value]),
    "is_in with NULL equal": lambda column, value: column.is_in([value, None], nulls_equal=True),
    **{
        f"is_between {closed}": lambda column, value, closed=closed: column.is_between(
            value, value, closed=closed
        )
        for closed in ("both", "left", "right", "none")
    },
    "or": lambda column, value: (column == value) | (column == value),
    "and": lambda column, value: (column >= value) & (column <= value),
}


ALL = {"i8", "dec_2", "f64", "date", "at_us", "span_ms", "text"}
"""Columns to which all comparisons are applied; other columns get ``MOST``."""
MOST = ("==", "!=", "<", ">=", "is_in", "is_between left")


def is_not_pushed(name, what, constant):
    """True if a comparison does not reach the scan; ``docs/reference/pushdown.md`` lists these."""
    if name in ("list", "category"):  # neither lists nor the order of categories
        return name == "list" or not what.endswith(("==", "is_in", "equal", "missing", "NULL"))
    if name in ("f32", "f64") and constant is NAN:
        return True
    is_between = what.startswith("is_between")
    if name == "dec_18" and is_between and not isinstance(constant, pl.Expr) and constant > 300:
        return True  # Polars casts to this type, which lacks the digits
    if name == "far_date" and what in ("!=", "not =="):  # nanoseconds cannot represent most dates
        return True
    if name == "time_ms" and what.startswith("is_in") and constant.microsecond % 1000:
        return True
    return what == "eq_missing"  # constants out of range, which Polars does not pass to the scan


def predicates_of(name):
    for constant in CONSTANTS[name]:
        for what, compare in COMPARISONS.items():
            is_tried = name in ALL or what in MOST
            if is_tried and not (isinstance(constant, pl.Expr) and "is_in" in what):
                yield what, constant, compare(c(name), constant)


class Asked:
    """The answers of Polars and of a scan to predicates, and whether the scan read fewer rows."""

    def __init__(self, data, frame, monkeypatch):
        self.frame, self.lazy, self.filters, self.rows = frame, ia.polars.scan(data), [], 0
        real = ia.Dataset.to_batches

        def spy(dataset, columns=None, filter=None, **options):  # noqa: A002
            self.filters.append(filter)
            for batch in real(dataset, columns, filter, **options):
                self.rows += batch.num_rows
                yield batch

        monkeypatch.setattr(ia.Dataset, "to_batches", spy)

    def answers(self, columns, predicate):
        """True if fewer rows were read than exist, or all rows match, or Polars raises an error."""
        self.filters, self.rows = [], 0
        try:
            expected = self.frame.select(columns).filter(predicate)
        except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
            with pytest.raises(type(error)):
                self.lazy.select(columns).filter(predicate).collect()
            return True
        actual = self.lazy.select(columns).filter(predicate).collect()
        assert_frame_equal(actual, expected)
        return expected.height > ROWS - 3 * PAGE_ROWS or self.rows < ROWS


@pytest.fixture
def pushed_filters(data, table, monkeypatch):
    return Asked(data, pl.DataFrame(pl.from_arrow(table)), monkeypatch)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONSTANTS)
def test_comparisons_are_pushed_unless_they_are_named(name, pushed_filters):
    read = [
        (what, constant)
        for what, constant, predicate in predicates_of(name)
        if not pushed_filters.answers([name], predicate)
    ]
    assert [one for one in read if not is_not_pushed(name, *one)] == []
