from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

import intarsia as ia
import intarsia.spark as ias

pytestmark = pytest.mark.spark

HASH_5 = "e4da3b7fbbce2345d7772b0674a318d5"
HASH_8 = "c9f0f895fb98ab9159f51fd0297e236d"
CONDITIONS = {
    "equals": f"hash = '{HASH_5}'",
    "equals_number": "key = 3919 OR key = 12",
    "equals_nothing": "hash = 'nowhere'",
    "equals_date": "day = '2013-06-01'",
    "equals_timestamp": "ts = '2014-05-13 16:58:25.000001'",
    "timestamp_range": "ts >= '2014-05-14' AND ts < '2014-05-15 00:00:00'",
    "timestamp_literal": "ts < TIMESTAMP '2014-05-14 00:00:00'",
    "timestamp_without_zone": "ts_ntz < '1970-01-01 01:00:00'",
    "equals_decimal": "money = 12.5",
    "decimal_range": "fortune BETWEEN 1000 AND 1010.5",
    "in": f"hash IN ('{HASH_5}', '{HASH_8}', 'nowhere')",
    "in_numbers": "key IN (1, 2, 3, -4)",
    "in_with_null": "key IN (1, NULL)",
    "not_in": "i8 NOT IN (1, 2, 3) AND id < 300",
    "between": "id BETWEEN 1000 AND 1100",
    "below": "i32 < 20000",
    "float": "f64 > 1300.5",
    "or": f"hash = '{HASH_5}' OR id >= 3990 OR day = DATE '2013-02-01'",
    "and_or": f"(part = 'a' OR id < 10) AND (hash = '{HASH_8}' OR key < 50)",
    "not": "NOT (id < 3900 OR key IS NULL)",
    "not_equal": "flag <> true AND id < 100",
    "like": "text LIKE 'né 1_%'",
    "like_with_wildcards_escaped": "text LIKE '%3!%!_' ESCAPE '!'",
    "is_null": "key IS NULL AND id < 500",
    "is_not_null": "hash IS NOT NULL AND id > 3950",
    "all_null": "nothing IS NULL AND id > 3990",
    "boolean": "flag AND id < 50",
    "nested": "struct.b.c = 2 AND struct.a < 100",
    "folder": "part = 'b & c'",
    "folder_is_null": "part IS NULL AND id < 100",
    "folder_and_key": "part = 'a' AND key < 60",
    "function": "lower(text) = 'né 1%_' AND id < 200",
}


