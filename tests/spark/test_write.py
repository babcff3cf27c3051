from __future__ import annotations

import datetime as dt
import decimal
import math
import shutil
import time
import urllib.parse
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import intarsia as ia
import intarsia.spark as ias

pytestmark = pytest.mark.spark

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
NUMBERS = [
    *(0.0, -0.0, 1.5, 0.1, 1e-3, 9.9e-4, 9999999.0, 1234567.5, -3e-9),
    *(math.inf, -math.inf, math.nan),
]
NAMES = ["a", "b & c", "50%", "x=y", "a/b", "né", "a:b", "a.b", "it's", "back\\slash", "q?*", "a+b"]


def files_under(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


def everything_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def by_id(rows: list[dict]) -> list[dict]:
    return sorted(rows, key=lambda row: row["id"])


def rows(frame) -> list[dict]:
    return by_id([row.asDict(recursive=True) for row in frame.collect()])


@pytest.fixture(scope="module")
def events(all_types):
    flat = all_types.drop("map", "struct", "list_struct")
    return flat.selectExpr("*", "(id * 7919) % 1000 AS user_id")


@pytest.fixture(scope="module")
def lake(events, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "lake"
    ias.write(
        events,
        folder,
        indexes=[ia.Lookup("hash"), ia.Lookup("user_id", granule_rows=100)],
        partition_by=["part"],
        cluster_by=["user_id", "id"],
        rows_per_page=100,
    )
    return folder


@pytest.fixture
def failing(spark):
    """A DataFrame with four partitions, the last of which fails."""
    condition = "IF(id < 390, id, raise_error('stop here'))"
    return spark.range(0, 400, 1, 4).selectExpr("id", f"CAST({condition} AS BIGINT) AS v")


# --- what is written ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "codec"),
    [
        ({}, "ZSTD"),
        ({"compression": "snappy"}, "SNAPPY"),
        ({"compression": "GZIP"}, "GZIP"),
        ({"compression": "lz4_raw"}, "LZ4"),
        ({"compression": "uncompressed"}, "UNCOMPRESSED"),
    ],
)
def test_codecs(given, codec, spark, tmp_path):
    frame = spark.range(100).selectExpr("id", "repeat('x', 50) AS text")
    ias.write(frame, tmp_path / "ours", **given)
    frame.write.format("intarsia").mode("append").options(**given).save(str(tmp_path / "format"))
    for path in files_under(tmp_path):
        assert pq.read_metadata(path).row_group(0).column(1).compression == codec
    assert rows(spark.read.parquet(str(tmp_path / "ours"))) == rows(frame)
    assert rows(spark.read.parquet(str(tmp_path / "format"))) == rows(frame)


def test_folders_are_hives(lake):
    folders = {urllib.parse.unquote(path.name) for path in lake.iterdir() if path.is_dir()}
    assert folders == {"part=a", "part=b & c", f"part={NULL_FOLDER}"}


def test_only_data_and_the_success_marker_are_left(lake):
    names = {path.name for path in lake.rglob("*") if path.is_file()}
    assert "_SUCCESS" in names
    assert all(name == "_SUCCESS" or name.endswith(".parquet") for name in names)
    assert not [path for path in lake.iterdir() if path.name.startswith("_temporary")]


def test_files_lack_the_columns_of_their_folder(lake):
    assert len(files_under(lake)) >= 3
    for file in files_under(lake):
        assert "part" not in pq.read_schema(file).names


def test_files_are_sorted_and_declare_it(lake):
    for file in files_under(lake):
        table = pq.read_table(file, columns=["user_id", "id"], partitioning=None)
        pairs = list(zip(*table.to_pydict().values(), strict=True))
        assert pairs == sorted(pairs)
        metadata = pq.read_metadata(file)
        order = metadata.row_group(0).sorting_columns
        assert [metadata.schema.column(one.column_index).path for one in order] == ["user_id", "id"]


def test_files_have_the_requested_indexes_and_pages(lake):
    reports = ia.list_indexes(lake)
    assert len(reports) == len(files_under(lake))
    for report in reports:
        assert [entry.name for entry in report.indexes] == ["hash:lookup", "user_id:lookup"]
        file = ia.ParquetFile(report.path)
        offsets = file.page_index(0, "id").offset_index
        assert len(offsets) >= file.num_rows / 100


def test_files_returned_are_the_files_written(spark, tmp_path):
    start = time.perf_counter()
    written = ias.write(spark.range(0, 1000, 1, 3), tmp_path / "lake", cluster_by=["id"])
    seconds = time.perf_counter() - start
    actual = {str(path.relative_to(tmp_path / "lake")) for path in files_under(tmp_path / "lake")}
    assert {file.path for file in written} == actual
    assert sum(file.rows for file in written) == 1000
    for file in written:
        assert (tmp_path / "lake" / file.path).stat().st_size == file.bytes
        assert 0 < file.seconds < seconds


def test_spark_reads_back_what_was_written(spark, events, lake):
    actual = spark.read.parquet(str(lake))
    assert rows(actual.select(events.columns)) == rows(events)
    actual = actual.select(events.columns).schema.simpleString()
    assert actual == events.schema.simpleString()


def test_pyarrow_and_duckdb_read_what_spark_reads(spark, lake):
    columns = ["id", "i8", "i32", "f64", "flag", "money", "fortune", "text", "day", "ts", "part"]
    sparks = spark.read.parquet(str(lake)).select(columns).toArrow()
    expected = by_id(sparks.to_pylist())
    assert by_id(pads.dataset(lake, partitioning="hive").to_table(columns).to_pylist()) == expected
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        path = f"{lake}/**/*.parquet"
        source = f"read_parquet('{path}', hive_partitioning = true)"
        table = connection.sql(f"SELECT {', '.join(columns)} FROM {source}").to_arrow_table()
    assert by_id(table.cast(sparks.schema).to_pylist()) == expected


def test_a_query_reads_little_of_what_was_written(lake):
    ds = ia.dataset(lake)
    explained = ds.explain(filter="user_id = 17", analyze=True)
    assert explained.read.rows.selected == 4
    assert explained.planned.rows.selected < 0.2 * explained.planned.rows.total


def test_intarsia_reads_what_spark_reads(spark, lake):
    where = "user_id IN (17, 18) OR part IS NULL AND id < 100"
    actual = rows(ias.read(spark, lake, where=where))
    assert actual == rows(spark.read.parquet(str(lake)).where(where))
    assert actual


# --- partition values ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def named(spark, tmp_path_factory):
    """Folders with unusual names, and the values they stand for: one row each."""
    folder = tmp_path_factory.mktemp("named") / "lake"
    data = [(number, name) for number, name in enumerate([*NAMES, None])]
    ias.write(spark.createDataFrame(data, "id long, name string"), folder, partition_by=["name"])
    return folder, [{"id": number, "name": name} for number, name in data]


def test_spark_reads_awkward_folder_names(spark, named):
    folder, expected = named
    assert rows(spark.read.parquet(str(folder))) == expected


def test_pyarrow_reads_awkward_folder_names(named):
    folder, expected = named
    assert by_id(pads.dataset(folder, partitioning="hive").to_table().to_pylist()) == expected


def test_duckdb_reads_awkward_folder_names(named):
    folder, expected = named
    pattern = f"{folder}/*/*.parquet"
    with duckdb.connect() as connection:
        actual = connection.sql(f"FROM read_parquet('{pattern}', hive_partitioning = true)")
        assert by_id(actual.to_arrow_table().to_pylist()) == expected


@pytest.mark.parametrize("name", NAMES)
def test_intarsia_finds_awkward_folder_names(name, spark, named):
    folder, expected = named
    where = pads.field("name") == name
    actual = ia.dataset(folder).to_table(filter=where).select(["id", "name"]).to_pylist()
    assert actual == [row for row in expected if row["name"] == name]


def test_awkward_folder_names_are_those_spark_gives(spark, named, tmp_path):
    folder, expected = named
    data = spark.createDataFrame(
        [(row["id"], row["name"]) for row in expected], "id int, name string"
    )
    data.write.partitionBy("name").parquet(str(tmp_path / "sparks"))
    given = {path.name for path in (tmp_path / "sparks").iterdir() if path.is_dir()}
    assert {path.name for path in folder.iterdir() if path.is_dir()} == given


def test_spark_reads_an_empty_string_as_from_its_own_files(spark, tmp_path):
    data = spark.createDataFrame([(1, ""), (2, "a")], "id long, name string")
    data.write.partitionBy("name").parquet(str(tmp_path / "sparks"))
    ias.write(data, tmp_path / "ours", partition_by=["name"])
    expected = rows(spark.read.parquet(str(tmp_path / "sparks")))
    assert rows(spark.read.parquet(str(tmp_path / "ours"))) == expected
    assert rows(ias.read(spark, tmp_path / "ours")) == expected


def test_a_folder_column_that_is_always_null_can_be_read(spark, tmp_path):
    data = spark.createDataFrame([(1, None), (2, None)], "id long, name string")
    ias.write(data, tmp_path / "lake", partition_by=["name"])
    actual = rows(ias.read(spark, tmp_path / "lake", columns=["id", "name"]))
    assert actual == [{"id": 1, "name": None}, {"id": 2, "name": None}]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 2013),
        ("bigint", -5),
        ("date", dt.date(2013, 6, 1)),
        ("boolean", True),
        ("bigint", 2**40),
        *(("double", value) for value in NUMBERS),
        *(("float", value) for value in NUMBERS),
        ("decimal(9, 2)", decimal.Decimal("1.20")),
        ("timestamp", dt.datetime(2013, 6, 1, 12, 30)),
    ],
    ids=lambda value: str(value),
)
def test_spark_reads_folders_of_another_type_as_its_own(kind, value, spark, tmp_path):
    data = spark.createDataFrame([(1, value), (2, None)], f"id long, p {kind}")
    data.write.partitionBy("p").parquet(str(tmp_path / "sparks"))
    ias.write(data, tmp_path / "ours", partition_by=["p"])
    expected = spark.read.parquet(str(tmp_path / "sparks"))
    actual = spark.read.parquet(str(tmp_path / "ours"))
    assert actual.schema["p"].dataType == expected.schema["p"].dataType
    assert str(rows(actual)) == str(rows(expected))  # NaN is not equal to itself
    names = ({path.name for path in (tmp_path / name).glob("p=*")} for name in ("ours", "sparks"))
    assert next(names) == next(names)
    if kind != "timestamp":  # documented in docs/how-to/spark.md
        for reader in ("auto", "intarsia"):
            again = ias.read(spark, tmp_path / "sparks", reader=reader)
            assert again.schema["p"].dataType == expected.schema["p"].dataType
            assert str(rows(again)) == str(rows(expected))


