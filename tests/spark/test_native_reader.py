"""Spark's own reader gets the files only where its rows are certain to be the same."""

import datetime as dt
import decimal
import math
import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia
import intarsia.spark as ias
from intarsia.expr.tree import read_expression
from intarsia.spark.read.column_condition import spark_condition
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.native_reader import NativeRead, plan_native_read
from intarsia.spark.read.query import query_of
from intarsia.spark.read.read import opened

ROWS = 600
FLOATS = [math.nan, -0.0, 0.0, 1.5, -1.5, math.inf, -math.inf, 5e-324, 2.0**53]
TEXTS = ["", "a", "A", "ab", "abc", "b%", "a_c", "é", "\U0001f600", "a\\b", "a\nb", "zz"]
DAYS = [dt.date(1, 1, 1), dt.date(1500, 3, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)]
UTC = dt.UTC
MOMENTS = [
    dt.datetime(1582, 10, 4, 1, 2, 3, 4),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(2024, 3, 31, 1, 30),
    dt.datetime(2038, 1, 19, 3, 14, 8, 1),
]
MONEY = [decimal.Decimal(text) for text in ("0.00", "-0.01", "12.50", "12.51", "9999999.99")]
VALUES = {
    "i8": (pa.int8(), [-128, -1, 0, 1, 127]),
    "i32": (pa.int32(), [-(2**31), -1, 0, 7, 2**31 - 1]),
    "i64": (pa.int64(), [-(2**63), -1, 0, 7, 2**63 - 1]),
    "f64": (pa.float64(), FLOATS),
    "f32": (pa.float32(), [math.nan, -0.0, 0.0, 0.5, 1.5, math.inf]),
    "flag": (pa.bool_(), [True, False]),
    "s": (pa.string(), TEXTS),
    "d": (pa.date32(), DAYS),
    "ts": (pa.timestamp("us", "UTC"), [moment.replace(tzinfo=UTC) for moment in MOMENTS]),
    "local": (pa.timestamp("us"), MOMENTS),
    "small": (pa.decimal128(9, 2), MONEY),
    "money": (pa.decimal128(18, 2), MONEY),
    "fortune": (pa.decimal128(30, 5), MONEY),
}
SCHEMA = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in VALUES.items())])
COMPARISONS = ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]


def table_of(seed):
    chosen = random.Random(seed)
    columns = [pa.array(range(ROWS), pa.int64())]
    for kind, values in VALUES.values():
        columns.append(pa.array(chosen.choices([None, *values], k=ROWS), kind))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def leaf(chosen):
    name = chosen.choice(list(VALUES))
    kind, values = VALUES[name]
    field, value = pc.field(name), chosen.choice(values)
    form = chosen.random()
    if form < 0.1:
        return field.is_null() if chosen.random() < 0.5 else field.is_valid()
    if form < 0.15 and name in ("f64", "f32"):
        return field.is_nan()
    if form < 0.3 and name == "s":
        text = chosen.choice(["a", "b", "é", "ab", "%"])
        search = chosen.choice([pc.starts_with, pc.ends_with, pc.match_substring])
        return search(field, text)
    if form < 0.4 and name == "s":
        return pc.match_like(field, chosen.choice(["a%", "%b", "%a%", "abc", "", "%", "a_c"]))
    if form < 0.5 and name == "flag":
        return field
    if form < 0.6:
        return field.isin(pa.array(chosen.sample(values, 2), kind))
    literal = pc.scalar(pa.scalar(value, kind))
    return getattr(field, chosen.choice(COMPARISONS))(literal)


