"""Queries of a Delta table: by Intarsia with a lookup, and by deltalake's own engine.

``python benchmarks/delta_table.py [FILES [ROWS]]`` prints medians of processor time, in ms. The
first measures are of tables that are opened anew, as programs do that ask one question.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "interop"))
import delta_log

import intarsia as ia

REPEATS = 5


def rows(number, count):
    """Returns the rows of one file. Keys are distinct in the whole table."""
    numbers = np.arange(number * count, (number + 1) * count)
    keys = pc.utf8_lpad(pa.array(numbers * 2654435761 % 2**32).cast(pa.string()), 10, "0")
    return pa.table(
        {
            "key": pc.binary_join_element_wise("k", keys, ""),
            "status": pa.array(np.where(numbers % 50 == 0, 500, 200)),
            "price": pa.array((numbers % 9973) / 7),
        }
    )


def table_of(path, files, count):
    """Writes a table of ``files`` files with ``count`` rows each. Returns a key in it."""
    settings = {"delta.enableDeletionVectors": "true"}
    for number in range(files):
        table = rows(number, count)
        first = settings if number == 0 else None
        deltalake.write_deltalake(path, table, mode="append", configuration=first)
    return table["key"][count // 2].as_py()


def median(*actions):
    """Returns the medians of the actions' processor times in ms, measured by turns."""
    times = [[] for _ in actions]
    for _ in range(REPEATS):
        for action, own in zip(actions, times, strict=True):
            start = time.process_time()
            action()
            own.append(1000 * (time.process_time() - start))
    return [statistics.median(own) for own in times]


def show(what, ours, theirs, name="deltalake"):
    """Prints two times and their ratio."""
    print(f"{what:48} {ours:9.1f} {theirs:9.1f}  {name}, {theirs / max(ours, 0.01):.1f} x")


def main(files=50, count=100_000):
    """Measures the queries of one table."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/table"
        key = table_of(path, files, count)
        ia.add_indexes(ia.delta(path), ["lookup(key)"])
        print(f"{files} files of {count:,} rows; ms of processor time: Intarsia, then the other")
        show("open", *median(lambda: ia.delta(path), lambda: DeltaTable(path).file_uris()))
        where = f"key = '{key}'"
        show(
            "open, point query by a lookup",
            *median(
                lambda: ia.delta(path).to_table(filter=where),
                lambda: pa.table(DeltaTable(path).scan(predicate=where)),
            ),
        )
        data, table = ia.delta(path), DeltaTable(path)
        show(
            "point query by a lookup",
            *median(
                lambda: data.to_table(filter=where), lambda: pa.table(table.scan(predicate=where))
            ),
        )
        show("scan", *median(data.to_table, lambda: pa.table(table.scan())))
        for file in [one["add"]["path"] for one in delta_log.actions(path) if "add" in one]:
            delta_log.delete_rows(path, file, [*range(0, count, 10)])
        deleted, table = ia.delta(path), DeltaTable(path)
        assert deleted.count_rows() == files * (count - count // 10)
        show(
            "scan, a tenth of the rows deleted",
            *median(deleted.to_table, lambda: pa.table(table.scan())),
        )
        show("scan, a tenth deleted, and none", *median(deleted.to_table, data.to_table), "none")
        show(
            "open, a tenth deleted",
            *median(lambda: ia.delta(path), lambda: pa.table(DeltaTable(path).deletion_vectors())),
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
