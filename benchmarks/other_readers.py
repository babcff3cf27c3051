"""Measures the bytes that other readers read before and after a file gets standard indexes.

The data is a file of 1,000,000 rows in 10 row groups. A copy has page indexes and a bloom filter
on ``user``.

``python benchmarks/other_readers.py`` prints a line for each condition and reader: the bytes read
of both files, and their ratio. The bytes are those of the counters of DataFusion, DuckDB and
Spark. No time is measured.
"""

import json
import shutil
import tempfile
from pathlib import Path

import datafusion
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import intarsia as ia
import intarsia.spark as ias

ROWS = 1_000_000
ROW_GROUPS = 10
SEED = 1
RANGE = "id BETWEEN 500000 AND 500100"


def write(path: Path) -> int:
    """Writes the file without page indexes. Returns one of its ``user`` values."""
    rng = np.random.default_rng(SEED)
    users = rng.integers(0, 2**62, ROWS)
    table = pa.table({"id": np.arange(ROWS), "user": users, "x": rng.random(ROWS)})
    pq.write_table(
        table,
        path,
        row_group_size=ROWS // ROW_GROUPS,
        data_page_size=64 * 1024,
        use_dictionary=False,
        write_page_index=False,
    )
    return int(users[ROWS // 2])


def by_datafusion(path: Path, condition: str) -> int:
    """Returns the bytes that DataFusion's scan counts, without footer and indexes."""
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    context.register_parquet("t", str(path))
    plan = context.sql(f"SELECT * FROM t WHERE {condition}").execution_plan()
    for _ in context.execute(plan, 0):
        pass
    scans = [metrics for name, metrics in plan.collect_metrics() if "DataSourceExec" in name]
    return int(scans[0].sum_by_name("bytes_scanned"))


def by_duckdb(path: Path, condition: str) -> int:
    """Returns the bytes that DuckDB's profile counts."""
    profile = path.with_suffix(".json")
    with duckdb.connect() as connection:
        connection.execute("PRAGMA enable_profiling = 'json'")
        connection.execute(f"PRAGMA profiling_output = '{profile}'")
        connection.sql(f"SELECT * FROM read_parquet('{path}') WHERE {condition}").fetchall()
    return int(json.loads(profile.read_text())["io"]["total_bytes_read"])


class BySpark:
    """A function that runs a query in Spark and returns the bytes that Hadoop's counters report."""

    def __init__(self) -> None:
        self.spark = ias.session()

    def __call__(self, path: Path, condition: str) -> int:
        files = self.spark._jvm.org.apache.hadoop.fs.FileSystem
        before = sum(count.getBytesRead() for count in files.getAllStatistics())
        # Hadoop does not count the bytes of vectored reads.
        reader = self.spark.read.option("parquet.hadoop.vectored.io.enabled", "false")
        reader.parquet(str(path)).where(condition).collect()
        return sum(count.getBytesRead() for count in files.getAllStatistics()) - before


def main() -> None:
    """Prints a line for each reader and condition."""
    readers = {"DataFusion": by_datafusion, "DuckDB": by_duckdb, "Spark": BySpark()}
    with tempfile.TemporaryDirectory() as folder:
        plain, indexed = Path(folder) / "plain.parquet", Path(folder) / "indexed.parquet"
        user = write(plain)
        shutil.copyfile(plain, indexed)
        ia.add_indexes(indexed, [ia.PageIndex(), ia.Bloom("user")])
        sizes = plain.stat().st_size, indexed.stat().st_size
        print(f"file: {sizes[0]:,} bytes, {sizes[1]:,} with page indexes and bloom filters")
        for condition in (RANGE, f"user = {user}"):
            for name, reader in readers.items():
                before, after = reader(plain, condition), reader(indexed, condition)
                share = after / before
                print(f"{condition:32} {name:10} {before:12,} -> {after:10,} bytes ({share:.1%})")


if __name__ == "__main__":
    main()