def condition(chosen, depth=0):
    form = chosen.random()
    if depth == 3 or form < 0.3:
        return leaf(chosen)
    if form < 0.5:
        return ~condition(chosen, depth + 1)
    left, right = condition(chosen, depth + 1), condition(chosen, depth + 1)
    if form < 0.7:
        return left & right
    if form < 0.9:
        return left | right
    return pc.if_else(left, right, ~right)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A file by pyarrow with all plain types, a dictionary, statistics and a bloom filter."""
    folder = tmp_path_factory.mktemp("plain")
    pq.write_table(table_of(1), folder / "a.parquet", row_group_size=150, write_page_index=True)
    pq.write_table(table_of(2), folder / "b.parquet", store_decimal_as_integer=True)
    ia.add_indexes(folder, [ia.Bloom("f64"), ia.Bloom("s")])
    return folder


def native_rows(frame):
    return frame.toArrow().sort_by("id")


def test_conditions_have_the_same_three_values(spark, made):
    """About a hundred random conditions, each evaluated on every row by both readers."""
    chosen, actual, refused = random.Random(5), [], 0
    while len(actual) < 150:
        where = condition(chosen)
        try:
            actual.append((where, spark_condition(where, SCHEMA)))
        except ia.PredicateError:
            refused += 1
    assert refused > 10
    named = [column.alias(f"c{number}") for number, (_, column) in enumerate(actual)]
    one = ias.read(spark, made / "a.parquet", reader="spark").select("id", *named)
    answers, table = one.toArrow().sort_by("id"), table_of(1)
    for number, (where, _) in enumerate(actual):
        expected = pads.dataset(table).to_table({"c": where})["c"]
        assert answers[f"c{number}"].to_pylist() == expected.to_pylist(), str(where)


WHERES = {
    "everything": None,
    "equal_to_a_zero": pc.field("f64") == 0.0,
    "not_equal_keeps_nan": pc.field("f64") != 1.5,
    "greater_drops_nan": pc.field("f64") > 1.0,
    "not_less_keeps_nan": ~(pc.field("f64") < 1.0),
    "in_days": pc.field("d").isin([DAYS[0], DAYS[3]]),
    "before": pc.field("ts")
    <= pa.scalar(MOMENTS[0].replace(tzinfo=UTC), pa.timestamp("us", "UTC")),
    "month_and_day": "date_trunc('month', d) <> '1970-01-01' AND NOT year(ts) < 1900",
    "sql": "(s LIKE 'a%' OR money > 12.5) AND NOT i32 IN (7, 9)",
}


@pytest.mark.parametrize("where", WHERES.values(), ids=WHERES)
def test_both_readers_give_the_same_rows(where, spark, made):
    columns = SCHEMA.names
    ours = ias.read(spark, made / "a.parquet", columns=columns, where=where, reader="intarsia")
    theirs = ias.read(spark, made / "a.parquet", columns=columns, where=where, reader="spark")
    assert [f.dataType for f in ours.schema] == [f.dataType for f in theirs.schema]
    assert ours.count() > 0
    assert str(native_rows(ours).to_pydict()) == str(native_rows(theirs).to_pydict())


def test_what_the_footer_stores_is_read_alike_by_both(spark, made):
    """Decimals as integers and as bytes; the folder's two files together."""
    ours = ias.read(spark, made, reader="intarsia").toArrow()
    theirs = ias.read(spark, made, reader="spark").toArrow()
    order = [(name, "ascending") for name in ("id", "money", "s", "d", "i64", "f32", "f64")]
    assert str(ours.sort_by(order).to_pydict()) == str(theirs.sort_by(order).to_pydict())


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ([-0.0, 1.0], pc.field("x") == 0.0),
        ([5.0, math.nan], pc.field("x") != 5.0),
        ([5.0, math.nan], ~(pc.field("x") <= 5.0)),
        ([math.nan, 5.0], ~(pc.field("x") < 6.0)),
    ],
    ids=str,
)
@pytest.mark.parametrize("writer", ["pyarrow", "spark"])
def test_no_bound_or_dictionary_loses_rows(values, where, writer, spark, tmp_path):
    """In files of any writer whose bounds or dictionaries would exclude matching rows."""
    if writer == "spark":
        frame = spark.createDataFrame([(value,) for value in values], "x double").coalesce(1)
        bloom = {"parquet.bloom.filter.enabled#x": "true", "parquet.page.row.count.limit": "1"}
        frame.write.options(**bloom).parquet(str(tmp_path / "made"))
    else:
        (tmp_path / "made").mkdir()
        table = pa.table({"x": values})
        pq.write_table(table, tmp_path / "made" / "a.parquet", write_page_index=True)
    actual = ias.read(spark, tmp_path / "made", where=where, reader="spark").toArrow()
    assert str(actual["x"].to_pylist()) == str(
        pa.table({"x": values}).filter(where)["x"].to_pylist()
    )
    assert actual.num_rows == 1


# --- the choice of the reader -------------------------------------------------------------------


def chosen_for(path, where=None, columns=None):
    source = Source(opened(path), str(path))
    query = query_of(source.data, columns, where)
    return plan_native_read(source, query, source.files)


