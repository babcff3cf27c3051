"""The catalog: the same answers with it and without, and fewer files opened."""

import os
import pickle
import shutil
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import fsspec
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.catalog import build as build_module
from intarsia.catalog import segment_writer
from intarsia.catalog.catalog import read_pointer, root_of
from intarsia.catalog.manifest import POINTER, is_table_name
from intarsia.catalog.tables import new_name
from intarsia.io import storage

FILES, ROWS = 40, 30


def table_of(number, count=ROWS):
    start, random = number * count, np.random.default_rng(number)
    rows = range(start, start + count)
    return pa.table(
        {
            "n": pa.array(rows, pa.int64()),
            "id": random.integers(0, 1 << 40, count),
            "x": [None if i % 7 == 0 else float("nan") if i % 5 == 0 else i / 3 for i in rows],
            "text": [f"row {i}" if i % 3 else None for i in rows],
            "tags": [[f"t{i % 50}", f"file {number}"] for i in rows],
            "flag": pa.array([None] * count if number % 4 else [True] * count, pa.bool_()),
        }
    )


def fill(folder, files=FILES, indexes=("lookup(id)", "elements(tags)", "lookup(text)")):
    for number in range(files):
        part = folder / f"part={number % 3}"
        part.mkdir(parents=True, exist_ok=True)
        pq.write_table(table_of(number), part / f"{number:03}.parquet")
    if indexes:
        ia.add_indexes(folder, indexes)
    return folder


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("filled"))


@pytest.fixture
def lake(filled, tmp_path):
    """A copy for one test, whose files have changed just now."""
    return shutil.copytree(filled, tmp_path / "lake", copy_function=shutil.copyfile)


@pytest.fixture
def opened(monkeypatch):
    """How often each file was opened, by name."""
    counts, original = Counter(), storage.open_handle

    def counted(filesystem, path):
        counts[os.path.basename(path)] += 1
        return original(filesystem, path)

    monkeypatch.setattr(storage, "open_handle", counted)
    return counts


def data_files(counts):
    return {name for name in counts if name != POINTER and not is_table_name(name)}


def some_id(number, row=11):
    return table_of(number).column("id")[row].as_py()


def conditions():
    f = pc.field
    return {
        "one id": f("id") == some_id(7),
        "no id": f("id") == 1,
        "ids": f("id").isin([some_id(3), some_id(30), 5]),
        "range": (f("n") >= 100) & (f("n") < 160),
        "not in range": ~((f("n") >= 100) & (f("n") < 1150)),
        "or": (f("id") == some_id(20)) | (f("n") == 3),
        "and": (f("id") == some_id(20)) & (f("n") > 5000),
        "id and folder": (f("id") == some_id(20)) & (f("part") == 1),
        "folder": (f("part") == 2) & (f("n") < 40),
        "text": f("text") == "row 601",
        "not text": f("text") != "row 601",
        "floats": f("x") > 390.0,
        "floats or nan": ~(f("x") <= 390.0),
        "null": f("flag").is_null(),
        "valid": f("flag").is_valid(),
        "true": f("flag") & (f("n") < 500),
        "in list": ia.list_contains(f("tags"), "file 13"),
        "all in list": ia.list_contains_all(f("tags"), ["t7", "file 15"]),
        "function": pc.utf8_upper(f("text")) == "ROW 601",
        "cast": f("id").cast(pa.string()) == str(some_id(9)),
    }


def answers(dataset):
    return {name: comparable(dataset.to_table(filter=c)) for name, c in conditions().items()}


def comparable(table):
    """A copy of a table that equals another one if both have NaN."""
    at = table.schema.get_field_index("x")
    return table.set_column(at, "x", table.column("x").cast(pa.string()))


def test_a_catalog_changes_no_answer(lake):
    without = answers(ia.dataset(lake, catalog=False))
    report = ia.build_catalog(lake)
    assert (report.files, report.read, report.gone, report.skipped) == (FILES, FILES, 0, 0)
    dataset = ia.dataset(lake, catalog=True)
    for _ in range(2):
        for name, actual in answers(dataset).items():
            assert actual.equals(without[name]), name
    for name, condition in conditions().items():
        assert dataset.count_rows(filter=condition) == without[name].num_rows, name
    copy = pickle.loads(pickle.dumps(dataset))
    assert comparable(copy.to_table(filter=conditions()["ids"])).equals(without["ids"])
    assert copy.scan_source.cache.catalog.root == str(lake)
    assert dataset.schema.equals(ia.dataset(lake, catalog=False).schema, check_metadata=True)