@pytest.mark.parametrize("value", [1e7, 1.5e10, -2e300])
def test_folders_of_large_numbers_are_named_as_by_spark(value, spark, tmp_path):
    data = spark.createDataFrame([(1, value), (2, 0.5)], "id long, p double")
    data.write.mode("append").partitionBy("p").parquet(str(tmp_path))
    options = {"mode": "overwrite", "partition_overwrite": "dynamic", "partition_by": ["p"]}
    ias.write(data, tmp_path, **options)
    # Spark itself would read a decimal beside a double as string.
    assert rows(ias.read(spark, tmp_path)) == rows(data)


@pytest.mark.parametrize("value", ["0", "0.0000000001", "-12.5"])
def test_folders_of_decimals_are_named_as_by_spark(value, spark, tmp_path):
    frame = spark.sql(f"SELECT 1 AS id, CAST({value} AS DECIMAL(28, 10)) AS p")
    frame.write.partitionBy("p").parquet(str(tmp_path / "spark"))
    ias.write(frame, tmp_path / "intarsia", partition_by=["p"])
    (theirs,), (ours,) = (
        [path.name for path in (tmp_path / name).glob("p=*")] for name in ("spark", "intarsia")
    )
    assert ours == theirs


def test_folders_of_timestamps_are_named_as_by_spark(spark, tmp_path):
    values = ("TIME '12:30:00'", "TIME '12:30:00.5'", "TIME '00:00:00.000010'")
    frame = spark.sql(" UNION ALL ".join(f"SELECT 1 AS id, {value} AS p" for value in values))
    frame.write.partitionBy("p").parquet(str(tmp_path / "spark"))
    ias.write(frame, tmp_path / "intarsia", partition_by="p")
    theirs, ours = (
        {path.name for path in (tmp_path / name).glob("p=*")} for name in ("spark", "intarsia")
    )
    assert ours == theirs


