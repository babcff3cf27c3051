"""Measures the processor time of planning many files whose footers are cached, and calls.

The data is a folder of 1,000 files (``--files``) of 500 rows each. A catalog has 100,000 files
(``--catalog``), which are links to these files.

``python benchmarks/planning.py`` prints a line for each query, with the median processor time in
milliseconds of all threads. *Footers* compares the statistics of all files. *Files left* makes the
candidate rows of each file that footers leave. *Catalog* leaves files out before any is opened.

A second table counts what a repeated ``to_table`` calls in the caller's thread: calls of Intarsia's
functions, those from one module to another, different functions, and modules.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import intarsia as ia
from intarsia.dataset.scan_plan import planned_request
from intarsia.scan.files.file_pruning import prune_files, prune_unopened

ROWS = 500
SOURCE = str(Path(ia.__file__).parent)


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


def count_calls(name: str, data: ia.Dataset, filter_: pc.Expression) -> None:
    """Prints a line about the calls of a repeated query of ``data``."""
    calls, between_modules = Counter[tuple[str, str]](), 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal between_modules
        module, caller = frame.f_code.co_filename, frame.f_back
        if event == "call" and module.startswith(SOURCE):
            calls[module, frame.f_code.co_qualname] += 1
            from_module = caller.f_code.co_filename if caller else ""
            between_modules += from_module.startswith(SOURCE) and from_module != module

    for _ in range(2):
        data.to_table(filter=filter_)
    sys.setprofile(count)
    try:
        data.to_table(filter=filter_)
    finally:
        sys.setprofile(None)
    modules = {module for module, _ in calls}
    print(
        f"| {name} | `{filter_}` | {calls.total():,} | {between_modules:,} | {len(calls):,} "
        f"| {len(modules):,} |"
    )


def count_all_calls(folder: Path) -> None:
    """Prints the second table, of an indexed file and of 40 small files below ``folder``."""
    indexed, small = folder / "indexed", folder / "small"
    indexed.mkdir()
    small.mkdir()
    table = pa.table({"id": np.random.default_rng(0).permutation(200_000)})
    ia.write_table(table, indexed / "a.parquet", indexes=[ia.Lookup("id")])
    write(small, 40)
    print("\n| files | filter | calls | between modules | functions | modules |")
    print("|---|---|---:|---:|---:|---:|")
    count_calls("1, indexed", ia.dataset(indexed), pc.field("id") == 777)
    for column in ("id", "k"):
        count_calls("40", ia.dataset(small), pc.field(column) == 7)


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
        count_all_calls(Path(name))


if __name__ == "__main__":
    main()