@pytest.fixture(scope="module")
def lake(by_spark: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("read") / "lake"
    shutil.copytree(by_spark, folder)
    ia.add_indexes(folder, [ia.Lookup("hash", granule_rows=100), ia.Lookup("key")])
    return folder


@pytest.fixture(scope="module")
def native(spark, by_spark):
    """The rows that Spark itself reads, from the files without indexes."""
    return spark.read.parquet(str(by_spark)).cache()


def rows(frame) -> list:
    return [row.asDict(recursive=True) for row in frame.collect()]


def by_id(rows: list[dict]) -> list[dict]:
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
def test_the_rows_are_those_spark_finds(condition, spark, lake, native):
    columns = ["id", "hash", "key", "part"]
    actual = rows(ias.read(spark, lake, columns=columns, where=condition))
    by_tasks = rows(ias.read(spark, lake, columns=columns, where=condition, reader="intarsia"))
    assert by_id(actual) == by_id(rows(native.where(condition).select(columns)))
    assert by_id(by_tasks) == by_id(actual)
    assert actual or "nowhere" in condition


def test_all_types_are_read_as_spark_reads_them(spark, lake, native):
    actual = ias.read(spark, lake)
    assert actual.schema.simpleString() == native.select(actual.columns).schema.simpleString()
    assert by_id(rows(actual)) == by_id(rows(native))


@pytest.mark.parametrize("reader", ["auto", "intarsia"])
def test_all_types_of_few_rows_are_read_as_spark_reads_them(reader, spark, lake, native):
    condition = "key IN (1, 17, 3001) OR id = 7"
    frame = ias.read(spark, lake, where=condition, reader=reader)
    actual = rows(frame)
    assert frame.schema.simpleString() == native.select(frame.columns).schema.simpleString()
    assert by_id(actual) == by_id(rows(native.where(condition)))
    assert len(actual) > 1


def test_the_rows_are_those_pyarrow_finds(spark, lake):
    condition = pc.field("key").isin([1, 2, 3]) | (pc.field("text") == "né 4%_")
    columns = ["id", "money", "day", "ts", "struct", "part"]
    actual = ias.read(spark, lake, columns=columns, where=condition).toArrow()
    expected = pads.dataset(lake, partitioning="hive").to_table(columns, filter=condition)
    assert actual.sort_by("id").to_pylist() == expected.sort_by("id").to_pylist()


def test_an_expression_gives_what_sql_gives(spark, lake):
    expression = (pc.field("hash") == HASH_5) | (pc.field("day") == dt.date(2013, 6, 1))
    sql = f"hash = '{HASH_5}' OR day = '2013-06-01'"
    actual = rows(ias.read(spark, lake, where=expression))
    assert actual == rows(ias.read(spark, lake, where=sql))
    assert len(actual) == 2


@pytest.mark.parametrize("columns", [["id"], ["part", "id"], ["text", "list"], ["part"]], ids=str)
def test_columns_are_those_asked_for_in_the_order_asked_for(columns, spark, lake, native):
    actual = ias.read(spark, lake, columns=columns, where="id < 50")
    assert actual.columns == columns
    expected = native.where("id < 50").select(columns)
    assert sorted(map(str, rows(actual))) == sorted(map(str, rows(expected)))


def test_no_columns_are_rows_to_count(spark, lake):
    assert ias.read(spark, lake, columns=[], where="id < 50").count() == 50
    assert ias.read(spark, lake, columns=[]).count() == 4000


@pytest.mark.parametrize("where", ["hash = 'nowhere'", "part = 'zzz'", "id < 0"])
def test_an_empty_answer_has_the_schema(where, spark, lake, native):
    actual = ias.read(spark, lake, columns=["id", "money", "ts", "part"], where=where)
    assert actual.collect() == []
    assert actual.count() == 0
    assert [field.dataType for field in actual.schema] == [
        native.schema[name].dataType for name in ("id", "money", "ts", "part")
    ]


def test_a_dataframe_can_be_used_again(spark, lake):
    actual = ias.read(spark, lake, where="id < 100")
    assert [actual.count(), actual.where("id > 50").count(), actual.count()] == [100, 49, 100]


def test_two_filters_of_one_path_in_a_union(spark, lake):
    low = ias.read(spark, lake, columns=["id"], where="id < 10")
    high = ias.read(spark, lake, columns=["id"], where="id >= 3995")
    actual = sorted(row.id for row in low.union(high).collect())
    assert actual == [*range(10), *range(3995, 4000)]


def test_two_filters_of_one_path_in_a_join(spark, lake):
    left = ias.read(spark, lake, columns=["id", "text"], where="id IN (1, 51, 52)")
    right = ias.read(spark, lake, columns=["id", "text"], where="id > 100 AND id < 160")
    joined = left.alias("l").join(right.alias("r"), "text").selectExpr("l.id AS l", "r.id AS r")
    assert sorted(map(tuple, joined.collect())) == [
        (1, 101),
        (1, 151),
        (51, 101),
        (51, 151),
        (52, 102),
        (52, 152),
    ]


def test_a_view_answers_sql(spark, lake):
    ias.read(spark, lake, where="id < 60").createOrReplaceTempView("low")
    actual = spark.sql("SELECT part, count(*) AS n FROM low WHERE id >= 30 GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in actual.collect()] == [(None, 10), ("a", 10), ("b & c", 10)]


def test_limit_and_order(spark, lake):
    actual = ias.read(spark, lake, columns=["id"], where="id >= 10").orderBy("id").limit(3)
    assert [row.id for row in actual.collect()] == [10, 11, 12]


def test_a_list_of_files_and_a_glob(spark, lake):
    files = [next(lake.glob(f"part={part}/*.parquet")) for part in ("a", "b*")]
    whole = sum(pq.read_metadata(file).num_rows for file in files)
    assert ias.read(spark, files, columns=["id"]).count() == whole
    assert ias.read(spark, f"{lake}/part=a/*.parquet", columns=["id"]).count() == 1334


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"where": "nowhere = 1"}, ia.PredicateError, "'nowhere' is not there"),
        ({"where": "id = 'x'"}, ia.PredicateError, "'x' cannot be read as int64"),
        ({"where": "id = = 1"}, ia.PredicateError, "cannot parse"),
        ({"where": "id"}, ia.PredicateError, "not a condition"),
        ({"columns": ["nowhere"]}, ia.PredicateError, "'nowhere' is not there"),
        ({"where": pc.field("nowhere") == 1}, ia.PredicateError, "'nowhere' is not there"),
    ],
    ids=[
        "unknown_column_in_where",
        "text_for_a_number",
        "unparsable",
        "no_condition",
        "unknown_column",
        "unknown_column_in_expression",
    ],
)
def test_invalid_arguments_are_refused_at_once(arguments, error, message, spark, lake):
    with pytest.raises(error, match=message):
        ias.read(spark, lake, **arguments)


