"""``optimize``: fewer files or another order, and the same rows, even with concurrent writers."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import itertools
import os
import shutil
import sys
import threading
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
import intarsia.spark as ias
from intarsia.commit.commit import commit_entries, publish
from intarsia.commit.storage import LocalPlace, Place
from intarsia.dataset.commit_log import CommitEntry, visible
from intarsia.expr.casts import is_text
from intarsia.rewrite import folder_commit
from intarsia.rewrite.rewrite_plan import small_runs

pytestmark = pytest.mark.spark
module = sys.modules["intarsia.spark.optimize.optimize"]


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def data(folder):
    return {n: actual for n, actual in contents(folder).items() if n.endswith(".parquet")}


def debris(folder):
    names = [str(path.relative_to(folder)) for path in folder.rglob("*")]
    return [n for n in names if "_temporary" in n or "_commit" in n or "/." in f"/{n}"]


def numbers(start, stop):
    """Rows by number; neither ``k`` nor ``s`` is in order."""
    ids = range(start, stop)
    return pa.table({"id": ids, "k": [i * 7919 % 1000 for i in ids], "s": [f"s{i}" for i in ids]})


def put(folder, count, rows=100, **options):
    """Writes ``count`` files ``f00.parquet``, …, of ``rows`` rows each."""
    folder.mkdir(parents=True, exist_ok=True)
    for at in range(count):
        table = numbers(at * rows, (at + 1) * rows)
        pq.write_table(table, folder / f"f{at:02}.parquet", **options)


@pytest.fixture
def lake(tmp_path):
    """Two folders of eight small files each."""
    put(tmp_path / "day=1", 8)
    put(tmp_path / "day=2", 8)
    return tmp_path


def ids(folder):
    return sorted(ia.dataset(folder).to_table(["id"])["id"].to_pylist())


# --- compaction ---------------------------------------------------------------------------------


def test_small_files_become_one_in_each_folder(spark, lake):
    before, sizes = ids(lake), {n: len(actual) for n, actual in data(lake).items()}
    start = time.perf_counter()
    reports = ias.optimize(spark, lake)
    took = time.perf_counter() - start
    assert [report.folder for report in reports] == ["day=1", "day=2"]
    after = data(lake)
    for report in reports:
        (new,) = report.written
        assert (report.files_before, report.files_after, report.rows) == (8, 1, 800)
        assert took / 10 < report.seconds < took
        assert report.bytes_before == sum(s for n, s in sizes.items() if report.folder in n)
        assert report.bytes_after == new.bytes == len(after[new.path])
    assert len(after) == 2
    assert ids(lake) == before
    assert debris(lake) == []


def test_rows_keep_their_order(spark, lake):
    ias.optimize(spark, lake)
    files = list(lake.rglob("*.parquet"))
    assert len(files) == 2
    for file in files:
        assert pq.read_table(file, partitioning=None).equals(numbers(0, 800))


def test_nothing_is_rewritten_twice_or_without_need(spark, lake):
    ias.optimize(spark, lake)
    before = contents(lake)
    assert ias.optimize(spark, lake) == []
    assert contents(lake) == before


def test_large_and_single_files_do_not_change(spark, tmp_path):
    put(tmp_path, 4)
    pq.write_table(numbers(0, 50_000), tmp_path / "f015-big.parquet")
    put(tmp_path / "lone", 1)
    big = ["f015-big.parquet", "lone/f00.parquet"]
    before = data(tmp_path)
    stats = [(tmp_path / name).stat() for name in big]
    (report,) = ias.optimize(spark, tmp_path, target_file_size="100 KB")
    assert (report.files_before, report.files_after, report.rows) == (5, 2, 400)
    after = data(tmp_path)
    assert {name: after[name] for name in big} == {name: before[name] for name in big}
    for name, stat in zip(big, stats, strict=True):
        actual = (tmp_path / name).stat()
        assert (actual.st_ino, actual.st_mtime_ns) == (stat.st_ino, stat.st_mtime_ns)


def test_files_are_merged_up_to_the_target(spark, tmp_path):
    put(tmp_path, 20, rows=3000)
    size = (tmp_path / "f01.parquet").stat().st_size
    ias.optimize(spark, tmp_path, target_file_size=size * 5)
    actual = sorted(len(content) for content in data(tmp_path).values())
    assert 3 <= len(actual) <= 6
    assert actual[-1] < 1.5 * size * 5
    assert ids(tmp_path) == list(range(60_000))


@pytest.mark.parametrize("sizes", [[], [99], [100, 99], [40, 30, 120, 20, 90, 60, 30], [1] * 250])
def test_runs_are_adjacent_files_that_are_merged_only_once(sizes):
    files = {f"{at:04}": size for at, size in enumerate(sizes)}
    runs = small_runs(files, 100)
    for run in runs:
        assert len(run) > 1
        assert sum(files[name] for name in run) <= 100
        between = [name for name in files if run[0] <= name <= run[-1] and files[name] < 100]
        assert run == between
    merged = {run[0]: sum(files[name] for name in run) for run in runs}
    gone = set(itertools.chain(*runs))
    assert small_runs({n: s for n, s in files.items() if n not in gone} | merged, 100) == []


def test_only_the_folders_asked_for_are_rewritten(spark, tmp_path):
    for day in ("2013-01-01", "2013-01-02", "2013-02-01", "__HIVE_DEFAULT_PARTITION__"):
        put(tmp_path / f"day={day}" / "x=a b", 3)
    days = pc.field("day")
    for where, left in [
        ("day BETWEEN '2013-01-01' AND '2013-01-31' AND x = 'a b'", {2}),
        (days.is_null(), {1}),
        (days == dt.date(2013, 2, 1), {0}),
    ]:
        ias.optimize(spark, tmp_path, where=where)
        folders = [path for path in tmp_path.rglob("x=*") if len(list(path.iterdir())) == 3]
        assert {len(folders)} == {{2: 2, 1: 1, 0: 0}[n] for n in left}


def test_a_folder_may_be_the_path(spark, lake):
    before = data(lake / "day=2")
    (report,) = ias.optimize(spark, lake / "day=1")
    assert report.folder == "day=1"
    assert data(lake / "day=2") == before
    assert (lake / "_SUCCESS").exists()


def test_conditions_are_about_folders(spark, lake):
    before = contents(lake)
    for where in ("k = 7", pc.field("k") == 7):
        with pytest.raises(ia.PredicateError, match="k"):
            ias.optimize(spark, lake, where=where)
    assert contents(lake) == before


# --- what does not change -----------------------------------------------------------------------


AWKWARD = {
    "u8": pa.array([1, None, 255], pa.uint8()),
    "u64": pa.array([1, None, 2**64 - 1], pa.uint64()),
    "f16": pa.array([1.5, None, float("nan")], pa.float16()),
    "ns": pa.array([1, None, 2**60 + 1], pa.timestamp("ns", "Europe/Paris")),
    "ms": pa.array([1, None, 2**40], pa.timestamp("ms")),
    "time": pa.array([1, None, 86_399_999_999_999], pa.time64("ns")),
    "daytime": pa.array([1, None, 86_399_999], pa.time32("ms")),
    "span": pa.array([1, None, -5], pa.duration("ns")),
    "day": pa.array([0, None, 15_000], pa.date32()),
    "money": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")]),
    "word": pa.array(["a", None, "b"]).dictionary_encode(),
    "large": pa.array(["a", None, "b"], pa.large_string()),
    "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "uuid": pa.array([b"a" * 16, None, b"b" * 16], pa.uuid()),
    "list": pa.array([[1, None], None, []], pa.list_(pa.int16())),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())),
    "struct": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}]),
    "needed": pa.array([1, 2, 3], pa.int64()),
}


def awkward(order):
    """Three rows of every type, with metadata and a column that may not be NULL."""
    fields = [
        pa.field(name, column.type, name != "needed", {"unit": f"of {name}", "PARQUET:field_id": i})
        for i, (name, column) in ((str(i), item) for i, item in enumerate(AWKWARD.items(), start=1))
    ]
    schema = pa.schema(fields, {"owner": "me", "intarsia": "stale", "shared": "by all"})
    return pa.table(list(AWKWARD.values()), schema=schema).take(order)


@pytest.mark.parametrize("cluster_by", [[], ["needed"]], ids=["merged", "ordered"])
def test_types_metadata_and_codec_do_not_change(cluster_by, spark, tmp_path):
    parts = [awkward([2, 0]), awkward([1])]
    for name, part in zip("ab", parts, strict=True):
        part = part.replace_schema_metadata({**part.schema.metadata, "name": name})
        pq.write_table(part, tmp_path / f"{name}.parquet", compression="gzip")
    before = pq.read_schema(tmp_path / "a.parquet")
    with pytest.warns(ia.IntarsiaWarning, match="embedded indexes are ignored"):
        ias.optimize(spark, tmp_path, cluster_by=cluster_by)
    (file,) = tmp_path.glob("*.parquet")
    expected = awkward([0, 1, 2]) if cluster_by else pa.concat_tables(parts)
    actual = pq.read_table(file)
    assert actual.to_pylist() == expected.to_pylist() or str(actual.to_pylist()) == str(
        expected.to_pylist()
    )  # the string where there is a NaN
    schema = pq.read_schema(file)
    assert schema.equals(before, check_metadata=False)
    for field in schema:
        assert field.equals(before.field(field.name), check_metadata=True)
    assert schema.metadata == {b"owner": b"me", b"shared": b"by all"}
    assert pq.read_metadata(file).row_group(0).column(0).compression == "GZIP"
    assert ia.verify(file) == []


def test_types_that_spark_would_round_are_not_reordered(spark, tmp_path):
    nested = pa.array([{"t": 1}, {"t": 2}], pa.struct([("t", pa.timestamp("ns"))]))
    for name in "ab":
        pq.write_table(pa.table({"k": [2, 1], "n": nested}), tmp_path / f"{name}.parquet")
    before = contents(tmp_path)
    with pytest.raises(ia.UnsupportedError, match="'n' has nested nanoseconds"):
        ias.optimize(spark, tmp_path, cluster_by=["k"])
    assert contents(tmp_path) == before
    assert ias.optimize(spark, tmp_path)


def test_int96_values_of_all_years_do_not_change(spark, tmp_path):
    key = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(key)
    spark.conf.set(key, "INT96")
    try:
        made = "id", "make_timestamp(CAST(1600 + id * 100 AS INT), 1, 2, 3, 4, 5.25) AS t"
        frame = spark.range(0, 10, 1, 4).selectExpr(*made)
        frame.write.parquet(str(tmp_path / "lake"))
    finally:
        spark.conf.set(key, before)
    expected = sorted(spark.read.parquet(str(tmp_path / "lake")).collect())
    ias.optimize(spark, tmp_path / "lake")
    (file,) = (tmp_path / "lake").glob("*.parquet")
    assert pq.read_metadata(file).schema.column(1).physical_type == "INT96"
    assert sorted(spark.read.parquet(str(tmp_path / "lake")).collect()) == expected
    ias.optimize(spark, tmp_path / "lake", cluster_by=["t"])
    actual = spark.read.parquet(str(tmp_path / "lake"))
    assert sorted(actual.collect()) == expected
    assert actual.schema.simpleString() == "struct<id:bigint,t:timestamp>"


def test_columns_that_some_files_lack_are_null_there(spark, tmp_path):
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    wide = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string(), nullable=False)])
    pq.write_table(pa.table({"id": [3], "v": ["x"]}, wide), tmp_path / "b.parquet")
    ias.optimize(spark, tmp_path)
    assert ia.dataset(tmp_path).to_table().to_pylist() == [
        {"id": 1, "v": None},
        {"id": 2, "v": None},
        {"id": 3, "v": "x"},
    ]


def test_fields_that_some_structs_lack_are_null_there(spark, tmp_path):
    def struct(**fields):
        return pa.struct([pa.field(name, kind, False) for name, kind in fields.items()])

    narrow, wide = struct(x=pa.int64()), struct(x=pa.int64(), y=pa.string())
    same = pa.field("same", wide, nullable=False)
    for name, value, kind in (("a", {"x": 1}, narrow), ("b", {"x": 2, "y": "q"}, wide)):
        columns = {"s": pa.array([value], kind), "same": pa.array([{"x": 0, "y": "r"}], wide)}
        if name == "b":
            columns["new"] = columns["s"]
        table = pa.table(columns)
        pq.write_table(table.set_column(1, same, table["same"]), tmp_path / f"{name}.parquet")
    ias.optimize(spark, tmp_path)
    table = ia.dataset(tmp_path).to_table()
    assert table.to_pylist() == [
        {"s": {"x": 1, "y": None}, "same": {"x": 0, "y": "r"}, "new": None},
        {"s": {"x": 2, "y": "q"}, "same": {"x": 0, "y": "r"}, "new": {"x": 2, "y": "q"}},
    ]
    assert table.schema.field("same") == same


def test_numbers_and_strings_get_the_widest_type(spark, tmp_path):
    narrow = pa.table({"n": pa.array([1, None], pa.int8()), "s": ["x", "y"], "f": [True, False]})
    wide = pa.table({"n": [2**40], "s": pa.array(["é"], pa.large_string()), "f": [True]})
    pq.write_table(narrow, tmp_path / "a.parquet")
    pq.write_table(wide, tmp_path / "b.parquet")
    pq.write_table(narrow.select(["n"]).slice(0, 1), tmp_path / "c.parquet")
    ia.add_indexes(tmp_path, [ia.Lookup("n")])
    ias.optimize(spark, tmp_path)
    (path,) = tmp_path.glob("*.parquet")
    table = ia.dataset(path).to_table()
    assert table.schema.types[0] == pa.int64()
    assert is_text(table.schema.types[1])
    rows = [tuple(row.values()) for row in table.to_pylist()]
    expected = [(1, "x", True), (1, None, None), (2**40, "é", True), (None, "y", False)]
    assert sorted(rows, key=repr) == sorted(expected, key=repr)
    assert ia.dataset(path).count_rows(pc.field("n") == 2**40) == 1


@pytest.mark.parametrize("other", [["x"], [1.5], pa.array([1], pa.uint64())])
def test_files_with_incompatible_column_types_do_not_change(spark, tmp_path, other):
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": other}), tmp_path / "b.parquet")
    before = contents(tmp_path)
    with pytest.raises(ia.UnsupportedError, match=r"b.parquet: types of its columns differ"):
        ias.optimize(spark, tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("cluster_by", [[], ["id"]])
def test_files_with_columns_that_differ_by_case_do_not_change(spark, tmp_path, cluster_by):
    pq.write_table(pa.table({"id": [1], "Name": ["x"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [2], "name": ["y"]}), tmp_path / "b.parquet")
    before = contents(tmp_path)
    with pytest.raises(ia.UnsupportedError, match="differ only by case"):
        ias.optimize(spark, tmp_path, cluster_by=cluster_by)
    assert contents(tmp_path) == before


def test_files_without_rows_are_removed_if_others_have_rows(spark, tmp_path):
    put(tmp_path / "day=1", 2)
    pq.write_table(numbers(0, 0), tmp_path / "day=1" / "f015.parquet")
    for name in ("a", "b"):
        (tmp_path / "day=2").mkdir(exist_ok=True)
        pq.write_table(numbers(0, 0), tmp_path / "day=2" / f"{name}.parquet")
    (report,) = ias.optimize(spark, tmp_path)
    assert (report.folder, report.files_before, report.files_after) == ("day=1", 3, 1)
    assert len(list((tmp_path / "day=2").iterdir())) == 2


def test_a_damaged_page_is_not_carried_along(spark, tmp_path):
    put(tmp_path, 2, write_page_checksum=True, use_dictionary=False, compression="none")
    path = tmp_path / "f00.parquet"
    content = bytearray(path.read_bytes())
    content[ia.ParquetFile(path).pages(0, "id")[0].offset + 400] ^= 1
    path.write_bytes(content)
    before = data(tmp_path)
    for order in ([], ["id"]):
        with pytest.raises(ia.FormatError, match=r"f00\.parquet: .*(CRC|checksum)"):
            ias.optimize(spark, tmp_path, cluster_by=order)
    assert data(tmp_path) == before
    assert debris(tmp_path) == []


# --- indexes ------------------------------------------------------------------------------------


@pytest.fixture
def indexed(tmp_path):
    """Three files: with a lookup, with a lookup and a bloom filter, with a sidecar."""
    put(tmp_path, 3)
    ia.add_indexes(tmp_path / "f00.parquet", [ia.Lookup("s", granule_rows=50)])
    ia.add_indexes(tmp_path / "f01.parquet", [ia.Lookup(pc.utf8_upper(pc.field("s")))])
    ia.add_indexes(tmp_path / "f01.parquet", [ia.Bloom("k"), ia.PageIndex()])
    ia.add_indexes(tmp_path / "f02.parquet", ["k:minmax"], sidecar=True)
    return tmp_path


def names(folder):
    return [
        (
            sorted(entry.name for entry in report.indexes),
            [one.name for one in report.standard],
            list(report.sidecar),
        )
        for report in ia.list_indexes(folder)
    ]


def test_new_files_have_the_indexes_of_all_old_ones(spark, indexed):
    ias.optimize(spark, indexed)
    own = ["k:minmax", "s:lookup", "upper(s):lookup"]
    assert names(indexed) == [(own, ["page_index", "k:bloom"], [])]
    (report,) = ia.list_indexes(indexed)
    assert next(e.params for e in report.indexes if e.name == "s:lookup") == {"granule_rows": 50}
    plan = ia.dataset(indexed).plan(filter=pc.field("s") == "s250")
    assert plan.figures.rows.selected == 50
    assert ia.verify(indexed) == []


def test_sidecars_of_removed_files_are_removed(spark, indexed):
    assert list((indexed / "_intarsia").iterdir())
    ias.optimize(spark, indexed)
    assert not (indexed / "_intarsia").exists()


@pytest.mark.parametrize("cluster_by", [[], ["k"]], ids=["merged", "ordered"])
@pytest.mark.parametrize(
    ("indexes", "expected"),
    [
        ([], [[], ["page_index"]]),
        (["s:ngram", "bloom(s)"], [["s:ngram"], ["page_index", "s:bloom"]]),
    ],
    ids=["none", "others"],
)
def test_indexes_may_be_dropped_or_replaced(cluster_by, indexes, expected, spark, indexed):
    ias.optimize(spark, indexed, cluster_by=cluster_by, indexes=indexes)
    assert names(indexed) == [(*expected, [])]


def test_indexes_that_cannot_be_built_are_refused_first(spark, lake):
    before = contents(lake)
    for indexes in (["nothing:lookup"], ["day:lookup"], ["s:elements"]):
        with pytest.raises(ia.IndexSpecError):
            ias.optimize(spark, lake, indexes=indexes)
    assert contents(lake) == before


# --- another order ------------------------------------------------------------------------------


def test_rows_are_sorted_within_their_folders(spark, lake):
    before = Counter(ia.dataset(lake).to_table(["id", "day"])["id"].to_pylist())
    reports = ias.optimize(spark, lake, cluster_by=["k", "id"], rows_per_page=100)
    assert sum(report.rows for report in reports) == 1600
    assert Counter(ia.dataset(lake).to_table(["id"])["id"].to_pylist()) == before
    for day in ("day=1", "day=2"):
        files = sorted((lake / day).glob("*.parquet"))
        actual = pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)
        assert actual.equals(numbers(0, 800).sort_by([("k", "ascending"), ("id", "ascending")]))
        order = pq.read_metadata(files[0]).row_group(0).sorting_columns
        assert [one.column_index for one in order] == [1, 0]
    planned = ia.dataset(lake).plan(filter=pc.field("k") == 500)
    assert planned.figures.rows.selected < 0.3 * 1600


def test_rows_are_clustered_along_a_curve(spark, tmp_path):
    put(tmp_path, 2, rows=5000)
    ias.optimize(
        spark,
        tmp_path,
        cluster_by=["id", "k"],
        curve="zorder",
        rows_per_page=100,
        target_file_size="64 KB",
    )
    assert ids(tmp_path) == list(range(10_000))
    box = (pc.field("id") < 1000) & (pc.field("k") < 100)
    source = ia.dataset(tmp_path)
    assert source.plan(filter=box).figures.rows.selected < 1500
    assert source.count_rows(filter=box) == sum(i * 7919 % 1000 < 100 for i in range(1000))


def test_rows_are_in_files_of_the_target_size(spark, tmp_path):
    put(tmp_path, 2, rows=50_000)
    target = sum(map(len, data(tmp_path).values())) // 6
    ias.optimize(spark, tmp_path, cluster_by=["k"], target_file_size=target)
    sizes = [len(content) for content in data(tmp_path).values()]
    assert 2 <= len(sizes) <= 12
    assert max(sizes) < 1.5 * target


def test_columns_whose_names_begin_with_a_dot_can_be_sorted_by(spark, tmp_path):
    """The name is not a path within another column, for which pyarrow takes it."""
    table = pa.table({"p": [n % 2 for n in range(100)], ".p": [n * 37 % 100 for n in range(100)]})
    pq.write_table(table, tmp_path / "a.parquet")
    ias.optimize(spark, tmp_path, cluster_by=["p", ".p"])
    (file,) = tmp_path.glob("*.parquet")
    assert len(pq.read_metadata(file).row_group(0).sorting_columns) == 2
    expected = table.take(np.lexsort((table[".p"], table["p"])))
    assert pq.read_table(file).to_pydict() == expected.to_pydict()
    frame = spark.createDataFrame(table.to_pandas()).coalesce(1)
    writer = frame.write.format("intarsia").option("cluster_by", '["p", ".p"]').mode("append")
    writer.save(str(tmp_path / "format"))
    (file,) = (tmp_path / "format").glob("*.parquet")
    assert pq.read_table(file).to_pydict() == expected.to_pydict()


@pytest.mark.parametrize(
    "arguments", [{"cluster_by": ["day"]}, {"curve": "zorder"}, {"target_file_size": None}]
)
def test_an_invalid_order_is_refused_first(arguments, spark, lake):
    before = contents(lake)
    with pytest.raises((ia.PredicateError, ValueError)):
        ias.optimize(spark, lake, **arguments)
    assert contents(lake) == before


def test_files_of_other_writers_and_modes_of_rounds(spark, lake, monkeypatch):
    monkeypatch.setattr(module, "_ROUND", 1e-9)  # each folder in its own round
    before = ids(lake)
    assert len(ias.optimize(spark, lake, cluster_by=["k"])) == 2
    assert ids(lake) == before
    assert debris(lake) == []


# --- concurrent changes -------------------------------------------------------------------------


def test_concurrent_readers_see_all_rows_once(spark, lake):
    expected = sum(ids(lake))
    seen, gone, stop = [], [], threading.Event()

    def look():
        while not stop.is_set():
            try:
                _, files = visible(lake)
                tables = [pq.read_table(file, columns=["id"], partitioning=None) for file in files]
            except FileNotFoundError:  # listed before, opened after: raises an error
                gone.append(1)
                continue
            seen.append(sum(sum(table["id"].to_pylist()) for table in tables))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for cluster_by in (["k"], ["id"], ["s"]):
            ias.optimize(spark, lake, cluster_by=cluster_by)
    finally:
        stop.set()
        reader.join()
    assert set(seen) == {expected}
    assert len(seen) > 10


def meanwhile(monkeypatch, act):
    """Does something after all new files are written, and before they are published."""

    def collect_written_files(tasks):
        actual = real(tasks)
        act()
        return actual

    real = module.collect_written_files
    monkeypatch.setattr(module, "collect_written_files", collect_written_files)


@pytest.mark.parametrize("cluster_by", [[], ["k"]], ids=["merged", "ordered"])
def test_a_file_added_meanwhile_is_not_lost(cluster_by, spark, lake, monkeypatch):
    new = numbers(5000, 5100)
    meanwhile(monkeypatch, lambda: pq.write_table(new, lake / "day=1" / "f03b.parquet"))
    ias.optimize(spark, lake, cluster_by=cluster_by)
    expected = [*range(800), *range(800), *range(5000, 5100)]
    assert ids(lake) == sorted(expected)


def rewritten(path):
    pq.write_table(numbers(7000, 7100), f"{path}.new")
    os.replace(f"{path}.new", path)


@pytest.mark.parametrize("act", [rewritten, os.remove], ids=["changed", "removed"])
@pytest.mark.parametrize("cluster_by", [[], ["k"]], ids=["merged", "ordered"])
def test_a_folder_with_a_changing_file_is_skipped(act, cluster_by, spark, lake, monkeypatch):
    meanwhile(monkeypatch, lambda: act(lake / "day=1" / "f03.parquet"))
    with pytest.raises(ia.PathError, match=r"1 of 2 folders .* day=1: day=1/f03.parquet was"):
        ias.optimize(spark, lake, cluster_by=cluster_by)
    remaining_ids = [i for i in range(800) if not 300 <= i < 400]
    new = [] if act is os.remove else list(range(7000, 7100))
    assert ids(lake / "day=1") == remaining_ids + new
    assert len(list((lake / "day=1").glob("f*.parquet"))) == (7 if act is os.remove else 8)
    assert len(list((lake / "day=2").glob("*.parquet"))) == 1
    assert debris(lake) == []


def test_a_folder_whose_files_are_deleted_before_tasks_begin_is_skipped(spark, lake, monkeypatch):
    real = module.job_folder

    def job_folder(job):
        (lake / "day=1" / "f03.parquet").unlink(missing_ok=True)
        return real(job)

    monkeypatch.setattr(module, "job_folder", job_folder)
    with pytest.raises(ia.PathError, match=r"day=1/f03.parquet was removed meanwhile"):
        ias.optimize(spark, lake)
    assert len(list((lake / "day=1").glob("f*.parquet"))) == 7
    assert len(list((lake / "day=2").glob("*.parquet"))) == 1
    assert debris(lake) == []


def test_files_that_another_write_is_replacing_are_skipped(spark, lake):
    theirs = CommitEntry("other", "publishing", ("day=1/new.parquet",), ("day=1/f00.parquet",))
    Place.of(lake).write_text(theirs.name, theirs.encode())
    with (
        pytest.warns(ia.IntarsiaWarning, match="another write is under way"),
        pytest.raises(ia.PathError, match=r"day=1: another write is replacing its files"),
    ):
        ias.optimize(spark, lake)
    assert len(list((lake / "day=1").glob("f*.parquet"))) == 8
    assert [entry.job for entry in commit_entries(Place.of(lake))] == ["other"]


def test_two_concurrent_runs_rewrite_once(spark, lake, monkeypatch):
    before = ids(lake)
    both = threading.Barrier(2, timeout=60)
    meanwhile(monkeypatch, both.wait)
    errors = []

    def work():
        try:
            ias.optimize(spark, lake)
        except ia.PathError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids(lake) == before
    assert debris(lake) == []
    assert len(errors) in (1, 2)


class Killed(BaseException):
    """The driver was killed."""


@pytest.mark.parametrize("step", ["move", "write_text", "remove", "remove_tree"])
def test_a_driver_that_is_killed_leaves_old_files_or_new_ones(step, spark, tmp_path, monkeypatch):
    """Killed at each call of publishing, without any cleanup."""
    for count in itertools.count():
        lake = tmp_path / f"{step}-{count}"
        put(lake / "day=1", 3, rows=10)
        put(lake / "day=2", 3, rows=10)
        before = ids(lake)
        left, dead = itertools.count(count, -1), threading.Event()

        def mortal(name, left=left, dead=dead):
            real = getattr(LocalPlace, name)

            def call(self, *arguments):
                if dead.is_set() or (name == step and next(left) <= 0):
                    dead.set()
                    raise Killed
                return real(self, *arguments)

            return call

        with monkeypatch.context() as patched:
            for name in ("move", "write_text", "remove", "remove_tree", "remove_empty", "make"):
                patched.setattr(LocalPlace, name, mortal(name))
            with contextlib.suppress(Killed):
                ias.optimize(spark, lake)
        assert seen_ids(lake) == before
        ias.recover(lake)
        assert ids(lake) == before
        assert debris(lake) == []
        if not dead.is_set():
            assert count > 0
            return
        shutil.rmtree(lake)


def seen_ids(lake):
    _, files = visible(lake)
    tables = [pq.read_table(file, columns=["id"], partitioning=None) for file in files]
    return sorted(i for table in tables for i in table["id"].to_pylist())


def test_a_failed_check_undoes_the_publication(tmp_path):
    put(tmp_path, 1)
    put(tmp_path / "_temporary-job", 1)
    os.rename(tmp_path / "_temporary-job/f00.parquet", tmp_path / "_temporary-job/new.parquet")
    before = contents(tmp_path / "f00.parquet")

    def check():
        raise ia.PathError("not now")

    with pytest.raises(ia.PathError, match="not now"):
        publish(Place.of(tmp_path), "job", ["new.parquet"], ["f00.parquet"], check=check)
    assert contents(tmp_path / "f00.parquet") == before
    assert sorted(p.name for p in tmp_path.glob("*.parquet")) == ["f00.parquet"]
    assert not list(tmp_path.glob("_commit*"))


def test_each_folder_of_a_job_has_its_own_commit_log(spark, tmp_path, monkeypatch):
    for day in (1, 2, 3):
        put(tmp_path / f"day={day}", 2)
    names = []

    def watched(place, job, *arguments, number, check):
        def checked():
            names.extend(entry.name for entry in commit_entries(place))
            check()

        publish(place, job, *arguments, number=number, check=checked)

    monkeypatch.setattr(folder_commit, "publish", watched)
    assert len(ias.optimize(spark, tmp_path)) == 3
    assert len(set(names)) == len(names) == 3
