"""Filters on files of many small row groups, and of many small columns, beside pyarrow.

``python benchmarks/small_groups.py`` prints medians of alternating runs and of their ratios, for
data sets that are open and for such as are opened anew. Both read by all cores.
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
    """Eight hundred row groups, as a writer makes them that is given few rows at a time."""
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
    """One row group of many columns."""
    rng = np.random.default_rng(2)
    numbers = {f"c{i}": rng.integers(0, 10**6, WIDE_ROWS) for i in range(1, WIDE_COLUMNS)}
    ia.write_table(pa.table({"c0": np.arange(WIDE_ROWS), **numbers}), path)


def seconds(opened: Callable[[], pads.Dataset], query: Query) -> float:
    """One run."""
    columns, wanted = query
    start = time.perf_counter()
    opened().to_table(columns, wanted)
    return time.perf_counter() - start


def compared(
    peer: Callable[[], pads.Dataset], ours: Callable[[], pads.Dataset], query: Query
) -> str:
    """Medians of both in milliseconds, and of the ratios, after a run that warms up."""
    columns, wanted = query
    assert peer().to_table(columns, wanted).equals(ours().to_table(columns, wanted))
    found = [(seconds(peer, query), seconds(ours, query)) for _ in range(RUNS)]
    medians = (statistics.median(times) * 1000 for times in zip(*found, strict=True))
    theirs, own = medians
    ratio = statistics.median(mine / other for other, mine in found)
    return f"{theirs:8.1f} {own:8.1f} {ratio:6.2f}"


def main() -> None:
    """Print a line a query: pyarrow's time, ours, and the ratio; then of files opened anew."""
    print(f"{'ms':42} {'pyarrow':>8} {'ours':>8} {'ratio':>6} {'anew':>10}")
    with tempfile.TemporaryDirectory() as folder:
        path, wide = Path(folder, "groups.parquet"), Path(folder, "wide.parquet")
        write(path)
        write_wide(wide)
        for file, queries in ((path, QUERIES), (wide, WIDE)):
            again = functools.partial(pads.dataset, file), functools.partial(ia.dataset, file)
            peer, ours = pads.dataset(file), ia.dataset(file)
            for name, query in queries.items():
                kept = compared(lambda held=peer: held, lambda held=ours: held, query)
                print(f"{name:42} {kept} {compared(*again, query)}")


if __name__ == "__main__":
    main()
