"""Compares ``explain(analyze=True)`` with the scan that it explains, in processor time.

``python benchmarks/explain.py`` writes files into a temporary folder and takes about a minute. Each
scan opens the files anew, as ``explain`` does. Figures are medians of ``--runs`` runs, by turns.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import intarsia as ia

FILE_ROWS, SMALL_FILE_ROWS = 1_000_000, 500
CASES = [
    ("one file", "id = 12345"),
    ("one file", "k = 7"),
    ("40 files", "k = 7"),
    ("1000 files", "id = 7"),
    ("1000 files", "k = 7"),
    ("1000 files", "k < 900"),
]


def rows(first: int, count: int, rng: np.random.Generator) -> pa.Table:
    """Returns ``count`` rows with ascending ``id`` and random ``k`` and ``s``."""
    keys = rng.integers(0, 1000, count)
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "k": keys,
            "s": [f"user{key * 7919 % 100_000}" for key in keys.tolist()],
        }
    )


def write(folder: Path) -> None:
    """Writes the data sets of ``CASES``."""
    rng = np.random.default_rng(1)
    (folder / "one file").mkdir()
    table = rows(0, FILE_ROWS, rng).take(rng.permutation(FILE_ROWS))
    ia.write_table(table, folder / "one file" / "a.parquet", indexes=[ia.Lookup("id")])
    for count in (40, 1000):
        below = folder / f"{count} files"
        below.mkdir()
        for number in range(count):
            table = rows(number * SMALL_FILE_ROWS, SMALL_FILE_ROWS, rng)
            pq.write_table(table, below / f"{number:04}.parquet")


def measure(folder: Path, where: str, runs: int) -> tuple[float, float]:
    """Returns the processor seconds of a scan and of its explanation."""
    data = ia.dataset(folder)
    scans, explanations = [], []
    for _ in range(runs):
        start = time.process_time()
        data.scan_source = data.scan_source.with_cache(data.scan_source.cache.anew())
        data.to_table(filter=where)
        middle = time.process_time()
        data.explain(filter=where, analyze=True)
        scans.append(middle - start)
        explanations.append(time.process_time() - middle)
    return statistics.median(scans), statistics.median(explanations)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    print("| files | filter | scan, ms | explain, ms | ratio |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        write(Path(made))
        for name, where in CASES:
            scan, explained = measure(Path(made) / name, where, options.runs)
            ratio = f"{1000 * scan:.1f} | {1000 * explained:.1f} | {explained / scan:.2f}"
            print(f"| {name} | `{where}` | {ratio} |")


if __name__ == "__main__":
    main()