def test_spark_reads_wide_scans_and_our_reader_narrow_ones(spark, tmp_path):
    table = pa.table({"n": np.arange(100_000), "noise": np.random.default_rng(1).random(100_000)})
    options = {"write_page_index": True, "data_page_size": 10_000, "use_dictionary": False}
    pq.write_table(table, tmp_path / "a.parquet", **options)
    wide = ias.explain(spark, tmp_path, where="n >= 10")
    assert (wide.reader, wide.task_bytes) == ("spark", ())
    assert "  engine      100% of the bytes of its columns are left to read" in wide.text
    narrow = ias.explain(spark, tmp_path, where="n < 10")
    assert (narrow.reader, narrow.driver_rows, narrow.task_bytes) == ("intarsia", 10, ())
    num_bytes = narrow.explanation.planned.bytes.selected
    assert f"none: read by the driver, 10 rows of {num_bytes:,} bytes" in narrow.text
    narrow = ias.explain(spark, tmp_path, where="n < 10", reader="intarsia")
    assert narrow.driver_rows is None
    assert len(narrow.task_bytes) == 1
    assert narrow.task_bytes[0] == narrow.explanation.planned.bytes.selected
    assert "page index" in narrow.text
    assert "a .where() put on the result filters rows, but skips none" in str(narrow)
    assert ias.explain(spark, tmp_path).reason == "there is no filter"
    assert ias.explain(spark, tmp_path, where="n < 0").reason == "no row is left"
    assert ias.explain(spark, tmp_path, reader="intarsia").reason == "as asked for"
    assert ias.explain(spark, tmp_path, reader="spark").reason == "as asked for"


def test_the_plan_of_a_wide_scan_is_sparks_and_has_the_filter(spark, tmp_path):
    pq.write_table(pa.table({"n": range(100_000), "m": range(100_000)}), tmp_path / "a.parquet")
    actual = ias.read(spark, tmp_path, columns=["m"], where="n >= 10")
    text = actual._jdf.queryExecution().toString()
    assert "FileScan parquet" in text
    assert actual.count() == 99_990
    assert (
        "MapInArrow"
        in ias.read(spark, tmp_path, columns=["m"], where="n >= 10", reader="intarsia")
        ._jdf.queryExecution()
        .toString()
    )


def test_files_that_cannot_match_are_not_handed_over(spark, tmp_path):
    for number in range(4):
        table = pa.table({"n": range(number * 100, number * 100 + 100)})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    actual = ias.read(spark, tmp_path, where="n >= 200", reader="spark")
    assert sorted(file[-9:] for file in actual.inputFiles()) == ["2.parquet", "3.parquet"]
    assert actual.count() == 200


@pytest.mark.parametrize("with_folder", [False, True])
def test_many_files_of_a_folder_are_listed_once(with_folder, spark, tmp_path):
    for number in range(40):
        pq.write_table(pa.table({"n": [number]}), tmp_path / f"{number}.parquet")
    if with_folder:
        (tmp_path / "more").mkdir()
        pq.write_table(pa.table({"n": [100]}), tmp_path / "more" / "7.parquet")
    jobs = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("listing", "")
    actual = ias.read(spark, tmp_path, where="n > 3 AND n < 99", reader="spark")
    assert bool(jobs.getJobIdsForGroup("listing")) == with_folder
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert sorted(row.n for row in actual.collect()) == list(range(4, 40))
    assert len(actual.inputFiles()) == 36


REFUSED = {
    "unsigned": (pa.array([1], pa.uint32()), "is uint32, which Spark may not read"),
    "nanoseconds": (pa.array([1], pa.timestamp("ns")), "is stored in an unusual way"),
    "milliseconds": (pa.array([1], pa.timestamp("ms")), "is stored in an unusual way"),
    "half": (pa.array([1.5], pa.float16()), "is stored in an unusual way"),
    "fixed": (pa.array([b"abc"], pa.binary(3)), "is stored in an unusual way"),
    "list": (pa.array([[1]]), "which Spark may not read"),
    "struct": (pa.array([{"a": 1}]), "which Spark may not read"),
}


@pytest.mark.parametrize(("values", "why"), REFUSED.values(), ids=REFUSED)
def test_types_that_are_not_on_the_list_are_refused(values, why, spark, tmp_path):
    pq.write_table(pa.table({"x": values, "n": [1]}), tmp_path / "a.parquet")
    actual = chosen_for(tmp_path)
    assert isinstance(actual, str)
    assert why in actual
    assert isinstance(chosen_for(tmp_path, columns=["n"]), NativeRead)


