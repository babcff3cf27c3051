from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
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


@dataclass(frozen=True)
class Pair:
    """A file or folder, and a copy that has indexes."""

    before: Path
    after: Path

    @classmethod
    def of(cls, before: Path, indexes: list[Any]) -> Pair:
        after = before.with_name(f"indexed-{before.name}")
        (shutil.copytree if before.is_dir() else shutil.copy)(before, after)
        for check in after.rglob(".*.crc"):
            check.unlink()
        ia.add_indexes(after, indexes)
        return cls(before, after)


# --- page indexes --------------------------------------------------------------------------------

PAGE_ROWS = 1024
ROWS = 120_000
DAY = dt.date(2020, 1, 1)
PAGE_CONDITIONS: dict[str, tuple[str, pads.Expression]] = {
    "range": ("id BETWEEN 60000 AND 60100", (field("id") >= 60_000) & (field("id") <= 60_100)),
    "in": ("id IN (5, 60000, 119999)", field("id").isin([5, 60_000, 119_999])),
    "or": ("id < 5 OR down = 70000", (field("id") < 5) | (field("down") == 70_000)),
    "and": ("id > 90000 AND down > 29990", (field("id") > 90_000) & (field("down") > 29_990)),
    "text": (
        f"name = '{'né' * 20}-060000-{'z' * 40}'",
        field("name") == f"{'né' * 20}-060000-{'z' * 40}",
    ),
    "among_nulls": ("gaps < 40100", field("gaps") < 40_100),
}


def ordered_table() -> pa.Table:
    numbers = np.arange(ROWS)
    days = numbers // 1000 + (DAY - dt.date(1970, 1, 1)).days
    return pa.table(
        {
            "id": numbers,
            "down": ROWS - numbers,
            "name": [f"{'né' * 20}-{n:06}-{'z' * 40}" for n in range(ROWS)],
            "day": pa.array(days, pa.int32()).cast(pa.date32()),
            "gaps": pa.array(numbers, mask=(numbers < 40_000) | (numbers >= 42_000)),
            "noise": np.random.default_rng(1).random(ROWS),
        }
    )


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """One row group of 118 pages a column, without indexes and with page indexes."""
    path = tmp_path_factory.mktemp("ordered") / "ordered.parquet"
    pq.write_table(
        ordered_table(),
        path,
        row_group_size=ROWS,
        compression="none",
        use_dictionary=False,
        max_rows_per_page=PAGE_ROWS,
        write_batch_size=PAGE_ROWS,
        write_page_index=False,
    )
    return Pair.of(path, [ia.PageIndex()])


@pytest.mark.parametrize(("sql", "expression"), PAGE_CONDITIONS.values(), ids=PAGE_CONDITIONS)
def test_spark_reads_few_pages_by_a_page_index(sql, expression, ordered, scan):
    before, after = scan(ordered.before, sql), scan(ordered.after, sql)
    expected = pq.read_table(ordered.before).filter(expression).to_pylist()
    assert before.text == after.text == sorted(map(str, expected))
    assert before.bytes > 0.9 * ordered.before.stat().st_size
    assert before.rows_scanned == ROWS
    assert after.bytes < 0.1 * before.bytes
    assert after.rows_scanned <= 4 * PAGE_ROWS


# --- page indexes of nested columns --------------------------------------------------------------

NESTED_ROWS = 6000
NESTED_CONDITIONS = {
    "id BETWEEN 2500 AND 2600": 0.1,
    "id IN (0, 2999, 3000, 5999) OR id < 40 OR word = 'w00577'": 0.5,
}
"""The maximum number of rows scanned: pages of ``id`` have 250 rows, of ``word`` 800 to 1000."""


