"""Compares filters on the values of a map's keys, with and without an index of map entries.

The data is a file of 1,000,000 spans with 8 attributes each. About 1 span in 50,000 has the
attribute ``error.type`` too. A copy of the file has the index ``attrs:entries``.

``python benchmarks/attributes.py`` prints a line for each condition: the number of matching rows,
then the median wall time in milliseconds of each reader. The readers run in a random order in
each of 9 rounds, after one round that is not counted. The ratios are our time divided by the
peer's: ``Dataset`` is compared with pyarrow, ``ia.sql`` with DuckDB. All readers use all cores,
and data sets are opened beforehand. The last line has the sizes of file and index in MB, and the
processor time of the build in seconds.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from queries import median_ratio, time_rounds

import intarsia as ia

RUNS, ROWS = 9, 1_000_000
HOST, USER, POD, ERROR = "host", "user.id", "k8s.pod", "error.type"
OTHERS = ("http.route", "http.method", "net.peer", "sdk.version")


def value(key: str) -> pc.Expression:
    """Returns the expression for the value of a key."""
    return pc.map_lookup(pc.field("attrs"), key, "first")


CONDITIONS = {
    f"attrs['{HOST}'] = 'host 7'": value(HOST) == "host 7",
    f"attrs['{USER}'] = 'u77777'": value(USER) == "u77777",
    f"attrs['{USER}'] IN ('u1', 'u22', 'u333')": value(USER).isin(["u1", "u22", "u333"]),
    f"attrs['{POD}'] LIKE '%abc%'": pc.match_like(value(POD), "%abc%"),
    f"attrs['{ERROR}'] = 'timeout'": value(ERROR) == "timeout",
    f"attrs['{ERROR}'] LIKE 't%'": pc.match_like(value(ERROR), "t%"),
}


def table_of(rows: int) -> pa.Table:
    """Returns the table of spans."""
    rng = np.random.default_rng(0)

    def draw(choices: list[str]) -> pa.Array:
        return pa.array(choices).take(pa.array(rng.integers(0, len(choices), rows)))

    failed = rng.random(rows) < 1 / 50_000
    error = draw(["timeout", "refused", "reset"]).filter(pa.array(failed))
    columns = {
        HOST: draw([f"host {n}" for n in range(50)]),
        USER: draw([f"u{n}" for n in range(300_000)]),
        POD: draw([f"pod-{n:x}" for n in range(5_000)]),
        OTHERS[0]: draw([f"/api/v1/route{n}" for n in range(300)]),
        OTHERS[1]: draw(["GET", "POST", "PUT"]),
        OTHERS[2]: draw([f"10.0.{n // 256}.{n % 256}" for n in range(65_536)]),
        OTHERS[3]: draw(["1.27.0"]),
    }
    lengths = len(columns) + failed
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    keys = pa.array([*columns, ERROR])
    key_numbers = np.full(offsets[-1], len(columns))
    value_rows = np.full(offsets[-1], -1)
    for number in range(len(columns)):
        key_numbers[offsets[:-1] + number] = number
        value_rows[offsets[:-1] + number] = number * rows + np.arange(rows)
    value_rows[key_numbers == len(columns)] = len(columns) * rows + np.arange(len(error))
    values = pa.concat_arrays([*columns.values(), error]).take(pa.array(value_rows))
    maps = pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), keys.take(pa.array(key_numbers)), values
    )
    return pa.table({"id": range(rows), "duration": rng.gamma(2, 30, rows), "attrs": maps})


def compare(name: str, runs: dict[str, Callable[[], Any]]) -> str:
    """Returns a line of the table: median wall times in ms, then the ratios to the peers."""
    times = time_rounds(runs, RUNS)
    cells = [f"{statistics.median(one):.1f}" for one in times.values()]
    pairs = (
        ("ours", "pyarrow"),
        ("ia.sql", "DuckDB"),
        ("index", "pyarrow"),
        ("sql index", "DuckDB"),
    )
    cells += [f"{median_ratio(times[own], times[peer]):.2f}" for own, peer in pairs]
    return f"| {name} | {' | '.join(cells)} |"


def run_duckdb(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """Runs a query in DuckDB."""
    return connection.sql(query).to_arrow_table()


def main() -> None:
    """Prints the table of conditions, then the size and the build time of the index."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        path, indexed = Path(folder, "spans.parquet"), Path(folder, "indexed.parquet")
        ia.write_table(table_of(ROWS), path, row_group_size=250_000)
        indexed.write_bytes(path.read_bytes())
        start = time.process_time()
        ia.add_indexes(indexed, "attrs:entries")
        seconds = time.process_time() - start
        pyarrow_data, plain_data, indexed_data = (
            pads.dataset(path),
            ia.dataset(path),
            ia.dataset(indexed),
        )
        print("| ms | rows | pyarrow | `Dataset` | DuckDB | `ia.sql` | `Dataset`, index | ", end="")
        print("`ia.sql`, index | to pyarrow | to DuckDB | index to pyarrow | index to DuckDB |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
        columns = ["id", "duration"]
        for condition, filter_ in CONDITIONS.items():
            query = f"SELECT id, duration FROM {{}} WHERE {condition}"
            runs: dict[str, Callable[[], Any]] = {
                "pyarrow": partial(pyarrow_data.to_table, columns, filter_),
                "ours": partial(plain_data.to_table, columns, filter_),
                "DuckDB": partial(run_duckdb, connection, query.format(f"read_parquet('{path}')")),
                "ia.sql": partial(ia.sql, query.format("t"), t=plain_data),
                "index": partial(indexed_data.to_table, columns, filter_),
                "sql index": partial(ia.sql, query.format("t"), t=indexed_data),
            }
            (count,) = {run().num_rows for run in runs.values()}
            print(compare(f"`{condition}` | {count:,}", runs))
        size, added = path.stat().st_size, indexed.stat().st_size - path.stat().st_size
        print(f"\n{size / 1e6:.1f} MB, index {added / 1e6:.1f} MB, made in {seconds:.1f} s of CPU")


if __name__ == "__main__":
    main()