def test_the_folder_may_be_a_uri_below_partition_folders(tmp_path):
    lake = fill(tmp_path / "year=2020" / "a b" / "lake")
    ia.build_catalog(lake.as_uri())
    expected = ia.dataset(lake, catalog=True)
    for uri in (lake.as_uri(), f"{lake.as_uri()}/", lake.as_uri().replace("file://", "file:")):
        actual = ia.dataset(uri, catalog=True)
        assert actual.schema.equals(expected.schema)
        assert "year" not in actual.schema.names
        assert actual.count_rows(filter=conditions()["ids"]) == expected.count_rows(
            filter=conditions()["ids"]
        )
        assert root_of(pafs.LocalFileSystem(), uri, actual.files) == str(lake)


def test_a_point_query_opens_one_of_three_hundred_files(tmp_path, opened):
    lake = fill(tmp_path / "lake", 300)
    ia.build_catalog(lake)
    opened.clear()
    actual = ia.dataset(lake).to_table(filter=pc.field("id") == some_id(123))
    assert actual.column("n").to_pylist() == [123 * ROWS + 11]
    assert data_files(opened) == {"123.parquet"}
    assert opened.total() <= 8
    opened.clear()
    assert not ia.dataset(lake).count_rows(filter=pc.field("id") == 1)
    assert not data_files(opened)
    plan = ia.dataset(lake).plan(filter=pc.field("id") == some_id(123))
    assert [file.path for file in plan.files] == [str(lake / "part=0" / "123.parquet")]
    assert (plan.figures.files.selected, plan.figures.files.total) == (1, 300)
    assert plan.figures.rows.total == 300 * ROWS


def test_the_end_of_a_surviving_file_is_not_read(lake, monkeypatch):
    ia.build_catalog(lake)
    read = []
    original = storage.FileSource._fetch

    def fetched(self, ranges):
        read.append((os.path.basename(self.path), ranges))
        return original(self, ranges)

    monkeypatch.setattr(storage.FileSource, "_fetch", fetched)
    dataset = ia.dataset(lake)
    assert dataset.to_table(filter=pc.field("id") == some_id(7)).num_rows == 1
    ranges = [r for name, actual in read if name == "007.parquet" for r in actual]
    size = (lake / "part=1" / "007.parquet").stat().st_size
    tail = ia.ParquetFile(lake / "part=1" / "007.parquet").footer
    assert ranges
    assert all(offset + length <= size - len(tail) for offset, length in ranges)


def test_without_a_filter_only_the_pointer_is_read(lake, opened):
    ia.build_catalog(lake)
    opened.clear()
    assert ia.dataset(lake).to_table().num_rows == FILES * ROWS
    assert [*opened] == [POINTER]


def test_without_a_catalog_no_request_is_made(lake, opened):
    opened.clear()
    ia.dataset(lake)
    assert opened == {"000.parquet": 1}, "for its schema only"
    with pytest.raises(ia.PathError, match="no catalog"):
        ia.dataset(lake, catalog=True)
    with pytest.raises(ValueError, match="catalog"):
        ia.dataset(lake, catalog="perhaps")


@pytest.mark.filterwarnings("ignore:of .* files looked into")
def test_new_changed_and_deleted_files_are_noticed(lake):
    ia.build_catalog(lake)
    (lake / "part=0" / "000.parquet").unlink()
    pq.write_table(table_of(100), lake / "part=1" / "001.parquet")
    pq.write_table(table_of(101), lake / "part=2" / "new.parquet")
    before = ia.dataset(lake)
    for condition in (
        pc.field("id").isin([some_id(n) for n in (0, 1, 2, 100, 101)]),
        pc.field("n") >= FILES * ROWS,
        pc.field("n") < 3 * ROWS,
    ):
        want = pads.dataset(lake, partitioning="hive").to_table(filter=condition)
        assert comparable(before.to_table(filter=condition)).equals(comparable(want))
    state = ia.show_catalog(lake)
    assert (state.files, state.changed, state.gone) == (FILES - 2, 2, 2)


