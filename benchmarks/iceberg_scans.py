"""Compares ``ia.iceberg`` with pyiceberg's own scan on a table of 50 files.

Keys are random, so that no bounds leave out a file. Each file has a `Lookup` of the key.

``python benchmarks/iceberg_scans.py`` prints for each case the median processor and wall time in
milliseconds of both, and their ratio. Runs alternate, and answers are compared before the clock
starts. ``--rows`` is the number of rows of a file, ``--files`` that of files, ``--runs`` that of
runs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from foreign_lakes import measure
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import intarsia as ia

KEY = pc.field("key") == "k0000077"


def write_table(folder: Path, files: int, rows: int) -> Table:
    """Returns a new table of these files, without indexes."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    random = np.random.default_rng(0)
    schema = pa.schema(
        [("id", pa.int64()), ("key", pa.string()), ("svc", pa.string()), ("x", pa.float64())]
    )
    table = catalog.create_table("n.t", schema=schema)
    for file in range(files):
        numbers = random.integers(0, files * rows, rows)
        columns = [
            np.arange(file * rows, (file + 1) * rows),
            texts("k", pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 7, "0")),
            texts("svc", pa.array(numbers % 20).cast(pa.string())),
            random.random(rows),
        ]
        table.append(pa.table(columns, schema=schema))
    return table


def texts(prefix: str, numbers: pa.Array) -> pa.Array:
    """Returns strings that begin with ``prefix``."""
    return pc.binary_join_element_wise(prefix, numbers, "")


def compare(name: str, theirs: Callable[[], Any], ours: Callable[[], Any], runs: int) -> None:
    """Prints the medians of both, and by how much ours is quicker."""
    assert theirs() == ours(), name
    pairs = [(measure(theirs), measure(ours)) for _ in range(runs)]
    processor, wall = (
        [[run[at] for run in side] for side in zip(*pairs, strict=True)] for at in (0, 1)
    )
    cells = [statistics.median(side) for kind in (processor, wall) for side in kind]
    print(
        f"{name:<34}" + "".join(f"{cell:>10.1f}" for cell in cells) + f"{cells[0] / cells[1]:>9.1f}"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=50)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = write_table(Path(folder), options.files, options.rows)
        ia.add_indexes(ia.iceberg(table), [ia.Lookup("key")])
        print(f"{'':<34}{'theirs ms':>10}{'ours ms':>10}{'wall':>10}{'wall':>10}{'ratio':>9}")
        compare(
            "open",
            lambda: len(list(table.scan().plan_files())),
            lambda: len(ia.iceberg(table).files),
            options.runs,
        )
        compare(
            "open, point query",
            lambda: table.scan(row_filter="key = 'k0000077'").to_arrow().num_rows,
            lambda: ia.iceberg(table).to_table(filter=KEY).num_rows,
            options.runs,
        )
        opened = ia.iceberg(table)
        compare(
            "point query",
            lambda: table.scan(row_filter="key = 'k0000077'").to_arrow().num_rows,
            lambda: opened.to_table(filter=KEY).num_rows,
            options.runs,
        )
        compare(
            "full scan",
            lambda: table.scan().to_arrow().num_rows,
            lambda: ia.iceberg(table).to_table().num_rows,
            options.runs,
        )


if __name__ == "__main__":
    main()
