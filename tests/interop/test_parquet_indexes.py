from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from indexed_pairs import (
    BLOOM_COLUMNS,
    GROUP_ROWS,
    GROUPS,
    PAGE_CONDITIONS,
    Pair,
    nested_table,
    write_bloomed,
    write_floats,
    write_nested,
    write_ordered,
)

import intarsia as ia

field = pads.field
PROCESS_IO = Path("/proc/self/io")


# --- engines, and their own statistics of what they read ------------------------------------------


@dataclass(frozen=True)
class Scan:
    """An answer, the bytes read for it, and the row groups and pages left after all pruning."""

    table: pa.Table
    bytes: int
    groups: int
    pages_looked_at: int = 0
    pages_left: int = 0


def scan_datafusion(path: Path, condition: str, *, late: bool = False) -> Scan:
    config = datafusion.SessionConfig().with_target_partitions(1)
    config = config.set("datafusion.execution.parquet.pushdown_filters", str(late).lower())
    context = datafusion.SessionContext(config)
    context.register_parquet("t", str(path))
    frame = context.sql(f"SELECT * FROM t WHERE {condition}")
    plan, schema = frame.execution_plan(), frame.schema()
    table = pa.Table.from_batches([b.to_pyarrow() for b in context.execute(plan, 0)], schema)
    scans = [actual for name, actual in plan.collect_metrics() if "DataSourceExec" in name]
    if not scans:  # a condition that is never true
        return Scan(table, 0, 0)
    metrics = scans[0]

    def counts(name: str) -> list[tuple[int, int]]:
        """Parses "391 total → 1 matched"; numbers of 1,000 or more would be abbreviated."""
        actual = [str(metric).split() for metric in metrics.metrics() if metric.name == name]
        return [(int(words[0]), int(words[3])) for words in actual]

    pages = counts("page_index_pages_pruned")
    return Scan(
        table,
        metrics.sum_by_name("bytes_scanned"),
        sum(left for _, left in counts("row_groups_pruned_bloom_filter")),
        sum(total for total, _ in pages),
        sum(left for _, left in pages),
    )


def scan_datafusion_late(path: Path, condition: str) -> Scan:
    return scan_datafusion(path, condition, late=True)


def scan_duckdb(path: Path, condition: str) -> Scan:
    profile = path.with_suffix(".profile.json")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("PRAGMA enable_profiling = 'json'")
        connection.execute(f"PRAGMA profiling_output = '{profile}'")
        actual = connection.sql(f"SELECT * FROM read_parquet('{path}') WHERE {condition}")
        table = actual.to_arrow_table()
        connection.execute("PRAGMA disable_profiling")
    metrics = json.loads(profile.read_text())
    return Scan(
        table, metrics["io"]["total_bytes_read"], metrics["query"]["total_row_groups_scanned"]
    )


def scan_polars(path: Path, condition: str) -> Scan:
    frame = pl.scan_parquet(path).filter(pl.sql_expr(condition)).collect()
    return Scan(frame.to_arrow(), 0, 0)


