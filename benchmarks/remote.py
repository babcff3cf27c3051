"""Counts the requests to S3 of a lookup, and how many of them wait for one another.

The data is the table of ``logs.py`` in 20 files (``--files``) with a lookup index on ``trace_id``,
on moto's server on loopback. Each lookup asks for all columns of one row. A round trip is a request
that begins after the answer to another one: they add up in the time of a query.

``python benchmarks/remote.py`` prints a line for one file, and for all files by a catalog. *Cold*
opens the data set and looks up a key, *warm* looks up another key afterwards, and *again* the same
key. The goals apply to the catalog.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from logs import Tables
from queries import Table, markdown
from s3_server import Server, serve

import intarsia as ia

COLD, WARM, AGAIN = "cold", "warm", "again"
MOST = {COLD: 3, WARM: 1}
"""The goals for round trips of a lookup by a catalog."""
FOLDER = "lake/logs"


def write(server: Server, rows: int, files: int) -> list[str]:
    """Writes the files and their catalog. Returns two keys of each file."""
    keys = []
    for number, table in enumerate(Tables(rows, files)):
        path = f"{FOLDER}/{number:04}.parquet"
        ia.write_table(table, path, indexes=[ia.Lookup("trace_id")], filesystem=server.filesystem)
        keys += [table["trace_id"][row].as_py() for row in (0, -1)]
    ia.build_catalog(FOLDER, filesystem=server.filesystem)
    return keys


def count(server: Server, action: Callable[[], Any]) -> dict[str, Any]:
    """Returns the numbers of requests, round trips and bytes of an action that finds one row."""
    assert server.log(action).num_rows == 1
    began = sorted(server.requests, key=lambda request: request.start)
    return {
        "requests": len(server.requests),
        "round_trips": server.round_trips,
        "bytes": sum(request.received for request in server.requests),
        "log": [f"{request.method} {request.path} {request.range}" for request in began],
    }


def measure_path(server: Server, path: str, keys: list[str]) -> dict[str, dict[str, Any]]:
    """Returns the counts of a cold lookup, of one with another key, and of one with that again."""
    opened: list[ia.Dataset] = []

    def look_up(key: str) -> Any:
        if not opened:
            opened.append(ia.dataset(path, filesystem=server.filesystem))
        return opened[0].to_table(filter=f"trace_id = '{key}'")

    first, second = keys
    return {
        state: count(server, lambda key=key: look_up(key))
        for state, key in ((COLD, first), (WARM, second), (AGAIN, second))
    }


def measure(rows: int, files: int) -> list[dict[str, Any]]:
    """Returns the counts for one file and for a catalog, in each state."""
    with serve() as server:
        keys = write(server, rows, files)
        one_file = measure_path(server, f"{FOLDER}/0000.parquet", keys[:2])
        catalog = measure_path(server, FOLDER, [keys[0], keys[-1]])
    lines = [{"data": "one file", "state": state, **line} for state, line in one_file.items()]
    for state, line in catalog.items():
        goal = {"goal": MOST[state]} if state in MOST else {}
        lines.append({"data": f"{files} files, catalog", "state": state, **line, **goal})
    return lines


def table_of(lines: list[dict[str, Any]]) -> Table:
    """Returns the counts as a table."""
    table = [["", "", "requests", "round trips", "goal", "bytes"]]
    for line in lines:
        trips, most = line["round_trips"], line.get("goal")
        goal = f"{most}: {'met' if trips <= most else 'missed'}" if most else ""
        counts = [f"{line['requests']:,}", f"{trips:,}", goal, f"{line['bytes']:,}"]
        table.append([line["data"], line["state"], *counts])
    return table


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--log", action="store_true", help="also print each request")
    options = parser.parse_args()
    lines = measure(options.rows, options.files)
    print(markdown(table_of(lines)))
    for line in lines if options.log else ():
        print(f"\n{line['data']}, {line['state']}", *line["log"], sep="\n  ")


if __name__ == "__main__":
    main()
