"""Catalogs of local folders are cached in memory and shared by data sets opened later."""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pytest

import intarsia as ia
from intarsia.catalog import catalog
from intarsia.catalog.cache import CatalogCache
from intarsia.catalog.catalog import read_pointer
from intarsia.catalog.manifest import is_table_name
from intarsia.file.read_options import DEFAULTS
from intarsia.io import storage
from intarsia.io.storage import SIDECAR_FOLDER
from intarsia.spark.read.read import opened as opened_for_spark

FILES, ROWS = 12, 3000


def table_of(number):
    rows = range(number * ROWS, (number + 1) * ROWS)
    ids = [f"{i * 2654435761 % (1 << 32):032x}" for i in rows]
    return pa.table({"n": pa.array(rows, pa.int64()), "id": ids})


def add(folder, number):
    folder.mkdir(exist_ok=True)
    ia.write_table(table_of(number), folder / f"{number:03}.parquet", indexes=[ia.Lookup("id")])


@pytest.fixture
def lake(tmp_path):
    for number in range(FILES):
        add(tmp_path / "lake", number)
    ia.build_catalog(tmp_path / "lake")
    return tmp_path / "lake"


@pytest.fixture
def cached(monkeypatch):
    made = CatalogCache()
    monkeypatch.setattr(catalog, "_CATALOG_CACHE", made)
    return made


@pytest.fixture
def read(monkeypatch):
    """How often each of the catalog's tables was read, by name."""
    counts, original = Counter(), storage.FileSource._read_at

    def read_at(self, offset, length):
        name = os.path.basename(self.path)
        if is_table_name(name):
            counts[name.split("-")[2]] += 1
        return original(self, offset, length)

    monkeypatch.setattr(storage.FileSource, "_read_at", read_at)
    return counts


def rows_with(folder, number, row=7):
    where = pc.field("id") == table_of(number).column("id")[row]
    return ia.dataset(folder, catalog=True).to_table(filter=where).column("n").to_pylist()


def test_a_second_query_reads_only_the_pages_of_its_key(lake, cached, read):
    assert rows_with(lake, 3) == [3 * ROWS + 7]
    first = Counter(read)
    assert {"files", "keys", "tails"} <= first.keys()
    read.clear()
    assert rows_with(lake, 9) == [9 * ROWS + 7]
    assert read.keys() <= {"keys", "tails"}
    assert read["keys"] < first["keys"]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_the_pointer_is_read_once_unless_it_is_replaced(is_replaced, lake, cached, monkeypatch):
    reads, original = [], catalog.versioned_pointer

    def logged(*args):
        reads.append(args)
        return original(*args)

    monkeypatch.setattr(catalog, "versioned_pointer", logged)
    data = ia.dataset(lake, catalog=True)
    if is_replaced:
        ia.write_table(table_of(77), lake / "004.parquet", indexes=[ia.Lookup("id")])
        ia.build_catalog(lake)
    reads.clear()
    where = pc.field("id") == table_of(77).column("id")[7]
    assert data.to_table(filter=where).column("n").to_pylist() == [77 * ROWS + 7] * is_replaced
    assert len(reads) == is_replaced


def test_changes_are_noticed(lake, cached):
    assert rows_with(lake, 3) == [3 * ROWS + 7]
    add(lake, FILES)
    assert rows_with(lake, FILES) == [FILES * ROWS + 7]
    ia.build_catalog(lake)
    assert rows_with(lake, FILES) == [FILES * ROWS + 7]
    os.remove(lake / "003.parquet")
    assert rows_with(lake, 3) == []
    ia.write_table(table_of(77), lake / "004.parquet", indexes=[ia.Lookup("id")])
    assert rows_with(lake, 4) == []
    assert rows_with(lake, 77) == [77 * ROWS + 7]
    ia.drop_catalog(lake)
    where = pc.field("id") == table_of(77).column("id")[7]
    assert ia.dataset(lake).to_table(filter=where).column("n").to_pylist() == [77 * ROWS + 7]


def test_a_table_damaged_later_is_noticed(lake, cached):
    assert rows_with(lake, 3) == [3 * ROWS + 7]
    (segment,) = read_pointer(pafs.LocalFileSystem(), str(lake)).segments
    path = lake / SIDECAR_FOLDER / segment.files.name
    data = bytearray(path.read_bytes())
    data[-segment.files.meta_length // 2] ^= 1
    path.write_bytes(data)
    with pytest.warns(ia.IntarsiaWarning, match="the catalog is ignored"):
        assert rows_with(lake, 3) == [3 * ROWS + 7]


def test_the_cache_is_bounded(tmp_path, lake, monkeypatch):
    for number in range(5):
        add(tmp_path / "other", number)
    ia.build_catalog(tmp_path / "other")
    sizes = {}
    for folder in (lake, tmp_path / "other"):
        state = ia.dataset(folder).scan_source.cache.catalog
        segments = catalog.open_segments(
            state._filesystem, state.root, read_pointer(state._filesystem, state.root), DEFAULTS
        )
        sizes[folder] = sum(segment.kept_bytes for segment in segments)
    small, large = sorted(sizes.values())
    for limit, count in ((small - 1, 0), (small, 1), (large, 1), (small + large, 2)):
        made = CatalogCache(limit)
        monkeypatch.setattr(catalog, "_CATALOG_CACHE", made)
        for _ in range(2):
            assert rows_with(lake, 3) == [3 * ROWS + 7]
            assert rows_with(tmp_path / "other", 1) == [ROWS + 7]
        assert len(made._catalogs) == count


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="it counts handles by /proc")
def test_only_one_of_many_catalogs_has_open_handles(tmp_path, cached):
    folders = [tmp_path / f"lake {i}" for i in range(5)]
    for folder in folders:
        for number in range(5):
            add(folder, number)
        ia.build_catalog(folder)
    for folder in folders:
        assert rows_with(folder, 3) == [3 * ROWS + 7]
    open_paths = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    open_paths = [path for path in open_paths if path.startswith(str(tmp_path))]
    tables = [path for path in open_paths if is_table_name(os.path.basename(path))]
    assert {os.path.dirname(os.path.dirname(path)) for path in tables} <= {str(folders[-1])}
    for folder in folders:
        assert rows_with(folder, 4) == [4 * ROWS + 7]


def test_threads_share_one_catalog(lake, cached):
    with ThreadPoolExecutor(8) as threads:
        actual = list(threads.map(lambda number: rows_with(lake, number % FILES), range(24)))
    assert actual == [[number % FILES * ROWS + 7] for number in range(24)]


def test_sparks_driver_lists_the_folder_once(lake, cached, monkeypatch):
    listed = []
    original = catalog.list_folder

    def logged(filesystem, root, infos=None):
        if root == str(lake):
            listed.append(infos is None)
        return original(filesystem, root, infos)

    monkeypatch.setattr(catalog, "list_folder", logged)
    data = opened_for_spark(str(lake))
    where = pc.field("id") == table_of(5).column("id")[7]
    plan = data.plan_of_left(["n"], where)
    assert [os.path.basename(file.path) for file in plan.files] == ["005.parquet"]
    assert listed == [False]
    add(lake, FILES)
    # A data set notices changes of the files that it was opened with.
    ia.write_table(table_of(5), lake / "006.parquet", indexes=[ia.Lookup("id")])
    paths = [os.path.basename(file.path) for file in data.plan_of_left(["n"], where).files]
    assert paths == ["005.parquet", "006.parquet"]
    assert listed == [False]  # later, each file is looked up instead