@pytest.mark.filterwarnings("ignore:of .* files looked into")
def test_a_file_replaced_after_the_data_set_was_opened(lake):
    ia.build_catalog(lake)
    dataset = ia.dataset(lake)
    expected = pc.field("id") == some_id(100)
    assert not dataset.count_rows(filter=expected)
    pq.write_table(table_of(100), lake / "part=1" / "001.parquet")
    assert dataset.count_rows(filter=expected) == 1


@pytest.mark.filterwarnings("ignore:of .* files looked into")
def test_a_file_replaced_before_the_first_query(lake):
    ia.build_catalog(lake)
    data_sets = [ia.dataset(lake) for _ in range(3)]
    scan = ia.polars.scan(data_sets[2])
    pq.write_table(table_of(100), lake / "part=1" / "001.parquet")
    expected = pc.field("id") == some_id(100)
    assert data_sets[0].count_rows(filter=expected) == 1
    assert data_sets[1].head(1).num_rows == 1
    assert data_sets[1].to_table(filter=expected).num_rows == 1
    assert scan.filter(polars.col("id") == some_id(100)).collect().height == 1


FOLDERS = {
    "names": [f"a%3Ab={number}" for number in range(3)],
    "values": ["a=%31", "a=2", "a=3"],
    "no value": ["a=1", "a=2", "a=%5F_HIVE_DEFAULT_PARTITION__"],
    "both spellings": ["a%20b=1", "a b=2", "a b=x%2Fy"],
}


@pytest.mark.parametrize("folders", FOLDERS.values(), ids=FOLDERS)
def test_folder_names_are_typed_partition_values(folders, tmp_path):
    for number, folder in enumerate(folders):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"n": [number]}), tmp_path / folder / "a.parquet")
    expected = ia.dataset(tmp_path, catalog=False).to_table()
    assert expected.equals(pads.dataset(tmp_path, partitioning="hive").to_table())
    ia.build_catalog(tmp_path)
    actual = ia.dataset(tmp_path, catalog=True)
    assert actual.to_table().equals(expected)
    assert ia.dataset(tmp_path, union_by_name=True).to_table().equals(expected)
    last = pc.field("n") == 2
    assert actual.to_table(filter=last).equals(expected.filter(last))


@pytest.mark.parametrize(
    ("folder", "message"),
    [("a=x", "folder a=x contradicts the schema"), ("a=%FF", "not a data set pyarrow can read")],
)
def test_folders_that_fit_no_column_are_refused_as_without_a_catalog(folder, message, tmp_path):
    (tmp_path / folder).mkdir()
    table = pa.table({"n": [1], "a": [1]}).drop_columns(["a"] if "%" in folder else [])
    pq.write_table(table, tmp_path / folder / "f.parquet")
    ia.build_catalog(tmp_path)
    for is_asked in (False, True):
        with pytest.raises(ia.FormatError, match=message):
            ia.dataset(tmp_path, catalog=is_asked)


def test_a_schema_group_whose_indexed_files_are_deleted(tmp_path):
    for number in range(4):
        pq.write_table(pa.table({"x": [number]}), tmp_path / f"{number}.parquet")
    for number in (4, 5):
        table = pa.table({"x": [number], "y": [number]})
        ia.write_table(table, tmp_path / f"{number}.parquet", indexes=["x:lookup"])
    ia.build_catalog(tmp_path)
    for number in (4, 5):
        (tmp_path / f"{number}.parquet").unlink()
    report = ia.build_catalog(tmp_path, refresh=True)
    assert (report.files, report.gone, report.segments) == (4, 2, 1)
    assert ia.dataset(tmp_path, catalog=True).count_rows(filter="x >= 2") == 2


