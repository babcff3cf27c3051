"""A prepared query gives what the same query gives with its values written as constants."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.scan.prepared_filter import PreparedFilter
from intarsia.scan.request import Filter
from intarsia.sql.query import condition_template
from intarsia.sql.query.condition_template import ConditionTemplate

ROWS = 4_000
START = datetime(2020, 1, 1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    table = pa.table(
        {
            "n": range(ROWS),
            "small": pa.array([None if i % 7 == 0 else i % 100 for i in range(ROWS)], pa.int8()),
            "big": pa.array([2**64 - 1 - i for i in range(ROWS)], pa.uint64()),
            "s": [None if i % 9 == 0 else f"text {i % 500}" for i in range(ROWS)],
            "l": pa.array([f"text {i % 50}" for i in range(ROWS)], pa.large_string()),
            "v": pa.array([f"text {i % 50}" for i in range(ROWS)], pa.string_view()),
            "x": [[0.0, -0.0, math.nan, 1.5, i / 3][i % 5] for i in range(ROWS)],
            "f": pa.array([i / 4 for i in range(ROWS)], pa.float32()),
            "m": pa.array([Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(9, 2)),
            "d": [date(2020, 1, 1) + timedelta(days=i // 20) for i in range(ROWS)],
            "t": [START + timedelta(minutes=i) for i in range(ROWS)],
            "z": [START.replace(tzinfo=UTC) + timedelta(minutes=i) for i in range(ROWS)],
            "b": [i % 3 == 0 for i in range(ROWS)],
            "u": pa.array([i.to_bytes(16, "big") for i in range(ROWS)], pa.uuid()),
        }
    )
    indexes = [ia.Lookup("s"), ia.Lookup("n")]
    for number in range(2):
        part = table.slice(number * ROWS // 2, ROWS // 2)
        ia.write_table(part, folder / f"{number}.parquet", indexes=indexes)
    return ia.dataset(folder)


CASES = {
    "n = ?": [[5], [3_999], [-1], [2**40], [None], [2.5], [7], [True], [2**70], [8]],
    "n < ?": [[2.5], [3], [2.0], [4]],
    "n <= ?": [[2.5], [3]],
    "small >= ?": [[50], [127], [128], [-129], [99], [None]],
    "big = ?": [[2**64 - 1], [2**64 - 7], [-1], [2**64], [0]],
    "s = ?": [["text 7"], [""], ["absent"], ["it's"], ["\0"], [None], ["text 400"]],
    "s <> ?": [["text 7"], ["text 8"], [None]],
    "l = ?": [["text 3"], ["text 4"]],
    "v = ?": [["text 3"], ["text 4"]],
    "x = ?": [[0.0], [-0.0], [1.5], [math.nan], [math.inf], [4], [Decimal("1.5")]],
    "x > ?": [[0.5], [-0.0], [math.inf], [100]],
    "f = ?": [[0.25], [0.5], [1]],
    "m = ?": [[Decimal("0.25")], [1], [0.5]],
    "d = ?": [[date(2020, 1, 3)], [datetime(2020, 1, 3)], ["2020-01-04"], [date(2020, 2, 3)]],
    "d < ?": [[date(2020, 1, 3)], [datetime(2020, 1, 3, 4)], [date(2020, 1, 4)]],
    "t = ?": [[START], ["2020-01-01 00:05:00"], [START + timedelta(minutes=9)]],
    "z >= ?": [[datetime(2020, 1, 3, tzinfo=UTC)], ["2020-01-03 12:00:00+00"]],
    "b = ?": [[True], [False]],
    "u = ?": [["00000000-0000-0000-0000-000000000041"], ["text"]],
    "s = ? AND n >= ?": [["text 7", 1_000], ["text 8", 0], ["text 8", None], [None, 3]],
    "n >= $2 AND (s = $1)": [["text 7", 1_000], ["text 8", 600], ["text 8", 600.5]],
    "n > $1 AND n < $1": [[5], [6]],
    "S = ? AND x > ? AND n < ?": [["text 3", 0.1, 900], ["text 3", 0.2, 3_900]],
    "n = ? OR s = ?": [[5, "text 7"], [6, "text 8"]],
    "? = n": [[5], [6]],
    "? < n": [[5], [6]],
    "n BETWEEN ? AND ?": [[5, 9], [9, 5]],
    "n IN (?, ?)": [[5, 9], [9, None]],
    "n IN ?": [[[5, 9]], [(7, 8, 9)]],
    "s LIKE ?": [["text 7%"], ["%9"]],
    "NOT (n > ?)": [[5], [6]],
    "n + ? = ?": [[1, 7], [2, 7]],
    "lower(s) = ?": [["text 7"], ["text 8"]],
    "t >= date_trunc('day', ?)": [[START + timedelta(hours=30)]],
    "n < 5": [[], []],
}


def answer(ask):
    try:
        return ask()
    except ia.PredicateError:
        return "refused"


def to_table_unprepared(data, template, values, columns):
    return data.to_table(columns, template.expression(values))


@pytest.mark.parametrize("condition", CASES)
def test_prepared_queries_give_what_others_give(data, condition):
    """Each query is asked twice in both orders, so that any values may come first."""
    for calls in (CASES[condition], CASES[condition][::-1]):
        query = data.prepare(condition)
        for values in calls + calls:
            columns, other = ["n", "s"], ConditionTemplate(condition, data.schema)
            expected = answer(partial(to_table_unprepared, data, other, values, columns))
            actual = answer(partial(query.to_table, *values, columns=columns))
            count = answer(partial(query.count_rows, *values))
            if expected == "refused":
                assert actual == count == "refused", values
            else:
                assert actual.equals(expected), values
                assert count == expected.num_rows


@pytest.mark.parametrize(
    ("condition", "values", "written"),
    [
        ("s = ? AND n >= ?", ["text 7", 500], "s = 'text 7' AND n >= 500"),
        ("m = ?", [Decimal("0.25")], "m = 0.25"),
        ("t < ?", [START + timedelta(minutes=3)], "t < TIMESTAMP '2020-01-01 00:03:00'"),
        ("s IN (?, 'text 9')", ["it's"], "s IN ('it''s', 'text 9')"),
        ("n BETWEEN $2 AND $1", [70, 60], "n BETWEEN 60 AND 70"),
    ],
)
def test_values_mean_what_constants_mean(data, condition, values, written):
    query = data.prepare(condition)
    expected = data.to_table(filter=written)
    for _ in range(2):
        assert query.to_table(*values).drop(["x"]).equals(expected.drop(["x"]))  # x has NaN
    assert query.count_rows(*values) == expected.num_rows


@pytest.mark.parametrize(
    ("condition", "first", "later"),
    [("s = ?", ["a"], ["b"]), ("n < ? AND s >= ? AND x = ?", [1, "a", 0.5], [-7, "é", -0.0])],
)
def test_later_values_are_put_in_without_sql(data, monkeypatch, condition, first, later):
    condition = ConditionTemplate(condition, data.schema)
    prepared = PreparedFilter(condition)
    prepared.bind(first)
    expected = Filter.of(condition.expression(later), data.schema)
    monkeypatch.setattr(condition_template, "translated", None)
    actual = prepared.bind(later)
    assert (actual.node, actual.pruning, actual.columns) == (
        expected.node,
        expected.pruning,
        expected.columns,
    )
    assert actual.condition.comparison == expected.condition.comparison
    assert actual.condition.expression.equals(expected.condition.expression)


def test_columns_of_prepared_queries(data):
    query = data.prepare("n = ?")
    for columns in (None, [], ["s"], ["__filename", "__row_number"], {"m": pc.field("n") + 1}):
        for number in (5, 3_000):
            expected = data.to_table(columns, pc.field("n") == number)
            assert query.to_table(number, columns=columns).equals(expected)
    with pytest.raises(ia.PredicateError, match="absent"):
        query.to_table(5, columns=["absent"])
    with pytest.raises(TypeError):
        query.to_table(5, columns="n")
    with pytest.raises(ia.QueryTimeoutError):
        query.to_table(5, timeout=1e-9)


def test_a_filter_of_the_data_set_counts_too(data):
    query = data.filter("n >= 10").prepare("s = ?")
    for number in (7, 8, 510):
        expected = [n for n in range(10, ROWS) if n % 9 and n % 500 == number]
        assert query.to_table(f"text {number}", columns=["n"])["n"].to_pylist() == expected
        assert query.count_rows(f"text {number}") == len(expected)


@pytest.mark.parametrize(
    ("condition", "error"),
    [
        ("absent = ?", "absent"),
        ("n = = ?", "cannot parse"),
        ("n = $name", "parameters are"),
        ("n = $2", "parameters are"),
    ],
)
def test_wrong_conditions_are_refused(data, condition, error):
    with pytest.raises(ia.PredicateError, match=error):
        data.prepare(condition).count_rows(1)


@pytest.mark.parametrize("values", [[], [1, 2], [b"bytes"], [object()]])
def test_wrong_values_are_refused(data, values):
    query = data.prepare("n = ?")
    for _ in range(2):
        with pytest.raises(ia.PredicateError, match="parameter"):
            query.to_table(*values)
        assert query.count_rows(5) == 1


def test_equal_conditions_on_schemas_that_differ_in_metadata(tmp_path):
    field = pa.field("n", pa.int64())
    schemas = [
        pa.schema([field.with_metadata(of_field)], of_schema)
        for of_field in ({"unit": "m"}, {"unit": "s"}, None)
        for of_schema in ({"owner": "a"}, {"owner": "b"}, None)
    ]
    for number, schema in enumerate(schemas):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"n": [number, 9]}, schema), path)
        data = ia.dataset(path)
        actual = data.prepare("n = ?").to_table(number)
        expected = data.to_table(filter="n = " + str(number))
        assert actual.equals(expected, check_metadata=True)
        assert actual["n"].to_pylist() == [number]


def test_prepared_queries_are_pickled(data):
    query = pickle.loads(pickle.dumps(data.prepare("n = ?")))
    assert query.to_table(5, columns=["n"]).to_pydict() == {"n": [5]}
    assert repr(query) == "<intarsia.PreparedQuery n = ?>"


def test_threads_share_a_prepared_query(data):
    query = data.prepare("n = ?")
    numbers = np.random.default_rng(1).integers(0, ROWS, 200).tolist()
    with ThreadPoolExecutor(8) as pool:
        tables = list(pool.map(lambda n: query.to_table(n, columns=["n"]), numbers))
    assert [table["n"].to_pylist() for table in tables] == [[n] for n in numbers]
