"""``existing_data_behavior``: what happens to old rows, for readers, and after errors."""

from __future__ import annotations

import os
import threading

import fsspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import intarsia as ia
from intarsia.commit import commit, job
from intarsia.errors import PathError

OLD = pa.table({"day": ["mon", "mon", "tue", None], "id": [0, 1, 2, 3]})
NEW = pa.table({"day": ["tue", None, "a/b=c %", "ü"], "id": [10, 11, 12, 13]})
ROWS_AFTER = {
    "append": [0, 1, 2, 3, 10, 11, 12, 13],
    "overwrite": [10, 11, 12, 13],
    "delete_matching": [0, 1, 10, 11, 12, 13],
    "overwrite_or_ignore": [0, 1, 10, 11, 12, 13],
}
BEHAVIORS = [*ROWS_AFTER]


def ids(lake, **options):
    return sorted(ia.dataset(lake, **options).to_table(["id"])["id"].to_pylist())


def names(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)


@pytest.fixture
def lake(tmp_path):
    ia.write_dataset(OLD, tmp_path / "lake", partition_by="day", indexes=["id:lookup"])
    return tmp_path / "lake"


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_old_rows_stay_or_go(lake, behavior):
    for _ in range(2):
        ia.write_dataset(
            NEW,
            lake,
            partition_by=["day"],
            indexes=["id:lookup"],
            existing_data_behavior=behavior,
        )
    twice = [*ROWS_AFTER[behavior], *NEW["id"].to_pylist()]
    assert ids(lake) == sorted(twice if behavior == "append" else ROWS_AFTER[behavior])
    new = ia.dataset(lake).to_table(["day", "id"], "id > 9").sort_by("id")
    assert set(map(tuple, new.to_pandas().to_numpy())) == set(
        zip(NEW["day"].to_pylist(), NEW["id"].to_pylist(), strict=True)
    )
    assert [name for name in names(lake) if "/_" in name] == [str(lake / "_SUCCESS")]
    for file in ia.dataset(lake).files:
        assert [entry.name for entry in ia.list_indexes(file)[0].indexes] == ["id:lookup"]


@pytest.mark.parametrize("behavior", ["error", *BEHAVIORS])
@pytest.mark.parametrize("failure", ["stream", "partition", "move"])
def test_after_an_error_the_folder_is_as_it_was(tmp_path, lake, behavior, failure, monkeypatch):
    def rows():
        yield NEW
        if failure == "stream":
            raise RuntimeError("no more rows")
        yield NEW

    folder = tmp_path / "new" if behavior == "error" else lake
    before = names(folder)
    options = {"schema": NEW.schema, "partition_by": ["day"], "max_rows_per_file": 1}
    if failure == "partition":
        options["max_partitions"] = 2
    if failure == "move":
        monkeypatch.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    expected = {"stream": RuntimeError, "partition": ValueError, "move": PathError}[failure]
    with pytest.raises(expected):
        ia.write_dataset(rows(), folder, existing_data_behavior=behavior, **options)
    assert names(folder) == before
    assert os.path.exists(folder) == (behavior != "error")


@pytest.mark.parametrize("behavior", ["overwrite", "delete_matching", "overwrite_or_ignore"])
def test_readers_see_old_rows_or_new_ones(tmp_path, behavior):
    lake, stop, seen, errors = tmp_path / "lake", threading.Event(), set(), []
    days = [f"d{i % 5}" for i in range(500)]
    versions = [pa.table({"day": days, "id": [version] * 500}) for version in range(2)]
    ia.write_dataset(versions[0], lake, partition_by=["day"])

    def read():
        while not stop.is_set():
            try:
                table = ia.dataset(lake).to_table(["id"])
            except (FileNotFoundError, PathError) as error:  # listed before a commit, read after
                errors.append(error)
                continue
            seen.add((table.num_rows, tuple(set(table["id"].to_pylist()))))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for round_ in range(40):
            ia.write_dataset(
                versions[(round_ + 1) % 2],
                lake,
                partition_by=["day"],
                existing_data_behavior=behavior,
            )
    finally:
        stop.set()
        reader.join()
    assert seen == {(500, (0,)), (500, (1,))}


@pytest.mark.filterwarnings("ignore:.*another write is under way")
def test_concurrent_appends_lose_no_row(tmp_path):
    lake, errors = tmp_path / "lake", []
    ia.write_dataset(OLD.slice(0, 0), lake, partition_by=["day"])

    def append(number):
        try:
            for round_ in range(5):
                rows = pa.table({"day": ["a", "b"], "id": [number * 10 + round_, -1]})
                ia.write_dataset(rows, lake, partition_by=["day"], existing_data_behavior="append")
        except BaseException as error:  # noqa: BLE001 # the assertion shows it
            errors.append(error)

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert ids(lake) == [-1] * 20 + [n * 10 + r for n in range(4) for r in range(5)]


