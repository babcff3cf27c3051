"""Kills file operations at each of their system calls: ``python tests/torn/kill_points.py``.

For every operation in ``OPERATIONS``, a process is killed before its first call that changes
something, then another before its second, and so on. Each run starts from the same files.
Afterwards each file must have its old or its new contents, and only known debris may remain.

With ``--strace`` the calls are the kernel's, of the whole process. Without it they are Python's,
and writes are also torn in the middle; the tests use this way, as it needs no tool.
"""

import argparse
import builtins
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import intarsia as ia

TABLE = pa.table({"k": [f"k{n}" for n in range(2000)], "n": range(2000)})
OTHER = pa.table({"k": [f"j{n}" for n in range(1500)], "n": range(1500)})
TEMPORARY = re.compile(r"\.[a-z]+\.parquet\.[0-9a-f]{8}\.intarsia-tmp")
TEMPORARY_SIDECAR = re.compile(r"\.t\.parquet\.[0-9a-f]{8}\.intarsia\.[0-9a-f]{8}\.intarsia-tmp")
SIDECAR = re.compile(r"t\.parquet\.[0-9a-f]{8}\.intarsia")
CALLS = (
    "openat,creat,write,writev,pwrite64,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,"
    "truncate,ftruncate,link,linkat,symlink,chmod,fchmod,fchmodat,chown,fchown,fchownat,utimensat,"
    "mkdir,mkdirat,rmdir,flock,copy_file_range,sendfile"
)


# --- operations, and their possible results ------------------------------------------------------


def begin(folder):
    pq.write_table(TABLE, folder / "t.parquet", row_group_size=700)
    (folder / ".t.parquet.crc").write_bytes(b"what Hadoop thinks of it")


def begin_indexed(folder):
    begin(folder)
    ia.add_indexes(folder / "t.parquet", ["n:lookup"])


def begin_beside(folder):
    begin(folder)
    ia.add_indexes(folder / "t.parquet", ["n:lookup"], sidecar=True)


def begin_torn(folder):
    whole = folder / "whole"
    ia.write_table(TABLE, whole, checkpoint_row_groups=1, row_group_size=500)
    (folder / "torn").write_bytes(whole.read_bytes()[:-100])
    whole.unlink()
    pq.write_table(OTHER, folder / "t.parquet")


def begin_other(folder):
    pq.write_table(OTHER, folder / "t.parquet")


def names_in(folder, sidecar):
    """Names of the indexes in the file, or in its sidecar."""
    (report,) = ia.list_indexes(folder / "t.parquet")
    assert report.problems == ()
    return {entry.name for entry in (report.sidecar if sidecar else report.indexes)}


def check_indexes(old, new, sidecar, folder, before):
    """Asserts that the old or the new indexes answer, and that all rows are there."""
    path = folder / "t.parquet"
    actual = names_in(folder, sidecar)
    assert actual in (old, new), actual
    if actual == new and not sidecar:  # otherwise Hadoop would refuse the file
        assert not (folder / ".t.parquet.crc").exists()
    if sidecar or actual == old:
        assert path.read_bytes() == before
    assert pq.read_table(path).equals(TABLE)
    assert ia.verify(path) == []
    assert ia.dataset(folder).to_table(filter=pc.field("n") == 7).equals(TABLE.slice(7, 1))
    return actual == new


def check_rows(table, folder, before):
    """Asserts that the file has its old bytes, or the rows of the new file."""
    path = folder / "t.parquet"
    if path.read_bytes() == before:
        return False
    assert pq.read_table(path).equals(table)
    assert ia.verify(path) == []
    return True


def check_recovered(folder, before):
    return check_rows(TABLE, folder, before)


N, BOTH = {"n:lookup"}, {"n:lookup", "k:lookup"}


def file_of(folder):
    return folder / "t.parquet"


