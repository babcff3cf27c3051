"""Conditions on attributes: the values of a map's keys, with an index of its entries and without.

``python benchmarks/attributes.py`` prints medians of alternating runs, in milliseconds, over files
of 1,000,000 spans with 8 attributes each, of which hardly a row has ``error.type``, and what the
index takes. All read by all cores; data sets are open. Every peer is beside its own door: pyarrow
and ``Dataset``, DuckDB and ``ia.sql``; ratios are ours to theirs.
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
from queries import ratio_of, rounds

import intarsia as ia

RUNS, ROWS = 9, 1_000_000
HOST, USER, POD, ERROR = "host", "user.id", "k8s.pod", "error.type"
OTHERS = ("http.route", "http.method", "net.peer", "sdk.version")


def value(key: str) -> pc.Expression:
    """The value of a key."""
    return pc.map_lookup(pc.field("attrs"), key, "first")


CONDITIONS = {
    f"attrs['{HOST}'] = 'host 7'": value(HOST) == "host 7",
    f"attrs['{USER}'] = 'u77777'": value(USER) == "u77777",
    f"attrs['{USER}'] IN ('u1', 'u22', 'u333')": value(USER).isin(["u1", "u22", "u333"]),
    f"attrs['{POD}'] LIKE '%abc%'": pc.match_like(value(POD), "%abc%"),
    f"attrs['{ERROR}'] = 'timeout'": value(ERROR) == "timeout",
    f"attrs['{ERROR}'] LIKE 't%'": pc.match_like(value(ERROR), "t%"),
}


def write(path: Path) -> None:
    """The file."""
    rng = np.random.default_rng(0)

    def drawn(texts: list[str]) -> pa.Array:
        return pa.array(texts).take(pa.array(rng.integers(0, len(texts), ROWS)))

    failed = rng.random(ROWS) < 1 / 50_000
    error = drawn(["timeout", "refused", "reset"]).filter(pa.array(failed))
    columns = {
        HOST: drawn([f"host {n}" for n in range(50)]),
        USER: drawn([f"u{n}" for n in range(300_000)]),
        POD: drawn([f"pod-{n:x}" for n in range(5_000)]),
        OTHERS[0]: drawn([f"/api/v1/route{n}" for n in range(300)]),
        OTHERS[1]: drawn(["GET", "POST", "PUT"]),
        OTHERS[2]: drawn([f"10.0.{n // 256}.{n % 256}" for n in range(65_536)]),
        OTHERS[3]: drawn(["1.27.0"]),
    }
    lengths = len(columns) + failed
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    keys = pa.array([*columns, ERROR])
    which = np.full(offsets[-1], len(columns))
    source = np.full(offsets[-1], -1)
    for number in range(len(columns)):
        which[offsets[:-1] + number] = number
        source[offsets[:-1] + number] = number * ROWS + np.arange(ROWS)
    source[which == len(columns)] = len(columns) * ROWS + np.arange(len(error))
    values = pa.concat_arrays([*columns.values(), error]).take(pa.array(source))
    maps = pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), keys.take(pa.array(which)), values
    )
    table = pa.table({"id": range(ROWS), "duration": rng.gamma(2, 30, ROWS), "attrs": maps})
    ia.write_table(table, path, row_group_size=250_000)


def compared(name: str, runs: dict[str, Callable[[], Any]]) -> str:
    """Medians of everyone's times, after a round that warms up, and ratios to their peers'."""
    found = rounds(runs, RUNS)
    cells = [f"{statistics.median(times):.1f}" for times in found.values()]
    pairs = (
        ("ours", "pyarrow"),
        ("ia.sql", "DuckDB"),
        ("index", "pyarrow"),
        ("sql index", "DuckDB"),
    )
    cells += [f"{ratio_of(found[own], found[peer]):.2f}" for own, peer in pairs]
    return f"| {name} | {' | '.join(cells)} |"


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """DuckDB's answer."""
    return connection.sql(query).to_arrow_table()


def main() -> None:
    """Print a table of conditions, and what the index takes."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        path, indexed = Path(folder, "spans.parquet"), Path(folder, "indexed.parquet")
        write(path)
        indexed.write_bytes(path.read_bytes())
        start = time.process_time()
        ia.add_indexes(indexed, "attrs:entries")
        seconds = time.process_time() - start
        peer, own, ours = pads.dataset(path), ia.dataset(path), ia.dataset(indexed)
        print("| ms | rows | pyarrow | `Dataset` | DuckDB | `ia.sql` | `Dataset`, index | ", end="")
        print("`ia.sql`, index | to pyarrow | to DuckDB | index to pyarrow | index to DuckDB |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
        columns = ["id", "duration"]
        for condition, filter_ in CONDITIONS.items():
            query = f"SELECT id, duration FROM {{}} WHERE {condition}"
            runs: dict[str, Callable[[], Any]] = {
                "pyarrow": partial(peer.to_table, columns, filter_),
                "ours": partial(own.to_table, columns, filter_),
                "DuckDB": partial(answer, connection, query.format(f"read_parquet('{path}')")),
                "ia.sql": partial(ia.sql, query.format("t"), t=own),
                "index": partial(ours.to_table, columns, filter_),
                "sql index": partial(ia.sql, query.format("t"), t=ours),
            }
            (count,) = {run().num_rows for run in runs.values()}
            print(compared(f"`{condition}` | {count:,}", runs))
        size, grown = path.stat().st_size, indexed.stat().st_size - path.stat().st_size
        print(f"\n{size / 1e6:.1f} MB, index {grown / 1e6:.1f} MB, made in {seconds:.1f} s of CPU")


if __name__ == "__main__":
    main()
