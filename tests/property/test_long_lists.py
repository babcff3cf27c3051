"""Long lists in ``IN`` mean what sqlglot reads in them, and take little time."""

import datetime
import time

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from intarsia.errors import PredicateError
from intarsia.sql import long_lists
from intarsia.sql.query import scans
from intarsia.sql.query.scans import scans_of
from intarsia.sql.where_clause import parse_where

NUMBERS = [None, 0, 1, -1, 7, 127, 100]
TABLE = pa.table(
    {
        "i8": pa.array(NUMBERS, pa.int8()),
        "i64": pa.array([None, 0, 1, -1, 2**40, 10**18 - 1, 300], pa.int64()),
        "u64": pa.array([None, 0, 1, 2**64 - 1, 2**63, 300, 7], pa.uint64()),
        "f": pa.array([None, 0.0, -0.0, 1.5, 7, float("nan"), 300], pa.float64()),
        "s": pa.array([None, "", "a", "it's", "7", "é", "IN (1)"]),
        "big": pa.array([None, "", "a", "it's", "7", "é", "x"], pa.large_string()),
        "code": pa.array([None, "a", "b", "a", "7", "", "x"]).dictionary_encode(),
        "row": pa.array(range(7)),
        "d": pa.array([None, *[datetime.date(2024, 1, day) for day in range(1, 7)]]),
    }
)
INTEGERS = st.sampled_from([0, 1, -1, 7, 127, 128, -300, 300, 2**40, 10**18 - 1, -(10**17)])
STRINGS = st.sampled_from(["", "a", "it's", "7", "é", "IN (1)", "2024-01-03", "x--y", '"'])


def quoted(value):
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def result(text, schema=TABLE.schema):
    try:
        return TABLE.filter(parse_where(text, schema)).to_pylist().__repr__()
    except (PredicateError, pa.ArrowInvalid) as error:
        return f"{type(error).__name__}: {error}"


@pytest.fixture(autouse=True, scope="module")
def _restored():
    yield
    long_lists._MIN_CHARACTERS, long_lists._MIN_VALUES = 4096, 100


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(TABLE.column_names),
    st.lists(INTEGERS, min_size=1, max_size=5) | st.lists(STRINGS, min_size=1, max_size=5),
    st.sampled_from(
        ["{0} IN ({1})", "{0} NOT IN ( {1} )", "i8 = 7 OR {0} in({1}) AND s = 'IN (1)'"]
    ),
    st.sampled_from([", ", ",", " ,\n"]),
)
@example("s", ["a"], "{0} IN ({1}, NULL)", ", ")
@example("i64", [1], "{0} IN ({1}, i8)", ", ")
@example("i64", [1], "{0} IN ({1}, 1.5)", ", ")
@example("s", ["a"], "{0} IN ({1}) /* IN (1) */ -- IN ('a')", ", ")
@example("s", ["a"], "s = E'\\'' OR {0} IN ({1})", ", ")
@example("s", ["a"], "nothing IN ({1})", ", ")
@example("s", ["a"], "{0} IN ({1}) AND nothing = 1", ", ")
def test_lists_are_read_as_sqlglot_reads_them(column, members, condition, comma):
    text = condition.format(column, comma.join(map(quoted, members)))
    long_lists._MIN_CHARACTERS = 10**9
    expected = result(text)
    long_lists._MIN_CHARACTERS = 0
    assert result(text) == expected


def scan_of(query, parameters=()):
    """The query's text, and the rows that pass the filter of its scan."""
    rewritten = scans_of(query, {"t": TABLE.schema}, parameters=parameters)
    (scan,) = rewritten.scans
    rows = TABLE if scan.filter is None else TABLE.filter(scan.filter)
    return rewritten.sql, scan.filter is None, rows["row"].to_pylist()


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([*TABLE.column_names, "lower(s)", "upper(code)", "u64 + 1"]),
    st.lists(INTEGERS, min_size=1, max_size=5) | st.lists(STRINGS, min_size=1, max_size=5),
    st.sampled_from(
        [
            "SELECT * FROM t WHERE {0} IN ({1})",
            "SELECT {0} IN ({1}), t.i8 FROM t WHERE {0} NOT IN ( {1} ) AND i64 > 0",
            "EXPLAIN SELECT * FROM t AS u WHERE i8 = 7 OR {0} in({1}) AND s = 'IN (1)' LIMIT 3",
            "WITH u AS (SELECT * FROM t) SELECT * FROM u WHERE {0} IN ({1}) ORDER BY i8 OFFSET 1",
            "SELECT * FROM t WHERE position(s IN ({1})) > 0 AND {0} IN ({1}, NULL)",
        ]
    ),
)
def test_queries_with_lists_have_the_scans_that_sqlglot_reads(column, members, query):
    text = query.format(column, ", ".join(map(quoted, members)))
    long_lists._MIN_CHARACTERS = 10**9
    expected = scan_of(text)
    long_lists._MIN_CHARACTERS = 0
    assert scan_of(text) == expected


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([*TABLE.column_names, "lower(s)"]),
    st.lists(INTEGERS | st.just(2**64), min_size=1, max_size=5)
    | st.lists(STRINGS, min_size=1, max_size=5)
    | st.lists(INTEGERS | STRINGS | st.none(), min_size=1, max_size=5),
    st.sampled_from(["{0} IN ({1})", "{0} NOT IN ({1})", "{0} IN (7, {1})", "{0} IN ?"]),
)
def test_parameters_of_lists_mean_their_values(column, members, condition):
    query = "SELECT * FROM t WHERE " + condition.format(column, ", ".join("?" for _ in members))
    parameters = [members] if condition.endswith("?") else members
    long_lists._MIN_VALUES = 10**9
    expected = scan_of(query, parameters)
    long_lists._MIN_VALUES = 1
    assert scan_of(query, parameters) == expected


@pytest.mark.parametrize("condition", ["i64 IN ({})", "s IN ({})", "i64 IN ?", "s IN (?{})"])
def test_trees_do_not_grow_with_their_lists(condition, monkeypatch):
    trees = []
    misread = scans.misread_columns
    monkeypatch.setattr(
        scans, "misread_columns", lambda tree, *rest: trees.append(tree) or misread(tree, *rest)
    )
    long_lists._MIN_CHARACTERS, long_lists._MIN_VALUES = 4096, 100
    for count in (2_000, 20_000):
        values, parameters = [str(number) for number in range(count)], ()
        if condition == "i64 IN ?":
            parameters = [list(range(count))]
        elif "?" in condition:
            values, parameters = [", ?"] * (count - 1), values
        elif condition.startswith("s"):
            values = map(quoted, values)
        separator = "" if "?" in condition else ", "
        query = "SELECT * FROM t WHERE " + condition.format(separator.join(values))
        assert scan_of(query, parameters)[2] == [
            row
            for row, value in enumerate(TABLE[condition.split()[0]].to_pylist())
            if str(value).isdigit() and int(value) < count
        ]
    small, large = (sum(1 for _ in tree.walk()) for tree in trees)
    assert small == large


def test_a_list_of_a_million_values_takes_seconds():
    long_lists._MIN_CHARACTERS = 4096
    start = time.process_time()
    for column, value in (("i64", "{}"), ("s", "'v{}'")):
        members = ", ".join(value.format(number) for number in range(300_000))
        assert TABLE.filter(parse_where(f"{column} IN ({members})", TABLE.schema)).num_rows <= 3
    assert time.process_time() - start < 8  # sqlglot takes 18
