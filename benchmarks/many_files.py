"""Questions asked of thousands of small files, beside pyarrow.dataset and DuckDB.

``python benchmarks/many_files.py --files 2000`` prints medians of alternating rounds, and how many
times as long as Intarsia each peer took, as the median of the rounds' own ratios. *Cold* opens the
data set anew, so that no footer is known; *warm* asks the same open one again. Files are in the
page cache. DuckDB keeps footers where it is told to (``parquet_metadata_cache``), for warm ones.
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

Ask = Callable[[], int]


def tables(files: int, rows: int) -> Iterator[pa.Table]:
    """Logs in the order of time: a sorted ``ts``, two random ids, and three more columns."""
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
    """A file of each of the ``tables``."""
    for number, table in enumerate(tables(files, rows)):
        path = folder / f"{number:05}.parquet"
        pq.write_table(table, path, compression="zstd", write_page_index=True)


def questions(folder: Path, rows: int, files: int) -> dict[str, tuple[pc.Expression, str]]:
    """Conditions, for pyarrow and in SQL: one row told by statistics, one by values alone, and a
    third of the rows of every file.
    """
    user = pq.read_table(folder / f"{files // 2:05}.parquet").column("user_id")[rows // 3].as_py()
    ts = files * rows // 3
    return {
        "ts = …": (pc.field("ts") == ts, f"ts = {ts}"),
        "user_id = …": (pc.field("user_id") == user, f"user_id = {user}"),
        "status = …": (pc.field("status") == 404, "status = 404"),
    }


def asks(folder: Path, expression: pc.Expression, sql: str, count: bool) -> dict[str, list[Ask]]:
    """For each engine a cold and a warm question."""

    def of_dataset(open_: Callable[[str], pads.Dataset]) -> list[Ask]:
        def ask(data: pads.Dataset) -> int:
            if count:
                return data.count_rows(filter=expression)
            return data.to_table(filter=expression).num_rows

        known = open_(str(folder))
        return [lambda: ask(open_(str(folder))), lambda: ask(known)]

    def of_duckdb() -> list[Ask]:
        def ask(connection: duckdb.DuckDBPyConnection) -> int:
            what = "count(*)" if count else "*"
            answer = connection.sql(f"SELECT {what} FROM '{folder}/*.parquet' WHERE {sql}")
            return answer.fetchall()[0][0] if count else answer.to_arrow_table().num_rows

        known = duckdb.connect()
        known.execute("SET parquet_metadata_cache = true")
        return [lambda: ask(duckdb.connect()), lambda: ask(known)]

    return {
        "Intarsia": of_dataset(ia.dataset),
        "pyarrow": of_dataset(pads.dataset),
        "DuckDB": of_duckdb(),
    }


def seconds(ask: Ask) -> float:
    """What one run takes."""
    start = time.perf_counter()
    ask()
    return time.perf_counter() - start


def main() -> None:
    """Print a line for each question, cold and warm."""
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
        for name, (expression, sql) in questions(folder, options.rows, options.files).items():
            for is_count in (False, True):
                engines = asks(folder, expression, sql, is_count)
                for warm in (0, 1):
                    compare(
                        f"{'count of ' if is_count else ''}`{name}`, {'warm' if warm else 'cold'}",
                        {engine: kinds[warm] for engine, kinds in engines.items()},
                        options.rounds,
                    )


def compare(what: str, engines: dict[str, Ask], rounds: int) -> None:
    """Ask all of them in turn, first without looking at the clock: they have to agree."""
    found = {engine: ask() for engine, ask in engines.items()}
    if len(set(found.values())) > 1 or not all(found.values()):
        raise SystemExit(f"{what}: {found}")
    times: dict[str, list[float]] = {engine: [] for engine in engines}
    for _ in range(rounds):
        for engine, ask in engines.items():
            times[engine].append(seconds(ask))
    cells = [f"{statistics.median(found) * 1e3:,.0f}" for found in times.values()]
    ours, *peers = times.values()
    for peer in peers:
        ratio = statistics.median(b / a for a, b in zip(ours, peer, strict=True))
        cells.append(f"{ratio:.1f}")
    print(f"| {what} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
