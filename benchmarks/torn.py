"""Kills writers at random moments, and checks the rows that ``recover`` gets back from their files.

Each writer is a process that writes up to 80,000 rows. SIGKILL ends it at most 0.4 s after it has
opened its file. After each table it reports how many rows a checkpoint has made safe. All of
these must come back in their order, and no row that was not written.

``python benchmarks/torn.py --kills 200`` prints counts for each kind of writer: kills, safe rows,
recovered rows, rows beyond the last checkpoint, files that were finished before the kill, files
with nothing to recover. ``--json`` prints them as JSON. No time is measured.
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
    """Returns rows ``[start, start + count)`` of the table that every writer writes."""
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


def write(path: str, writer: str, report_end: int) -> None:
    """Writes a file, and reports the number of safe rows on descriptor ``report_end``."""
    schema = rows(0, 1).schema
    every = int(writer.split()[1]) if writer.startswith("checkpoints") else None
    if writer == "pyarrow":
        file_writer = pq.ParquetWriter(path, schema)
    else:
        file_writer = ia.ParquetWriter(path, schema, checkpoint_row_groups=every)
    with file_writer:
        os.write(report_end, b"0\n")
        for group in range(GROUPS):
            file_writer.write_table(rows(group * GROUP_ROWS, GROUP_ROWS))
            safe = (group + 1) // every * every if every else 0
            os.write(report_end, b"%d\n" % (safe * GROUP_ROWS))
    os.write(report_end, b"%d\n" % (GROUPS * GROUP_ROWS))


def kill_one(folder: Path, writer: str, delay: float) -> tuple[Path | None, int]:
    """Starts a writer and kills it. Returns its file, and the number of safe rows it reported."""
    read_end, report_end = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            write(str(folder / "t.parquet"), writer, report_end)
        finally:
            os._exit(0)
    os.close(report_end)
    with os.fdopen(read_end, "rb") as reports:
        first = reports.readline()
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        lines = [first, *reports.read().split(b"\n")[:-1]]
    files = [path for path in folder.iterdir() if path.is_file()]
    return (files[0] if files else None), int(lines[-1])


def check(path: Path, writer: str, safe: int, schema_file: Path, counts: Counter[str]) -> None:
    """Recovers one file and compares its rows with those that were written.

    Raises ``AssertionError`` if a safe row is missing or a row is wrong, and ``FormatError`` if
    nothing can be recovered although rows are safe.
    """
    out = path.with_name("out.parquet")
    try:
        report = ia.recover(path, out, schema_from=schema_file)
    except ia.FormatError:
        if safe:
            raise
        counts["nothing to recover"] += 1
        return
    recovered = pq.read_table(out)
    if recovered.num_rows != report.rows or report.rows < safe:
        raise AssertionError(f"{path}: {report.rows} rows of {safe} that were safe")
    if not recovered.equals(rows(0, recovered.num_rows)):
        raise AssertionError(f"{path}: rows that were not written")
    counts["finished before"] += path.name == "t.parquet" and report.is_whole
    counts["rows safe"] += safe
    counts["rows recovered"] += report.rows
    counts["rows beyond the last checkpoint"] += report.rows - safe


def main() -> None:
    """Kills writers, recovers their files and prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    work = Path(tempfile.mkdtemp(prefix="torn-"))
    totals: dict[str, Counter[str]] = {writer: Counter() for writer in WRITERS}
    try:
        # All writers run before any recovery, because recovery starts threads, and a process
        # with threads should not fork.
        killed = []
        for number in range(options.kills):
            folder = work / str(number)
            folder.mkdir()
            writer = WRITERS[number % len(WRITERS)]
            delay = rng.uniform(0, LONGEST_SECONDS)
            killed.append((writer, *kill_one(folder, writer, delay)))
        pyarrow_file = work / "other.parquet"
        pq.write_table(rows(0, 10), pyarrow_file)
        our_file = work / "ours.parquet"
        ia.write_table(rows(0, 10), our_file)
        for writer, path, safe in killed:
            counts = totals[writer]
            counts["kills"] += 1
            if path is None:
                raise AssertionError("a killed writer left nothing")
            check(path, writer, safe, pyarrow_file if writer == "pyarrow" else our_file, counts)
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
