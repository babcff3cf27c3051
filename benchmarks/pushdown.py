"""Shows which predicates reach a data set from each engine, and what the scan then reads.

The data is a file of 20,000 rows in pages of 500, made from a fixed seed in each run. Each engine
runs each query once on ``ia.dataset``.

``python benchmarks/pushdown.py`` prints the tables of ``docs/reference/pushdown.md``; ``--write``
writes them there. A cell says if a filter reached the data set, then the rows and bytes of the
pages that the scan reads. No time is measured.
"""

from __future__ import annotations

import argparse
import datetime
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs

import intarsia as ia

ROWS = 20_000
PAGE_ROWS = 500
DOCS = Path(__file__).parents[1] / "docs/reference/pushdown.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
ENGINES = ("ia.sql", "ia.polars.scan", "DuckDB", "Polars", "DataFusion")
c = pl.col


@dataclass(frozen=True)
class Predicate:
    """One predicate in SQL and for Polars, and in DataFusion's SQL if that differs."""

    sql: str
    polars: pl.Expr
    datafusion: str = ""

    @property
    def label(self) -> str:
        """The predicate's name in the table."""
        return self.sql

    def query(self, *, datafusion: bool = False) -> str:
        """Returns the SQL query."""
        condition = self.datafusion if datafusion and self.datafusion else self.sql
        return f"SELECT payload FROM t WHERE {condition}"

    def lazy(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Returns the query in Polars."""
        return frame.filter(self.polars).select("payload")


@dataclass(frozen=True)
class Shape:
    """A query that filters the result of a join, a union or the like; ``label`` names it."""

    label: str
    sql: str
    polars: Callable[[pl.LazyFrame], pl.LazyFrame]

    def query(self, *, datafusion: bool = False) -> str:
        """Returns the SQL query."""
        return self.sql

    def lazy(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Returns the query in Polars."""
        return self.polars(frame)


PREDICATES = (
    Predicate("id = 7777", c("id") == 7777),
    Predicate("id IN (7, 7777)", c("id").is_in([7, 7777])),
    Predicate("id IN (7, NULL)", c("id").is_in([7, None])),
    Predicate("id BETWEEN 70 AND 77", c("id").is_between(70, 77)),
    Predicate("id < 7 OR id > 19990", (c("id") < 7) | (c("id") > 19990)),
    Predicate("id IS NOT DISTINCT FROM 7", c("id").eq_missing(7)),
    Predicate("NOT (id >= 7)", ~(c("id") >= 7)),
    Predicate("x > 9998.5", c("x") > 9998.5),
    Predicate("money = 77.77", c("money") == Decimal("77.77")),
    Predicate("day = '2020-01-10'", c("day") == datetime.date(2020, 1, 10)),
    Predicate("ts < '2020-01-01 01:00:00'", c("ts") < datetime.datetime(2020, 1, 1, 1)),
    Predicate(
        "tz < '2020-01-01 01:00:00+00'",
        c("tz") < datetime.datetime(2020, 1, 1, 1, tzinfo=datetime.UTC),
    ),
    Predicate(
        "ts < TIMESTAMPTZ '2020-01-01 00:00:00+00' + INTERVAL '1 hour'",
        c("ts") < datetime.datetime(2020, 1, 1) + datetime.timedelta(hours=1),
        "ts < TIMESTAMP '2020-01-01 00:00:00' + INTERVAL '1 hour'",
    ),
    Predicate("ts::DATE = '2020-01-10'", c("ts").dt.date() == datetime.date(2020, 1, 10)),
    Predicate(
        "date_trunc('day', ts) = '2020-01-10'",
        c("ts").dt.truncate("1d") == datetime.datetime(2020, 1, 10),
    ),
    Predicate(
        "year(ts) = 2019 OR year(day) = 2021",
        (c("ts").dt.year() == 2019) | (c("day").dt.year() == 2021),
        "extract(year FROM ts) = 2019 OR extract(year FROM day) = 2021",
    ),
    Predicate("id::DOUBLE = 7.0", c("id").cast(pl.Float64) == 7.0),
    Predicate("gap IS NOT NULL", c("gap").is_not_null()),
    Predicate("s = 'k07777'", c("s") == "k07777"),
    Predicate("s LIKE 'k0777%'", c("s").str.starts_with("k0777")),
    Predicate("s LIKE 'k07' || '77%'", c("s").str.starts_with(pl.lit("k07") + "77")),
    Predicate("starts_with(s, 'k0777')", c("s").str.starts_with("k0777")),
    Predicate("s LIKE '%7777'", c("s").str.ends_with("7777")),
    Predicate(
        "contains(s, '7777')", c("s").str.contains("7777", literal=True), "strpos(s, '7777') > 0"
    ),
    Predicate("regexp_matches(s, '7{4}')", c("s").str.contains("7{4}"), "regexp_like(s, '7{4}')"),
    Predicate("lower(s) = 'k07777'", c("s").str.to_lowercase() == "k07777"),
    Predicate("length(s) = 5", c("s").str.len_chars() == 5),
    Predicate("st.a = 7777", c("st").struct.field("a") == 7777, "st['a'] = 7777"),
    Predicate(
        "regexp_matches(s, '^k0(77)+$')", c("s").str.contains("^k0(77)+$"), "s ~ '^k0(77)+$'"
    ),
    Predicate("s SIMILAR TO 'k0(7+)'", c("s").str.contains("^k0(7+)$"), "s ~ '^k0(7+)$'"),
    Predicate("list_contains(l, 7777)", c("l").list.contains(7777), "array_has(l, 7777)"),
    Predicate("7777 = ANY(l)", pl.lit(7777).is_in(c("l")), "7777 = ANY(l)"),
    Predicate(
        "list_has_any(l, [7, 7777])",
        c("l").list.contains(7) | c("l").list.contains(7777),
        "array_has_any(l, [7, 7777])",
    ),
    Predicate("small::BIGINT = 77", c("small").cast(pl.Int64) == 77),
    Predicate("id + 1 = 7778", c("id") + 1 == 7778),
    Predicate("coalesce(gap, 0) = 7000", c("gap").fill_null(0) == 7000),
)
STARTS = c("s").str.starts_with("k0777")
SHAPES = (
    Shape(
        "on a UNION ALL",
        "SELECT payload FROM (SELECT s, payload FROM t UNION ALL SELECT s, payload FROM t) "
        "AS u WHERE s LIKE 'k0777%'",
        lambda t: pl.concat([t, t]).filter(STARTS).select("payload"),
    ),
    Shape(
        "on DISTINCT rows",
        "SELECT id FROM (SELECT DISTINCT id, s FROM t) AS u WHERE s LIKE 'k0777%'",
        lambda t: t.select("id", "s").unique().filter(STARTS).select("id"),
    ),
    Shape(
        "on a grouping key",
        "SELECT n FROM (SELECT s, count(*) AS n FROM t GROUP BY s) AS u WHERE s LIKE 'k0777%'",
        lambda t: t.group_by("s").len("n").filter(STARTS).select("n"),
    ),
    Shape(
        "HAVING on a grouping key",
        "SELECT s, count(*) FROM t GROUP BY s HAVING s LIKE 'k0777%'",
        lambda t: t.group_by("s").len("n").filter(STARTS),
    ),
    Shape(
        "on partitions of a window",
        "SELECT n FROM (SELECT s, row_number() OVER (PARTITION BY s ORDER BY id) AS n "
        "FROM t) AS u WHERE s LIKE 'k0777%'",
        lambda t: t.select("s", n=c("id").rank().over("s")).filter(STARTS).select("n"),
    ),
    Shape(
        "on each use of a WITH",
        "WITH r AS (SELECT s, payload FROM t) SELECT payload FROM r WHERE s LIKE 'k0777%' "
        "UNION ALL SELECT payload FROM r WHERE s LIKE 'k01%'",
        lambda t: pl.concat([t.filter(STARTS), t.filter(c("s").str.starts_with("k01"))]).select(
            "payload"
        ),
    ),
    Shape(
        "on the other side of a join",
        "SELECT o.payload FROM t JOIN t AS o ON t.s = o.s WHERE t.s LIKE 'k0777%'",
        lambda t: t.join(t, on="s").filter(STARTS).select("payload_right"),
    ),
    Shape(
        "keys of the other side of a join",
        "SELECT t.payload FROM t JOIN t AS o ON t.s = o.s WHERE o.id BETWEEN 7770 AND 7779",
        lambda t: t.join(t.filter(c("id").is_between(7770, 7779)), on="s").select("payload"),
    ),
    Shape(
        "IN a subquery",
        "SELECT payload FROM t WHERE s IN (SELECT s FROM t AS o WHERE id BETWEEN 7770 AND 7779)",
        lambda t: t.join(t.filter(c("id").is_between(7770, 7779)), on="s", how="semi").select(
            "payload"
        ),
    ),
)


def write(path: Path) -> None:
    """Writes ``ROWS`` rows in pages of ``PAGE_ROWS``, sorted by most columns."""
    number = np.arange(ROWS)
    noise = np.random.default_rng(1)
    micros = 1_577_836_800_000_000 + number * 120_000_000
    table = pa.table(
        {
            "id": number,
            "x": number / 2,
            "money": pa.array(
                [Decimal(n).scaleb(-2) for n in number.tolist()], pa.decimal128(9, 2)
            ),
            "day": pa.array(micros // 86_400_000_000, pa.int64())
            .cast(pa.int32())
            .cast(pa.date32()),
            "ts": pa.array(micros, pa.timestamp("us")),
            "tz": pa.array(micros, pa.timestamp("us", "UTC")),
            "gap": pa.array(number, mask=(number % 1000 != 0)),
            "small": pa.array(number // 200, pa.int8()),
            "s": [f"k{n:05}" for n in number.tolist()],
            "st": pa.array([{"a": n} for n in number.tolist()]),
            "l": pa.array([[n] for n in number.tolist()]),
            "payload": [noise.bytes(40).hex() for _ in range(ROWS)],
        }
    )
    ia.write_table(
        table,
        path,
        max_rows_per_page=PAGE_ROWS,
        write_batch_size=PAGE_ROWS,
        row_group_size=ROWS // 4,
    )


def _duckdb(data: ia.Dataset, case: Predicate | Shape) -> int:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", data)
        return len(connection.sql(case.query()).to_arrow_table())


def _sql(data: ia.Dataset, case: Predicate | Shape) -> int:
    return len(ia.sql(case.query(), t=data))


def _scan(data: ia.Dataset, case: Predicate | Shape) -> int:
    return case.lazy(ia.polars.scan(data)).collect().height


def _polars(data: ia.Dataset, case: Predicate | Shape) -> int:
    return case.lazy(pl.scan_pyarrow_dataset(data)).collect().height


def _datafusion(data: ia.Dataset, case: Predicate | Shape) -> int:
    context = datafusion.SessionContext()
    context.register_dataset("t", data)
    return len(context.sql(case.query(datafusion=True)).to_arrow_table())


RUNNERS: dict[str, Callable[[ia.Dataset, Predicate | Shape], int]] = dict(
    zip(ENGINES, (_sql, _scan, _duckdb, _polars, _datafusion), strict=True)
)


@dataclass(frozen=True)
class Reading:
    """The rows and bytes of one engine's scans, and the number of rows in its answer."""

    has_filter: bool
    rows: int
    answer: int
    bytes: int


@contextmanager
def _record_scans() -> Iterator[list[tuple[Any, Any]]]:
    """Records columns and filter of each scan that is started in the block."""
    scans: list[tuple[Any, Any]] = []
    original_scan = ia.Dataset._scan

    def recording_scan(
        self: ia.Dataset, columns: Any, filter_: Any, options: Any, **others: Any
    ) -> Any:
        combined_filter = self.scan_source.filter_with(filter_)
        scans.append((columns, combined_filter))
        return original_scan(self, columns, filter_, options, **others)

    ia.Dataset._scan = recording_scan
    try:
        yield scans
    finally:
        ia.Dataset._scan = original_scan


def read(path: Path, engine: str, case: Predicate | Shape) -> Reading:
    """Runs a query in ``engine`` and measures what its scans read."""
    data = ia.dataset(path, filesystem=pafs.LocalFileSystem(), reader="pages")
    with _record_scans() as scans:
        answer = RUNNERS[engine](data, case)
    rows = total = 0
    # One method of a data set may call another, so equal scans count once.
    distinct_scans = {
        (tuple(columns or ()), str(filter_)): (columns, filter_) for columns, filter_ in scans
    }
    for columns, filter_ in distinct_scans.values():
        amounts = data.explain(columns, filter_, analyze=True).read
        rows, total = rows + amounts.rows.selected, total + amounts.bytes.selected
    return Reading(any(filter_ is not None for _, filter_ in scans), rows, answer, total)


def table(path: Path) -> str:
    """Returns both tables in Markdown: predicates, then query shapes."""
    return "\n\n".join([_table(path, "predicate", PREDICATES), _table(path, "condition", SHAPES)])


def _table(path: Path, title: str, rows: Sequence[Predicate | Shape]) -> str:
    lines = [
        f"| {title} | " + " | ".join(ENGINES) + " |",
        "|---|" + "---|" * len(ENGINES),
    ]
    for case in rows:
        cells = [_cell(read(path, engine, case)) for engine in ENGINES]
        label = case.label if isinstance(case, Shape) else f"`{case.label}`"
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(reading: Reading) -> str:
    return f"{'yes' if reading.has_filter else 'no'}: {reading.rows:,} rows, {reading.bytes:,} B"


def main() -> None:
    """Prints the tables, or writes them into the documentation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write the tables into {DOCS.name}")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        write(path)
        tables = table(path)
    if not arguments.write:
        print(tables)
        return
    before, rest = DOCS.read_text().split(BEGIN)
    DOCS.write_text(f"{before}{BEGIN}\n{tables}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
