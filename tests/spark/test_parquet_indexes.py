from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from indexed_pairs import (
    BLOOM_COLUMNS,
    GROUP_ROWS,
    GROUPS,
    ORDERED_ROWS,
    PAGE_CONDITIONS,
    PAGE_ROWS,
    Pair,
    nested_table,
    write_bloomed,
    write_floats,
    write_nested,
    write_ordered,
)

import intarsia as ia

pytestmark = pytest.mark.spark

field = pads.field


@dataclass(frozen=True)
class Scan:
    """An answer of Spark's own reader, the bytes read from files, and the rows out of the scan."""

    rows: list[dict[str, Any]]
    bytes: int
    rows_scanned: int

    @property
    def text(self) -> list[str]:
        """The sorted rows as text, where NaN equals NaN and both zeros differ."""
        return sorted(map(str, self.rows))

    @property
    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows)


@pytest.fixture(scope="module")
def scan(spark) -> Callable[..., Scan]:
    file_system = spark._jvm.org.apache.hadoop.fs.FileSystem

    def bytes_read() -> int:
        return sum(actual.getBytesRead() for actual in file_system.getAllStatistics())

    def scan_spark(path: Path, condition: str) -> Scan:
        # Hadoop does not count vectored reads.
        reader = spark.read.option("parquet.hadoop.vectored.io.enabled", "false")
        frame = reader.parquet(str(path)).where(condition)
        start = bytes_read()
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        taken = bytes_read() - start
        leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
        return Scan(rows, taken, leaf.metrics().apply("numOutputRows").value())

    return scan_spark


# --- page indexes --------------------------------------------------------------------------------

CONDITIONS = ("range", "in", "or_of_two", "and", "text", "among_nulls")


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """One row group of 118 pages a column, without indexes and with page indexes."""
    path = write_ordered(tmp_path_factory.mktemp("ordered") / "ordered.parquet")
    return Pair.of(path, [ia.PageIndex()])


@pytest.mark.parametrize("condition", CONDITIONS)
def test_spark_reads_few_pages_by_a_page_index(condition, ordered, scan):
    sql, expression = PAGE_CONDITIONS[condition]
    before, after = scan(ordered.before, sql), scan(ordered.after, sql)
    expected = pq.read_table(ordered.before).filter(expression).to_pylist()
    assert before.text == after.text == sorted(map(str, expected))
    assert before.bytes > 0.9 * ordered.before.stat().st_size
    assert before.rows_scanned == ORDERED_ROWS
    assert after.bytes < 0.1 * before.bytes
    assert after.rows_scanned <= 4 * PAGE_ROWS


# --- page indexes of nested columns --------------------------------------------------------------

NESTED_CONDITIONS = {
    "id BETWEEN 2500 AND 2600": 0.1,
    "id IN (0, 2999, 3000, 5999) OR id < 40 OR word = 'w00577'": 0.5,
}
"""The maximum number of rows scanned: pages of ``id`` have 250 rows, of ``word`` 800 to 1000."""


@pytest.fixture(scope="module")
def nested_rows() -> list[dict[str, Any]]:
    return nested_table().to_pylist(maps_as_pydicts="strict")