def test_an_index_rebuilt_with_other_granules_is_no_error(tmp_path):
    for number in range(6):
        numbers = range(number * 1000, (number + 1) * 1000)
        pq.write_table(pa.table({"x": numbers}), tmp_path / f"{number}.parquet")
    ia.add_indexes(tmp_path, ["lookup(x, granule_rows=500)"], sidecar=True)
    ia.build_catalog(tmp_path)
    ia.add_indexes(tmp_path, ["lookup(x, granule_rows=10)"], sidecar=True)
    assert ia.verify(tmp_path) == []
    assert ia.dataset(tmp_path).count_rows(filter="x IN (3, 5999)") == 2


@pytest.mark.filterwarnings("ignore:of .* files looked into")
def test_refresh_reads_only_new_files(lake, opened):
    ia.build_catalog(lake)
    (lake / "part=0" / "000.parquet").unlink()
    pq.write_table(table_of(100), lake / "part=1" / "001.parquet")
    pq.write_table(table_of(101), lake / "part=2" / "new.parquet")
    ia.add_indexes(lake / "part=2" / "new.parquet", ["lookup(id)"])
    opened.clear()
    report = ia.build_catalog(lake, refresh=True)
    assert data_files(opened) == {"001.parquet", "new.parquet"}
    assert (report.files, report.read, report.gone, report.segments) == (FILES, 2, 2, 2)
    opened.clear()
    actual = ia.dataset(lake).to_table(filter=pc.field("id") == some_id(101))
    assert actual.num_rows == 1
    assert data_files(opened) == {"001.parquet", "new.parquet"}  # the first has no index
    opened.clear()
    assert ia.build_catalog(lake, refresh=True).read == 0
    assert not data_files(opened)


@pytest.mark.filterwarnings("ignore:of .* files looked into")
def test_many_segments_become_one_without_reading_files(lake, opened):
    ia.build_catalog(lake)
    for number in range(8):
        pq.write_table(table_of(200 + number), lake / "part=0" / f"{200 + number}.parquet")
        ia.add_indexes(lake / "part=0" / f"{200 + number}.parquet", ["lookup(id)"])
        opened.clear()
        report = ia.build_catalog(lake, refresh=True)
        assert data_files(opened) == {f"{200 + number}.parquet"}
    assert report.segments == 1
    without = answers(ia.dataset(lake, catalog=False))
    assert {n: t.num_rows for n, t in answers(ia.dataset(lake)).items()} == {
        n: t.num_rows for n, t in without.items()
    }
    opened.clear()
    ids = [some_id(number) for number in (4, 203, 207)]
    assert ia.dataset(lake).to_table(filter=pc.field("id").isin(ids)).num_rows == 3
    assert data_files(opened) == {"004.parquet", "203.parquet", "207.parquet"}


def test_keys_are_stored_in_several_parts(lake, monkeypatch):
    without = answers(ia.dataset(lake, catalog=False))
    monkeypatch.setattr(segment_writer, "PART_ENTRIES", 100)
    ia.build_catalog(lake)
    segment = read_pointer(pafs.LocalFileSystem(), str(lake)).segments[0]
    assert all(len(index.parts) > 5 for index in segment.keys)
    for name, actual in answers(ia.dataset(lake)).items():
        assert actual.equals(without[name]), name


def test_queries_of_one_data_set_see_files_that_change_between_them(lake):
    ia.build_catalog(lake)
    data, third = ia.dataset(lake, catalog=True), lake / "part=0" / "003.parquet"
    other, indexes = lake.parent / "other.parquet", ["lookup(id)", "elements(tags)", "lookup(text)"]
    ia.write_table(table_of(40), other, indexes=indexes)
    old, new = third.read_bytes(), other.read_bytes()

    def check(*counts):
        conditions = [
            pc.field("id") == some_id(3),
            (pc.field("part") == 0) & (pc.field("id") == some_id(3)),
            (pc.field("part") == 1) & (pc.field("id") == some_id(4)),
            pc.field("id") == some_id(4),
            pc.field("id") == some_id(40),
        ]
        actual = tuple(data.count_rows(filter=condition) for condition in conditions)
        slow = ia.dataset(lake, catalog=False)
        assert actual == tuple(slow.count_rows(filter=condition) for condition in conditions)
        assert actual == counts

    check(1, 1, 1, 1, 0)
    third.write_bytes(new)  # in place: the folder itself does not change
    check(0, 0, 1, 1, 1)
    third.write_bytes(old)
    check(1, 1, 1, 1, 0)
    ia.build_catalog(lake, refresh=True)  # a segment more
    check(1, 1, 1, 1, 0)
    third.write_bytes(new)
    check(0, 0, 1, 1, 1)


