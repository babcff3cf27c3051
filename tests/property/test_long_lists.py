"""Long lists in ``IN`` mean what sqlglot reads in them, and take little time."""

import datetime
import time

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from intarsia.errors import PredicateError
from intarsia.sql import long_lists
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
    long_lists._MIN_CHARACTERS = 4096


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


def test_a_list_of_a_million_values_takes_seconds():
    long_lists._MIN_CHARACTERS = 4096
    start = time.process_time()
    for column, value in (("i64", "{}"), ("s", "'v{}'")):
        members = ", ".join(value.format(number) for number in range(300_000))
        assert TABLE.filter(parse_where(f"{column} IN ({members})", TABLE.schema)).num_rows <= 3
    assert time.process_time() - start < 8  # sqlglot takes 18
