"""New files on remote storage are written completely or not at all."""

from __future__ import annotations

import gc
import os

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem

import intarsia as ia
from intarsia.errors import PathError

TABLE = pa.table({"id": range(5000), "name": [f"n{i % 100}" for i in range(5000)]})


class Failing(MemoryFileSystem):
    """Fails while a file is written or moved."""

    protocol = "failing"
    cachable = False
    fails = ""

    def _open(self, path, mode="rb", **options):
        if "w" in mode and self.fails == "open":
            raise OSError("503 Slow Down")
        return super()._open(path, mode, **options)

    def mv(self, *args, **options):
        if self.fails == "mv":
            raise OSError("503 Slow Down")
        return super().mv(*args, **options)


@pytest.fixture
def memory():
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    yield fsspec.filesystem("memory")
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("kind", ["fsspec", "wrapped", "within", "subtree"])
def test_a_file_is_there_whole_with_its_indexes(kind, memory, scratch):
    on, path = {
        "fsspec": (memory, "/lake/a/t.parquet"),
        "wrapped": (pafs.PyFileSystem(pafs.FSSpecHandler(memory)), "/lake/a/t.parquet"),
        "within": (DirFileSystem("/lake", memory), "a/t.parquet"),
        "subtree": (
            pafs.SubTreeFileSystem("/lake", pafs.PyFileSystem(pafs.FSSpecHandler(memory))),
            "a/t.parquet",
        ),
    }[kind]
    memory.pipe("/lake/x", b"")
    before = len(os.listdir("/proc/self/fd"))
    ia.write_table(TABLE, path, filesystem=on, indexes=["id:lookup"], row_group_size=1000)
    assert memory.find("/lake/a") == ["/lake/a/t.parquet"]
    assert list(scratch.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before
    data = ia.dataset("/lake/a/t.parquet", filesystem=memory)
    assert data.to_table().equals(TABLE)
    assert data.to_table(["name"], filter=pc.field("id") == 4321).to_pydict() == {"name": ["n21"]}
    assert "id:lookup" in str(data.explain(filter=pc.field("id") == 4321))
    local = scratch / "t.parquet"
    ia.write_table(TABLE, local, indexes=["id:lookup"], row_group_size=1000)
    sizes = memory.size("/lake/a/t.parquet"), local.stat().st_size
    assert abs(sizes[0] - sizes[1]) < 64, "the same file, but for its id"
    ia.write_table(TABLE.slice(7), path, filesystem=on)
    assert ia.dataset("/lake/a/t.parquet", filesystem=memory).to_table().equals(TABLE.slice(7))


def test_rows_are_written_as_they_come(memory, scratch):
    with ia.ParquetWriter("/lake/t.parquet", TABLE.schema, filesystem=memory) as writer:
        for start in range(0, 5000, 500):
            writer.write_table(TABLE.slice(start, 500))
            assert not memory.exists("/lake/t.parquet")
    assert ia.dataset("/lake/t.parquet", filesystem=memory).to_table().equals(TABLE)


@pytest.mark.parametrize("fails", ["open", "mv", "rows", "forgotten"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_failure_leaves_the_old_file_and_nothing_else(fails, memory, scratch):
    storage = Failing()
    ia.write_table(TABLE, "/lake/t.parquet", filesystem=storage)
    before = memory.cat_file("/lake/t.parquet")
    storage.fails = fails
    if fails == "forgotten":
        writer = ia.ParquetWriter("/lake/t.parquet", TABLE.schema, filesystem=storage)
        writer.write_table(TABLE)
        del writer
        gc.collect()
    elif fails == "rows":
        writer = ia.ParquetWriter("/lake/t.parquet", TABLE.schema, filesystem=storage)
        writer.write_table(TABLE)
        with pytest.raises(ValueError, match="another schema"), writer:
            writer.write_table(TABLE.select(["id"]))
    else:
        with pytest.raises(PathError, match=r"t\.parquet: cannot be written: 503 Slow Down"):
            ia.write_table(TABLE.slice(1), "/lake/t.parquet", filesystem=storage)
    assert memory.find("/lake") == ["/lake/t.parquet"]
    assert memory.cat_file("/lake/t.parquet") == before
    assert list(scratch.iterdir()) == []


def test_what_remote_files_cannot_have_is_refused(memory):
    memory.pipe("/lake/a/x", b"")
    for path, options, message in (
        ("/lake/t", {"checkpoint_row_groups": 1}, "are for local files"),
        ("/lake/t", {"keep_unfinished": True}, "are for local files"),
        ("/lake/a", {}, "there is a folder"),
        ("/lake/t*", {}, "not written to"),
    ):
        with pytest.raises(PathError, match=message):
            ia.write_table(TABLE, path, filesystem=memory, **options)
    assert memory.find("/lake") == ["/lake/a/x"]