def test_a_folder_is_rewritten_from_its_own_rows(lake):
    for rows in (
        lambda: ia.dataset(lake),
        lambda: ia.polars.scan(str(lake)).filter(pl.col("id") > 0),
        lambda: pl.scan_parquet(f"{lake}/**/*.parquet", hive_partitioning=True).sort("id"),
    ):
        options = {"partition_by": ["day"], "existing_data_behavior": "overwrite"}
        ia.write_dataset(rows(), lake, **options)
    assert ids(lake) == [1, 2, 3]


def test_rows_without_a_row(lake, tmp_path):
    none = NEW.slice(0, 0)
    ia.write_dataset(none, tmp_path / "new")
    assert ia.dataset(tmp_path / "new").schema == NEW.schema
    assert ia.dataset(tmp_path / "new").count_rows() == 0
    for behavior in ("append", "delete_matching", "overwrite_or_ignore"):
        ia.write_dataset(none, lake, partition_by=["day"], existing_data_behavior=behavior)
        assert ids(lake) == [0, 1, 2, 3]
    ia.write_dataset(none, lake, partition_by=["day"], existing_data_behavior="overwrite")
    assert names(lake) == [str(lake / "_SUCCESS")]
    ia.write_dataset(NEW, lake, partition_by=["day"])  # no file is there, so this is no error
    assert ids(lake) == [10, 11, 12, 13]


def test_sidecars_go_with_their_files(lake):
    ia.add_indexes(lake, ["id:minmax"], sidecar=True)
    assert len([name for name in names(lake) if "_intarsia/" in name]) == 3
    ia.write_dataset(NEW, lake, partition_by=["day"], existing_data_behavior="delete_matching")
    assert len([name for name in names(lake) if "_intarsia/" in name]) == 1


def test_places_that_take_no_data_set_are_refused(tmp_path, lake):
    pq.write_table(OLD, tmp_path / "file")
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "delta" / "_delta_log" / "00000000000000000000.json").write_text("{}")
    for folder, message in (("file", "there is a file"), ("delta", "Delta")):
        with pytest.raises(PathError, match=message):
            ia.write_dataset(NEW, tmp_path / folder, existing_data_behavior="append")
    with pytest.raises(PathError, match="'append' keeps them, 'overwrite' replaces them"):
        ia.write_dataset(NEW, lake, partition_by=["day"])
    with pytest.raises(ValueError, match="partition_by and partitioning exclude each other"):
        ia.write_dataset(NEW, lake, partition_by=["day"], partitioning=["day"])
    options = {"create_dir": False, "existing_data_behavior": "append", "partition_by": ["day"]}
    with pytest.raises(PathError, match="no such folder, and create_dir is false"):
        ia.write_dataset(NEW, tmp_path / "new", **options)
    with pytest.raises(PathError, match="no such folder, and create_dir is false"):
        ia.write_dataset(NEW, lake, **options)
    ia.write_dataset(NEW.slice(0, 2), lake, **options)
    assert ids(lake) == [0, 1, 2, 3, 10, 11]
    assert not os.path.exists(tmp_path / "new")


def test_unfinished_files_are_kept_on_request(lake):
    def rows():
        yield NEW
        raise RuntimeError("no more rows")

    with pytest.raises(RuntimeError) as caught:
        ia.write_dataset(
            rows(),
            lake,
            schema=NEW.schema,
            existing_data_behavior="append",
            keep_unfinished=True,
        )
    (note,) = caught.value.__notes__
    assert "_temporary-" in note
    assert ids(lake) == [0, 1, 2, 3]
    ia.recover_dataset(lake, keep_unfinished=False)
    assert not [name for name in names(lake) if "_temporary-" in name]


@pytest.fixture
def memory():
    yield fsspec.filesystem("memory")
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_old_rows_stay_or_go_on_other_storage(memory, behavior, monkeypatch):
    options = {"filesystem": memory, "partition_by": ["day"]}
    ia.write_dataset(OLD, "/lake", **options)
    before = memory.find("/lake")
    with monkeypatch.context() as patch:  # storage fails while files are published
        patch.setattr(MemoryFileSystem, "cp_file", lambda *_, **__: 1 / 0)
        patch.setattr(MemoryFileSystem, "mv", lambda *_, **__: 1 / 0)
        with pytest.raises((PathError, ZeroDivisionError)):
            ia.write_dataset(NEW, "/lake", existing_data_behavior=behavior, **options)
    assert memory.find("/lake") == before
    ia.write_dataset(NEW, "/lake", existing_data_behavior=behavior, **options)
    assert ids("/lake", filesystem=memory) == ROWS_AFTER[behavior]
    with monkeypatch.context() as patch:  # the process dies while files are published
        patch.setattr(commit, "_roll_back", lambda *_: None)
        patch.setattr(job, "clear_job", lambda *_: None)
        patch.setattr(commit, "_mark_published", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ia.write_dataset(OLD, "/lake", existing_data_behavior=behavior, **options)
    assert ids("/lake", filesystem=memory) == ROWS_AFTER[behavior]
    ia.recover_dataset("/lake", filesystem=memory)
    assert ids("/lake", filesystem=memory) == ROWS_AFTER[behavior]
    assert not [path for path in memory.find("/lake") if "_temporary" in path or "_commit" in path]