def test_old_generations_are_removed_one_generation_later(lake):
    def tables():
        return {path.name for path in (lake / "_intarsia").iterdir()} - {POINTER}

    ia.build_catalog(lake)
    first = tables()
    ia.build_catalog(lake)
    second = tables() - first
    assert first < tables()
    ia.build_catalog(lake)
    assert second < tables()
    assert not first & tables()


def test_a_reader_of_an_old_pointer_uses_the_next(lake, opened):
    ia.build_catalog(lake)
    dataset = ia.dataset(lake)
    assert dataset.count_rows(filter=pc.field("n") == 3) == 1  # bounds are read, keys are not
    for _ in range(3):
        ia.build_catalog(lake)
    opened.clear()
    assert dataset.count_rows(filter=pc.field("id") == some_id(7)) == 1
    assert data_files(opened) <= {"007.parquet"}


def test_a_reader_whose_tables_are_gone_rereads_the_pointer(lake, opened, monkeypatch):
    ia.build_catalog(lake)
    dataset = ia.dataset(lake)
    assert dataset.count_rows(filter=pc.field("n") == 3) == 1
    listed = dataset.scan_source.cache.catalog._identities
    stale = {name: i for name, i in listed(_infos(lake)).items() if name.endswith(POINTER)}
    for _ in range(3):
        ia.build_catalog(lake)
    monkeypatch.setattr(
        dataset.scan_source.cache.catalog,
        "_identities",
        lambda infos=None: {**listed(infos), **stale},
    )
    opened.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dataset.count_rows(filter=pc.field("id") == some_id(7)) == 1
    assert data_files(opened) <= {"007.parquet"}


def _infos(folder):
    return pafs.LocalFileSystem().get_file_info(pafs.FileSelector(str(folder), recursive=True))


def test_tables_of_a_catalog_are_no_data_to_any_pattern(lake):
    before = set(lake.rglob("*.parquet"))
    ia.build_catalog(lake)
    assert set(lake.rglob("*.parquet")) == before
    assert ia.dataset(lake, catalog=True).count_rows() == pads.dataset(sorted(before)).count_rows()


def test_a_catalog_with_old_table_names_is_used(lake, opened, monkeypatch):
    def old_name(*args):
        return new_name(*args).replace(".table", ".parquet")

    monkeypatch.setattr(segment_writer, "new_name", old_name)
    ia.build_catalog(lake)
    assert list((lake / "_intarsia").glob("*.parquet"))
    opened.clear()
    assert ia.dataset(lake, catalog=True).count_rows(pc.field("id") == some_id(7)) == 1
    assert data_files(opened) <= {"007.parquet"}


def test_sidecars_and_catalogs_do_not_interfere(tmp_path, opened):
    lake = fill(tmp_path / "lake", 12, ())
    for number in (100, 101):
        pq.write_table(table_of(number), lake / f"{number}.parquet")
    ia.add_indexes(lake, ["lookup(id)"], sidecar=True)
    ia.build_catalog(lake)
    expected = pc.field("id") == some_id(100)
    opened.clear()
    assert ia.dataset(lake).count_rows(filter=expected) == 1
    assert {name.partition(".")[0] for name in data_files(opened)} == {"100"}
    sidecars = sorted((lake / "_intarsia").glob("*.intarsia"))
    assert len(sidecars) == 2
    ia.build_catalog(lake)
    assert sorted((lake / "_intarsia").glob("*.intarsia")) == sidecars
    ia.drop_indexes(lake, ["id:lookup"], sidecar=True)
    assert ia.show_catalog(lake).files == 14
    assert ia.dataset(lake).count_rows(filter=expected) == 1
    ia.add_indexes(lake, ["lookup(id)"], sidecar=True)
    ia.drop_catalog(lake)
    assert len(list((lake / "_intarsia").iterdir())) == 2
    assert not ia.verify(lake)


