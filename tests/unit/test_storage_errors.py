"""One failing request gives an error or the answer, never part of the rows or fewer indexes."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import warnings
from typing import ClassVar

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

import intarsia as ia
from intarsia.dataset.commit_log import CommitEntry
from intarsia.io.fsspec_listing import wrapped
from intarsia.io.storage import FileSource


class Failing(LocalFileSystem):
    """Fails once, at call number ``at`` of those whose path ends with ``below``."""

    cachable = False
    protocol = "failing"

    def __init__(self):
        super().__init__()
        self.at, self.below, self.failed = 0, "", False

    def fail(self, at, below=""):
        self.at, self.below, self.failed = at, below, False

    def _asked(self, path):
        if self.at and str(path).rstrip("/").endswith(self.below):
            self.at -= 1
            if not self.at:
                self.failed = True
                raise OSError("503 Slow Down")

    def ls(self, path, *args, **options):
        self._asked(path)
        return super().ls(path, *args, **options)

    def info(self, path, **options):
        self._asked(path)
        return super().info(path, **options)

    def cat_file(self, path, *args, **options):
        self._asked(path)
        return super().cat_file(path, *args, **options)


class FailingReads(Failing):
    """Fails once, at read number ``at``.

    A read and a request for a file's size run at the same time, in an order of their own.
    """

    def ls(self, path, *args, **options):
        return LocalFileSystem.ls(self, path, *args, **options)

    def info(self, path, **options):
        return LocalFileSystem.info(self, path, **options)


def until_none_fails(storage, below=""):
    for at in itertools.count(1):
        storage.fail(at, below)
        yield
        if not storage.failed:
            storage.fail(0)
            return


@pytest.fixture
def folder(tmp_path):
    for day in (1, 2, 3):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"k": range(10)}), tmp_path / f"day={day}" / "a.parquet")
    return tmp_path


class Flat(AsyncFileSystem):
    """Lists all objects at once, like object stores."""

    cachable = False
    opened_paths: ClassVar[list[str]] = []

    async def _info(self, path, **options):
        return fsspec.filesystem("memory").info(path)

    async def _find(self, path, maxdepth=None, withdirs=False, **options):
        self.opened_paths.append(path)
        return fsspec.filesystem("memory").find(path, withdirs=withdirs, detail=True)


def test_object_stores_are_listed_in_one_request():
    memory = fsspec.filesystem("memory")
    for name in ("a/x", "a/b/y", "z"):
        memory.pipe(f"/flat/{name}.parquet", b"")
    try:
        storage = wrapped(Flat())
        infos = storage.get_file_info(pafs.FileSelector("/flat", recursive=True))
    finally:
        memory.rm("/flat", recursive=True)
    assert {info.base_name for info in infos} == {"a", "b", "x.parquet", "y.parquet", "z.parquet"}
    assert Flat.opened_paths == ["/flat"]


@pytest.mark.parametrize("as_path", [str, "{}/*/*.parquet".format], ids=["folder", "glob"])
@pytest.mark.parametrize("kind", ["plain", "wrapped", "within"])
def test_a_data_set_has_all_files_or_is_an_error(kind, as_path, folder):
    storage = Failing()
    places = {
        "plain": (storage, as_path(folder)),
        "wrapped": (pafs.PyFileSystem(pafs.FSSpecHandler(storage)), as_path(folder)),
        "within": (DirFileSystem(str(folder), storage), as_path("").removeprefix("/") or "."),
    }
    filesystem, path = places[kind]
    outcomes = set()
    for _ in until_none_fails(storage):
        try:
            data = ia.dataset(path, filesystem=filesystem)
            outcomes.add(data.to_table(filter=pc.field("k") < 5).num_rows)
        except (ia.PathError, OSError):
            outcomes.add("error")
    assert outcomes == {15, "error"}


def test_indexes_beside_a_file_are_kept_or_nothing_is_done(folder):
    storage, path = Failing(), str(folder / "day=1" / "a.parquet")
    for beside in (False, True):
        for _ in until_none_fails(storage):
            at, storage.at = storage.at, 0
            shutil.rmtree(folder / "day=1" / "_intarsia", ignore_errors=True)
            pq.write_table(pa.table({"k": range(10)}), path)
            ia.add_indexes(path, ["k:distinct"], filesystem=storage, sidecar=True)
            storage.at = at
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ia.IntarsiaWarning)
                try:
                    ia.add_indexes(path, ["k:minmax"], filesystem=storage, sidecar=beside)
                    is_done = True
                except (ia.IntarsiaError, OSError):
                    is_done = False
            storage.at = 0
            report = ia.list_indexes(path, filesystem=storage)[0]
            names = {entry.name for entry in (*report.indexes, *report.sidecar)}
            if is_done:
                assert names == {"k:distinct", "k:minmax"}


def test_a_catalog_that_was_published_keeps_its_tables(folder):
    storage = Failing()
    for _ in until_none_fails(storage, "_intarsia"):
        at, storage.at = storage.at, 0
        ia.drop_catalog(folder)
        storage.at = at
        with contextlib.suppress(ia.PathError):
            ia.build_catalog(folder, filesystem=storage)
        storage.at = 0
        data = ia.dataset(folder, filesystem=storage)
        assert data.to_table(filter=pc.field("k") == 3).num_rows == 3
        assert [finding for finding in ia.verify(folder) if "catalog" in str(finding)] == []


class Silent(MemoryFileSystem):
    """Reports only lengths, and calls ``replaced`` before every write."""

    cachable = False
    protocol = "silent"
    replaced = None

    def info(self, path, **options):
        return super().info(path, **options) | {"created": None}

    def _open(self, path, mode="rb", **options):
        if mode == "wb" and self.replaced is not None:
            replaced, self.replaced = self.replaced, None
            replaced()
        return super()._open(path, mode, **options)


@pytest.mark.parametrize("change", ["add", "drop"])
def test_a_file_that_is_replaced_where_storage_tells_no_version_is_left_alone(change, tmp_path):
    storage, path = Silent(), "/silent/a.parquet"
    for name, start in (("old", 10_000), ("new", 20_000)):
        ia.write_table(pa.table({"k": range(start, start + 9000)}), tmp_path / name)
        if change == "drop":
            ia.add_indexes(tmp_path / name, ["k:lookup"])
    new = (tmp_path / "new").read_bytes()
    storage.pipe_file(path, (tmp_path / "old").read_bytes())
    storage.replaced = lambda: storage.pipe_file(path, new)
    change_it = ia.add_indexes if change == "add" else ia.drop_indexes
    try:
        with pytest.raises(ia.PathError, match="another writer changed the file"):
            change_it(path, ["k:lookup"], filesystem=storage)
        assert storage.cat_file(path) == new
        assert storage.find("/silent") == [path]
    finally:
        storage.rm("/silent", recursive=True)


def test_a_commit_whose_log_entry_cannot_be_read_is_an_error(folder):
    entry = CommitEntry("j", "published", ("day=1/a.parquet",), ("day=2/a.parquet",))
    (folder / "_commit-j.json").write_text(entry.encode())
    storage = Failing()
    assert ia.dataset(folder, filesystem=storage).count_rows() == 20

    def refused(path, *_, **__):
        raise PermissionError(path)

    storage.cat_file = refused
    with pytest.raises(ia.PathError, match=r"_commit-j.json: cannot be read"):
        ia.dataset(folder, filesystem=storage)


def test_a_read_that_is_cut_off_is_no_damage(folder):
    storage, path = Failing(), str(folder / "day=1" / "a.parquet")
    source = FileSource(wrapped(storage), path)
    assert source.size > 100
    whole = storage.cat_file
    storage.cat_file = lambda path, **options: whole(path, **options)[:-1]
    with pytest.raises(ia.PathError, match=r"of 100 bytes requested 99 came"):
        source.read([(0, 100)])


@pytest.mark.parametrize("kind", [Failing, FailingReads], ids=["any", "read"])
@pytest.mark.parametrize("sidecar", [False, True], ids=["embedded", "sidecar"])
def test_an_index_that_could_not_be_read_is_asked_for_again(kind, sidecar, tmp_path, monkeypatch):
    """By the next query of the same data set."""
    monkeypatch.setattr("intarsia.io.storage.REMOTE_TAIL_BYTES", 4096)
    monkeypatch.setattr("intarsia.file.embedded_indexes._RETRY_SECONDS", 0)
    table = pa.table({"id": [n * 7919 % 100_003 for n in range(50_000)], "n": range(50_000)})
    pq.write_table(table, tmp_path / "a.parquet", max_rows_per_page=500, write_page_index=True)
    ia.add_indexes(tmp_path / "a.parquet", ["id:lookup"], sidecar=sidecar)
    storage = kind()
    expected = pc.field("id") == 123 * 7919 % 100_003
    failed = 0
    for _ in until_none_fails(storage):
        at, storage.at = storage.at, 0
        data = ia.dataset(str(tmp_path), filesystem=storage)
        storage.at = at
        with warnings.catch_warnings(record=True) as caught, contextlib.suppress(ia.PathError):
            warnings.simplefilter("always")
            assert data.to_table(filter=expected)["n"].to_pylist() == [123]
        failed += "is ignored" in "".join(str(one.message) for one in caught)
        storage.at = 0
        assert data.to_table(filter=expected)["n"].to_pylist() == [123]
        (actual,) = (cached.file for cached in data.scan_source.cache._files.values())
        assert [entry.kind for entry in actual.sections.entries] == ["lookup"]
        assert not any(map(actual.sections.is_ignored, actual.sections.entries))
    assert failed or kind is Failing