@pytest.mark.parametrize("zone", ["+02:00", "-03:30", "GMT+05:00"])
def test_a_time_zone_may_be_an_offset(zone, spark, tmp_path):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.sql("SELECT 1 AS id, timestamp'2020-01-01 05:00:00' AS p")
        frame.write.partitionBy("p").parquet(str(tmp_path / "spark"))
        ias.write(frame, tmp_path / "intarsia", partition_by=["p"])
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert [path.name for path in (tmp_path / "intarsia").glob("p=*")] == [
        path.name for path in (tmp_path / "spark").glob("p=*")
    ]


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_timestamps_beyond_python_are_refused_as_folder_names(kind, spark, tmp_path):
    frame = spark.sql(f"SELECT 1 AS id, CAST('+12345-01-01' AS {kind}) AS t")
    with pytest.raises(ia.UnsupportedError, match=r"12345-01-01.* does not name a folder"):
        ias.write(frame, tmp_path / "lake", partition_by=["t"])
    assert not (tmp_path / "lake").exists()


def test_bytes_that_are_not_utf8_are_refused_as_folder_names(spark, tmp_path):
    frame = spark.sql("SELECT 1 AS id, X'FF' AS p")
    with pytest.raises(ia.UnsupportedError, match=r"b'\\xff' does not name a folder"):
        ias.write(frame, tmp_path / "lake", partition_by=["p"])
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("name", ["__intarsia_folder", "__Intarsia_Folder"])
def test_a_column_may_have_the_name_that_optimize_adds(name, spark, tmp_path):
    frame = spark.createDataFrame([(1, "../outside")], ["id", name])
    for options in ({}, {"partition_by": name}):
        with pytest.raises(ia.PredicateError, match="cannot be written: the name is taken"):
            ias.write(frame, tmp_path / "lake", **options)
    assert list(tmp_path.iterdir()) == []
    pq.write_table(pa.table({"id": [1], name: ["../outside"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [1], name: ["../outside"]}), tmp_path / "b.parquet")
    with pytest.raises(ia.UnsupportedError, match="the name of the column is taken"):
        ias.optimize(spark, tmp_path)


def test_an_array_of_null_type_is_refused(spark, tmp_path):
    for value in ("array()", "map()"):
        with pytest.raises(ia.UnsupportedError, match="column a: Spark gives Python no values"):
            ias.write(spark.sql(f"SELECT {value} AS a, 1 AS n"), tmp_path / "lake")
    assert list(tmp_path.iterdir()) == []


def test_columns_of_any_name_are_written(spark, tmp_path):
    names = ["a.b", "c`d", "*", "e f", "é", "select", "0"]
    data = spark.createDataFrame([[i] * len(names) for i in range(20)], names)
    options = {"cluster_by": ["a.b", "*"], "curve": "zorder", "target_file_size": "1 MB"}
    layouts = {
        "plain": {},
        "indexed": {"indexes": [ia.Lookup(name) for name in names], "sort_within": ["c`d"]},
        "folders": {"partition_by": ["c`d", "é"]},
        "curve": options,
    }
    for name, layout in layouts.items():
        ias.write(data, tmp_path / name, **layout)
        actual = ias.read(spark, tmp_path / name, columns=names)
        assert sorted(actual.collect()) == sorted(data.collect())
    ias.optimize(spark, tmp_path / "plain", cluster_by=["c`d"])
    assert sorted(ias.read(spark, tmp_path / "plain").collect()) == sorted(data.collect())


def test_intervals_of_months_are_refused(spark, tmp_path):
    data = spark.sql("SELECT 1 AS id, INTERVAL '3' MONTH AS m")
    with pytest.raises(ia.UnsupportedError, match="values of type interval month"):
        ias.write(data, tmp_path / "lake")
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("way", ["write", "format"])
def test_files_are_not_added_beside_folders_or_in_others(way, spark, tmp_path):
    data = spark.range(4).selectExpr("id", "id % 2 AS `a b`", "id AS b")

    def append(path, by, **options):
        if way == "write":
            return ias.write(data, path, partition_by=by, mode="append", **options)
        made = data.write.format("intarsia").mode("append").option("partition_by", ",".join(by))
        return made.save(str(path))

    kinds = [(["a b"], ["b"]), (["a b"], []), ([], ["a b"])]
    kinds += [(["a b", "b"], ["a b"]), (["a b"], ["a b", "b"]), (["a b", "b"], ["b", "a b"])]
    for folders, others in kinds:
        path = tmp_path / "-".join(["to", *folders, "from", *others])
        append(path, folders)
        before = contents(path)
        with pytest.raises(Exception, match="pass the same partition_by"):
            append(path, others)
        assert contents(path) == before
        if others and "b" not in others:
            overwrite = {"mode": "overwrite", "partition_overwrite": "dynamic"}
            with pytest.raises(ia.PathError, match="pass the same partition_by"):
                ias.write(data, path, partition_by=others, **overwrite)
            assert contents(path) == before
        append(path, folders)
        assert ias.read(spark, path).count() == 8
        ias.write(data, path, partition_by=others, mode="overwrite")
        assert ias.read(spark, path).count() == 4


def test_two_levels_of_folders(spark, tmp_path):
    data = spark.range(0, 100).selectExpr("id", "id % 2 AS a", "CAST(id % 3 AS STRING) AS b")
    ias.write(data, tmp_path / "lake", partition_by=["a", "b"], indexes=[ia.Lookup("id")])
    folders = {str(file.parent.relative_to(tmp_path / "lake")) for file in files_under(tmp_path)}
    assert folders == {f"a={a}/b={b}" for a in range(2) for b in range(3)}
    actual = ias.read(spark, tmp_path / "lake", where="a = 1 AND b IN (0, 2) AND id < 12")
    assert sorted(row.id for row in actual.collect()) == [3, 5, 9, 11]


# --- atomicity ----------------------------------------------------------------------------------


def test_a_failed_job_leaves_nothing_at_a_new_path(failing, tmp_path):
    with pytest.raises(Exception, match="stop here"):
        ias.write(failing, tmp_path / "lake", indexes=[ia.Lookup("id")])
    assert everything_under(tmp_path) == []


def test_a_failed_job_leaves_no_new_parent_folders(failing, tmp_path):
    with pytest.raises(Exception, match="stop here"):
        ias.write(failing, tmp_path / "new" / "lake")
    assert everything_under(tmp_path) == []


def test_a_failed_job_leaves_an_empty_folder_empty(failing, tmp_path):
    with pytest.raises(Exception, match="stop here"):
        ias.write(failing, tmp_path, indexes=[ia.Lookup("id")])
    assert everything_under(tmp_path) == []


def test_a_failed_append_leaves_what_was_there(spark, failing, tmp_path):
    ias.write(spark.range(0, 100).selectExpr("id", "id AS v"), tmp_path, indexes=[ia.Lookup("id")])
    before = contents(tmp_path)
    with pytest.raises(Exception, match="stop here"):
        ias.write(failing, tmp_path, mode="append", indexes=[ia.Lookup("id")])
    assert contents(tmp_path) == before
    assert not [name for name in everything_under(tmp_path) if "temporary" in name]


def test_an_index_that_cannot_be_built_leaves_nothing(spark, tmp_path):
    data = spark.range(0, 10, 1, 1).selectExpr("id", "id > 3 AS flag")
    with pytest.raises(Exception, match="booleans have two values only"):
        ias.write(data, tmp_path / "lake", indexes=[ia.Lookup("flag")])
    assert everything_under(tmp_path) == []


def test_files_being_written_are_not_seen_by_readers(spark, tmp_path):
    ias.write(spark.range(0, 10), tmp_path)
    hidden = tmp_path / "_temporary-0123" / "part-0.parquet"
    hidden.parent.mkdir()
    shutil.copy(files_under(tmp_path)[0], hidden)
    assert ias.read(spark, tmp_path).count() == 10
    assert spark.read.parquet(str(tmp_path)).count() == 10


# --- modes and refusals -------------------------------------------------------------------------


def test_error_is_the_mode_unless_another_is_given(spark, tmp_path):
    ias.write(spark.range(0, 10), tmp_path)
    before = contents(tmp_path)
    for options in ({}, {"mode": "error"}):
        with pytest.raises(ia.PathError, match="there is data already"):
            ias.write(spark.range(0, 10), tmp_path, **options)
    assert contents(tmp_path) == before


def test_append_adds_files(spark, tmp_path):
    ias.write(spark.range(0, 10), tmp_path, indexes=[ia.Lookup("id")])
    before = contents(tmp_path)
    ias.write(spark.range(10, 30), tmp_path, mode="append", indexes=[ia.Lookup("id")])
    assert before.items() <= contents(tmp_path).items()
    assert sorted(row.id for row in ias.read(spark, tmp_path).collect()) == list(range(30))


def test_append_creates_a_new_path(spark, tmp_path):
    ias.write(spark.range(0, 10), tmp_path / "lake", mode="append")
    assert ias.read(spark, tmp_path / "lake").count() == 10


def test_writing_to_a_glob_is_refused(spark, tmp_path):
    with pytest.raises(ia.PathError, match=r"L\*: .* this is a pattern"):
        ias.write(spark.range(3), tmp_path / "L*")
    assert everything_under(tmp_path) == []
    (tmp_path / "L[1]").mkdir()
    ias.write(spark.range(3), tmp_path / "L[1]")
    assert spark.read.parquet(str(tmp_path / "L\\[1\\]")).count() == 3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"cluster_by": ["nowhere"]}, ia.PredicateError, "'nowhere' is not there"),
        ({"partition_by": ["nowhere"]}, ia.PredicateError, "'nowhere' is not there"),
        ({"partition_by": ["id", "part"]}, ia.PredicateError, "nothing is left"),
        ({"indexes": [ia.Lookup("nowhere")]}, ia.IndexSpecError, "'nowhere' is not there"),
        (
            {"indexes": [ia.Lookup("part")], "partition_by": ["part"]},
            ia.IndexSpecError,
            "in partition_by",
        ),
        ({"indexes": [ia.Lookup("id"), ia.Lookup("id")]}, ia.IndexSpecError, "asked for twice"),
        ({"mode": "replace"}, ValueError, "mode must be one of"),
        ({"compression": "lzo"}, ValueError, "compression must be one of none, .* not 'lzo'"),
        ({"compression": 3}, ValueError, "compression must be one of none, .* not 3"),
        ({"rows_per_page": 0}, ValueError, "rows_per_page"),
        ({"rows_per_page": "8"}, ValueError, "rows_per_page must be a whole number, .* not '8'"),
        ({"rows_per_page": 1.5}, ValueError, "rows_per_page must be a whole number"),
        ({"checkpoint_row_groups": True}, ValueError, "checkpoint_row_groups must be a whole"),
        ({"partition_by": [5]}, TypeError, "are strings, not 5"),
        ({"partition_by": [""], "select": "*, 1 AS ``"}, ia.PredicateError, "need a name"),
        (
            {"partition_by": ["l"], "select": "*, INTERVAL '1' DAY AS l"},
            ia.PredicateError,
            "'l' cannot be in partition_by: it is duration",
        ),
        (
            {"partition_by": ["l"], "select": "*, array(1) AS l"},
            ia.PredicateError,
            "'l' cannot be in partition_by: it is list",
        ),
        ({"partition_by": ["m"], "select": "*, map(1,2) AS m"}, ia.PredicateError, "it is map"),
        ({"partition_by": ["part", "part"]}, ia.PredicateError, "part"),
        ({"partition_by": ["_h"], "select": "*, 1 AS _h"}, ia.PredicateError, "'_h' cannot be in"),
        ({"select": "*, 1 AS id"}, ia.PredicateError, "two columns are called 'id'"),
    ],
    ids=[
        "unknown_cluster_column",
        "unknown_folder_column",
        "only_folder_columns",
        "unknown_index_column",
        "index_on_folder_column",
        "index_twice",
        "unknown_mode",
        "codec_that_nothing_writes",
        "codec_by_number",
        "no_rows_per_page",
        "rows_per_page_in_text",
        "part_of_a_row_per_page",
        "checkpoints_of_true",
        "number_for_a_folder_column",
        "folder_column_without_a_name",
        "folders_of_intervals",
        "folders_of_lists",
        "folders_of_maps",
        "folder_column_twice",
        "folder_column_that_hides",
        "column_twice",
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_written(
    options, error, message, spark, tmp_path, monkeypatch
):
    data = spark.range(0, 10).selectExpr("id", "'x' AS part")
    data = data.selectExpr(*options.get("select", "*").split(", "))
    options = {name: value for name, value in options.items() if name != "select"}

    def start(*_: object) -> None:
        raise AssertionError("a job was started")

    monkeypatch.setattr(type(data), "mapInArrow", start)
    with pytest.raises(error, match=message):
        ias.write(data, tmp_path / "lake", **options)
    assert everything_under(tmp_path) == []


def test_a_path_that_is_a_file_is_refused(spark, tmp_path):
    (tmp_path / "file").write_bytes(b"here")
    with pytest.raises(ia.PathError, match="there is a file"):
        ias.write(spark.range(0, 10), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"here"


# --- unusual data frames ------------------------------------------------------------------------


def test_an_empty_dataframe_makes_a_data_set_with_its_schema(spark, events, tmp_path):
    ias.write(events.where("id < 0"), tmp_path, indexes=[ia.Lookup("hash")], cluster_by=["id"])
    actual = spark.read.parquet(str(tmp_path))
    assert actual.count() == 0
    assert actual.schema.simpleString() == events.schema.simpleString()
    assert ias.read(spark, tmp_path, where="hash = 'x'").collect() == []
    assert ia.list_indexes(tmp_path)[0].rows == 0


def test_an_empty_dataframe_with_folders_leaves_a_path_to_append_to(spark, tmp_path):
    data = spark.range(0, 10).selectExpr("id", "id % 2 AS part")
    assert ias.write(data.where("id < 0"), tmp_path, partition_by=["part"]) == []
    assert [path for path in everything_under(tmp_path) if path != "_SUCCESS"] == []
    ias.write(data, tmp_path, partition_by=["part"])
    assert ias.read(spark, tmp_path).count() == 10


@pytest.mark.parametrize("column", ["list", "map", "struct", "list_struct"])
def test_nested_columns_are_written(column, spark, all_types, tmp_path):
    data = all_types.select("id", column).where("id < 100")
    ias.write(data, tmp_path, cluster_by=["id"], indexes=[ia.Lookup("id")])
    assert rows(spark.read.parquet(str(tmp_path))) == rows(data)
    assert rows(ias.read(spark, tmp_path)) == rows(data)


def test_nulls_and_nan_in_the_columns_that_sort(spark, tmp_path):
    data = spark.range(0, 100, 1, 1).selectExpr(
        "id", "CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN double('nan') ELSE -id END AS x"
    )
    ias.write(data, tmp_path, cluster_by=["x"], rows_per_page=10, indexes=[ia.Lookup("x")])
    for condition in (pads.field("x") < -50, pads.field("x") == -7, pads.field("x").is_null()):
        expected = pads.dataset(tmp_path).to_table(filter=condition)
        assert ia.dataset(tmp_path).to_table(filter=condition) == expected
        assert expected.num_rows


# --- files that Spark wrote ---------------------------------------------------------------------


def test_spark_reads_its_own_files_after_they_were_given_indexes(spark, by_spark, tmp_path):
    folder = tmp_path / "lake"
    shutil.copytree(by_spark, folder)
    assert list(folder.rglob(".*.crc"))
    before = {path: path.read_bytes() for path in files_under(folder)}
    ia.add_indexes(folder, [ia.Lookup("hash"), ia.Lookup("ts"), ia.Lookup("money")])
    for path, old in before.items():
        assert path.read_bytes().startswith(old)
    assert rows(spark.read.parquet(str(folder))) == rows(spark.read.parquet(str(by_spark)))
    actual = spark.read.parquet(str(folder)).where("key = 17 OR day = '2013-06-01'")
    expected = spark.read.parquet(str(by_spark)).where("key = 17 OR day = '2013-06-01'")
    assert rows(actual) == rows(expected)


def test_files_of_sparks_old_timestamps_are_read_and_indexed(spark, tmp_path):
    data = spark.range(0, 500, 1, 1).selectExpr(
        "id", "timestamp_micros(1400000000000001 + id * 61000000) AS ts"
    )
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        data.write.parquet(str(tmp_path / "lake"))
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    ia.add_indexes(tmp_path / "lake", [ia.Lookup("id")])
    actual = ias.read(spark, tmp_path / "lake", where="id IN (3, 400)")
    assert rows(actual) == rows(spark.read.parquet(str(tmp_path / "lake")).where("id IN (3, 400)"))
    with pytest.raises(ia.IndexSpecError, match="no defined equality"):
        ia.add_indexes(tmp_path / "lake", [ia.Lookup("ts")])


def test_a_read_data_set_can_be_written_elsewhere(spark, lake, tmp_path):
    table = ias.read(spark, lake, columns=["id", "user_id"], where="user_id < 10")
    ias.write(table, tmp_path / "few", cluster_by=["user_id"], indexes=[ia.Lookup("user_id")])
    assert ia.dataset(tmp_path / "few").count_rows() == 40


def test_a_single_column_name_may_be_a_string(spark, tmp_path):
    data = spark.range(0, 10).selectExpr("id", "id % 2 AS part")
    ias.write(data, tmp_path / "lake", partition_by="part", cluster_by="id", indexes="id:lookup")
    assert ias.read(spark, tmp_path / "lake", where="id = 3 AND part = 1").count() == 1


def test_a_file_that_cannot_be_published_leaves_none_published(spark, tmp_path):
    (tmp_path / "part=1").write_text("a file where a folder has to be")
    data = spark.range(0, 10).selectExpr("id", "id % 2 AS part")
    before = contents(tmp_path)
    with pytest.raises(ia.PathError, match="cannot be written to"):
        ias.write(data, tmp_path, partition_by=["part"], mode="append")
    assert contents(tmp_path) == before


def test_a_failed_job_leaves_what_others_published_meanwhile(spark, tmp_path):
    theirs = tmp_path / "new" / "lake" / "theirs.parquet"

    def fail(batches):
        theirs.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [1]}), theirs)
        raise RuntimeError("boom")
        yield from batches

    data = spark.range(0, 10).mapInArrow(fail, "id long")
    with pytest.raises(Exception, match="boom"):
        ias.write(data, tmp_path / "new" / "lake")
    assert [path.name for path in files_under(tmp_path / "new" / "lake")] == [theirs.name]


