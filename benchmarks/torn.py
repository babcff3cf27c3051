"""Writers killed at random moments, and what ``recover`` gets back of their files.

``python benchmarks/torn.py --kills 200``: each writer is a process of its own that is sent SIGKILL.
It says after every table how many rows a checkpoint has made safe; all of these must come back, and
nothing but rows that were written, in their order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import intarsia as ia

GROUP_ROWS = 200
GROUPS = 400
LONGEST_SECONDS = 0.4
WRITERS = ("checkpoints 1", "checkpoints 2", "checkpoints 5", "none", "pyarrow")


def rows(start: int, count: int) -> pa.Table:
    """Rows ``[start, start + count)`` of the table that every writer writes."""
    numbers = np.arange(start, start + count)
    return pa.table(
        {
            "n": numbers,
            "text": pa.array([f"text {n % 17}" for n in numbers], pa.string()),
            "x": numbers * 0.5,
            "even": numbers % 2 == 0,
            "l": pa.array([[int(n)] * (n % 3) for n in numbers], pa.list_(pa.int64())),
        }
    )


def write(path: str, writer: str, say: int) -> None:
    """Write a file; tell by descriptor ``say`` how many rows are safe."""
    schema = rows(0, 1).schema
    every = int(writer.split()[1]) if writer.startswith("checkpoints") else None
    if writer == "pyarrow":
        made = pq.ParquetWriter(path, schema)
    else:
        made = ia.ParquetWriter(path, schema, checkpoint_row_groups=every)
    with made:
        os.write(say, b"0\n")
        for group in range(GROUPS):
            made.write_table(rows(group * GROUP_ROWS, GROUP_ROWS))
            safe = (group + 1) // every * every if every else 0
            os.write(say, b"%d\n" % (safe * GROUP_ROWS))
    os.write(say, b"%d\n" % (GROUPS * GROUP_ROWS))


def kill_one(folder: Path, writer: str, delay: float) -> tuple[Path | None, int]:
    """Start a writer and kill it: the file it leaves, and how many rows it said are safe."""
    told, say = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            write(str(folder / "t.parquet"), writer, say)
        finally:
            os._exit(0)
    os.close(say)
    with os.fdopen(told, "rb") as listening:
        first = listening.readline()
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        lines = [first, *listening.read().split(b"\n")[:-1]]
    left = [path for path in folder.iterdir() if path.is_file()]
    return (left[0] if left else None), int(lines[-1])


def check(path: Path, writer: str, safe: int, other: Path, counts: Counter[str]) -> None:
    """Recover one file and compare; raises where a safe row is lost or another one found."""
    out = path.with_name("out.parquet")
    try:
        report = ia.recover(path, out, schema_from=other)
    except ia.FormatError:
        if safe:
            raise
        counts["nothing to recover"] += 1
        return
    found = pq.read_table(out)
    if found.num_rows != report.rows or report.rows < safe:
        raise AssertionError(f"{path}: {report.rows} rows of {safe} that were safe")
    if not found.equals(rows(0, found.num_rows)):
        raise AssertionError(f"{path}: rows that were not written")
    counts["finished before"] += path.name == "t.parquet" and report.is_whole
    counts["rows safe"] += safe
    counts["rows recovered"] += report.rows
    counts["rows beyond the last checkpoint"] += report.rows - safe


def main() -> None:
    """Kill, recover, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    work = Path(tempfile.mkdtemp(prefix="torn-"))
    totals: dict[str, Counter[str]] = {writer: Counter() for writer in WRITERS}
    try:
        # All writers before any recovery: a process that has threads had better not fork.
        left = []
        for number in range(options.kills):
            folder = work / str(number)
            folder.mkdir()
            writer = WRITERS[number % len(WRITERS)]
            delay = chance.uniform(0, LONGEST_SECONDS)
            left.append((writer, *kill_one(folder, writer, delay)))
        other = work / "other.parquet"
        pq.write_table(rows(0, 10), other)
        ours = work / "ours.parquet"
        ia.write_table(rows(0, 10), ours)
        for writer, path, safe in left:
            counts = totals[writer]
            counts["kills"] += 1
            if path is None:
                raise AssertionError("a killed writer left nothing")
            check(path, writer, safe, other if writer == "pyarrow" else ours, counts)
    except BaseException:
        print(f"the files are in {work}", file=sys.stderr)
        raise
    shutil.rmtree(work)
    if options.json:
        json.dump(totals, sys.stdout)
        return
    names = list(dict.fromkeys(name for counts in totals.values() for name in counts))
    print(f"{'':16}" + "".join(f"{name:>34}" for name in names))
    for writer, counts in totals.items():
        print(f"{writer:16}" + "".join(f"{counts[name]:>34,}" for name in names))


if __name__ == "__main__":
    main()