def test_a_comparison_of_incompatible_types_is_refused_at_once(spark, lake):
    naive = pa.scalar(dt.datetime(2014, 5, 14), pa.timestamp("us"))
    with pytest.raises(ia.PredicateError):
        ias.read(spark, lake, where=pc.field("ts") < naive)


def test_a_missing_path_is_refused_at_once(spark, tmp_path):
    with pytest.raises(ia.PathError, match="no such file or folder"):
        ias.read(spark, tmp_path / "nowhere")


def test_a_file_rewritten_after_planning_fails_the_job(spark, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": list(range(100))}), path)
    actual = ias.read(spark, path, where="k > 10", reader="intarsia")
    pq.write_table(pa.table({"k": list(range(50))}), path)
    with pytest.raises(Exception, match="rewritten after it was planned"):
        actual.collect()


def test_damaged_pages_are_skipped_on_request(spark, tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"k": range(4000)})
    pages = {"max_rows_per_page": 1000, "write_batch_size": 1000, "write_page_checksum": True}
    pq.write_table(table, path, use_dictionary=False, **pages)
    page = ia.ParquetFile(path).pages(0, "k")[2]
    data = bytearray(path.read_bytes())
    data[page.offset + page.header_size + 20] ^= 1
    path.write_bytes(data)
    actual = ias.read(spark, path, where="k >= 0", on_corrupt="skip").toPandas()["k"]
    assert sorted(actual) == [*range(2000), *range(3000, 4000)]
    with pytest.raises(Exception, match="checksum"):
        ias.read(spark, path, where="k >= 0", on_corrupt="raise").collect()


def test_pages_above_the_size_limit_are_refused(spark, tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"k": ["x" * 1_000_000] * 9}), path, use_dictionary=False)
    assert ias.read(spark, path, page_size_limit=1 << 24).count() == 9
    with pytest.raises(Exception, match="page_size_limit is 100,000"):
        ias.read(spark, path, page_size_limit=100_000).collect()
    with pytest.raises(ia.UnsupportedError, match="does not check pages"):
        ias.read(spark, path, page_size_limit=100_000, reader="spark")


