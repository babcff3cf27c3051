"""Indexes are added to a file completely or not at all, even with concurrent processes."""

import contextlib
import errno
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.indexing import rewrite
from intarsia.io import atomic_replace

WORKER = Path(__file__).with_name("in_place.py")
TABLE = pa.table({"k": [f"k{n}" for n in range(20_000)], "n": range(20_000)})


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path)
    return path


def started(file, spec, most_bytes=0, sidecar=False):
    process = subprocess.Popen(
        [sys.executable, str(WORKER), str(file), spec, str(most_bytes), "sidecar" * sidecar],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def go(process):
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_killed_process_leaves_the_old_file_or_the_new_one(file):
    old = file.read_bytes()
    chance = random.Random(3)
    for _ in range(int(os.environ.get("INTARSIA_KILLS", "20")) // 4):
        file.write_bytes(old)
        process = started(file, "k:lookup")
        go(process)
        time.sleep(chance.uniform(0, 0.15))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert pq.read_table(file).equals(TABLE)
        if file.read_bytes() != old:
            assert ia.verify(file) == []
            assert ia.list_indexes(file)[0].indexes[0].name == "k:lookup"
        assert ia.dataset(file.parent).count_rows() == TABLE.num_rows  # debris is skipped


def test_two_processes_do_not_undo_each_others_changes(file):
    old = file.read_bytes()
    for _ in range(3):
        file.write_bytes(old)
        both = [started(file, spec) for spec in ("k:lookup", "n:lookup")]
        for process in both:
            go(process)
        said = [process.communicate()[0] for process in both]
        done = [process.returncode for process in both]
        assert set(done) <= {0, 3}
        assert all("another writer" in said[i] for i in (0, 1) if done[i] == 3)
        names = {entry.name for entry in ia.list_indexes(file)[0].indexes}
        specs = ("k:lookup", "n:lookup")
        assert names == {spec for spec, code in zip(specs, done, strict=True) if not code}
        assert names
        assert os.listdir(file.parent) == [file.name]


def test_two_processes_do_not_undo_each_others_sidecars(file):
    old, specs = file.read_bytes(), ("k:lookup", "n:lookup")
    for _ in range(3):
        both = [started(file, spec, sidecar=True) for spec in specs]
        for process in both:
            go(process)
        said = [process.communicate()[0] for process in both]
        done = [process.returncode for process in both]
        assert set(done) <= {0, 3}
        assert all("another writer" in said[i] for i in (0, 1) if done[i] == 3)
        names = {entry.name for entry in ia.list_indexes(file)[0].sidecar}
        assert names == {spec for spec, code in zip(specs, done, strict=True) if not code}
        assert names
        assert len(os.listdir(file.parent / "_intarsia")) == 1
        assert file.read_bytes() == old
        ia.drop_indexes(file, list(names), sidecar=True)


def test_a_full_disk_leaves_the_old_file_and_no_debris(file):
    old = file.read_bytes()
    process = started(file, "k:lookup", len(old) + 1000)
    go(process)
    said, _ = process.communicate()
    assert process.returncode == 3
    assert "cannot be written" in said
    assert file.read_bytes() == old
    assert os.listdir(file.parent) == [file.name]


def test_the_copy_is_not_readable_by_more_users_than_the_file(file, monkeypatch):
    file.chmod(0o600)
    seen = []
    copy = rewrite.copy_into

    def look(source, out):
        seen.append(stat.S_IMODE(os.stat(out.name).st_mode))
        copy(source, out)

    monkeypatch.setattr(rewrite, "copy_into", look)
    ia.add_indexes(file, [ia.Lookup("k")])
    assert seen == [0o600]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_owner_and_group_stay(file, monkeypatch):
    asked = []
    monkeypatch.setattr(os, "chown", lambda path, user, group: asked.append((user, group)))
    before = file.stat()
    ia.add_indexes(file, [ia.Lookup("k")])
    assert asked == [(before.st_uid, before.st_gid)]


@pytest.mark.parametrize(
    ("mode", "expected", "keeps_group"),
    [(0o640, 0o640, True), (0o664, 0o664, True), (0o640, 0o600, False), (0o664, 0o644, False)],
)
def test_a_changed_owner_gives_nobody_more_rights(mode, expected, keeps_group, file, monkeypatch):
    """Either another member of the file's group, or a user outside of it."""
    file.chmod(mode)
    os_stat, own = os.stat, file.stat()

    def refuse(path, user, group):
        if user != -1 or not keeps_group:
            raise PermissionError(1, "Operation not permitted")

    def stat_(path, *args, **options):
        actual = os_stat(path, *args, **options)
        if not str(path).endswith(".intarsia-tmp"):
            return actual
        owner = own.st_uid + 1, own.st_gid + (not keeps_group)
        return os.stat_result([*actual[:4], *owner, *actual[6:10]], actual.__reduce__()[1][1])

    monkeypatch.setattr(os, "chown", refuse)
    monkeypatch.setattr(os, "stat", stat_)
    with pytest.warns(ia.IntarsiaWarning, match="its owner cannot be kept: it was"):
        ia.add_indexes(file, [ia.Lookup("k")])
    monkeypatch.undo()
    assert stat.S_IMODE(file.stat().st_mode) == expected


def test_derived_files_are_not_readable_by_more_users_than_the_file(file):
    file.chmod(0o600)
    ia.add_indexes(file, [ia.Distinct("k")], sidecar=True)
    (sidecar,) = (file.parent / "_intarsia").iterdir()
    ia.recover(file, file.parent / "new.parquet")
    for made in (sidecar, file.parent / "new.parquet"):
        assert stat.S_IMODE(made.stat().st_mode) == 0o600


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_failed_sync_of_the_folder_undoes_nothing(number, file, monkeypatch):
    """Disks without sync are ignored; a sync that fails raises an error."""
    ia.add_indexes(file, [ia.MinMax("n")], sidecar=True)
    synced = atomic_replace._sync

    def refuse(path):
        if path.is_dir():
            raise OSError(number, "no")
        synced(path)

    monkeypatch.setattr(atomic_replace, "_sync", refuse)
    told = pytest.warns(ia.IntarsiaWarning, match="was written, but may be lost")
    with told if number == errno.EIO else contextlib.nullcontext():
        ia.add_indexes(file, [ia.Lookup("k")])
    (report,) = ia.list_indexes(file)
    assert [entry.name for entry in report.indexes] == ["k:lookup"]
    assert [entry.name for entry in report.sidecar] == ["n:minmax"]


MEANWHILE = {
    "add": (lambda file: ia.add_indexes(file, "k:ngram", sidecar=True), ["n:minmax", "k:ngram"]),
    "drop": (lambda file: ia.drop_indexes(file, "n:minmax", sidecar=True), []),
}


@pytest.mark.parametrize(("act", "expected"), MEANWHILE.values(), ids=MEANWHILE)
def test_a_sidecar_changed_in_between_is_not_overwritten(act, expected, file, monkeypatch):
    ia.add_indexes(file, [ia.MinMax("n")], sidecar=True)
    synced, left = atomic_replace._sync, [act]

    def act_first(path):
        if left:
            left.pop()(file)
        synced(path)

    monkeypatch.setattr(atomic_replace, "_sync", act_first)
    ia.add_indexes(file, [ia.Lookup("k")])
    assert not left
    (report,) = ia.list_indexes(file)
    assert [entry.name for entry in report.indexes] == ["k:lookup"]
    assert [entry.name for entry in report.sidecar] == expected


def test_a_folder_without_write_permission_is_an_error(file, monkeypatch):
    opened = os.open

    def refuse(path, flags, *mode, **options):
        if flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *mode, **options)

    old = file.read_bytes()
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ia.PathError, match=r"t\.parquet: cannot be written.*Permission denied"):
        ia.add_indexes(file, [ia.Lookup("k")])
    monkeypatch.undo()
    assert file.read_bytes() == old