def test_int96_is_refused(spark, tmp_path):
    table = pa.table({"x": pa.array([1], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert "is timestamp[us], and read as timestamp[us, tz=UTC]" in chosen_for(tmp_path)
    with pytest.raises(ia.UnsupportedError, match="might give other rows"):
        ias.read(spark, tmp_path, reader="spark")


@pytest.mark.parametrize(
    ("options", "is_refused"),
    [
        ({"compression": "brotli"}, True),
        ({"compression": "zstd"}, False),
        ({"use_dictionary": False, "use_byte_stream_split": ["x"]}, True),
        ({"use_dictionary": False, "column_encoding": {"n": "DELTA_BINARY_PACKED"}}, False),
    ],
    ids=["brotli", "zstd", "byte_stream_split", "delta"],
)
def test_encodings_and_codecs_are_supported_by_spark(options, is_refused, spark, tmp_path):
    table = pa.table({"x": [1.5, None], "n": [1, 2]})
    pq.write_table(table, tmp_path / "a.parquet", **options)
    actual = chosen_for(tmp_path)
    assert isinstance(actual, str) == is_refused
    if not is_refused:
        rows = ias.read(spark, tmp_path, reader="spark").collect()
        assert sorted(map(tuple, rows), key=str) == [(1.5, 1), (None, 2)]


def test_files_that_differ_are_refused(spark, tmp_path):
    pq.write_table(pa.table({"n": pa.array([1], pa.int64()), "m": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": pa.array([1], pa.int32())}), tmp_path / "b.parquet")
    assert "'n' is int32, and read as int64" in chosen_for(tmp_path, columns=["n"])
    assert "'m' is missing" in chosen_for(tmp_path, columns=["m"])


def test_names_that_differ_by_case_are_refused(spark, tmp_path):
    pq.write_table(pa.table({"n": [1], "N": [2]}), tmp_path / "a.parquet")
    assert "differ by case only" in chosen_for(tmp_path)


def test_dates_of_an_old_spark_are_refused(spark, tmp_path):
    table = pa.table({"d": pa.array([dt.date(1500, 1, 1)]), "n": [1]})
    old = table.replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    pq.write_table(old, tmp_path / "a.parquet")
    with pytest.warns(ia.IntarsiaWarning, match="calendar before 1582's reform"):
        assert "an old Spark" in chosen_for(tmp_path)
    assert isinstance(chosen_for(tmp_path, columns=["n"]), NativeRead)
    new = table.replace_schema_metadata({"org.apache.spark.version": "4.3.0"})
    pq.write_table(new, tmp_path / "a.parquet")
    assert isinstance(chosen_for(tmp_path), NativeRead)


def test_paths_that_spark_takes_for_globs_are_refused(spark, tmp_path):
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a{b}.parquet")
    assert "may take the path for a pattern" in chosen_for(tmp_path)


def test_partition_values_are_those_of_the_folders(spark, tmp_path):
    for day, code, share in [
        ("2024-01-01", "7", "1.0E-5"),
        ("2024-01-02", "2147483648999", "12"),
        ("__HIVE_DEFAULT_PARTITION__", "-3", "-0.25"),
    ]:
        folder = tmp_path / f"day={day}" / f"code={code}" / f"share={share}" / "word=x-1.0"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"n": [int(code)]}), folder / "a.parquet")
    where = pc.field("code") > -5
    ours = ias.read(spark, tmp_path, where=where, reader="intarsia")
    theirs = ias.read(spark, tmp_path, where=where, reader="spark")
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    assert sorted(map(str, ours.collect())) == sorted(map(str, theirs.collect()))
    assert theirs.count() == 3


@pytest.mark.parametrize("value", ["007", "a%20b", "1_0 ", "1e5"])
def test_ambiguous_partition_values_are_refused(value, spark, tmp_path):
    for each in (value, "1"):
        (tmp_path / f"code={each}").mkdir()
        pq.write_table(pa.table({"n": [1]}), tmp_path / f"code={each}" / "a.parquet")
    assert isinstance(chosen_for(tmp_path), str)
    assert isinstance(chosen_for(tmp_path, columns=["n"]), NativeRead) == ("%" not in value)


def test_folders_that_are_not_key_value_pairs_are_refused(spark, tmp_path):
    for folder in ("code=1", "code=2/x"):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"n": [1]}), tmp_path / folder / "a.parquet")
    assert "other keys" in chosen_for(tmp_path)


