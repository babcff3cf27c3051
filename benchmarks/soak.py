"""A service under churn: threads and forked processes query files that a writer keeps changing.

``python benchmarks/soak.py 60`` runs for 60 minutes. A writer rewrites, deletes and makes files,
adds and drops their indexes and sidecars, and refreshes the catalog. Every answer is compared with
what some version of each file holds that there was while the query ran. A query that lists a file
and then finds it deleted may say so. The exit code is 1 after a wrong answer, another error, a
process that hangs, memory that keeps growing, or a file that is left over.
"""

import argparse
import collections
import errno
import faulthandler
import itertools
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import intarsia as ia

LEAST_ROWS, MOST_ROWS = 20, 70
DONE, BEGUN, ALIVE, CHANGES = range(4)
"""The state of a file: the version published last, the one being published, whether it is there,
and how many deletions and creations have begun or ended."""
QUERY_SECONDS = 600
"""A query that takes longer is taken to hang."""
MOST_GROWTH = 1.25
"""Memory at the end, as a multiple of that after a third of the time."""


def num_rows(file: int, version: int) -> int:
    """How many rows a version of a file has."""
    return LEAST_ROWS + (file * 31 + version * 17) % (MOST_ROWS - LEAST_ROWS)


def table_of(file: int, version: int) -> pa.Table:
    """The rows of a version of a file."""
    n = np.arange(num_rows(file, version))
    return pa.table(
        {
            "k": file * 1000 + n,
            "file": np.full(len(n), file),
            "version": np.full(len(n), version),
            "n": n,
            "check": (file * 1_000_003 + version * 7919 + n * 31) % (1 << 31),
            "msg": [f"file {file} version {version} row {row}" for row in n.tolist()],
        }
    )


class Lake:
    """The folder, and what its writer says of the files: shape ``(4, files)``, shared."""

    def __init__(self, folder: Path, files: int) -> None:
        self.folder, self.files = folder / "lake", files
        self.state = np.memmap(folder / "state", np.int64, "w+", shape=(4, files))
        self.folder.mkdir()

    def path(self, file: int) -> Path:
        return self.folder / f"{file:04}.parquet"

    def write(self, file: int) -> None:
        """Publish the next version, by renaming."""
        state = self.state
        state[BEGUN, file] += 1
        is_new = not state[ALIVE, file]
        state[CHANGES, file] += is_new
        table = table_of(file, int(state[BEGUN, file]))
        indexes = ["k:lookup"] if file % 3 else []
        ia.write_table(table, self.path(file), indexes=indexes, row_group_size=25)
        state[DONE, file], state[ALIVE, file] = state[BEGUN, file], 1
        state[CHANGES, file] += is_new

    def delete(self, file: int) -> None:
        self.state[CHANGES, file] += 1
        self.path(file).unlink()
        self.state[ALIVE, file] = 0
        self.state[CHANGES, file] += 1


def churn(lake: Lake, until: float, seed: int) -> None:
    """The writer's thread: makes one change after the other."""
    noise = np.random.default_rng(seed)
    warnings.simplefilter("ignore")
    while time.time() < until:
        file, what = int(noise.integers(lake.files)), noise.random()
        path = lake.path(file)
        if not lake.state[ALIVE, file] or what < 0.5:
            lake.write(file)
        elif what < 0.53:
            lake.delete(file)
        elif what < 0.75:
            ia.add_indexes(path, ["n:minmax"], replace=True)
        elif what < 0.85:
            ia.add_indexes(path, ["msg:lookup"], sidecar=True, replace=True)
        elif what < 0.98:
            ia.drop_indexes(path, all=True)
        else:
            ia.build_catalog(lake.folder, refresh=True)
    for file in range(lake.files):
        if not lake.state[ALIVE, file]:
            lake.write(file)
    ia.build_catalog(lake.folder)


class WrongError(AssertionError):
    """An answer that no versions of the files give."""