def test_a_date_folder_is_a_date_as_in_spark(spark, tmp_path):
    data = spark.sql("SELECT id, date_add(DATE'2024-01-01', int(id % 3)) AS day FROM range(9)")
    ias.write(data, tmp_path / "lake", partition_by=["day"])
    where = "day = DATE '2024-01-02' AND id > 1"
    actual = ias.read(spark, tmp_path / "lake", where=where)
    expected = spark.read.parquet(str(tmp_path / "lake")).where(where)
    assert dict(actual.dtypes) == dict(expected.dtypes)
    assert sorted(actual.select("id", "day").collect()) == sorted(
        expected.select("id", "day").collect()
    )


def test_nanoseconds_are_read_to_the_microsecond(spark, tmp_path):
    table = pa.table({"ts": pa.array([1_500, 2_999, None], pa.timestamp("ns", "UTC"))})
    pq.write_table(table, tmp_path / "t.parquet")
    actual = ias.read(spark, tmp_path, where="ts IS NOT NULL").toArrow()["ts"]
    assert actual.cast(pa.int64()).to_pylist() == [1, 2]


def test_a_task_that_outlives_its_failed_job_leaves_nothing(spark, tmp_path):
    def slow_or_failing(batches):
        for batch in batches:
            if batch.column(0)[0].as_py() == 0:
                raise RuntimeError("boom")
            for i in range(20):
                time.sleep(0.05)
                yield pa.record_batch({"id": [i], "part": [i]})

    data = spark.range(0, 2, 1, 2).mapInArrow(slow_or_failing, "id long, part long")
    for _ in range(3):
        with pytest.raises(PySparkException):
            ias.write(data, tmp_path / "new" / "lake")
        time.sleep(1.5)
        assert everything_under(tmp_path) == []
