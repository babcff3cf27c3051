"""Computes what a petabyte of Parquet takes: files, tasks, memory, requests, time and money.

``python benchmarks/petabyte.py`` prints a table. Its options are the measured figures that it is
computed from: sizes by ``spark_catalog.py``, speed of indexing by ``spark_index.py``, planning by
``planning.py``, requests by ``tests/io_trace/test_s3.py``. Prices of requests are list prices of S3
Standard; the price of a core is that of a machine for general use, without a discount.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from intarsia.spark.catalog.build import MAX_DRIVER_KEYS

FILES_A_TASK = 256
"""Files whose facts one task of ``ias.build_catalog`` reads."""
NAMES_A_LISTING = 1000
"""Names that one request of S3 lists."""
SECONDS_A_DAY = 86_400


class Figures(NamedTuple):
    """The figures that the table is computed from; sizes are in bytes."""

    data: float = 1e15
    file: float = 512 * 2**20
    row: float = 100
    row_groups: float = 5
    """Row groups of a file."""
    identity: float = 84
    """Identity and bounds of a file in the catalog."""
    footer: float = 959
    """The footer of a file in the catalog."""
    key: float = 3.5
    """A key of a unique column in the catalog."""
    column_share: float = 0.35
    """The part of a file that the indexed column takes. Only that is read."""
    index_share: float = 0.035
    """The size of a sidecar with one lookup, as a part of the file."""
    index_speed: float = 90e6
    """The bytes of files that a core indexes in a second."""
    planning: float = 6.3e-6
    """Seconds a file that planning by a catalog takes."""
    lookup_requests: float = 5
    """Requests for one row of one file that is newly opened."""
    get_price: float = 0.4e-6
    """Dollars for a GET or HEAD."""
    put_price: float = 5e-6
    """Dollars for a PUT or LIST."""
    core_price: float = 0.05
    """Dollars for a core in an hour."""


def rows_of(figures: Figures) -> Iterator[tuple[str, str]]:
    """Yields the lines of the table."""
    files, rows = figures.data / figures.file, figures.data / figures.row
    yield "files, rows", f"{files / 1e6:.1f} M, {rows:.0e}"
    core_hours = figures.data / figures.index_speed / 3600
    yield (
        "one lookup added, sidecars",
        f"{core_hours:,.0f} core hours, ${core_hours * figures.core_price:,.0f}; "
        f"{figures.data * figures.column_share / 1e12:,.0f} TB read, "
        f"{figures.data * figures.index_share / 1e12:,.0f} TB written",
    )
    gets = files * (2 + figures.row_groups)  # the HEAD, the footer and each chunk
    yield (
        "its requests",
        f"{gets / 1e6:.1f} M GET, {files / 1e6:.1f} M PUT: "
        f"${gets * figures.get_price + files * figures.put_price:,.2f}",
    )
    yield "tasks that build a catalog", f"{files / FILES_A_TASK:,.0f}"
    yield (
        "catalog: identity and bounds, footers",
        f"{files * figures.identity / 1e9:.2f} GB, {files * figures.footer / 1e9:.1f} GB",
    )
    yield (
        "catalog: keys of a unique column",
        f"{rows * figures.key / 1e12:.0f} TB, {rows * figures.key / figures.data:.1%} of the data",
    )
    yield (
        "held by the driver that builds it",
        f"{(files * figures.identity + MAX_DRIVER_KEYS * 8) / 1e9:.2f} GB",
    )
    listing = files / NAMES_A_LISTING
    yield "opening: a listing", f"{listing:,.0f} requests, ${listing * figures.put_price:.4f}"
    yield "planning a query by the catalog", f"{files * figures.planning:.0f} s"
    yield "rows by chance of a query for one key", f"{rows / 2**32:,.0f}"
    a_day = figures.lookup_requests * figures.get_price * SECONDS_A_DAY
    yield "a query a second for a day, data set open", f"${a_day:.2f}"
    each = listing * figures.put_price * SECONDS_A_DAY
    yield "… opened for each query", f"${each + a_day:,.2f}"


def print_table(figures: Figures) -> None:
    """Prints the lines of the table as Markdown."""
    print("| | |\n|---|---|")
    for name, text in rows_of(figures):
        print(f"| {name} | {text} |")


def main() -> None:
    """Prints the table for the figures of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, value in Figures()._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=value)
    print_table(Figures(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