ENGINES: dict[str, Callable[[Path, str], Scan]] = {
    "datafusion": scan_datafusion,
    "datafusion_late": scan_datafusion_late,
    "duckdb": scan_duckdb,
    "polars": scan_polars,
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


def rows(table: pa.Table) -> list[str]:
    """The sorted rows as text, where NaN equals NaN and both zeros differ."""
    return sorted(map(str, table.to_pylist()))


def ids(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


def bytes_this_process_read() -> int:
    return int(PROCESS_IO.read_text().split()[1])


def by_id(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


# --- page indexes --------------------------------------------------------------------------------

NOT_BY_PAGE = {PAGE_CONDITIONS[name][0] for name in ("nothing", "or_of_two")}
"""DataFusion reads nothing for the first, and skips no page for an OR of two columns."""


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """One row group of 118 pages a column, without indexes and with page indexes."""
    path = write_ordered(tmp_path_factory.mktemp("ordered") / "ordered.parquet")
    return Pair.of(path, [ia.PageIndex()])


@pytest.mark.parametrize(("sql", "expression"), PAGE_CONDITIONS.values(), ids=PAGE_CONDITIONS)
def test_datafusion_reads_few_pages_by_a_page_index(sql, expression, ordered):
    before, after = scan_datafusion(ordered.before, sql), scan_datafusion(ordered.after, sql)
    expected = pq.read_table(ordered.before).filter(expression)
    assert rows(before.table) == rows(after.table) == rows(expected)
    if sql in NOT_BY_PAGE:
        return
    assert before.bytes > 0.9 * ordered.before.stat().st_size
    assert before.pages_looked_at == 0
    share = 0.25 if "waves" in sql else 0.06
    assert after.bytes < share * before.bytes
    assert after.pages_looked_at > 100
    assert after.pages_left < 0.25 * after.pages_looked_at


@pytest.mark.parametrize(("sql", "expression"), PAGE_CONDITIONS.values(), ids=PAGE_CONDITIONS)
@pytest.mark.parametrize("other", ["datafusion_late", "duckdb", "polars"])
def test_other_engines_find_the_same_rows_by_a_page_index(other, sql, expression, ordered):
    expected = ids(pq.read_table(ordered.before).filter(expression))
    if other == "polars":
        sql = sql.replace("DATE '2020-02-20'", "CAST('2020-02-20' AS DATE)")
    assert ids(ENGINES[other](ordered.before, sql).table) == expected
    assert ids(ENGINES[other](ordered.after, sql).table) == expected


@pytest.mark.skipif(not PROCESS_IO.exists(), reason="the system does not count a process's reads")
def test_datafusion_reads_a_small_part_of_the_file_including_metadata(ordered):
    taken = []
    for path in (ordered.before, ordered.after, ordered.before, ordered.after):
        start = bytes_this_process_read()
        assert scan_datafusion(path, "id BETWEEN 60000 AND 60100").table.num_rows == 101
        taken.append(bytes_this_process_read() - start)
    before, after = min(taken[::2]), min(taken[1::2])
    assert before > 0.95 * ordered.before.stat().st_size
    assert after < 0.1 * before


# --- page indexes of nested columns --------------------------------------------------------------

NESTED_CONDITIONS = [
    "id BETWEEN 2500 AND 2600",
    "id = 3333",
    "id IN (0, 2999, 3000, 5999)",
    "id < 40 OR id > 5980",
    "word = 'w00577'",
    "word > 'w02950' AND id < 5000",
]


@pytest.fixture(scope="module")
def nested_rows() -> pa.Table:
    return nested_table()


@pytest.fixture(scope="module", params=["1.0", "2.0"])
def nested(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    path = tmp_path_factory.mktemp("nested") / "nested.parquet"
    write_nested(path, request.param)
    return Pair.of(path, [ia.PageIndex()])


@pytest.fixture(scope="module")
def nested_in_part(nested: Pair) -> Pair:
    """A table of eleven columns, of which only ``id`` and ``pairs.a`` have bounds."""
    before = Path(shutil.copy(nested.before, nested.before.with_name("in-part.parquet")))
    return Pair.of(before, [ia.PageIndex(["id", "pairs.list.element.a"])])


def test_every_nested_column_has_several_pages(nested):
    metadata = pq.read_metadata(nested.after).row_group(0)
    assert metadata.num_columns == 11
    chunks = [metadata.column(i) for i in range(metadata.num_columns)]
    assert all(chunk.has_offset_index and chunk.has_column_index for chunk in chunks)


@pytest.mark.parametrize("condition", NESTED_CONDITIONS)
def test_nested_values_stay_with_their_rows_where_pages_are_skipped(
    condition, engine, nested, nested_in_part, nested_rows
):
    with duckdb.connect() as connection:
        connection.register("t", nested_rows.select(["id", "word"]))
        matching_ids = connection.sql(f"SELECT id FROM t WHERE {condition}").fetchall()
    expected = nested_rows.take(sorted(n for (n,) in matching_ids)).to_pylist()
    assert by_id(ENGINES[engine](nested.before, condition).table) == expected
    assert by_id(ENGINES[engine](nested.after, condition).table) == expected
    assert by_id(ENGINES[engine](nested_in_part.after, condition).table) == expected


def test_datafusion_skips_pages_of_nested_columns(nested):
    before = scan_datafusion(nested.before, "id BETWEEN 2500 AND 2600")
    after = scan_datafusion(nested.after, "id BETWEEN 2500 AND 2600")
    assert after.bytes < 0.2 * before.bytes


@pytest.mark.parametrize("columns", [None, ["id"]])
def test_datafusion_skips_pages_where_all_columns_have_an_offset_index(columns, tmp_path):
    x = np.random.default_rng(0).random(50_000)
    x[5000] = np.nan  # no ColumnIndex for this column, which does not matter
    path = tmp_path / "few.parquet"
    table = pa.table({"id": np.arange(50_000), "x": x})
    pq.write_table(table, path, compression="none", use_dictionary=False, data_page_size=8192)
    pair = Pair.of(path, [ia.PageIndex(columns)])
    before, after = (scan_datafusion(p, "id = 30000") for p in (pair.before, pair.after))
    assert rows(before.table) == rows(after.table)
    assert after.pages_looked_at > 0
    assert after.bytes < 0.05 * before.bytes


# --- bloom filters -------------------------------------------------------------------------------

TEXT = "CAST('{}' AS {})".format
LITERALS: dict[str, Callable[[Any], str]] = {
    "f32": lambda v: TEXT(v, "REAL"),
    "f64": lambda v: TEXT(repr(v), "DOUBLE"),
    "text": "'{}'".format,
    "raw": lambda v: f"'{v.decode()}'::BLOB",
    "fixed": lambda v: f"unhex('{v.hex()}')",
    "day": lambda v: f"DATE '{v}'",
    "ts": lambda v: f"TIMESTAMP '{v}'",
    "ts_utc": lambda v: f"TIMESTAMPTZ '{v}'",
    "money": lambda v: TEXT(v, "DECIMAL(9, 2)"),
    "fortune": lambda v: TEXT(v, "DECIMAL(30, 5)"),
}
DATAFUSION_LITERALS: dict[str, Callable[[Any], str]] = LITERALS | {
    "raw": lambda v: f"X'{v.hex()}'",
    "fixed": lambda v: f"arrow_cast(X'{v.hex()}', 'FixedSizeBinary(8)')",
    "ts_utc": lambda v: (
        f"arrow_cast('{v:%Y-%m-%dT%H:%M:%S.%f}Z', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    ),
}
SKIPS = {
    "datafusion": BLOOM_COLUMNS.keys() - {"i16", "day", "ts", "ts_utc"},
    "duckdb": BLOOM_COLUMNS.keys() - {"money", "fortune"},
}
"""The types for which an engine uses bloom filters; it reads the others as before."""
PRESENT = [0, 9_002, 31_998]
ABSENT = [10_001, 21_001]


@pytest.fixture(scope="module")
def bloomed(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    path = tmp_path_factory.mktemp("bloomed") / "bloomed.parquet"
    write_bloomed(path, BLOOM_COLUMNS, ["i32", "f64", "text", "fixed"])
    return Pair.of(path, [ia.Bloom(name, fpp=0.0001) for name in BLOOM_COLUMNS])


def equals(name: str, n: int, engine: str) -> str:
    literals = DATAFUSION_LITERALS if engine == "datafusion" else LITERALS
    return f"{name} = {literals.get(name, str)(value_of(name, n))}"


def value_of(name: str, n: int) -> Any:
    return BLOOM_COLUMNS[name][1](n)


def test_bounds_of_row_groups_do_not_exclude_the_values_looked_up(bloomed):
    metadata = pq.read_metadata(bloomed.before)
    assert metadata.num_row_groups == GROUPS
    for group in range(GROUPS):
        statistics = metadata.row_group(group).column(0).statistics
        assert statistics.min < min(PRESENT[1], *ABSENT)
        assert statistics.max > max(PRESENT[1], *ABSENT)


@pytest.mark.parametrize("name", BLOOM_COLUMNS)
@pytest.mark.parametrize("engine", ["datafusion", "duckdb"])
def test_present_values_are_found_as_before_bloom_filters(name, engine, bloomed):
    for n in PRESENT:
        condition = equals(name, n, engine)
        before = ENGINES[engine](bloomed.before, condition)
        after = ENGINES[engine](bloomed.after, condition)
        assert ids(before.table) == [n]
        assert rows(after.table) == rows(before.table)
        if n == PRESENT[1]:
            assert before.groups == GROUPS
            assert after.groups == (1 if name in SKIPS[engine] else GROUPS)


@pytest.mark.parametrize("name", BLOOM_COLUMNS)
@pytest.mark.parametrize("engine", ["datafusion", "duckdb"])
def test_row_groups_without_a_value_are_skipped_by_bloom_filters(name, engine, bloomed):
    for n in ABSENT:
        condition = equals(name, n, engine)
        before = ENGINES[engine](bloomed.before, condition)
        after = ENGINES[engine](bloomed.after, condition)
        assert before.table.num_rows == after.table.num_rows == 0
        assert before.groups == GROUPS
        assert after.groups == (0 if name in SKIPS[engine] else GROUPS)
    if name == "i64":
        assert after.bytes < 0.06 * before.bytes


@pytest.mark.parametrize("name", ["i32", "i64", "text"])
def test_datafusion_skips_row_groups_that_hold_no_value_of_a_list(name, bloomed):
    literal = LITERALS.get(name, str)
    expected = ", ".join(literal(value_of(name, n)) for n in (PRESENT[1], *ABSENT))
    before = scan_datafusion(bloomed.before, f"{name} IN ({expected})")
    after = scan_datafusion(bloomed.after, f"{name} IN ({expected})")
    assert ids(before.table) == ids(after.table) == [PRESENT[1]]
    assert (before.groups, after.groups) == (GROUPS, 1)


@pytest.mark.parametrize("name", sorted(SKIPS["duckdb"]))
def test_duckdb_probes_the_filters_of_all_row_groups(name, bloomed):
    holding = pq.read_table(bloomed.before, columns=["id"])["id"].to_pylist()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for n in PRESENT + ABSENT:
            value = equals(name, n, "duckdb").split(" = ")[1]
            probe = f"parquet_bloom_probe('{bloomed.after}', '{name}', {value})"
            actual = connection.sql(
                f"SELECT row_group_id FROM {probe} WHERE NOT bloom_filter_excludes"
            )
            expected = [] if n in ABSENT else [holding.index(n) // GROUP_ROWS]
            assert [group for (group,) in actual.fetchall()] == expected


# --- zeros and NaN -------------------------------------------------------------------------------

FLOAT_CONDITIONS = {
    "zero": "x = 0",
    "float_zero": "x = CAST('0.0' AS {type})",
    "minus_zero": "x = CAST('-0.0' AS {type})",
    "zero_of_many": "x IN (0, 1.5)",
    "zero_and_up": "x >= 0",
    "below_zero": "x < 0",
    "up_to_zero": "x <= CAST('-0.0' AS {type}) AND id % 7 = 0",
    "nan": "x = CAST('NaN' AS {type})",
    "not_nan": "x <> CAST('NaN' AS {type})",
    "above_two": "x > 2",
    "one": "x = 1",
    "between": "x BETWEEN 1 AND 1.5",
    "nothing": "x = 77.125",
}


@pytest.fixture(
    scope="module",
    params=[(1, True, "float"), (1, True, "double"), (10, False, "float"), (10, False, "double")],
    ids=lambda param: f"{param[2]}-in-{param[0]}",
)
def floats(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Pair, str]:
    groups, statistics, sql_type = request.param
    path = tmp_path_factory.mktemp("floats") / "floats.parquet"
    write_floats(path, sql_type, groups, statistics=statistics)
    return Pair.of(path, [ia.PageIndex(), ia.Bloom("x", fpp=0.0001)]), sql_type


@pytest.mark.parametrize("condition", FLOAT_CONDITIONS.values(), ids=FLOAT_CONDITIONS)
def test_zeros_and_nan_are_found_as_before(condition, engine, floats):
    pair, sql_type = floats
    condition = condition.format(type=sql_type)
    before = ENGINES[engine](pair.before, condition).table
    after = ENGINES[engine](pair.after, condition).table
    assert rows(after) == rows(before)
    if condition.startswith("x = CAST('NaN'"):
        return  # some skip a row group whose numeric bounds exclude it, though it has NaN
    assert before.num_rows or "77" in condition


def test_a_bloom_filter_contains_both_zeros(floats):
    pair, sql_type = floats
    zeros = ids(pq.read_table(pair.before).filter(field("x") == 0))
    assert len(zeros) > 180
    for zero in ("0.0", "-0.0"):
        actual = scan_duckdb(pair.after, f"x = CAST('{zero}' AS {sql_type})")
        assert ids(actual.table) == zeros


def test_nan_is_above_two_in_engines_where_it_is_the_greatest(floats):
    pair, _ = floats
    table = pq.read_table(pair.before)
    x = table["x"].to_numpy()
    expected = np.flatnonzero((x > 2) | (np.isnan(x) & (np.arange(1000) % 10 != 5))).tolist()
    assert ids(scan_duckdb(pair.after, "x > 2").table) == expected


# --- files by other writers ----------------------------------------------------------------------

BLOOMED = ["i32", "i64", "u64", "f64", "text", "raw", "day", "ts_us", "ts_utc"]
FLAT_CONDITIONS = ["id BETWEEN 700 AND 720 OR i64 = 1000000000000", "text = 'né 702'"]


@pytest.fixture(scope="module")
def pairs(originals: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    folder = tmp_path_factory.mktemp("pairs")
    indexes = [ia.PageIndex(), *map(ia.Bloom, BLOOMED)]
    return {
        name: Pair.of(Path(shutil.copy(path, folder)), indexes) for name, path in originals.items()
    }


def test_files_by_other_writers_get_the_indexes(writer, pairs):
    (report,) = ia.list_indexes(pairs[writer].after)
    names = {actual.name for actual in report.standard}  # DuckDB itself writes some filters
    assert names >= {"page_index", *(f"{name}:bloom" for name in BLOOMED)}
    metadata = pq.read_metadata(pairs[writer].after)
    for group in range(metadata.num_row_groups):
        for i in range(metadata.num_columns):
            assert metadata.row_group(group).column(i).has_offset_index


def test_a_file_by_another_writer_is_read_as_before(writer, reader, pairs):
    before, after = reader(pairs[writer].before), reader(pairs[writer].after)
    assert after.schema.equals(before.schema)
    for actual, expected in zip(after.columns, before.columns, strict=True):
        assert actual.equals(expected) or str(actual.to_pylist()) == str(expected.to_pylist())


@pytest.mark.parametrize("condition", FLAT_CONDITIONS)
def test_few_rows_of_a_file_by_another_writer_are_read_as_before(condition, writer, engine, pairs):
    before = ENGINES[engine](pairs[writer].before, condition).table
    after = ENGINES[engine](pairs[writer].after, condition).table
    assert rows(after) == rows(before)
    assert before.num_rows
