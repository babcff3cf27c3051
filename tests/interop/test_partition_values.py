"""Partition columns: their types, and files that have the same columns.

DuckDB, Polars and pyarrow write the data sets.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import intarsia as ia
from intarsia.cli.command_line import cli
from intarsia.dataset.partitioning import hive_types

DAYS = [datetime.date(2026, 1, day) for day in (1, 2, 3)]
INFERRED = {
    ("2026-01-01",): pa.date32(),
    ("2026-01-01", "__HIVE_DEFAULT_PARTITION__"): pa.date32(),
    ("2026-01-01 10%3A00%3A00", "2026-01-01T10%3A00"): pa.timestamp("us"),
    ("2026-01-01%2010%3A00%3A00.500000",): pa.timestamp("us"),
    ("2026-01-01", "2026-01-01 10%3A00%3A00"): pa.string(),
    ("2026-01-01 10%3A00%3A00Z", "2026-01-01T10%3A00%3A00+02"): pa.timestamp("us", "UTC"),
    ("2026-01-01 10%3A00%3A00Z", "2026-01-01 10%3A00%3A00"): pa.string(),
    ("2026-02-30",): pa.string(),
    ("0000-01-01",): pa.string(),
    ("2026-1-1",): pa.string(),
    ("20260101",): pa.int32(),
    ("5", "-7"): pa.int32(),
    ("05", "12"): pa.int32(),
    ("5", "9999999999"): pa.int64(),
    ("99999999999999999999",): pa.string(),
    ("0x10",): pa.string(),
    ("1.5",): pa.string(),
    ("true",): pa.string(),
    ("5", "a"): pa.string(),
    ("5", "2026-01-01"): pa.string(),
    ("__HIVE_DEFAULT_PARTITION__",): pa.string(),
}


@pytest.mark.parametrize(("values", "kind"), INFERRED.items(), ids=map(str, INFERRED))
def test_types_of_keys_are_inferred(tmp_path: Path, values: tuple[str, ...], kind: pa.DataType):
    for value in values:
        (tmp_path / f"key={value}").mkdir()
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"key={value}" / "a.parquet")
    data = ia.dataset(tmp_path)
    assert data.schema.field("key").type == kind
    assert data.to_table().schema.field("key").type == kind
    assert data.to_table(filter="id = 1").num_rows == len(values)
    theirs = hive_types(data.files, str(tmp_path), "spark").field("key").type
    if kind != pa.string() and not pa.types.is_timestamp(kind):
        assert theirs == kind, "Spark's rule agrees on integers and dates"


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("days"))
    duckdb.sql(
        f"COPY (SELECT DATE '2026-01-01' + range::INT AS d, range AS id FROM range(3)) TO '{path}' "
        "(FORMAT parquet, PARTITION_BY (d), OVERWRITE true)"
    )
    return path


def test_dates_in_folders_are_filtered_as_dates(days: str) -> None:
    data = ia.dataset(days)
    late = {
        "d >= DATE '2026-01-02'",
        "d >= '2026-01-02'",
        "day(d) > 1",
        "year(d) = 2026 AND id > 0",
    }
    for where in late:
        assert data.to_table(filter=where).sort_by("id").column("d").to_pylist() == DAYS[1:], where
        assert data.count_rows(filter=where) == 2, where
        actual = ia.sql(f"SELECT d FROM t WHERE {where} ORDER BY d", t=days)
        assert actual.column("d").to_pylist() == DAYS[1:], where
    assert len(data.plan(filter="d >= DATE '2026-01-02'").files) == 2
    scanned = ia.polars.scan(days).filter(pl.col("d") >= DAYS[1]).collect()
    assert sorted(scanned["d"].to_list()) == DAYS[1:]
    assert data.to_table(filter=[("d", "=", DAYS[0])]).num_rows == 1
    assert data.to_table(filter=pc.year(pc.field("d")) == 2026).num_rows == 3


def test_type_inference_can_be_chosen(days: str) -> None:
    assert ia.dataset(days, partitioning="pyarrow").schema.field("d").type == pa.string()
    assert ia.polars.scan(days, partitioning="pyarrow").collect_schema()["d"] == pl.String
    assert "d" not in ia.dataset(days, partitioning=None).schema.names
    with pytest.raises(ValueError, match=r"'hive', None, .* or 'pyarrow'"):
        ia.dataset(days, partitioning="hiev")


def test_the_command_line_infers_types_too(days: str) -> None:
    def rows(*options: str) -> list[dict[str, object]]:
        result = CliRunner().invoke(cli, ["scan", days, "--format", "json", *options])
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.output.splitlines()]

    assert [row["id"] for row in rows("--where", "d = DATE '2026-01-02'")] == [1]
    assert [row["id"] for row in rows("--partitioning", "pyarrow", "--where", "d LIKE '%-02'")] == [
        1
    ]
    assert all("d" not in row for row in rows("--partitioning", "none"))


@pytest.mark.parametrize("writer", ["polars", "duckdb", "pyarrow"])
@pytest.mark.parametrize("opened", ["plain", "united", "catalog", "many"])
def test_partition_columns_may_be_in_the_files(tmp_path: Path, writer: str, opened: str) -> None:
    regions = [f"r{n}" for n in range(6 if opened == "many" else 2)]
    frame = pl.DataFrame(
        {"region": regions, "year": [2026] * len(regions), "id": range(len(regions))}
    )
    path = tmp_path / "lake"
    path.mkdir()
    if writer == "polars":
        frame.write_parquet(path, partition_by=["region", "year"])
    elif writer == "duckdb":
        duckdb.sql(
            f"COPY (SELECT * FROM frame) TO '{path}' (FORMAT parquet, "
            "PARTITION_BY (region, year), WRITE_PARTITION_COLUMNS true, OVERWRITE true)"
        )
    else:
        for region, year, number in frame.iter_rows():
            (path / f"region={region}" / f"year={year}").mkdir(parents=True)
            table = pa.table(
                {"region": [region], "year": pa.array([year], pa.int16()), "id": [number]}
            )
            pq.write_table(table, path / f"region={region}" / f"year={year}" / "a.parquet")
    if opened == "catalog":
        ia.build_catalog(path)
    data = ia.dataset(path, union_by_name=opened == "united")
    stored = pq.read_schema(data.files[0])
    for name in ("region", "year"):
        assert data.schema.field(name).type == stored.field(name).type
    expected = frame.sort("id").rows()
    assert ordered(data.to_table()) == expected
    assert ordered(data.to_table(filter="id >= 0")) == expected
    one = [row for row in expected if row[0] == "r1"]
    for condition in ("region = 'r1'", "region = 'r1' AND year = 2026", "region LIKE '%1'"):
        assert ordered(data.to_table(filter=condition)) == one, condition
    assert data.count_rows(filter="year = 2026") == len(expected)
    assert data.count_rows(filter="year > 2026") == 0
    assert ordered(ia.sql("SELECT * FROM t WHERE region = 'r1'", t=data)) == one
    scanned = ia.polars.scan(data).filter(pl.col("region") == "r1").collect()
    assert scanned.select("region", "year", "id").rows() == one
    assert len(data.plan(filter="region = 'r1'").files) == 1


def ordered(table: pa.Table) -> list[tuple[object, ...]]:
    rows = table.select(["region", "year", "id"]).sort_by("id").to_pylist()
    return [tuple(row.values()) for row in rows]


TYPES = {
    "date": (pa.date32(), DAYS[0]),
    "timestamp": (pa.timestamp("us"), datetime.datetime(2026, 1, 1, 10)),
    "zoned": (pa.timestamp("us", "UTC"), datetime.datetime(2026, 1, 1, 10, tzinfo=datetime.UTC)),
    "double": (pa.float64(), 1.5),
    "boolean": (pa.bool_(), True),
    "large_string": (pa.large_string(), "a b/ü"),
    "binary": (pa.binary(), b"ab"),
    "uint8": (pa.uint8(), 200),
}


@pytest.mark.parametrize("name", TYPES)
def test_partition_values_have_the_type_of_the_file(tmp_path: Path, name: str) -> None:
    kind, value = TYPES[name]
    table = pa.table({"key": pa.array([value], kind), "id": [1]})
    pads.write_dataset(
        table, tmp_path, format="parquet", partitioning=["key"], partitioning_flavor="hive"
    )
    (path,) = tmp_path.rglob("*.parquet")
    pq.write_table(table, path)
    data = ia.dataset(tmp_path)
    assert data.schema.field("key").type == kind
    for expected in (None, "id = 1", pc.field("key") == pa.scalar(value, kind)):
        assert data.to_table(filter=expected).column("key").to_pylist() == [value]


def test_a_partition_value_that_the_file_type_cannot_hold_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "key=abc").mkdir()
    pq.write_table(pa.table({"key": [1], "id": [1]}), tmp_path / "key=abc" / "a.parquet")
    with pytest.raises(ia.FormatError, match=r"folder key=abc contradicts .*'key' is int64"):
        ia.dataset(tmp_path)
    assert ia.dataset(tmp_path, partitioning=None).to_table().num_rows == 1


@pytest.mark.parametrize("values", [["us"], [None], ["fr", "us"]], ids=str)
def test_a_folder_that_contradicts_the_values_of_the_file_is_an_error(
    tmp_path: Path, values: list[str | None]
) -> None:
    (tmp_path / "region=eu").mkdir()
    table = pa.table({"region": pa.array(values, pa.string()), "id": range(len(values))})
    pq.write_table(table, tmp_path / "region=eu" / "a.parquet")
    data = ia.dataset(tmp_path)
    with pytest.raises(
        ia.FormatError, match=r"a\.parquet, row group 0, column region: the folder says region=eu"
    ):
        data.to_table(filter="region = 'eu'")
    with pytest.raises(ia.FormatError, match="folder says region=eu"):
        data.count_rows(filter="id = 0")


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.string()], ids=str
)
@pytest.mark.parametrize("value", ["2026-01-01", "2026-01-01%2010%3A00%3A00"])
def test_a_schema_may_state_any_type_that_pyarrow_reads_from_folders(
    tmp_path: Path, kind: pa.DataType, value: str
) -> None:
    (tmp_path / f"key={value}").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / f"key={value}" / "a.parquet")
    schema = pa.schema([("id", pa.int64()), ("key", kind)])
    theirs = pads.dataset(
        tmp_path, partitioning=pads.partitioning(schema.remove(0), flavor="hive"), schema=schema
    )
    data = ia.dataset(tmp_path, schema=schema)
    assert data.to_table() == theirs.to_table()
    assert data.to_table(filter="id = 1") == theirs.to_table()