def test_types_only_pyarrow_writes_are_read_as_sparks_nearest(spark, tmp_path):
    instant = dt.datetime(2020, 2, 3, 4, 5, 6, 700, tzinfo=dt.UTC)
    table = pa.table(
        {
            "u8": pa.array([255, None], pa.uint8()),
            "u32": pa.array([2**32 - 1, None], pa.uint32()),
            "u64": pa.array([2**64 - 1, None], pa.uint64()),
            "f16": pa.array([1.5, None], pa.float32()).cast(pa.float16()),
            "ms": pa.array([instant, None], pa.timestamp("ms", "UTC")),
            "ns": pa.array([instant, None], pa.timestamp("ns", "Europe/Paris")),
            "word": pa.array(["a", None]).dictionary_encode(),
            "long": pa.array(["b", None], pa.large_string()),
            "fixed": pa.array([b"abc", None], pa.binary(3)),
            "list": pa.array([[1, None], None], pa.large_list(pa.uint8())),
            "few": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    first, second = ias.read(spark, tmp_path).collect()
    assert second.asDict() == dict.fromkeys(table.column_names)
    actual = first.asDict()
    assert (actual["u8"], actual["u32"], int(actual["u64"])) == (255, 2**32 - 1, 2**64 - 1)
    assert (actual["f16"], actual["word"], actual["long"]) == (1.5, "a", "b")
    assert (bytes(actual["fixed"]), actual["list"], actual["few"]) == (b"abc", [1, None], [1, 2])
    seen = ias.read(spark, tmp_path).selectExpr("unix_micros(ms)", "unix_micros(ns)").first()
    micros = int(instant.timestamp()) * 10**6 + 700
    assert tuple(seen) == (micros // 1000 * 1000, micros)


def test_files_with_different_columns_are_one_data_set(spark, tmp_path):
    pq.write_table(pa.table({"k": [1, 2], "v": ["a", "b"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [3]}), tmp_path / "b.parquet")
    actual = ias.read(spark, tmp_path, where="v IS NULL OR k = 1").collect()
    assert sorted(map(tuple, actual)) == [(1, "a"), (3, None)]


def test_pushed_filters_still_leak_between_uses_of_a_dataframe(spark):
    from pyspark.sql.datasource import DataSource, DataSourceReader, GreaterThan, InputPartition

    class Reader(DataSourceReader):
        low = -1

        def pushFilters(self, filters):  # noqa: N802 # Spark's name
            for pushed in filters:
                if isinstance(pushed, GreaterThan):
                    self.low = pushed.value
                else:
                    yield pushed

        def partitions(self):
            return [InputPartition(self.low)]

        def read(self, partition):
            yield from ((k,) for k in range(20) if k > partition.value)

    class Leaky(DataSource):
        @classmethod
        def name(cls):
            return "leaky"

        def schema(self):
            return "k int"

        def reader(self, schema):
            return Reader()

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(Leaky)
    frame = spark.read.format("leaky").load()
    counts = [frame.count(), frame.where("k > 5").count(), frame.count()]
    assert counts == [20, 14, 14], (
        f"counts are {counts}: if they are [20, 14, 20], filters no longer leak from one use of a "
        "DataFrame to the next, and a data source with pushFilters can be taken up again"
    )


def test_timestamps_stored_as_int96_are_instants_as_in_spark(spark, tmp_path):
    day = dt.datetime(2024, 3, 10, tzinfo=dt.UTC)
    instants = [day + dt.timedelta(minutes=20 * i) for i in range(40)]
    table = pa.table({"id": range(40), "ts": pa.array(instants, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    native = spark.read.parquet(str(tmp_path))
    assert (
        ias.read(spark, tmp_path).dtypes == native.dtypes == [("id", "bigint"), ("ts", "timestamp")]
    )
    for reader in ("auto", "intarsia"):
        actual = ias.read(spark, tmp_path, reader=reader)
        assert actual.orderBy("id").collect() == native.orderBy("id").collect()
    expected = "ts < TIMESTAMP '2024-03-10 05:30:00'"
    assert ias.read(spark, tmp_path, where=expected).count() == native.where(expected).count() == 17
    made = spark.read.format("intarsia").load(str(tmp_path))
    assert made.dtypes == native.dtypes
    assert made.where(expected).count() == 17


def test_long_integers_in_folder_names_are_numbers_as_in_spark(spark, tmp_path):
    for key in (9, 5_000_000_000):
        (tmp_path / f"k={key}").mkdir()
        pq.write_table(pa.table({"v": [key % 7]}), tmp_path / f"k={key}" / "a.parquet")
    actual = ias.read(spark, tmp_path)
    assert (
        actual.dtypes
        == spark.read.parquet(str(tmp_path)).dtypes
        == [("v", "bigint"), ("k", "bigint")]
    )
    assert sorted(row["k"] for row in actual.collect()) == [9, 5_000_000_000]
    assert ias.read(spark, tmp_path, where="k > 9").count() == 1


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["1.5", "2147483647"], "double"),
        (["1.5", "2147483648"], "string"),
        (["1.5", "-12345678901234567"], "string"),
        (["-3", "12345678901234567"], "bigint"),
        (["+1.5", ".5", "7"], "double"),
        (["9999-12-31", "0001-01-01"], "date"),
        (["2024-01-02", "5"], "string"),
    ],
)
def test_partition_columns_have_sparks_types(names, kind, spark, tmp_path):
    for number, name in enumerate(names):
        (tmp_path / f"k={name}").mkdir()
        pq.write_table(pa.table({"v": [number]}), tmp_path / f"k={name}" / "a.parquet")
    native = spark.read.parquet(str(tmp_path))
    assert native.dtypes == [("v", "bigint"), ("k", kind)]
    for reader in ("auto", "intarsia"):
        actual = ias.read(spark, tmp_path, reader=reader)
        assert actual.dtypes == native.dtypes
        assert sorted(actual.collect()) == sorted(native.collect())


def test_dates_beyond_python_in_folder_names_are_strings(spark, tmp_path):
    (tmp_path / "k=0000-01-01").mkdir()
    pq.write_table(pa.table({"v": [1]}), tmp_path / "k=0000-01-01" / "a.parquet")
    assert ias.read(spark, tmp_path).collect() == [(1, "0000-01-01")]


def test_hexadecimal_digits_in_folder_names_are_strings_as_in_spark(spark, tmp_path):
    frame = spark.sql("SELECT 1 AS id, '0x10' AS p UNION ALL SELECT 2, '0xFF'")
    lake = tmp_path / "lake"
    frame.write.partitionBy("p").parquet(str(lake))
    actual, native = ias.read(spark, lake), spark.read.parquet(str(lake))
    assert actual.dtypes == native.dtypes
    assert sorted(actual.collect()) == sorted(native.collect())
    answer = ias.sql(spark, "SELECT id FROM t WHERE p = '0x10'", t=lake)
    assert answer.collect() == [(1,)]


def test_globs_skip_hidden_files(spark, tmp_path):
    ias.write(spark.range(4).selectExpr("id", "id % 2 AS p"), tmp_path, partition_by=["p"])
    for hidden in ("_temporary-1/p=0", ".hidden", "_intarsia"):
        folder = tmp_path / hidden
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [9]}), folder / "x.parquet")
    for pattern in ("**/*.parquet", "*/*.parquet", "*"):
        actual = ias.read(spark, f"{tmp_path}/{pattern}", columns=["id"])
        assert sorted(row.id for row in actual.collect()) == [0, 1, 2, 3]
    named = ias.read(spark, f"{tmp_path}/_temporary-*/*/*.parquet", columns=["id"])
    assert [row.id for row in named.collect()] == [9]


@pytest.mark.parametrize("reader", ["auto", "intarsia"])
def test_columns_that_were_never_null_are_null_in_files_that_lack_them(spark, tmp_path, reader):
    fields = [pa.field("id", pa.int64(), False), pa.field("extra", pa.int64(), False)]
    both = pa.table([[1, 2], [3, 4]], schema=pa.schema(fields))
    pq.write_table(both, tmp_path / "a.parquet")
    pq.write_table(both.select(["id"]), tmp_path / "b.parquet")
    for where, count in ((None, 4), ("extra IS NULL", 2), ("extra = 4", 1)):
        assert len(ias.read(spark, tmp_path, where=where, reader=reader).collect()) == count
    made = spark.read.format("intarsia").load(str(tmp_path))
    assert made.where("extra IS NULL").count() == 2


@pytest.mark.parametrize("reader", ["auto", "intarsia"])
def test_fields_that_were_never_null_are_null_in_structs_that_lack_them(spark, tmp_path, reader):
    for name, fields in (("a", {"x": 1, "y": "p"}), ("b", {"x": 2})):
        kind = pa.struct([pa.field(key, pa.scalar(v).type, False) for key, v in fields.items()])
        table = pa.table({"id": [1, 2], "s": pa.array([fields] * 2, kind)})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    actual = ias.read(spark, tmp_path, reader=reader)
    assert sorted(actual.selectExpr("id", "s.x", "s.y").collect(), key=lambda row: row.x) == [
        (1, 1, "p"),
        (2, 1, "p"),
        (1, 2, None),
        (2, 2, None),
    ]
    assert ias.read(spark, tmp_path, where="s.x = 2", reader=reader).count() == 2


@pytest.fixture
def grown(tmp_path):
    """Two folders. The second has a column and a struct field that the first lacks."""
    first = pa.table({"id": [1, 2], "s": [{"x": 1}, None]})
    second = pa.table({"id": [3, 4], "extra": ["a", "b"], "s": [{"x": 3, "y": "q"}] * 2})
    for name, table in (("k=007", first), ("k=8", second)):
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "a.parquet")
    return tmp_path