def nested_table() -> pa.Table:
    sizes = np.random.default_rng(3).integers(-1, 9, NESTED_ROWS).tolist()
    sizes[1000] = sizes[4000] = 3000  # longer than a page
    numbers = range(NESTED_ROWS)
    lists = [None if size < 0 else list(range(n, n + size)) for n, size in enumerate(sizes)]
    pairs = [
        actual
        and [None if i % 5 == 4 else {"a": i, "b": f"b{i}" if i % 3 else None} for i in actual]
        for actual in lists
    ]
    maps = [
        None if size < 0 else [(f"k{i}", n + i) for i in range(size)]
        for n, size in enumerate(sizes)
    ]
    return pa.table(
        {
            "id": pa.array(numbers),
            "word": [f"w{n % 3000:05}" for n in numbers],
            "list": pa.array(lists, pa.list_(pa.int32())),
            "pairs": pa.array(pairs, pa.list_(pa.struct([("a", "int64"), ("b", "string")]))),
            "map": pa.array(maps, pa.map_("string", "int64")),
            "struct": pa.array(
                [None if n % 7 == 0 else {"x": n, "y": lists[n]} for n in numbers],
                pa.struct([("x", "int32"), ("y", pa.list_(pa.int32()))]),
            ),
        }
    )


@pytest.fixture(scope="module")
def nested_rows() -> list[dict[str, Any]]:
    return nested_table().to_pylist(maps_as_pydicts="strict")


