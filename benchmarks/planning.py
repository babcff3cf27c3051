"""Measures the processor time of planning many files whose footers are cached.

The data is a folder of 1,000 files (``--files``) of 500 rows each. A catalog has 100,000 files
(``--catalog``), which are links to these files.

``python benchmarks/planning.py`` prints a line for each query, with the median processor time in
milliseconds of all threads. *Footers* compares the statistics of all files. *Files left* makes the
candidate rows of each file that footers leave. *Catalog* leaves files out before any is opened.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import intarsia as ia
from intarsia.dataset.scan_plan import planned_request
from intarsia.scan.files.file_pruning import prune_files, prune_unopened

ROWS = 500


def write(folder: Path, files: int) -> None:
    """Writes files with a sorted column ``id``, and ``k`` with random values up to 1,000."""
    noise = np.random.default_rng(0)
    for number in range(files):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        table = pa.table({"id": ids, "k": noise.integers(0, 1000, ROWS)})
        pq.write_table(table, folder / f"{number:05}.parquet", write_page_index=True)


def median_ms(action: Callable[[], object], rounds: int) -> float:
    """Returns the median processor time of ``action`` in milliseconds, after one untimed run."""
    action()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return 1000 * statistics.median(times)


def measure(data: ia.Dataset, step: str, rounds: int) -> None:
    """Prints a line for each query of ``data``."""
    source = data.scan_source
    for filter_ in ("id = 7", "k = 7", "id < 100000 AND k = 7", "id IN (7, 70000)"):
        request = planned_request(source, None, filter_)

        def by_footers(request=request) -> int:
            return len([*prune_files(source.cache, source.files, request, by_footer=True)])

        def files_left(request=request) -> int:
            left = prune_files(source.cache, source.files, request, by_footer=True)
            plans = [file.part.plan(file.part.get().file, request) for file in left]
            return sum(bool(plan.rows) for plan in plans)

        def by_catalog(request=request) -> int:
            return len([*prune_unopened(source.cache, source.files, request)])

        actions = {"footers": by_footers, "files left": files_left, "catalog": by_catalog}
        for name, action in actions.items():
            if (name == "catalog") == (step == "catalog"):
                cost = median_ms(action, rounds)
                print(
                    f"| {name} | `{filter_}` | {len(source.files):,} | {action():,} | {cost:.1f} |"
                )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--catalog", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print("| step | filter | files | left | ms |\n|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as name:
        folder, links = Path(name) / "files", Path(name) / "links"
        folder.mkdir()
        write(folder, options.files)
        measure(ia.dataset(folder), "footers", options.rounds)
        if options.catalog:
            links.mkdir()
            paths = sorted(folder.iterdir())
            for number in range(options.catalog):
                os.link(paths[number % len(paths)], links / f"{number:06}.parquet")
            ia.build_catalog(links)
            measure(ia.dataset(links), "catalog", options.rounds)


if __name__ == "__main__":
    main()