OPERATIONS = {
    "add_indexes": (
        begin,
        lambda folder: ia.add_indexes(file_of(folder), ["n:lookup"]),
        partial(check_indexes, set(), N, False),
    ),
    "add_indexes, replacing": (
        begin_indexed,
        lambda folder: ia.add_indexes(file_of(folder), ["n:lookup", "k:lookup"]),
        partial(check_indexes, N, BOTH, False),
    ),
    "drop_indexes": (
        begin_indexed,
        lambda folder: ia.drop_indexes(file_of(folder), ["n:lookup"]),
        partial(check_indexes, N, set(), False),
    ),
    "add_indexes, sidecar": (
        begin,
        lambda folder: ia.add_indexes(file_of(folder), ["n:lookup"], sidecar=True),
        partial(check_indexes, set(), N, True),
    ),
    "add_indexes, a sidecar's": (
        begin_beside,
        lambda folder: ia.add_indexes(file_of(folder), ["k:lookup"], sidecar=True),
        partial(check_indexes, N, BOTH, True),
    ),
    "drop_indexes, sidecar": (
        begin_beside,
        lambda folder: ia.drop_indexes(file_of(folder), ["n:lookup"], sidecar=True),
        partial(check_indexes, N, set(), True),
    ),
    "recover": (
        begin_torn,
        lambda folder: ia.recover(folder / "torn", file_of(folder)),
        check_recovered,
    ),
    "write_table": (
        begin_other,
        lambda folder: ia.write_table(TABLE, file_of(folder), indexes=["n:lookup"]),
        partial(check_rows, TABLE),
    ),
    "write_table, checkpoints": (
        begin_other,
        lambda folder: ia.write_table(
            TABLE, file_of(folder), checkpoint_row_groups=1, row_group_size=700
        ),
        partial(check_rows, TABLE),
    ),
}


def debris_of(folder):
    """Returns the debris, which may be one temporary file and one superfluous sidecar at most."""
    known = {"t.parquet", ".t.parquet.crc", "torn", "_intarsia"}
    others = [name for name in os.listdir(folder) if name not in known]
    beside = os.listdir(folder / "_intarsia") if (folder / "_intarsia").is_dir() else []
    sidecars = [name for name in beside if SIDECAR.fullmatch(name)]
    unfinished = [name for name in others if TEMPORARY.fullmatch(name)]
    unfinished += [name for name in beside if TEMPORARY_SIDECAR.fullmatch(name)]
    assert len(unfinished) + len(sidecars) == len(others) + len(beside), (others, beside)
    assert len(unfinished) <= 1
    assert len(sidecars) <= 2
    return len(unfinished), max(len(sidecars) - 1, 0)


def checked(name, folder, before):
    """Checks the files of a killed operation, and that repeating it succeeds as if nothing
    happened.
    """
    _, do, check = OPERATIONS[name]
    is_new = check(folder, before)
    unfinished, old_sidecars = debris_of(folder)
    again = folder / "again"
    shutil.copytree(folder, again, copy_function=shutil.copy2)
    if not is_new:
        do(again)
        assert check(again, before)
        debris_of(again)
    return Counter(
        kills=1, new=int(is_new), temporary_files=unfinished, sidecars_too_many=old_sidecars
    )


def prepared(name, root):
    folder = Path(tempfile.mkdtemp(dir=root))
    OPERATIONS[name][0](folder)
    return folder, (folder / "t.parquet").read_bytes()


def act(name, folder):
    """Runs the operation, and ends this process."""
    try:
        OPERATIONS[name][1](folder)
        os._exit(0)
    except BaseException:  # noqa: BLE001 # the process ends here in any case
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


# --- calls of Python -----------------------------------------------------------------------------


