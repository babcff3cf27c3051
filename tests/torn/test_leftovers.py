"""Killed processes leave nothing in TMPDIR; the next run removes what they left beside files."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import intarsia as ia
from intarsia.io import atomic_replace
from intarsia.io.atomic_replace import remove_leftovers, replacing
from intarsia.io.external_sort import Workspace

TABLE = pa.table({"k": [f"k{n}" for n in range(5000)], "n": range(5000)})
SPILLING = """
import sys
import numpy as np
import intarsia as ia
from intarsia.indexing import build
from intarsia.io import external_sort
external_sort.RUN_ENTRIES = 1000
written = build.write_built
def slow(path, *args):
    written(path, *args)
    print("spilled", flush=True)
    sys.stdin.read()
build.write_built = slow
ia.add_indexes(sys.argv[1], ["k:lookup", "n:lookup"])
"""
WRITING = """
import os, sys
import intarsia as ia
from intarsia.indexing import rewrite, sidecar_writer
def slow(out, data):
    out.write(data[:100])
    out.flush()
    print("writing", flush=True)
    sys.stdin.read()
    out.write(data[100:])
rewrite.write_into = slow
if sys.argv[2] == "beside":
    sidecar_writer.encode_end = lambda *args: slow(open(os.devnull, "wb"), b"")
ia.add_indexes(sys.argv[1], ["k:lookup"], sidecar=sys.argv[2] == "beside")
"""
ROWS = """
import sys
import pyarrow as pa
import intarsia as ia
writer = ia.ParquetWriter(sys.argv[1], pa.schema({"n": pa.int64()}), checkpoint_row_groups=1)
writer.write_table(pa.table({"n": range(1000)}))
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data" / "t.parquet"
    path.parent.mkdir()
    ia.write_table(TABLE, path)
    atomic_replace._cleaned.clear()
    return path


def started(script, *words):
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline(), "it ended"
    return process


def killed(process):
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    process.stdin.close()
    process.stdout.close()


def leftovers(folder):
    return sorted(path for path in Path(folder).rglob("*.intarsia-tmp"))


def test_a_process_killed_while_it_spills_leaves_nothing(file, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    killed(started(SPILLING, file))
    assert list(temporary.iterdir()) == []
    assert leftovers(file.parent) == []


@pytest.mark.parametrize("where", ["file", "beside"])
@pytest.mark.parametrize("run", ["add", "drop", "recover", "write", "list"])
def test_the_next_run_removes_what_a_killed_one_left(file, where, run):
    before = file.read_bytes()
    killed(started(WRITING, file, where))
    assert len(leftovers(file.parent)) == 1
    assert file.read_bytes() == before
    if run == "add":
        ia.add_indexes(file, ["k:lookup"], sidecar=where == "beside")
    elif run == "drop":
        ia.drop_indexes(file, all=True)
    elif run == "recover":
        ia.recover(file, file.parent.parent / "out.parquet")
    elif run == "write":
        ia.write_table(TABLE, file)
    else:
        ia.list_indexes(file)  # only reads
    expected = run == "list" or (run == "write" and where == "beside")
    assert len(leftovers(file.parent)) == expected
    assert ia.dataset(file).to_table().equals(TABLE)


def test_the_file_of_a_living_process_is_not_removed(file):
    process = started(WRITING, file, "file")
    (own,) = leftovers(file.parent)
    long_ago = time.time() - 1e6
    os.utime(own, (long_ago, long_ago))
    for _ in range(3):
        assert remove_leftovers(file.parent) == []
        atomic_replace._cleaned.clear()
    assert leftovers(file.parent) == [own]
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()
    assert [entry.name for entry in ia.list_indexes(file)[0].indexes] == ["k:lookup"]
    assert leftovers(file.parent) == []


def test_the_file_of_another_thread_is_not_removed(file):
    from pyarrow.fs import LocalFileSystem

    with replacing(str(file), LocalFileSystem()) as create, create() as out:
        out.write(b"new")
        assert remove_leftovers(file.parent) == []
        assert len(leftovers(file.parent)) == 1
    assert file.read_bytes() == b"new"


def test_the_only_copy_of_rows_is_not_removed(file):
    target = file.parent / "rows.parquet"
    killed(started(ROWS, target))
    (torn,) = leftovers(file.parent)
    ia.add_indexes(file, ["k:lookup"])
    ia.recover(torn, target)
    assert ia.dataset(target).to_table().column("n").to_pylist() == list(range(1000))
    assert leftovers(file.parent) == [torn]


def test_foreign_files_are_not_removed(file, monkeypatch):
    killed(started(WRITING, file, "file"))
    (own,) = leftovers(file.parent)
    (file.parent / ".t.parquet.0123abcd.intarsia-tmp").write_bytes(b"another's")
    linked = own.with_name(own.name.replace(".t.", ".u."))
    target = file.parent.parent / "target"
    target.write_bytes(b"x")
    linked.symlink_to(target)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert remove_leftovers(file.parent) == []
    monkeypatch.undo()
    atomic_replace._cleaned.clear()
    assert remove_leftovers(file.parent) == [str(own)]
    assert (len(leftovers(file.parent)), target.exists()) == (2, True)


def test_a_torn_file_that_is_recovered_stays(file):
    killed(started(WRITING, file, "file"))
    (own,) = leftovers(file.parent)
    out = file.parent / "out.parquet"
    ia.recover(own, out)
    assert own.exists()
    assert ia.dataset(out).to_table().equals(TABLE)


def test_a_lock_is_released_once_the_file_is_in_place(file):
    ia.add_indexes(file, ["k:lookup"])
    with open(file, "rb") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_workspace_files_have_no_names_and_are_released(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    with Workspace() as work:
        first, second = work.new_path(), work.new_path()
        first.write_bytes(b"one")
        second.write_bytes(b"two")
        assert (first.read_bytes(), second.read_bytes()) == (b"one", b"two")
        assert list(tmp_path.iterdir()) == []
        work.release(first)
        assert len(os.listdir("/proc/self/fd")) == before + 1
    assert len(os.listdir("/proc/self/fd")) == before
