"""Compares queries of thousands of small files with pyarrow.dataset and DuckDB.

The data is a folder of 2,000 files (``--files``) of 500 log rows each (``--rows``), with page
indexes. The files are in the page cache.

``python benchmarks/many_files.py`` prints a line for each query. Cells are median wall times in
milliseconds of rounds in which each engine runs once, after one run that is not timed. Then come
the peers' times divided by ours, as medians of the rounds' own ratios. *Cold* opens the data set
for each run, so no footer is cached; *warm* reuses an open one. DuckDB caches footers only with
the setting ``parquet_metadata_cache``, which is on for warm runs.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

import intarsia as ia

Runner = Callable[[], int]


def tables(files: int, rows: int) -> Iterator[pa.Table]:
    """Yields tables of logs in time order: a sorted ``ts``, two random ids, three more columns."""
    noise = np.random.default_rng(0)
    for number in range(files):
        yield pa.table(
            {
                "ts": np.arange(number * rows, (number + 1) * rows),
                "trace_id": [noise.bytes(16).hex() for _ in range(rows)],
                "user_id": noise.integers(0, 1 << 40, rows),
                "status": noise.choice([200, 404, 500], rows).astype("int32"),
                "latency": noise.random(rows),
                "msg": [f"some words of text, number {i % 50}" for i in range(rows)],
            }
        )


def write(folder: Path, files: int, rows: int) -> None:
    """Writes one file for each of the ``tables``."""
    for number, table in enumerate(tables(files, rows)):
        path = folder / f"{number:05}.parquet"
        pq.write_table(table, path, compression="zstd", write_page_index=True)


def conditions(folder: Path, rows: int, files: int) -> dict[str, tuple[pc.Expression, str]]:
    """Returns conditions, for pyarrow and in SQL.

    They match one row that statistics can find, one that only values can find, and a third of the
    rows of each file.
    """
    user = pq.read_table(folder / f"{files // 2:05}.parquet").column("user_id")[rows // 3].as_py()
    ts = files * rows // 3
    return {
        "ts = …": (pc.field("ts") == ts, f"ts = {ts}"),
        "user_id = …": (pc.field("user_id") == user, f"user_id = {user}"),
        "status = …": (pc.field("status") == 404, "status = 404"),
    }


def runners(
    folder: Path, expression: pc.Expression, sql: str, count: bool
) -> dict[str, list[Runner]]:
    """Returns for each engine a cold and a warm run of the query."""

    def of_dataset(open_: Callable[[str], pads.Dataset]) -> list[Runner]:
        def run(data: pads.Dataset) -> int:
            if count:
                return data.count_rows(filter=expression)
            return data.to_table(filter=expression).num_rows

        warm = open_(str(folder))
        return [lambda: run(open_(str(folder))), lambda: run(warm)]

    def of_duckdb() -> list[Runner]:
        def run(connection: duckdb.DuckDBPyConnection) -> int:
            selection = "count(*)" if count else "*"
            answer = connection.sql(f"SELECT {selection} FROM '{folder}/*.parquet' WHERE {sql}")
            return answer.fetchall()[0][0] if count else answer.to_arrow_table().num_rows

        warm = duckdb.connect()
        warm.execute("SET parquet_metadata_cache = true")
        return [lambda: run(duckdb.connect()), lambda: run(warm)]

    return {
        "Intarsia": of_dataset(ia.dataset),
        "pyarrow": of_dataset(pads.dataset),
        "DuckDB": of_duckdb(),
    }


def seconds(run: Runner) -> float:
    """Returns the wall time of one run in seconds."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Prints a line for each query, cold and warm."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=500, help="of each file")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, options.files, options.rows)
        print("| ms | Intarsia | pyarrow | DuckDB | pyarrow / ours | DuckDB / ours |")
        print("|---|---:|---:|---:|---:|---:|")
        for name, (expression, sql) in conditions(folder, options.rows, options.files).items():
            for is_count in (False, True):
                engines = runners(folder, expression, sql, is_count)
                for warm in (0, 1):
                    compare(
                        f"{'count of ' if is_count else ''}`{name}`, {'warm' if warm else 'cold'}",
                        {engine: kinds[warm] for engine, kinds in engines.items()},
                        options.rounds,
                    )


def compare(label: str, engines: dict[str, Runner], rounds: int) -> None:
    """Checks that the engines agree, then measures them in turn and prints a line."""
    results = {engine: run() for engine, run in engines.items()}
    if len(set(results.values())) > 1 or not all(results.values()):
        raise SystemExit(f"{label}: {results}")
    times: dict[str, list[float]] = {engine: [] for engine in engines}
    for _ in range(rounds):
        for engine, run in engines.items():
            times[engine].append(seconds(run))
    cells = [f"{statistics.median(results) * 1e3:,.0f}" for results in times.values()]
    ours, *peers = times.values()
    for peer in peers:
        ratio = statistics.median(b / a for a, b in zip(ours, peer, strict=True))
        cells.append(f"{ratio:.1f}")
    print(f"| {label} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
