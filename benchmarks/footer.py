"""Opening a file and looking at the metadata of three columns, beside pyarrow.

``python benchmarks/footer.py`` prints medians of alternating runs and of their ratios.
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
"""Columns and row groups."""


def write(path: Path, columns: int, row_groups: int) -> None:
    """A file of that shape, 100 rows a row group, with page indexes."""
    table = pa.table({f"column_{i:04d}": np.arange(100 * row_groups) for i in range(columns)})
    pq.write_table(table, path, row_group_size=100, write_page_index=True)


def by_pyarrow(path: Path) -> None:
    """pyarrow decodes the whole footer."""
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for column in range(TOUCHED):
            _ = metadata.row_group(group).column(column).total_compressed_size


def by_intarsia(path: Path) -> None:
    """What is not asked for is not decoded."""
    for group in ia.ParquetFile(path).metadata.row_groups:
        for column in range(TOUCHED):
            _ = group.columns[column].meta_data.statistics


def seconds(action: Callable[[Path], None], path: Path) -> float:
    """One run."""
    start = time.perf_counter()
    action(path)
    return time.perf_counter() - start


def compare(path: Path, runs: int = RUNS) -> list[tuple[float, float]]:
    """Seconds of each alternating run: pyarrow, Intarsia."""
    seconds(by_intarsia, path)
    return [(seconds(by_pyarrow, path), seconds(by_intarsia, path)) for _ in range(runs)]


def main() -> None:
    """Print a line a shape; for ``--quickest``, milliseconds of each one's quickest run alone."""
    with tempfile.TemporaryDirectory() as folder:
        for columns, row_groups in SHAPES:
            path = Path(folder) / f"{columns}.parquet"
            write(path, columns, row_groups)
            found = compare(path)
            if "--quickest" in sys.argv[1:]:
                print(*(min(times) * 1000 for times in zip(*found, strict=True)))
                continue
            theirs, ours = (statistics.median(times) * 1000 for times in zip(*found, strict=True))
            ratio = statistics.median(mine / other for other, mine in found)
            print(
                f"{columns:5} columns x {row_groups} row groups: pyarrow {theirs:6.2f} ms, "
                f"Intarsia {ours:6.2f} ms, ratio {ratio:.1f}"
            )


if __name__ == "__main__":
    main()
