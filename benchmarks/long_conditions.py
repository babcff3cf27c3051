"""Measures conditions with many terms, and lists with many values.

The data is a file of 100,000 rows with two integers and a string. ``python
benchmarks/long_conditions.py`` prints a line for each condition and size: the number of terms or
values, the processor time of Intarsia in seconds, and that of DuckDB for the same query. DuckDB
reads the same file. ``--most N`` leaves out sizes above N. Figures are of one run each.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import intarsia as ia

ROWS = 100_000
Run = Callable[[], int]
"""Returns the number of matching rows."""


def write(path: Path) -> None:
    """Writes the file."""
    table = pa.table(
        {
            "a": pa.array(range(ROWS)),
            "b": pa.array([number % 7 for number in range(ROWS)]),
            "s": [f"v{number}" for number in range(ROWS)],
        }
    )
    pq.write_table(table, path, row_group_size=20_000, write_page_index=True)


def terms(count: int, term: str) -> str:
    """Returns a condition of ``count`` terms joined by OR."""
    return " OR ".join(term.format(3 * number, number % 7) for number in range(count))


def chain(count: int) -> pc.Expression:
    """Returns ``count`` terms joined by OR in pairs."""
    parts = [(pc.field("a") == 3 * n) & (pc.field("b") == n % 7) for n in range(count)]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [*(one | other for one, other in pairs), *(parts[-1:] if len(parts) % 2 else ())]
    return parts[0]


FILTERS: dict[str, tuple[list[int], Callable[[int], Any]]] = {
    "text, (a = 1 AND b = 1) OR …": ([1_000, 10_000], lambda n: terms(n, "(a = {0} AND b = {1})")),
    "text, a = 1 OR …": ([1_000, 10_000], lambda n: terms(n, "a = {0}")),
    "text, (a = 1 AND b < 1) OR …": ([1_000, 10_000], lambda n: terms(n, "(a = {0} AND b < {1})")),
    "Expression, (a == 1) & (b == 1) | …": ([1_000, 10_000], chain),
    "text, a IN (1, …)": ([100_000, 1_000_000], lambda n: f"a IN ({integers(n)})"),
    "text, s IN ('v', …)": ([100_000, 1_000_000], lambda n: f"s IN ({strings(n)})"),
    "a.isin([1, …])": (
        [1_000_000, 10_000_000],
        lambda n: pc.field("a").isin(pa.array(range(0, 3 * n, 3))),
    ),
    "coalesce(a, a, …) > 5": ([10_000, 100_000], lambda n: pc.coalesce(*[pc.field("a")] * n) > 5),
}
QUERIES: dict[str, tuple[list[int], Callable[[int], tuple[str, list[Any]]]]] = {
    "sql, a IN (1, …)": ([100_000, 1_000_000], lambda n: (f"a IN ({integers(n)})", [])),
    "sql, s IN ('v', …)": ([100_000, 1_000_000], lambda n: (f"s IN ({strings(n)})", [])),
    "sql, a IN (?, …)": (
        [8_000, 80_000],
        lambda n: (f"a IN ({', '.join('?' * n)})", list(range(0, 3 * n, 3))),
    ),
    "sql, a IN ?, a list": ([100_000, 1_000_000], lambda n: ("a IN ?", [list(range(0, 3 * n, 3))])),
    "sql, (a = ? AND b = ?) OR …": (
        [500, 1_000, 2_000],
        lambda n: (
            terms(n, "(a = ? AND b = ?)"),
            [value for number in range(n) for value in (3 * number, number % 7)],
        ),
    ),
}


def integers(count: int) -> str:
    """Returns the members of a list of integers."""
    return ", ".join(map(str, range(0, 3 * count, 3)))


def strings(count: int) -> str:
    """Returns the members of a list of strings."""
    return ", ".join(f"'v{3 * number}'" for number in range(count))


def runs(path: Path, most: int) -> Iterator[tuple[str, int, Run, Run | None]]:
    """Yields each condition, its size, and how Intarsia and DuckDB count its rows."""
    data = ia.dataset(path)
    for name, (sizes, condition_of) in FILTERS.items():
        for size in filter(most.__ge__, sizes):
            condition = condition_of(size)
            yield name, size, lambda: data.to_table(filter=condition).num_rows, None  # noqa: B023
    for name, (sizes, query_of) in QUERIES.items():
        for size in filter(most.__ge__, sizes):
            where, parameters = query_of(size)
            query = f"SELECT * FROM t WHERE {where}"
            own = query.replace("FROM t", f"FROM '{path}'", 1)
            yield (
                name,
                size,
                lambda: ia.sql(query, parameters, t=data).num_rows,  # noqa: B023
                lambda: duckdb.sql(own, params=parameters or None).to_arrow_table().num_rows,  # noqa: B023
            )


def seconds(run: Run) -> tuple[int, float]:
    """Returns the number of rows, and the processor time."""
    start = time.process_time()
    rows = run()
    return rows, time.process_time() - start


def main() -> None:
    """Prints a line for each condition and size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most", type=int, default=10**9, help="the largest size")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        write(path)
        ia.sql("SELECT count(*) FROM t WHERE a IN (1)", t=path)  # imports and the shared database
        for name, size, own, peer in runs(path, options.most):
            rows, time_taken = seconds(own)
            line = f"{name:36} {size:>10,} {time_taken:8.2f}"
            if peer is not None:
                peer_rows, peer_time = seconds(peer)
                assert rows == peer_rows
                line += f" {peer_time:8.2f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
