"""Filters on durations: as strings, tuples and Expressions, with every index, in every unit."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia

ROWS, PAGE_ROWS = 600, 20
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
SECONDS = np.random.default_rng(3).permutation(ROWS) - 50
INDEXES = {
    "none": [],
    "lookup": ["d:lookup", "st.d:lookup", "m:entries"],
    "distinct": ["d:distinct", "st.d:distinct"],
    "minmax": ["d:minmax", "st.d:minmax"],
    "bloom": ["d:bloom", "st.d:bloom"],
    "page index": ["d:page_index"],
    "elements": ["l:elements"],
}


def span(seconds=0.0, **parts):
    return dt.timedelta(seconds=seconds, **parts)


@pytest.fixture(params=TICKS)
def unit(request):
    return request.param


def row_of(seconds):
    return SECONDS.tolist().index(seconds)


def table_of(unit):
    ticks, kind = TICKS[unit], pa.duration(unit)
    counts = [None if n % 50 == 7 else int(n) * ticks for n in SECONDS]
    structs = [None if count is None else {"d": count} for count in counts]
    return pa.table(
        {
            "n": range(ROWS),
            "d": pa.array(counts, kind),
            "st": pa.array(structs, pa.struct([("d", kind)])),
            "l": pa.array([[count, 0] for count in counts], pa.list_(kind)),
            "m": pa.array([[("k", count)] for count in counts], pa.map_(pa.string(), kind)),
        }
    )


def opened(unit, folder, indexes=()):
    path = folder / f"{unit}.parquet"
    if not path.exists():
        layout = {"max_rows_per_page": PAGE_ROWS, "write_batch_size": PAGE_ROWS}
        ia.write_table(table_of(unit), path, row_group_size=ROWS // 2, **layout)
    if indexes:
        ia.add_indexes(path, list(indexes))
    return ia.dataset(path)


duration = pc.field("d")
CONDITIONS = {
    "d = INTERVAL 9 SECOND": duration == span(9),
    "d = INTERVAL '9' SECONDS": duration == span(9),
    "INTERVAL '9 seconds' = d": duration == span(9),
    "d = '00:01:40'": duration == span(100),
    "d = INTERVAL '00:01:40'": duration == span(100),
    "d = '9 seconds'::INTERVAL": duration == span(9),
    "d <> INTERVAL 9 SECOND": duration != span(9),
    "d < INTERVAL '-45' SECOND": duration < span(-45),
    "d < -INTERVAL 45 SECOND": duration < span(-45),
    "d >= INTERVAL 9 MINUTE": duration >= span(540),
    "d > INTERVAL '8 minutes 50 seconds'": duration > span(530),
    "d < INTERVAL 1 SECOND - INTERVAL 1 MINUTE + INTERVAL '15 s'": duration < span(-44),
    "d > INTERVAL 1 MINUTE * 9": duration > span(540),
    "d BETWEEN INTERVAL 1 SECOND AND INTERVAL 5 SECOND": (duration >= span(1))
    & (duration <= span(5)),
    "d IN (INTERVAL 1 SECOND, INTERVAL '00:00:02', '3 seconds')": duration.isin(
        [span(1), span(2), span(3)]
    ),
    "d > INTERVAL 1 MONTH": duration > span(days=30),
    "d < INTERVAL 1 DAY AND d > INTERVAL 9 MINUTE": duration > span(540),
    "d = INTERVAL 9001 MILLISECOND": duration == span(9.001),
    "d > INTERVAL 538999999 MICROSECONDS": duration > span(538.999999),
    "d IS NOT DISTINCT FROM INTERVAL 9 SECOND": duration == span(9),
    "NOT d >= INTERVAL '-45' SECOND": duration < span(-45),
    "st.d = INTERVAL 9 SECOND": pc.field("st", "d") == span(9),
    "d = NULL": duration == pa.scalar(None, pa.duration("s")),
    "d IS NULL": duration.is_null(),
}


def test_sql_conditions_filter_as_pyarrow_does_in_memory(unit, tmp_path):
    table, data = table_of(unit), opened(unit, tmp_path)
    for text, condition in CONDITIONS.items():
        assert data.to_table(filter=text).equals(table.filter(condition)), text
        assert data.count_rows(text) == table.filter(condition).num_rows, text


OTHERS = [
    [("d", "==", span(9))],
    [("d", "in", [span(9), span(10), None])],
    [("d", ">", span(530)), ("d", "<", span(535))],
    duration == pa.scalar(span(9)),
    duration == pa.scalar(9_000_000_000, pa.duration("ns")),
    duration == pa.scalar(9_000_000_001, pa.duration("ns")),
    duration < pa.scalar(-45, pa.duration("s")),
    duration.isin(pa.array([9, 10], pa.duration("s"))),
    pc.field("st", "d") == pa.scalar(span(9)),
]


@pytest.mark.parametrize("indexes", INDEXES.values(), ids=INDEXES)
def test_every_index_keeps_matching_rows(indexes, unit, tmp_path):
    table, data = table_of(unit), opened(unit, tmp_path, indexes)
    for condition in OTHERS:
        is_list = isinstance(condition, list)
        expression = pq.filters_to_expression(condition) if is_list else condition
        assert data.to_table(filter=condition).equals(table.filter(expression)), str(condition)


@pytest.mark.parametrize("indexes", ["lookup", "distinct", "bloom"])
def test_an_index_answers_in_every_unit(indexes, unit, tmp_path):
    data = opened(unit, tmp_path, INDEXES[indexes])
    for name in ("d", "st.d"):
        plan = data.plan(["n"], f"{name} = INTERVAL 9 SECOND")
        most = PAGE_ROWS if indexes != "bloom" else ROWS // 2
        assert 1 <= plan.figures.rows.selected <= most, (name, plan)
    assert data.plan(["n"], "d = INTERVAL 9001 MILLISECOND").figures.rows.selected < ROWS


@pytest.mark.parametrize("source", ["statistics", "minmax"])
def test_bounds_of_sorted_durations_exclude_pages(source, unit, tmp_path):
    table = table_of(unit).sort_by("d")
    path = tmp_path / "a.parquet"
    layout = {"max_rows_per_page": PAGE_ROWS, "write_batch_size": PAGE_ROWS}
    ia.write_table(table, path, write_page_index=source == "statistics", **layout)
    if source == "minmax":
        ia.add_indexes(path, [ia.MinMax("d", granule_rows=PAGE_ROWS)])
    data = ia.dataset(path)
    for text in ("d > INTERVAL 1 MINUTE * 9", "d < INTERVAL '-45' SECOND"):
        assert 1 <= data.plan(["n"], text).figures.rows.selected <= 2 * PAGE_ROWS, text
        assert data.to_table(filter=text).equals(table.filter(CONDITIONS[text]))


def test_lists_and_maps_contain_durations(unit, tmp_path):
    data = opened(unit, tmp_path, ["l:elements", "m:entries"])
    expected = [row_of(9)]
    for condition in (
        "list_contains(l, INTERVAL 9 SECOND)",
        "list_has_any(l, [INTERVAL 9 SECOND, '9 seconds'])",
        "m['k'] = INTERVAL 9 SECOND",
        ia.list_contains(pc.field("l"), span(9)),
    ):
        assert data.to_table(["n"], condition)["n"].to_pylist() == expected
        assert data.plan(["n"], condition).figures.rows.selected <= 2 * PAGE_ROWS


def test_files_of_other_units_are_read_in_one(tmp_path):
    for unit in TICKS:
        opened(unit, tmp_path, ["d:lookup"])
    for unit in TICKS:
        schema = ia.dataset(tmp_path / f"{unit}.parquet").schema
        data = ia.dataset(tmp_path, schema=schema)
        assert data.count_rows("d = INTERVAL 9 SECOND") == len(TICKS)
        assert data.count_rows(duration < span(-45)) == len(TICKS) * sum(
            seconds < -45 and seconds % 50 != 7 for seconds in SECONDS
        )


def test_integers_without_an_arrow_schema_are_no_durations(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(table_of("us").select(["d"]), path, store_schema=False)
    ia.add_indexes(path, ["d:lookup"])
    assert ia.dataset(path).count_rows("d = 9000000") == 1
    spans = ia.dataset(path, schema=pa.schema([("d", pa.duration("us"))]))
    assert spans.count_rows("d = INTERVAL 9 SECOND") == 1
    numbers = ia.dataset(opened("us", tmp_path).files[0], schema=pa.schema([("d", pa.int64())]))
    assert numbers.count_rows("d = 9000000") == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("d = 9", "the number 9 does not compare with duration"),
        ("d = 'nine'", "'nine' cannot be read as duration.*write '1 day"),
        ("d = INTERVAL '1 day ago'", "the interval '1 day ago' is not understood"),
        ("d = INTERVAL '1 day 02:03:04'", "is not understood"),
        ("d = INTERVAL 1.5 SECOND", "cannot be read as duration"),
        ("d = INTERVAL '9' YEAR TO MONTH", "cannot be read as duration"),
        ("d > INTERVAL 999999999999 YEAR", "out of range"),
        ("n = INTERVAL 1 SECOND", "compares with durations, not with int64"),
        ("n + INTERVAL 1 SECOND > 5", "compares with durations, not"),
        ("INTERVAL 1 SECOND = INTERVAL 1 SECOND", "compares with durations, not"),
        ("list_contains(n, INTERVAL 1 SECOND)", "is int64"),
    ],
)
def test_undefined_conditions_are_refused(text, problem, tmp_path):
    with pytest.raises(ia.PredicateError, match=problem):
        opened("us", tmp_path).to_table(filter=text)


def test_adding_intervals_to_timestamps_respects_months(tmp_path):
    moments = pa.array([dt.datetime(2024, 2, 29), dt.datetime(2024, 3, 1)], pa.timestamp("us"))
    pq.write_table(pa.table({"at": moments}), tmp_path / "a.parquet")
    data = ia.dataset(tmp_path)
    assert data.count_rows("at = TIMESTAMP '2024-01-31' + INTERVAL 1 MONTH") == 1
    assert data.count_rows("at = TIMESTAMP '2024-02-01' + (INTERVAL 1 MONTH + INTERVAL 0 DAY)") == 1
    with pytest.raises(ia.PredicateError):
        data.count_rows("at + INTERVAL 1 MONTH > TIMESTAMP '2024-01-31'")


def test_the_command_line_takes_durations(say, tmp_path):
    path = opened("ms", tmp_path).files[0]
    where = ("--where", "d = INTERVAL 9 SECOND", "--columns", "n,d")
    assert say("scan", path, *where, "--format", "csv").lines[1:] == [f"{row_of(9)},9000"]
    (line,) = say("scan", path, *where, "--format", "json").lines
    assert json.loads(line)["n"] == row_of(9)
    assert "INTERVAL" in say("explain", path, "--where", "d = INTERVAL 9 SECOND").out
    said = say("scan", path, "--where", "n > INTERVAL 9 SECOND")
    assert said.code != 0
    assert "compares with durations" in said.err
