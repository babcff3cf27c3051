"""Checks the answers of a service while a writer keeps changing its files.

The data is a folder of 500 small files (``--files``). A writer rewrites, deletes and creates
files, adds and drops their indexes and sidecars, and refreshes the catalog. Threads and forked
processes query the folder at the same time. Each answer is compared with the versions that each
file had while the query ran. A query may raise ``PathError`` for a file that was deleted after
the query had listed it.

``python benchmarks/soak.py 60`` runs for 60 minutes of wall time. Every 30 s it prints the time in
seconds, the numbers of answers and errors, memory in MB and open files. The summary has the same
numbers. The exit code is 1 after a wrong answer, another error or a query that hangs. It is also
1 if memory keeps growing or if a file is left over.
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
"""Rows of the state of the files.

They are: the version published last, the version being published, whether the file exists, and
how many deletions and creations have begun or ended.
"""
QUERY_SECONDS = 600
"""A query that takes longer is reported as hanging."""
MOST_GROWTH = 1.25
"""Maximum ratio of the memory at the end to the memory after a third of the time."""


def num_rows(file: int, version: int) -> int:
    """Returns the number of rows in a version of a file."""
    return LEAST_ROWS + (file * 31 + version * 17) % (MOST_ROWS - LEAST_ROWS)


def table_of(file: int, version: int) -> pa.Table:
    """Returns the rows of a version of a file."""
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
    """The folder, and the state of its files: shape ``(4, files)``, shared with the writer."""

    def __init__(self, folder: Path, files: int) -> None:
        self.folder, self.files = folder / "lake", files
        self.state = np.memmap(folder / "state", np.int64, "w+", shape=(4, files))
        self.folder.mkdir()

    def path(self, file: int) -> Path:
        """Returns the path of a file."""
        return self.folder / f"{file:04}.parquet"

    def write(self, file: int) -> None:
        """Publishes the next version, by renaming."""
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
        """Deletes a file, and counts both ends of the change."""
        self.state[CHANGES, file] += 1
        self.path(file).unlink()
        self.state[ALIVE, file] = 0
        self.state[CHANGES, file] += 1


def make_changes(lake: Lake, until: float, seed: int) -> None:
    """Makes one change after the other until ``until``; runs in the writer's process."""
    rng = np.random.default_rng(seed)
    warnings.simplefilter("ignore")
    while time.time() < until:
        file, choice = int(rng.integers(lake.files)), rng.random()
        path = lake.path(file)
        if not lake.state[ALIVE, file] or choice < 0.5:
            lake.write(file)
        elif choice < 0.53:
            lake.delete(file)
        elif choice < 0.75:
            ia.add_indexes(path, ["n:minmax"], replace=True)
        elif choice < 0.85:
            ia.add_indexes(path, ["msg:lookup"], sidecar=True, replace=True)
        elif choice < 0.98:
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
    """The rows that a query may return, by all states of the files while it ran."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self._before = lake, lake.state.copy()

    def finish(self) -> None:
        """Records the state at the end of the query."""
        self._after = self._lake.state.copy()
        is_same = self._before[CHANGES] == self._after[CHANGES]
        self.is_present = is_same & (self._before[ALIVE] == 1)
        self.is_absent = is_same & (self._before[ALIVE] == 0)

    def versions(self, file: int) -> range:
        """Returns the versions of a file that the query may have read."""
        return range(int(self._before[DONE, file]), int(self._after[BEGUN, file]) + 1)

    def check(self, answer: pa.Table, expected: Callable[[np.ndarray], np.ndarray]) -> None:
        """Raises unless ``answer`` has, of every file, the ``expected`` rows of one version."""
        rows = {name: answer.column(name).to_numpy() for name in ("file", "version", "n", "check")}
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
            if version not in self.versions(file) or self.is_absent[file]:
                raise WrongError(f"file {file}: version {version} of {self.versions(file)}")
        for file in np.flatnonzero(self.is_present):
            needs = all(
                expected(np.arange(num_rows(int(file), version))).any()
                for version in self.versions(int(file))
            )
            if needs and int(file) not in seen:
                raise WrongError(f"file {file} is missing")

    def check_count(self, count: int, per_file: int) -> None:
        """Raises unless ``count`` is possible with ``per_file`` rows of each file."""
        least = per_file * int(self.is_present.sum())
        most = per_file * int((~self.is_absent).sum())
        if not least <= count <= most:
            raise WrongError(f"{count} rows, not {least} to {most}")


def run_query(lake: Lake, rng: np.random.Generator) -> str:
    """Runs one random query and compares it with the oracle. Returns its name."""
    oracle = Oracle(lake)
    data = ia.dataset(lake.folder)
    file, row = int(rng.integers(lake.files)), int(rng.integers(LEAST_ROWS))
    kind = int(rng.integers(12))
    low = pc.field("n") < 3
    name = "all"
    if kind == 0:
        answer = data.to_table()
        oracle.finish()
        oracle.check(answer, lambda n: n >= 0)
    elif kind <= 3:
        name, key = "lookup", pc.field("k") == file * 1000 + row
        answer = data.to_table(filter=key)
        oracle.finish()
        if answer.num_rows > 1 or (oracle.is_present[file] and not answer.num_rows):
            raise WrongError(f"{answer.num_rows} rows of one key")
        version = answer.column("version").to_pylist()
        if version and version[0] not in oracle.versions(file):
            raise WrongError(f"file {file}: version {version[0]} of {oracle.versions(file)}")
    elif kind == 4:
        name = "range"
        answer = data.to_table(filter=(pc.field("n") >= 15) & (pc.field("n") < 18))
        oracle.finish()
        oracle.check(answer, lambda n: (n >= 15) & (n < 18))
    elif kind == 5:
        name = "batches"
        batches = list(data.to_batches(filter=pc.field("n") >= 19))
        oracle.finish()
        oracle.check(pa.Table.from_batches(batches), lambda n: n >= 19)
    elif kind == 6:
        name = "count"
        count = data.count_rows(filter=low)
        oracle.finish()
        oracle.check_count(count, 3)
    elif kind == 7:
        name = "head"
        if data.head(5, filter=low).num_rows != 5:
            raise WrongError("head")
    elif kind == 8:
        name = "sql"
        answer = ia.sql("SELECT * FROM t WHERE n % 7 = 3", t=data)
        oracle.finish()
        oracle.check(answer, lambda n: n % 7 == 3)
    elif kind == 9:
        name = "sql in"
        query = "SELECT count(*) AS c FROM t WHERE k IN (SELECT k FROM u)"
        keys = pa.table({"k": [i * 1000 + row for i in range(lake.files)]})
        count = ia.sql(query, t=data, u=keys)["c"][0].as_py()
        oracle.finish()
        oracle.check_count(count, 1)
    elif kind == 10:
        name = "explain"
        if not data.explain(filter=low).files:
            raise WrongError("explain")
    else:
        name = "fragments"
        fragments = list(data.get_fragments(filter=pc.field("k") == file * 1000 + row))
        oracle.finish()
        if len(fragments) > 1 or (oracle.is_present[file] and not fragments):
            raise WrongError(f"{len(fragments)} fragments of one key")
    return name


class Outcomes:
    """Outcomes of a process's queries, and the time at which each thread started its query."""

    def __init__(self) -> None:
        self.answers: collections.Counter[str] = collections.Counter()
        self.deleted = 0
        self.errors: list[str] = []
        self.started: dict[int, float] = {}