STATED = "id bigint, extra string, s struct<x: int, y: string>, k string"


@pytest.mark.parametrize("way", ["auto", "intarsia", "format"])
@pytest.mark.parametrize(
    ("schema", "where", "expected"),
    [
        (
            STATED,
            None,
            [(1, None, (1, None), "007"), (2, None, None, "007")]
            + [(id_, extra, (3, "q"), "8") for id_, extra in ((3, "a"), (4, "b"))],
        ),
        (STATED, "extra = 'b' AND k = '8'", [(4, "b", (3, "q"), "8")]),
        ("extra string, id int", "extra IS NULL", [(None, 1), (None, 2)]),
        ("id double, k bigint", "k = 7 AND s.x = 1", [(1.0, 7)]),
        ("never date, k int", "id > 3", [(None, 8)]),
    ],
)
def test_a_stated_schema_has_columns_of_later_files(spark, grown, way, schema, where, expected):
    if way == "format":
        load = spark.read.format("intarsia").schema(schema)
        actual = (load.option("where", where) if where else load).load(str(grown))
    else:
        actual = ias.read(spark, grown, schema=schema, where=where, reader=way)
    kinds = [(field.name, field.dataType) for field in actual.schema]
    assert kinds == [(field.name, field.dataType) for field in StructType.fromDDL(schema)]
    assert sorted(actual.collect(), key=str) == sorted(expected, key=str)