class Countdown:
    """Kills this process at call number ``left``."""

    def __init__(self, left):
        self.left = left

    def __call__(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class TornFile(io.FileIO):
    """A file whose writes come in two halves; the process may be killed before each and after."""

    countdown = None

    def write(self, data):
        data = memoryview(data).cast("B")
        half = len(data) // 2
        for part in (data[:half], data[half:]):
            self.countdown()
            rest = part
            while len(rest):
                rest = rest[super().write(rest) :]
        self.countdown()
        return len(data)


def watch(countdown):
    """Makes every call that changes files count down first."""

    def around(call):
        def called(*args, **kwargs):
            countdown()
            actual = call(*args, **kwargs)
            countdown()
            return actual

        return called

    for name in (
        "replace",
        "rename",
        "unlink",
        "remove",
        "fsync",
        "chmod",
        "chown",
        "mkdir",
        "rmdir",
    ):
        setattr(os, name, around(getattr(os, name)))
    opened = builtins.open

    def open_(path, mode="r", *args, opener=None, **kwargs):
        if not set(mode) & set("xwa"):
            return opened(path, mode, *args, opener=opener, **kwargs)
        is_text = "b" not in mode
        countdown()
        raw = type("Torn", (TornFile,), {"countdown": staticmethod(countdown)})
        file = raw(os.fspath(path), mode.replace("b", ""), opener=opener)
        countdown()
        return (
            io.TextIOWrapper(file, "utf-8", write_through=True)
            if is_text
            else io.BufferedWriter(file)
        )

    builtins.open = open_


def kill_in_python(name, root, stride=1):
    """Counts over all kills of one operation, each in a fork of this process."""
    actual, at = Counter(), 1 - stride
    while True:
        at += stride
        folder, before = prepared(name, root)
        child = os.fork()
        if child == 0:
            watch(Countdown(at))
            act(name, folder)
        status = os.waitpid(child, 0)[1]
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            assert OPERATIONS[name][2](folder, before)
            assert debris_of(folder) == (0, 0)
            return actual
        actual += checked(name, folder, before)
        shutil.rmtree(folder)


# --- calls of the kernel --------------------------------------------------------------------------


def can_trace():
    """True if strace is installed and may trace."""
    if shutil.which("strace") is None:
        return False
    command = ["strace", "-f", "-qq", "-e", "trace=none", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def traced(name, folder, *options):
    """Runs an operation in a fork of this process under strace; returns its status and the log."""
    log = Path(f"{folder}.strace")
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready, 1)
        act(name, folder)
    command = ["strace", "-f", "-y", "-o", str(log), "-p", str(child), *options]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    said = tracer.stderr.readline()
    os.write(go, b".")
    status = os.waitpid(child, 0)[1]
    assert "attached" in said, said + tracer.communicate()[1]
    tracer.communicate()
    os.close(ready)
    os.close(go)
    return status, log.read_text(errors="replace").splitlines()


def points_of(lines, folder):
    """The calls of a run that change files in ``folder``: the name and the number in its thread."""
    counts, actual = Counter(), []
    for line in lines:
        match = re.match(r"(\d+)\s+(\w+)\((.*)", line)
        if not match:
            continue
        thread, call, rest = match.groups()
        counts[thread, call] += 1
        opens = call == "openat" and not re.search(r"O_CREAT|O_TRUNC", rest)
        if str(folder) in rest and not opens:
            actual.append((call, counts[thread, call]))
    return actual


def kill_in_kernel(name, root):
    """Like ``kill_in_python``: one traced run finds the calls, then one run per call is killed at
    it.
    """
    folder, before = prepared(name, root)
    status, lines = traced(name, folder, "-e", f"trace={CALLS}")
    assert status == 0
    assert debris_of(folder) == (0, 0)
    points = points_of(lines, folder)
    actual, calls = Counter(), Counter(call for call, _ in points)
    for call, number in points:
        folder, before = prepared(name, root)
        kill = f"inject={call}:signal=KILL:when={number}"
        status, _ = traced(name, folder, "-e", f"trace={CALLS}", "-e", kill)
        assert os.WIFSIGNALED(status), (call, number)
        actual += checked(name, folder, before)
        shutil.rmtree(folder)
    return actual, calls


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strace", action="store_true", help="at the kernel's calls")
    parser.add_argument("--only", choices=list(OPERATIONS), action="append")
    parser.add_argument("--can-trace", action="store_true", help="is there strace, and may it?")
    parser.add_argument("--stride", type=int, default=1, help="of Python's calls, every so many")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.can_trace:
        sys.exit(not can_trace())
    counts = {}
    with tempfile.TemporaryDirectory() as root:
        for name in given.only or OPERATIONS:
            if given.strace:
                actual, calls = kill_in_kernel(name, root)
                shown = ", ".join(f"{call} {count}" for call, count in sorted(calls.items()))
            else:
                actual, shown = kill_in_python(name, root, given.stride), ""
            counts[name] = dict(actual)
            if not given.json:
                old = actual["kills"] - actual["new"]
                print(
                    f"{name:26} {actual['kills']:4} kills: {old:4} the old, "
                    f"{actual['new']:3} the new; {actual['temporary_files']} temporary files, "
                    f"{actual['sidecars_too_many']} sidecars too many  {shown}",
                    flush=True,
                )
    total = sum(actual.get("kills", 0) for actual in counts.values())
    print(json.dumps(counts) if given.json else f"{total:,} kills, nothing else was left")


if __name__ == "__main__":
    main()