def run_queries(lake: Lake, until: float, seed: int, outcomes: Outcomes) -> None:
    """Runs one query after the other until ``until``."""
    rng = np.random.default_rng(seed)
    while time.time() < until and len(outcomes.errors) < 20:
        outcomes.started[seed] = time.time()
        changes = lake.state[CHANGES].copy()
        try:
            outcomes.answers[run_query(lake, rng)] += 1
        except ia.PathError as error:
            was_deleted = np.flatnonzero(changes != lake.state[CHANGES])
            if "no such file" in str(error) and any(
                str(lake.path(int(file))) in str(error) for file in was_deleted
            ):
                outcomes.deleted += 1
            else:
                outcomes.errors.append(traceback.format_exc())
        except Exception:  # noqa: BLE001 # all of them are reported
            outcomes.errors.append(traceback.format_exc())
        outcomes.started.pop(seed, None)


def fork_queries(lake: Lake, until: float, seed: int) -> int:
    """Forks a process that runs queries. Errors go to its standard error and exit status."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(QUERY_SECONDS)
        outcomes = Outcomes()
        run_queries(lake, until, seed, outcomes)
        for error in outcomes.errors:
            print(error, file=sys.stderr)
        status = bool(outcomes.errors)
    finally:
        os._exit(status)


def resident_bytes() -> int:
    """Returns the resident memory of this process."""
    return (
        int(retry_handles(Path("/proc/self/statm").read_text).split()[1]) * resource.getpagesize()
    )


def retry_handles(action: Callable[[], Any]) -> Any:
    """Calls ``action``, and again while the process has no free file handle."""
    for _ in range(1000):
        try:
            return action()
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            time.sleep(0.01)
    return action()


def leftovers(lake: Lake) -> list[str]:
    """Returns files that are neither data, nor sidecars, nor part of the catalog."""
    data_files = {lake.path(file).name for file in range(lake.files)}
    paths = {path.relative_to(lake.folder).as_posix() for path in lake.folder.rglob("*")}
    return sorted(
        path
        for path in paths - data_files
        if path != "_intarsia" and not path.startswith("_intarsia/")
    ) + sorted(path for path in paths if ".tmp" in path or path.endswith(".part"))


def main() -> int:
    """Runs as the arguments say. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("minutes", type=float)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--handles", type=int, default=256, help="limit on open files, 0 for none")
    parser.add_argument("--child-seconds", type=float, default=15)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        return soak(folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def soak(folder: Path, options: argparse.Namespace) -> int:
    """Queries files below ``folder`` for the given time, and prints the results."""
    lake = Lake(folder, options.files)
    for file in range(options.files):
        lake.write(file)
    ia.build_catalog(lake.folder)
    started = time.time()
    until = started + options.minutes * 60
    writer = multiprocessing.get_context("fork").Process(target=make_changes, args=(lake, until, 0))
    writer.start()
    if options.handles:
        resource.setrlimit(resource.RLIMIT_NOFILE, (options.handles, options.handles))
    outcomes = Outcomes()
    threads = [
        threading.Thread(target=run_queries, args=(lake, until, seed, outcomes), daemon=True)
        for seed in range(options.threads)
    ]
    for thread in threads:
        thread.start()
    children: set[int] = set()
    forked = failed = 0
    memory: list[int] = []
    reported = started
    while any(thread.is_alive() for thread in threads) or children:
        now = time.time()
        while now < until and len(children) < options.processes:
            child_until = min(until, now + options.child_seconds)
            children.add(fork_queries(lake, child_until, 1000 + forked))
            forked += 1
        for pid in list(children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                children.remove(pid)
                failed += bool(status)
                if status:
                    print(f"a child ended with status {status}", flush=True)
        memory.append(resident_bytes())
        hung = [
            now - since for since in list(outcomes.started.values()) if now - since > QUERY_SECONDS
        ]
        if hung:
            outcomes.errors.append(f"a query has run for {max(hung):.0f} s")
            faulthandler.dump_traceback()
            break
        if now - reported > 30:
            reported = now
            answers = sum(outcomes.answers.values())
            handles = len(retry_handles(partial(os.listdir, "/proc/self/fd")))
            print(
                f"{now - started:5.0f} s  {answers:7,} answers  {outcomes.deleted:5,} deleted  "
                f"{len(outcomes.errors)} errors  {forked} forked, {failed} failed  "
                f"{memory[-1] / 1e6:.0f} MB  {handles} handles",
                flush=True,
            )
        time.sleep(0.2)
    writer.join(300)
    changes = int(lake.state[DONE].sum())
    third = memory[len(memory) // 3 :]
    growth = max(third[-5:]) / max(third[:5])
    leftover_files = leftovers(lake)
    for error in outcomes.errors[:5]:
        print(error)
    print(f"answers: {sum(outcomes.answers.values()):,} {dict(outcomes.answers)}")
    print(f"versions written: {changes:,}; files found deleted: {outcomes.deleted:,}")
    print(f"children: {forked}, failed {failed}; errors {len(outcomes.errors)}")
    print(f"memory: {memory[-1] / 1e6:.0f} MB, {growth:.2f} times that after a third")
    print(f"left over: {leftover_files}; writer ended with {writer.exitcode}")
    is_bad = outcomes.errors or failed or leftover_files or writer.exitcode or growth > MOST_GROWTH
    return int(bool(is_bad))


if __name__ == "__main__":
    sys.exit(main())