@pytest.mark.parametrize(
    "where",
    [
        pc.field("f32") > pa.scalar(0.1, pa.float64()),
        pc.field("f64") == math.nan,
        pc.field("f64").isin([1.5, 2.5]),
        pc.field("i64") + 1 == 7,
        pc.field("i64").cast(pa.string()) == "7",
        pc.utf8_lower(pc.field("s")) == "a",
        pc.match_like(pc.field("s"), "a_b"),
        pc.match_substring_regex(pc.field("s"), "a+"),
        pc.field("i64").isin(pa.array([1, None])),
        pc.field("i64") == pa.scalar(1.5),
        pc.field("i64") == pc.field("i32"),
        pc.field("fortune") > pa.scalar(decimal.Decimal("1e-14"), pa.decimal128(38, 37)),
        pc.field("local") == pa.scalar(1, pa.timestamp("ns")),
        pc.field("f64").is_null(nan_is_null=True),
    ],
    ids=str,
)
def test_conditions_that_are_not_on_the_list_are_refused(where, spark):
    with pytest.raises(ia.PredicateError):
        spark_condition(where, SCHEMA)
    assert read_expression(where)


def test_both_readers_ignore_an_interrupted_write(spark, tmp_path):
    pq.write_table(pa.table({"n": [1]}), tmp_path / "old.parquet")
    pq.write_table(pa.table({"n": [2]}), tmp_path / "new.parquet")
    entry = tmp_path / "_commit-x.json"
    parts = '"job": "x", "publish": ["new.parquet"], "remove": ["old.parquet"], "stream": null'
    for phase, rows in (("publishing", [1]), ("published", [2])):
        entry.write_text(f'{{{parts}, "phase": "{phase}"}}')
        for reader in ("spark", "intarsia"):
            assert [row.n for row in ias.read(spark, tmp_path, reader=reader).collect()] == rows


def test_every_type_of_files_by_spark_that_is_flat_is_handed_over(spark, by_spark):
    nested = {"list", "map", "struct", "list_struct"}
    source = Source(opened(by_spark), str(by_spark))
    flat = [name for name in source.data.schema.names if name not in nested]
    actual = plan_native_read(source, query_of(source.data, flat, None), source.files)
    assert "may read the value otherwise" in actual  # a folder named b & c
    flat.remove("part")
    actual = plan_native_read(source, query_of(source.data, flat, None), source.files)
    assert isinstance(actual, NativeRead)


@pytest.mark.parametrize("reader", ["auto", "intarsia", "spark"])
def test_an_empty_answer_is_the_same_for_both_readers(reader, spark, tmp_path):
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    actual = ias.read(spark, tmp_path, where="n < 0", reader=reader)
    assert (actual.columns, actual.count()) == (["n"], 0)


def test_filters_that_distinguish_zeros_are_not_handed_over(spark, setting, tmp_path):
    pq.write_table(pa.table({"x": [0.0, -0.0, 1.0] * 100}), tmp_path / "a.parquet")
    setting("spark.sql.parquet.recordLevelFilter.enabled", "true")
    setting("spark.sql.parquet.enableVectorizedReader", "false")
    with pytest.raises(ia.UnsupportedError, match=r"treats 0\.0 and -0\.0 as unequal"):
        ias.read(spark, tmp_path, where="x = 0", reader="spark")
    assert ias.read(spark, tmp_path, where="x <= 1").count() == 300
    assert ias.read(spark, tmp_path, where="x = 0").count() == 200
    assert ias.read(spark, tmp_path, reader="spark").count() == 300


def test_queries_that_spark_answers_by_statistics_are_not_handed_over(spark, setting, tmp_path):
    pq.write_table(pa.table({"a": [1, 2], "b": [10, 20], "c": [0, 0]}), tmp_path / "a.parquet")
    setting("spark.sql.parquet.aggregatePushdown", "TRUE")
    setting("spark.sql.sources.useV1SourceList", "")
    actual = ias.read(spark, tmp_path, columns=["b"])
    assert actual.selectExpr("max(b)").collect() == [(20,)]
    with pytest.raises(ia.UnsupportedError, match="one column's statistics for another's"):
        ias.read(spark, tmp_path, reader="spark")


def test_unknown_readers_are_refused(spark, tmp_path):
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="auto, intarsia, spark"):
        ias.read(spark, tmp_path, reader="pandas")