def test_a_catalog_is_dropped(lake):
    ia.build_catalog(lake)
    assert ia.drop_catalog(lake) > 5
    assert not (lake / "_intarsia").exists()
    assert ia.drop_catalog(lake) == 0
    with pytest.raises(ia.PathError, match="no catalog"):
        ia.show_catalog(lake)
    with pytest.raises(ia.PathError, match="folder"):
        ia.build_catalog(lake / "part=0" / "000.parquet")


@pytest.mark.parametrize("name", ["catalog-0a-files-1.table", "catalog.json"])
def test_files_of_a_killed_build_are_removed_after_a_day(lake, name):
    folder = lake / "_intarsia"
    ia.build_catalog(lake)
    left, others = folder / f".{name}.0123abcd.intarsia-tmp", folder / ".a.0123abcd.intarsia-tmp"
    for path in (left, others):
        path.write_bytes(b"")
    ia.build_catalog(lake, refresh=True)
    assert left.exists(), "who writes it may be at work"
    os.utime(left, (1_600_000_000, 1_600_000_000))
    os.utime(others, (1_600_000_000, 1_600_000_000))
    ia.build_catalog(lake)
    assert (left.exists(), others.exists()) == (False, True)
    left.write_bytes(b"")
    others.unlink()
    ia.drop_catalog(lake)
    assert not folder.exists()


def test_explain_shows_files_excluded_by_the_catalog(lake, opened):
    ia.build_catalog(lake)
    opened.clear()
    text = str(ia.dataset(lake).explain(filter=pc.field("id") == some_id(7)))
    assert f"by catalog  {FILES - 1} files" in text
    assert data_files(opened) == {"007.parquet"}