@pytest.fixture(scope="module", params=["1.0", "2.0"])
def nested(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nested") / "nested.parquet"
    pq.write_table(
        nested_table(),
        path,
        row_group_size=NESTED_ROWS // 2,
        data_page_size=2000,
        data_page_version=request.param,
        use_dictionary=["word"],
        write_batch_size=50,
        write_page_index=False,
    )
    return path


def test_nested_values_stay_with_their_rows_where_pages_are_skipped(nested, nested_rows, scan):
    everywhere = Pair.of(nested, [ia.PageIndex()])
    copy = Path(shutil.copy(nested, nested.with_name("in-part.parquet")))
    in_part = Pair.of(copy, [ia.PageIndex(["id", "pairs.list.element.a"])])
    for condition, share in NESTED_CONDITIONS.items():
        before, after = scan(nested, condition), scan(everywhere.after, condition)
        kept = [nested_rows[n] for n in before.ids]
        assert kept
        assert sorted(before.rows, key=lambda row: row["id"]) == kept
        assert sorted(after.rows, key=lambda row: row["id"]) == kept
        assert after.rows_scanned < share * before.rows_scanned
        partly = scan(in_part.after, condition)
        assert sorted(partly.rows, key=lambda row: row["id"]) == kept


# --- bloom filters -------------------------------------------------------------------------------

GROUPS = 8
GROUP_ROWS = 2000
EPOCH = dt.datetime(2020, 1, 1)
KINDS: dict[str, tuple[pa.DataType, Callable[[int], Any], Callable[[Any], str]]] = {
    "i16": (pa.int16(), lambda n: n - 15_000, str),
    "i32": (pa.int32(), lambda n: n * 10_007, str),
    "i64": (pa.int64(), lambda n: n * 10_000_000_007, str),
    "f32": (pa.float32(), lambda n: n / 4, "CAST('{}' AS FLOAT)".format),
    "f64": (pa.float64(), lambda n: n / 3, lambda v: f"CAST('{v!r}' AS DOUBLE)"),
    "text": (pa.string(), "né {:06}".format, "'{}'".format),
    "raw": (pa.binary(), lambda n: b"b%06d" % n, lambda v: f"X'{v.hex()}'"),
    "fixed": (pa.binary(8), lambda n: n.to_bytes(8, "big"), lambda v: f"X'{v.hex()}'"),
    "day": (pa.date32(), lambda n: DAY + dt.timedelta(n), "DATE '{}'".format),
    "ts": (
        pa.timestamp("us"),
        lambda n: EPOCH + dt.timedelta(microseconds=n * 60_000_001),
        "TIMESTAMP_NTZ '{}'".format,
    ),
    "ts_utc": (
        pa.timestamp("us", "UTC"),
        lambda n: (EPOCH + dt.timedelta(microseconds=n * 60_000_001)).replace(tzinfo=dt.UTC),
        "TIMESTAMP '{}'".format,
    ),
    "money": (pa.decimal128(9, 2), lambda n: Decimal(n - 9_000).scaleb(-2), "{}BD".format),
    "fortune": (pa.decimal128(30, 5), lambda n: Decimal(n - 9_000).scaleb(-5), "{}BD".format),
}
NOT_LOOKED_FOR = {"fixed", "ts"}
"""Types for which Spark does not skip by bounds or filters, though its plan lists them."""
PRESENT = 9_002
ABSENT = 21_001


def bloom_table() -> pa.Table:
    """All even numbers below 32,000 in random order: each row group has small and large ones."""
    numbers = (np.random.default_rng(7).permutation(GROUPS * GROUP_ROWS) * 2).tolist()
    columns = {name: pa.array(map(kind[1], numbers), kind[0]) for name, kind in KINDS.items()}
    return pa.table({"id": numbers} | columns)


@pytest.fixture(scope="module")
def bloomed(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    path = tmp_path_factory.mktemp("bloomed") / "bloomed.parquet"
    pq.write_table(
        bloom_table(),
        path,
        row_group_size=GROUP_ROWS,
        compression="none",
        use_dictionary=False,
        write_page_index=False,
    )
    return Pair.of(path, [ia.Bloom(name, fpp=0.0001) for name in KINDS])


def equals(name: str, n: int) -> str:
    _, value, literal = KINDS[name]
    return f"{name} = {literal(value(n))}"


@pytest.fixture(scope="module")
def without_filters(bloomed: Pair, scan: Callable[..., Scan]) -> Scan:
    actual = scan(bloomed.before, equals("i64", PRESENT))
    assert actual.ids == [PRESENT]
    assert actual.rows_scanned == GROUPS * GROUP_ROWS
    assert actual.bytes > 0.9 * bloomed.before.stat().st_size
    return actual


@pytest.mark.parametrize("name", KINDS)
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


@pytest.mark.parametrize("name", sorted(KINDS.keys() - NOT_LOOKED_FOR))
def test_spark_reads_no_row_group_without_a_value_by_bloom_filters(
    name, bloomed, without_filters, scan
):
    actual = scan(bloomed.after, equals(name, ABSENT))
    assert actual.rows == []
    assert actual.rows_scanned == 0
    assert actual.bytes < 0.1 * without_filters.bytes


# --- zeros and NaN -------------------------------------------------------------------------------

FLOAT_CONDITIONS = ["x = 0", "x = {type}('-0.0')", "x = {type}('NaN')", "x > 2", "x = 1"]


def float_table(sql_type: str) -> pa.Table:
    """Ten pages of 100 rows with different zeros, NaN and numbers; row group bounds exclude
    nothing.
    """
    noise = np.random.default_rng(2)
    x = noise.choice([-5.0, -1.0, -0.25, 0.25, 1.0, 1.5, 5.0], (10, 100))
    x[2:5] = noise.choice([0.25, 0.5, 1.25], (3, 100))  # nothing above two, except NaN
    x[0, 7] = x[5, 3] = 0.0
    x[1, 7] = x[5, 9] = -0.0
    x[2, ::9] = np.nan
    x[6] = 0.0
    x[7] = -0.0
    x[8] = np.nan
    values = x.ravel().astype(np.float32 if sql_type == "float" else np.float64)
    return pa.table({"id": np.arange(1000), "x": values})


@pytest.mark.parametrize(("sql_type", "groups"), [("float", 10), ("double", 1)])
def test_zeros_and_nan_are_found_as_before(sql_type, groups, tmp_path, scan):
    path = tmp_path / "floats.parquet"
    pq.write_table(
        float_table(sql_type),
        path,
        row_group_size=1000 // groups,
        use_dictionary=False,
        max_rows_per_page=100,
        write_batch_size=100,
        write_page_index=False,
        write_statistics=groups == 1,
    )
    pair = Pair.of(path, [ia.PageIndex(), ia.Bloom("x", fpp=0.0001)])
    for condition in FLOAT_CONDITIONS:
        condition = condition.format(type=sql_type)
        before, after = scan(pair.before, condition), scan(pair.after, condition)
        assert after.text == before.text
        assert before.rows or "NaN" in condition
        if condition == "x = 0":
            zeros = pq.read_table(path).filter(field("x") == 0)["id"].to_pylist()
            assert after.ids == zeros
            assert len(zeros) == 204


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