@pytest.fixture(scope="module", params=["1.0", "2.0"])
def nested(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_nested(tmp_path_factory.mktemp("nested") / "nested.parquet", request.param)


def test_nested_values_stay_with_their_rows_where_pages_are_skipped(nested, nested_rows, scan):
    everywhere = Pair.of(nested, [ia.PageIndex()])
    copy = Path(shutil.copy(nested, nested.with_name("in-part.parquet")))
    in_part = Pair.of(copy, [ia.PageIndex(["id", "pairs.list.element.a"])])
    for condition, share in NESTED_CONDITIONS.items():
        before, after = scan(nested, condition), scan(everywhere.after, condition)
        expected = [nested_rows[n] for n in before.ids]
        assert expected
        assert sorted(before.rows, key=lambda row: row["id"]) == expected
        assert sorted(after.rows, key=lambda row: row["id"]) == expected
        assert after.rows_scanned < share * before.rows_scanned
        partly = scan(in_part.after, condition)
        assert sorted(partly.rows, key=lambda row: row["id"]) == expected


# --- bloom filters -------------------------------------------------------------------------------

LITERALS: dict[str, Callable[[Any], str]] = {
    "i16": str,
    "i32": str,
    "i64": str,
    "f32": "CAST('{}' AS FLOAT)".format,
    "f64": lambda v: f"CAST('{v!r}' AS DOUBLE)",
    "text": "'{}'".format,
    "raw": lambda v: f"X'{v.hex()}'",
    "fixed": lambda v: f"X'{v.hex()}'",
    "day": "DATE '{}'".format,
    "ts": "TIMESTAMP_NTZ '{}'".format,
    "ts_utc": "TIMESTAMP '{}'".format,
    "money": "{}BD".format,
    "fortune": "{}BD".format,
}
NOT_LOOKED_FOR = {"fixed", "ts"}
"""Types for which Spark does not skip by bounds or filters, though its plan lists them."""
PRESENT = 9_002
ABSENT = 21_001


@pytest.fixture(scope="module")
def bloomed(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    path = tmp_path_factory.mktemp("bloomed") / "bloomed.parquet"
    write_bloomed(path, LITERALS, [])
    return Pair.of(path, [ia.Bloom(name, fpp=0.0001) for name in LITERALS])


def equals(name: str, n: int) -> str:
    return f"{name} = {LITERALS[name](BLOOM_COLUMNS[name][1](n))}"


@pytest.fixture(scope="module")
def without_filters(bloomed: Pair, scan: Callable[..., Scan]) -> Scan:
    actual = scan(bloomed.before, equals("i64", PRESENT))
    assert actual.ids == [PRESENT]
    assert actual.rows_scanned == GROUPS * GROUP_ROWS
    assert actual.bytes > 0.9 * bloomed.before.stat().st_size
    return actual


@pytest.mark.parametrize("name", LITERALS)
def test_spark_reads_the_row_group_with_a_value_by_bloom_filters(
    name, bloomed, without_filters, scan
):
    actual = scan(bloomed.after, equals(name, PRESENT))
    assert actual.text == without_filters.text
    if name in NOT_LOOKED_FOR:
        assert actual.rows_scanned == without_filters.rows_scanned
    else:
        assert actual.rows_scanned == GROUP_ROWS
        assert actual.bytes < 0.25 * without_filters.bytes


@pytest.mark.parametrize("name", sorted(LITERALS.keys() - NOT_LOOKED_FOR))
def test_spark_reads_no_row_group_without_a_value_by_bloom_filters(
    name, bloomed, without_filters, scan
):
    actual = scan(bloomed.after, equals(name, ABSENT))
    assert actual.rows == []
    assert actual.rows_scanned == 0
    assert actual.bytes < 0.1 * without_filters.bytes


# --- zeros and NaN -------------------------------------------------------------------------------

FLOAT_CONDITIONS = ["x = 0", "x = {type}('-0.0')", "x = {type}('NaN')", "x > 2", "x = 1"]


@pytest.mark.parametrize(("sql_type", "groups"), [("float", 10), ("double", 1)])
def test_zeros_and_nan_are_found_as_before(sql_type, groups, tmp_path, scan):
    path = tmp_path / "floats.parquet"
    write_floats(path, sql_type, groups, statistics=groups == 1)
    pair = Pair.of(path, [ia.PageIndex(), ia.Bloom("x", fpp=0.0001)])
    for condition in FLOAT_CONDITIONS:
        condition = condition.format(type=sql_type)
        before, after = scan(pair.before, condition), scan(pair.after, condition)
        assert after.text == before.text
        assert before.rows or "NaN" in condition
        if condition == "x = 0":
            zeros = pq.read_table(path).filter(field("x") == 0)["id"].to_pylist()
            assert after.ids == zeros
            assert len(zeros) > 180


# --- files by other writers, and Spark's for other readers ---------------------------------------


@pytest.mark.parametrize("writer", ["duckdb", "polars"])
def test_spark_reads_a_file_by_another_writer_as_before(writer, tmp_path, scan):
    path = tmp_path / "other.parquet"
    table = nested_table().drop_columns(["map"])
    if writer == "polars":
        pl.from_arrow(table).write_parquet(path, row_group_size=2048, data_page_size=2000)
    else:
        with duckdb.connect() as connection:
            connection.register("t", table)
            connection.execute(f"COPY t TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    pair = Pair.of(path, [ia.PageIndex(), ia.Bloom("id"), ia.Bloom("word")])
    for condition in ("true", "id = 3333 OR word = 'w00577'"):
        before, after = scan(pair.before, condition), scan(pair.after, condition)
        assert len(before.rows) == (table.num_rows if condition == "true" else 3)
        assert after.text == before.text


BLOOMED = ["i8", "i32", "key", "f64", "money", "hash", "raw", "day", "ts", "ts_ntz", "struct.b.c"]
SPARK_CONDITIONS = ["id BETWEEN 700 AND 720", "key = 3919 OR i8 = 17"]


@pytest.fixture(scope="module")
def lake(by_spark: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("lake") / "lake"
    shutil.copytree(by_spark, folder)
    return Pair.of(folder, [ia.PageIndex(), *map(ia.Bloom, BLOOMED)])


def test_spark_reads_its_own_files_as_before(lake, scan):
    for condition in ("true", *SPARK_CONDITIONS):
        before, after = scan(lake.before, condition), scan(lake.after, condition)
        assert before.rows
        assert after.text == before.text


def read_datafusion(path: Path) -> pa.Table:
    return datafusion.SessionContext().read_parquet(str(path)).to_arrow_table()


def read_duckdb(path: Path) -> pa.Table:
    with duckdb.connect() as connection:
        return connection.sql(f"FROM read_parquet('{path}')").to_arrow_table()


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "pyarrow": lambda path: pq.ParquetFile(path).read(),
    "duckdb": read_duckdb,
    "polars": lambda path: pl.read_parquet(path, hive_partitioning=False).to_arrow(),
    "datafusion": read_datafusion,
}


@pytest.mark.parametrize("reader", READERS)
def test_other_engines_read_sparks_files_as_before(reader, lake):
    files = sorted(lake.before.rglob("*.parquet"))
    assert len(files) == 3
    for file in files:
        before = READERS[reader](file)
        after = READERS[reader](lake.after / file.relative_to(lake.before))
        assert after.num_rows > 1000
        assert after.schema.equals(before.schema)
        for actual, expected in zip(after.columns, before.columns, strict=True):
            assert actual.equals(expected) or str(actual.to_pylist()) == str(expected.to_pylist())