@pytest.mark.filterwarnings("ignore:of .* files looked into")
def test_files_of_several_schemas(tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    for number in range(12):
        table = table_of(number)
        if number % 3 == 1:
            table = table.set_column(1, "id", table.column("id").cast(pa.string()))
        if number % 3 == 2:
            table = table.drop_columns(["id", "x"])
        pq.write_table(table, lake / f"{number:03}.parquet")
        ia.add_indexes(lake / f"{number:03}.parquet", ["elements(tags)"])
        if number % 3 < 2:
            ia.add_indexes(lake / f"{number:03}.parquet", ["lookup(id)"])
    ia.build_catalog(lake)
    schema = ia.dataset(lake / "000.parquet").schema
    for condition in (
        pc.field("id") == some_id(3),
        pc.field("id") == some_id(4),
        pc.field("id").is_null(),
        pc.field("x") > 50.0,
    ):
        want = ia.dataset(lake, schema=schema, catalog=False).to_table(filter=condition)
        assert ia.dataset(lake, schema=schema).to_table(filter=condition).equals(want)


def test_a_file_that_cannot_be_read_is_left_out(lake):
    (lake / "part=1" / "bad.parquet").write_bytes(b"PAR1 and then nothing")
    message = rf"^1 of {FILES + 1} files is not in the catalog: .*bad\.parquet, .*cut short"
    with pytest.warns(ia.IntarsiaWarning, match=message) as warnings:
        report = ia.build_catalog(lake)
    assert [warning.filename for warning in warnings] == [__file__]
    assert (report.files, report.skipped) == (FILES, 1)
    with pytest.raises(ia.FormatError, match="bad"):
        ia.dataset(lake).to_table(filter=pc.field("id") == 1)


def test_a_build_waits_for_files_changed_just_now(lake, monkeypatch):
    late = time.time_ns() + 3_600_000_000_000
    os.utime(lake / "part=0" / "000.parquet", ns=(late, late))
    monkeypatch.setattr(build_module, "_FINE_TICK_NS", 1_000_000)
    report = ia.build_catalog(lake)
    assert (report.files, report.skipped) == (FILES - 1, 1)
    assert ia.dataset(lake).count_rows(filter=pc.field("id") == some_id(0)) == 1


@pytest.mark.filterwarnings("ignore:.*catalog")
@pytest.mark.filterwarnings("ignore:of .* files looked into")
def test_a_build_whose_segments_were_removed_starts_again(lake, monkeypatch):
    ia.build_catalog(lake)
    pq.write_table(table_of(100), lake / "part=0" / "new.parquet")
    original = build_module.publish

    def overtaken(target, known, *rest):
        monkeypatch.setattr(build_module, "publish", original)
        ia.drop_catalog(lake)
        return original(target, known, *rest)

    monkeypatch.setattr(build_module, "publish", overtaken)
    report = ia.build_catalog(lake, refresh=True)
    assert (report.files, report.read, report.segments) == (FILES + 1, FILES + 1, 1)
    data = ia.dataset(lake, catalog=True)
    assert data.count_rows(filter=pc.field("id") == some_id(100)) == 1
    assert data.count_rows(filter=pc.field("id") == some_id(7)) == 1


@pytest.mark.filterwarnings("ignore:of .* files looked into")
@pytest.mark.parametrize("storage", ["local", "memory"])
def test_a_build_overtaken_by_another_starts_again(lake, monkeypatch, storage):
    on, place = None, str(lake)
    if storage == "memory":
        on, place = fsspec.filesystem("memory"), "/overtaken"
        on.put(str(lake), place, recursive=True)
    options = {"filesystem": on, "refresh": True}
    ia.build_catalog(place, filesystem=on)
    ia.write_table(table_of(100), f"{place}/part=0/new.parquet", filesystem=on)
    original = build_module.publish

    def overtaken(target, known, *rest):
        monkeypatch.setattr(build_module, "publish", original)
        ia.write_table(table_of(101), f"{place}/part=0/newer.parquet", filesystem=on)
        assert ia.build_catalog(place, **options).read == 2
        return original(target, known, *rest)

    monkeypatch.setattr(build_module, "publish", overtaken)
    report = ia.build_catalog(place, **options)
    assert (report.files, report.read) == (FILES + 2, 0)
    data = ia.dataset(place, catalog=True, filesystem=on)
    for number in (7, 100, 101):
        assert data.count_rows(filter=pc.field("id") == some_id(number)) == 1
    if on is not None:
        on.rm(place, recursive=True)


def test_concurrent_builds_change_no_answer(lake):
    ia.build_catalog(lake)
    condition = pc.field("id") == some_id(23)

    def build(number):
        for refresh in (False, True, number % 2 == 0):
            ia.build_catalog(lake, refresh=refresh)

    with ThreadPoolExecutor(3) as threads:
        builders = [threads.submit(build, number) for number in range(3)]
        num_queries = 0
        while num_queries < 5 or not all(builder.done() for builder in builders):
            actual = ia.dataset(lake).to_table(filter=condition)
            assert actual.column("id").to_pylist() == [some_id(23)]
            num_queries += 1
    for builder in builders:
        builder.result()
    ia.build_catalog(lake)  # does not name a table of the others, whichever was last
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ia.dataset(lake, catalog=True).plan(filter=condition).figures.files.selected == 1


@pytest.mark.filterwarnings("ignore:of .* files looked into")
def test_a_catalog_on_another_file_system(tmp_path):
    lake = fill(tmp_path / "lake")
    memory = fsspec.filesystem("memory")
    memory.put(str(lake), "/catalog_lake", recursive=True)
    try:
        ia.build_catalog("/catalog_lake", filesystem=memory)
        want = answers(ia.dataset(lake))
        dataset = ia.dataset("/catalog_lake", filesystem=memory, catalog=True)
        for name, actual in answers(dataset).items():
            assert actual.equals(want[name]), name
        assert dataset.plan(filter=pc.field("id") == 1).figures.files.total == FILES
        memory.pipe(
            "/catalog_lake/part=1/001.parquet", memory.cat("/catalog_lake/part=0/000.parquet")
        )
        report = ia.build_catalog("/catalog_lake", refresh=True, filesystem=memory)
        assert (report.files, report.read) == (FILES, 1)
        assert ia.drop_catalog("/catalog_lake", filesystem=memory) > 5
    finally:
        memory.rm("/catalog_lake", recursive=True)
