"""Compares filters on files of many small row groups, and of many small columns, with pyarrow.

One file has 2,000,000 rows in 800 row groups. The other has one row group of 20,000 rows with
1,000 columns.

``python benchmarks/small_groups.py`` prints a line for each query: median wall times in
milliseconds of 11 alternating runs, and the median ratio of our time to pyarrow's. The first
three columns use data sets that are open; the next three open the data set in each run. Both
readers use all cores.
"""

import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

import intarsia as ia

RUNS = 11
ROWS, GROUP = 2_000_000, 2_500
WIDE_ROWS, WIDE_COLUMNS = 20_000, 1_000
Query = tuple[list[str] | None, pc.Expression]
HALF = pc.field("at") >= ROWS // 2
QUERIES: dict[str, Query] = {
    "half of the rows, all columns": (None, HALF),
    "half of the rows, one column": (["key"], HALF),
    "one row in two, by a column in no order": (["number"], pc.field("key") < 500),
    "one row in a thousand, all columns": (None, pc.field("key") == 7),
}
WIDE: dict[str, Query] = {"all columns but a row": (None, pc.field("c0") > 0)}


def write(path: Path) -> None:
    """Writes 800 row groups, as writers make them that receive few rows at a time."""
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "at": np.arange(ROWS),
            "key": rng.integers(0, 1000, ROWS),
            "number": rng.random(ROWS),
            "code": rng.integers(0, 10, ROWS).astype("U1"),
            "size": rng.integers(0, 10**9, ROWS),
            "text": [f"message {i % 977}" for i in range(ROWS)],
        }
    )
    ia.write_table(table, path, row_group_size=GROUP)


def write_wide(path: Path) -> None:
    """Writes one row group of many columns."""
    rng = np.random.default_rng(2)
    numbers = {f"c{i}": rng.integers(0, 10**6, WIDE_ROWS) for i in range(1, WIDE_COLUMNS)}
    ia.write_table(pa.table({"c0": np.arange(WIDE_ROWS), **numbers}), path)


def seconds(open_data: Callable[[], pads.Dataset], query: Query) -> float:
    """Returns the wall time of one run in seconds."""
    columns, filter_ = query
    start = time.perf_counter()
    open_data().to_table(columns, filter_)
    return time.perf_counter() - start


def compare(
    peer: Callable[[], pads.Dataset], ours: Callable[[], pads.Dataset], query: Query
) -> str:
    """Returns median wall times of both in ms, and their ratio. The answers are compared first."""
    columns, filter_ = query
    assert peer().to_table(columns, filter_).equals(ours().to_table(columns, filter_))
    seconds_of_runs = [(seconds(peer, query), seconds(ours, query)) for _ in range(RUNS)]
    medians = (statistics.median(times) * 1000 for times in zip(*seconds_of_runs, strict=True))
    peer_ms, ours_ms = medians
    ratio = statistics.median(mine / other for other, mine in seconds_of_runs)
    return f"{peer_ms:8.1f} {ours_ms:8.1f} {ratio:6.2f}"


def main() -> None:
    """Prints a line for each query: times and ratio on open data sets, then with opening."""
    print(f"{'ms':42} {'pyarrow':>8} {'ours':>8} {'ratio':>6} {'anew':>10}")
    with tempfile.TemporaryDirectory() as folder:
        path, wide = Path(folder, "groups.parquet"), Path(folder, "wide.parquet")
        write(path)
        write_wide(wide)
        for file, queries in ((path, QUERIES), (wide, WIDE)):
            openers = functools.partial(pads.dataset, file), functools.partial(ia.dataset, file)
            peer, ours = pads.dataset(file), ia.dataset(file)
            for name, query in queries.items():
                cells = compare(lambda data=peer: data, lambda data=ours: data, query)
                print(f"{name:42} {cells} {compare(*openers, query)}")


if __name__ == "__main__":
    main()