def test_all_columns_that_any_file_has(spark, grown):
    merged = spark.read.option("mergeSchema", "true").parquet(str(grown)).schema
    actual = ias.read(
        spark, grown, schema=merged, where="id IN (1, 4)", columns=["extra", "s", "k"]
    )
    assert sorted(actual.collect(), key=str) == [("b", (3, "q"), 8), (None, (1, None), 7)]


def test_columns_of_a_stated_schema(spark, grown):
    actual = ias.read(spark, grown, schema=STATED, columns=["extra"], where="extra = 'b'")
    assert actual.collect() == [("b",)]
    assert ias.read(spark, grown, schema=STATED, columns=[]).count() == 4
    assert (
        ias.explain(spark, grown, schema=STATED, where="extra = 'b'").text.count("a.parquet") == 1
    )
    with pytest.raises(
        Exception, match=r"a\.parquet, column extra: string cannot be read as int32"
    ):
        ias.read(spark, grown, schema="extra int", reader="intarsia").collect()


@pytest.mark.parametrize(
    ("schema", "error", "words"),
    [
        ("ID bigint", ia.PredicateError, "column 'ID' of the schema is 'id' in files"),
        ("id int, id int", ia.PredicateError, "a name of its own"),
        ("", ia.PredicateError, "a schema must have columns"),
        ("id int, k timestamp", ia.UnsupportedError, "column k: names of folders"),
        ("id int, k decimal(9, 2)", ia.UnsupportedError, "column k: names of folders cannot"),
    ],
)
def test_schemas_that_cannot_be_read_are_refused(spark, grown, schema, error, words):
    with pytest.raises(error, match=words):
        ias.read(spark, grown, schema=schema)


def test_invalid_conditions_and_column_lists_are_refused(spark, grown):
    with pytest.raises(
        TypeError, match="where is SQL text or an Expression of pyarrow, not Column"
    ):
        ias.read(spark, grown, where=sf.col("id") == 3)
    with pytest.raises(TypeError, match="columns is a list of names"):
        ias.read(spark, grown, columns="id")


def test_numbers_that_exceed_the_given_schema_are_refused(spark, tmp_path):
    pq.write_table(pa.table({"id": [1, 3_000_000_000], "x": [1.0, 2.0]}), tmp_path / "a.parquet")
    made = spark.read.format("intarsia").schema("id BIGINT, x INT").load(str(tmp_path))
    assert made.collect() == [(1, 1), (3_000_000_000, 2)]
    made = spark.read.format("intarsia").schema("id INT, x INT").load(str(tmp_path))
    with pytest.raises(Exception, match=r"a\.parquet, column id: int64 cannot be read as int32"):
        made.collect()
