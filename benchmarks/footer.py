"""Compares opening a file and reading the metadata of three columns, in Intarsia and in pyarrow.

The files have 20 and 2,000 columns, 10 row groups of 100 rows, and page indexes.

``python benchmarks/footer.py`` prints a line for each file: median wall times in milliseconds of
15 alternating runs, and the median ratio of Intarsia's time to pyarrow's in the same run.
``--quickest`` prints only the shortest time of each, pyarrow first, in milliseconds.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import intarsia as ia

RUNS = 15
TOUCHED = 3
SHAPES = ((20, 10), (2000, 10))
"""Columns and row groups of each file."""


def write(path: Path, columns: int, row_groups: int) -> None:
    """Writes a file with page indexes; its row groups have 100 rows."""
    table = pa.table({f"column_{i:04d}": np.arange(100 * row_groups) for i in range(columns)})
    pq.write_table(table, path, row_group_size=100, write_page_index=True)


def by_pyarrow(path: Path) -> None:
    """Reads the metadata of three columns with pyarrow, which decodes the whole footer."""
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for column in range(TOUCHED):
            _ = metadata.row_group(group).column(column).total_compressed_size


def by_intarsia(path: Path) -> None:
    """Reads the metadata of three columns with Intarsia, which decodes only these columns."""
    for group in ia.ParquetFile(path).metadata.row_groups:
        for column in range(TOUCHED):
            _ = group.columns[column].meta_data.statistics


def seconds(action: Callable[[Path], None], path: Path) -> float:
    """Returns the wall time of one run in seconds."""
    start = time.perf_counter()
    action(path)
    return time.perf_counter() - start


def compare(path: Path, runs: int = RUNS) -> list[tuple[float, float]]:
    """Returns the wall times of each alternating run in seconds: pyarrow, Intarsia."""
    seconds(by_intarsia, path)
    return [(seconds(by_pyarrow, path), seconds(by_intarsia, path)) for _ in range(runs)]


def main() -> None:
    """Prints a line for each file; with ``--quickest``, the shortest times in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        for columns, row_groups in SHAPES:
            path = Path(folder) / f"{columns}.parquet"
            write(path, columns, row_groups)
            seconds_of_runs = compare(path)
            if "--quickest" in sys.argv[1:]:
                print(*(min(times) * 1000 for times in zip(*seconds_of_runs, strict=True)))
                continue
            theirs, ours = (
                statistics.median(times) * 1000 for times in zip(*seconds_of_runs, strict=True)
            )
            ratio = statistics.median(mine / other for other, mine in seconds_of_runs)
            print(
                f"{columns:5} columns x {row_groups} row groups: pyarrow {theirs:6.2f} ms, "
                f"Intarsia {ours:6.2f} ms, ratio {ratio:.1f}"
            )


if __name__ == "__main__":
    main()