class Oracle:
    """The rows that a query may have seen, by all states of the files while it ran."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self._before = lake, lake.state.copy()

    def finish(self) -> None:
        self._after = self._lake.state.copy()
        is_same = self._before[CHANGES] == self._after[CHANGES]
        self.is_there = is_same & (self._before[ALIVE] == 1)
        self.is_gone = is_same & (self._before[ALIVE] == 0)

    def versions(self, file: int) -> range:
        return range(int(self._before[DONE, file]), int(self._after[BEGUN, file]) + 1)

    def check(self, found: pa.Table, expected: Callable[[np.ndarray], np.ndarray]) -> None:
        """Raises unless ``found`` has, of every file, the ``expected`` rows of one version."""
        rows = {name: found.column(name).to_numpy() for name in ("file", "version", "n", "check")}
        order = np.lexsort([rows["n"], rows["file"]])
        rows = {name: values[order] for name, values in rows.items()}
        edges = np.flatnonzero(np.diff(rows["file"], prepend=-1, append=-1))
        seen = set()
        for start, stop in itertools.pairwise(edges):
            file, version = int(rows["file"][start]), int(rows["version"][start])
            seen.add(file)
            n = np.arange(num_rows(file, version))
            n = n[expected(n)]
            check = (file * 1_000_003 + version * 7919 + n * 31) % (1 << 31)
            if not (
                np.array_equal(rows["n"][start:stop], n)
                and (rows["version"][start:stop] == version).all()
                and np.array_equal(rows["check"][start:stop], check)
            ):
                raise WrongError(f"file {file}, version {version}: {rows['n'][start:stop]}")
            if version not in self.versions(file) or self.is_gone[file]:
                raise WrongError(f"file {file}: version {version} of {self.versions(file)}")
        for file in np.flatnonzero(self.is_there):
            needs = all(
                expected(np.arange(num_rows(int(file), version))).any()
                for version in self.versions(int(file))
            )
            if needs and int(file) not in seen:
                raise WrongError(f"file {file} is missing")

    def check_count(self, count: int, per_file: int) -> None:
        least = per_file * int(self.is_there.sum())
        most = per_file * int((~self.is_gone).sum())
        if not least <= count <= most:
            raise WrongError(f"{count} rows, not {least} to {most}")


def ask(lake: Lake, noise: np.random.Generator) -> str:
    """One query, compared with the oracle. Returns its name."""
    oracle = Oracle(lake)
    data = ia.dataset(lake.folder)
    file, row = int(noise.integers(lake.files)), int(noise.integers(LEAST_ROWS))
    which = int(noise.integers(12))
    low = pc.field("n") < 3
    name = "all"
    if which == 0:
        found = data.to_table()
        oracle.finish()
        oracle.check(found, lambda n: n >= 0)
    elif which <= 3:
        name, key = "lookup", pc.field("k") == file * 1000 + row
        found = data.to_table(filter=key)
        oracle.finish()
        if found.num_rows > 1 or (oracle.is_there[file] and not found.num_rows):
            raise WrongError(f"{found.num_rows} rows of one key")
        version = found.column("version").to_pylist()
        if version and version[0] not in oracle.versions(file):
            raise WrongError(f"file {file}: version {version[0]} of {oracle.versions(file)}")
    elif which == 4:
        name = "range"
        found = data.to_table(filter=(pc.field("n") >= 15) & (pc.field("n") < 18))
        oracle.finish()
        oracle.check(found, lambda n: (n >= 15) & (n < 18))
    elif which == 5:
        name = "batches"
        batches = list(data.to_batches(filter=pc.field("n") >= 19))
        oracle.finish()
        oracle.check(pa.Table.from_batches(batches), lambda n: n >= 19)
    elif which == 6:
        name = "count"
        count = data.count_rows(filter=low)
        oracle.finish()
        oracle.check_count(count, 3)
    elif which == 7:
        name = "head"
        if data.head(5, filter=low).num_rows != 5:
            raise WrongError("head")
    elif which == 8:
        name = "sql"
        found = ia.sql("SELECT * FROM t WHERE n % 7 = 3", t=data)
        oracle.finish()
        oracle.check(found, lambda n: n % 7 == 3)
    elif which == 9:
        name = "sql in"
        query = "SELECT count(*) AS c FROM t WHERE k IN (SELECT k FROM u)"
        keys = pa.table({"k": [i * 1000 + row for i in range(lake.files)]})
        count = ia.sql(query, t=data, u=keys)["c"][0].as_py()
        oracle.finish()
        oracle.check_count(count, 1)
    elif which == 10:
        name = "explain"
        if not data.explain(filter=low).files:
            raise WrongError("explain")
    else:
        name = "fragments"
        fragments = list(data.get_fragments(filter=pc.field("k") == file * 1000 + row))
        oracle.finish()
        if len(fragments) > 1 or (oracle.is_there[file] and not fragments):
            raise WrongError(f"{len(fragments)} fragments of one key")
    return name


class Tally:
    """Outcomes of a process's queries, and the time at which each thread began its query."""

    def __init__(self) -> None:
        self.asked: collections.Counter[str] = collections.Counter()
        self.deleted = 0
        self.errors: list[str] = []
        self.began: dict[int, float] = {}


