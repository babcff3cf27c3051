"""Measures how the cost of a lookup grows with the number of rows and of files.

The data are tables like that of ``logs.py`` in files of 1,000,000 rows, with a lookup index on
``trace_id``. There is a folder for each number of rows (``--rows``), and one of 10,000 files
(``--files``) of 500 rows. All folders have a catalog and are made once, by a process for each core.
1,000,000,000 rows take 42 GB.

``python benchmarks/large.py`` prints a line for each folder: the median processor time in
milliseconds of a lookup by ``Dataset.prepare``, and of one for which the data set is opened. The
folders take turns, and each lookup has another key. The goals are at most 1.3 times the time of the
smallest table, and 10 ms for the many files.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from logs import ROW_GROUP_ROWS, ROW_GROUPS, SEED, Tables
from queries import DATA, GROWTH, Table, Times, markdown
from service import write_small_files
from workloads import SIZES, made

import intarsia as ia

MOST_MS = 10
"""The goal for a lookup in many small files."""


def write_logs(rows: int, folder: Path) -> None:
    """Writes the files of a table, and their catalog."""
    folder.mkdir(exist_ok=True)
    file_rows = min(ROW_GROUP_ROWS, rows // ROW_GROUPS)
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        list(processes.map(partial(write_file, folder, file_rows), range(rows // file_rows)))
    ia.build_catalog(folder)


def write_file(folder: Path, rows: int, number: int) -> None:
    """Writes a file of a table. Each number gives other rows."""
    (table,) = Tables(rows, groups=1, seed=SEED + number)
    ia.write_table(table, folder / f"{number:05}.parquet", indexes=[ia.Lookup("trace_id")])


def keys_of(folder: Path, column: str, count: int) -> list[Any]:
    """Returns values of random rows of random files."""
    draw, paths = random.Random(SEED), sorted(folder.glob("*.parquet"))
    columns = [
        pq.read_table(path, columns=[column])[column]
        for path in draw.sample(paths, min(10, len(paths)))
    ]
    return [draw.choice(draw.choice(columns)).as_py() for _ in range(count)]


class Lookups:
    """Lookups in a folder, and their processor times."""

    def __init__(self, folder: Path, column: str, count: int) -> None:
        self._folder, self._condition = folder, f"{column} = ?"
        self._keys = keys_of(folder, column, count)
        self._query, self._warm, self._cold = self._opened(), Times(), Times()
        for key in self._keys[:3]:
            assert self._query.to_table(key).num_rows == 1

    def _opened(self) -> ia.PreparedQuery:
        return ia.dataset(self._folder).prepare(self._condition)

    def run(self, number: int) -> None:
        """Measures one of the lookups, warm and newly opened."""
        key = self._keys[number]
        self._warm.add(partial(self._query.to_table, key))
        self._cold.add(lambda: self._opened().to_table(key))

    def medians(self) -> dict[str, float]:
        """Returns the median processor times, warm and newly opened, in milliseconds."""
        times = {"warm": self._warm, "cold": self._cold}
        return {state: statistics.median(of_state.processor) for state, of_state in times.items()}


def measure(tables: Sequence[int], files: int, lookups: int, data: Path) -> list[dict[str, Any]]:
    """Makes the folders. Returns the figures of each, with the goals that apply."""
    measured: dict[str, Lookups] = {}
    for rows in tables:
        folder = data / f"large-{rows}"
        made(folder, partial(write_logs, rows))
        measured[f"{rows:,} rows"] = Lookups(folder, "trace_id", lookups)
    folder = data / f"service-files-{files}"
    made(folder, partial(write_small_files, files))
    measured[f"{files:,} files"] = Lookups(folder, "user_id", lookups)
    for number in range(lookups):  # by turns
        for one in measured.values():
            one.run(number)
    lines = [{"data": name, **one.medians()} for name, one in measured.items()]
    first, *others, last = lines
    for line in others:
        line |= {"goal": f"at most {GROWTH} times", "met": line["warm"] <= GROWTH * first["warm"]}
    last |= {"goal": f"at most {MOST_MS} ms", "met": last["warm"] <= MOST_MS}
    return lines


def table_of(lines: list[dict[str, Any]]) -> Table:
    """Returns the figures as a table."""
    table = [["processor ms", "warm", "newly opened", "goal"]]
    for line in lines:
        verdict = f"{line['goal']}: {'met' if line['met'] else 'missed'}" if "goal" in line else ""
        table.append([line["data"], f"{line['warm']:,.1f}", f"{line['cold']:,.1f}", verdict])
    return table


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES["full"].lakes[:2])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--lookups", type=int, default=50)
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    print(markdown(table_of(measure(options.rows, options.files, options.lookups, options.data))))


if __name__ == "__main__":
    main()