def work(lake: Lake, until: float, seed: int, tally: Tally) -> None:
    """Ask one query after the other."""
    noise = np.random.default_rng(seed)
    while time.time() < until and len(tally.errors) < 20:
        tally.began[seed] = time.time()
        changes = lake.state[CHANGES].copy()
        try:
            tally.asked[ask(lake, noise)] += 1
        except ia.PathError as error:
            was_deleted = np.flatnonzero(changes != lake.state[CHANGES])
            if "no such file" in str(error) and any(
                str(lake.path(int(file))) in str(error) for file in was_deleted
            ):
                tally.deleted += 1
            else:
                tally.errors.append(traceback.format_exc())
        except Exception:  # noqa: BLE001 # all of them are reported
            tally.errors.append(traceback.format_exc())
        tally.began.pop(seed, None)


def in_child(lake: Lake, until: float, seed: int) -> int:
    """Fork a process that asks for some seconds. It says on standard error what is wrong."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(QUERY_SECONDS)
        tally = Tally()
        work(lake, until, seed, tally)
        for error in tally.errors:
            print(error, file=sys.stderr)
        status = bool(tally.errors)
    finally:
        os._exit(status)


def resident_bytes() -> int:
    """Returns the memory that this process holds."""
    return int(patiently(Path("/proc/self/statm").read_text).split()[1]) * resource.getpagesize()


def patiently(action: Callable[[], Any]) -> Any:
    """What ``action`` returns, which needs a handle: all may be in use for a moment."""
    for _ in range(1000):
        try:
            return action()
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            time.sleep(0.01)
    return action()


def leftovers(lake: Lake) -> list[str]:
    """Files that belong to nothing: neither data, nor sidecars of it, nor the catalog's."""
    known = {lake.path(file).name for file in range(lake.files)}
    found = {path.relative_to(lake.folder).as_posix() for path in lake.folder.rglob("*")}
    return sorted(
        path for path in found - known if path != "_intarsia" and not path.startswith("_intarsia/")
    ) + sorted(path for path in found if ".tmp" in path or path.endswith(".part"))


def main() -> int:
    """Run as the arguments say. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("minutes", type=float)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--handles", type=int, default=256, help="limit on open files, 0 for none")
    parser.add_argument("--child-seconds", type=float, default=15)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        return soak(folder, given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def soak(folder: Path, given: argparse.Namespace) -> int:
    """Query files below ``folder`` for so many minutes, and print what came of it."""
    lake = Lake(folder, given.files)
    for file in range(given.files):
        lake.write(file)
    ia.build_catalog(lake.folder)
    began = time.time()
    until = began + given.minutes * 60
    writer = multiprocessing.get_context("fork").Process(target=churn, args=(lake, until, 0))
    writer.start()
    if given.handles:
        resource.setrlimit(resource.RLIMIT_NOFILE, (given.handles, given.handles))
    tally = Tally()
    threads = [
        threading.Thread(target=work, args=(lake, until, seed, tally), daemon=True)
        for seed in range(given.threads)
    ]
    for thread in threads:
        thread.start()
    children: set[int] = set()
    forked = failed = 0
    memory: list[int] = []
    shown = began
    while any(thread.is_alive() for thread in threads) or children:
        now = time.time()
        while now < until and len(children) < given.processes:
            child_until = min(until, now + given.child_seconds)
            children.add(in_child(lake, child_until, 1000 + forked))
            forked += 1
        for pid in list(children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                children.remove(pid)
                failed += bool(status)
                if status:
                    print(f"a child ended with status {status}", flush=True)
        memory.append(resident_bytes())
        hung = [now - since for since in list(tally.began.values()) if now - since > QUERY_SECONDS]
        if hung:
            tally.errors.append(f"a query has run for {max(hung):.0f} s")
            faulthandler.dump_traceback()
            break
        if now - shown > 30:
            shown = now
            asked = sum(tally.asked.values())
            handles = len(patiently(partial(os.listdir, "/proc/self/fd")))
            print(
                f"{now - began:5.0f} s  {asked:7,} answers  {tally.deleted:5,} deleted  "
                f"{len(tally.errors)} errors  {forked} forked, {failed} failed  "
                f"{memory[-1] / 1e6:.0f} MB  {handles} handles",
                flush=True,
            )
        time.sleep(0.2)
    writer.join(300)
    changes = int(lake.state[DONE].sum())
    third = memory[len(memory) // 3 :]
    growth = max(third[-5:]) / max(third[:5])
    left = leftovers(lake)
    for error in tally.errors[:5]:
        print(error)
    print(f"answers: {sum(tally.asked.values()):,} {dict(tally.asked)}")
    print(f"versions written: {changes:,}; files found deleted: {tally.deleted:,}")
    print(f"children: {forked}, failed {failed}; errors {len(tally.errors)}")
    print(f"memory: {memory[-1] / 1e6:.0f} MB, {growth:.2f} times that after a third")
    print(f"left over: {left}; writer ended with {writer.exitcode}")
    is_bad = tally.errors or failed or left or writer.exitcode or growth > MOST_GROWTH
    return int(bool(is_bad))


if __name__ == "__main__":
    sys.exit(main())
