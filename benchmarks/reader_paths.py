"""Compares queries with and without each special path of our own reader.

The data is the table of ``foreign_lakes.py``, 2,400,000 rows. Intarsia writes it with and without
indexes, DuckDB and pyarrow without. The other files are those of ``attributes.py`` and
``small_groups.py``.

``python benchmarks/reader_paths.py`` prints a line for each path and query. A cell is the median
of 7 alternating runs in milliseconds: the processor times with and without the path and their
ratio, then the wall times with theirs. A path whose ratio is below 1.3, or which gains less than
3 ms, is to be deleted. ``python benchmarks/reader_paths.py masks`` runs one path.
"""

import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import attributes
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import small_groups
from foreign_lakes import ROWS_QUERY, compare

import intarsia as ia
from intarsia import process_state
from intarsia.scan import (
    file_planner,
    predicate_order,
    schema_adapter,
    small_row_groups,
    unit_reader,
    units,
)
from intarsia.scan.filter import condition
from intarsia.scan.predicate_order import Stage
from intarsia.scan.unit_reader import UnitReader

f = pc.field
HAS_FEW, HAS_MANY = "number 777777 of", "777 of user"
PATHS: dict[str, list[tuple[object, str, object]]] = {
    "dictionary indices": [
        (schema_adapter, "has_few_entries", lambda *_: False),
        (predicate_order, "has_few_entries", lambda *_: False),
    ],
    "conditions by entry": [
        (Stage, "takes_dictionary", lambda stage, *_, **__: stage.condition.comparison is not None)
    ],
    "keys of maps as indices": [(Stage, "takes_dictionary", lambda *_, **__: False)],
    "search in pages": [(UnitReader, "_without_skipped_pages", lambda _, __, rows, ___: rows)],
    "search in values": [(condition, "rows_containing", lambda *_: None)],
    "stages": [
        (
            unit_reader,
            "stages",
            lambda _, request, __: [Stage(request.filter.condition, request.filter_columns)],
        )
    ],
    "masks": [(UnitReader, "_reads_most_pages", lambda *_: False)],
    "whole small row groups": [(small_row_groups, "_may_be_small", lambda *_: False)],
    "larger units": [(units, "_cut_bytes", lambda *_: 0.0)],
    "small first units": [(units, "FIRST_ROWS", units.UNIT_ROWS)],
    "page headers": [(units, "make_offset_indexes", lambda *_: None)],
    "indexes that pay": [(file_planner, "may_pay", lambda *_: True)],
    "few rows left": [(file_planner, "is_little", lambda *_: False)],
    "order of indexes": [(file_planner, "by_promise", lambda indexes: [*indexes.items()])],
}
"""Each path, with the attributes that disable it."""


def table_of(name: str, columns: list[str] | None, filter_: pc.Expression, folder: Path) -> Any:
    """Returns the matching rows of a file that is opened anew."""
    return ia.dataset(folder / f"{name}.parquet").to_table(columns, filter_)


def head_of(name: str, folder: Path) -> Any:
    """Returns the first rows of a file whose footer is not cached."""
    process_state.clear()
    return ia.dataset(folder / f"{name}.parquet").head(10)


def matching(condition_: pc.Expression, *columns: str, of: str = "plain") -> Callable[[Path], Any]:
    """Returns the query for ``columns``, by default all, of the rows that pass a condition."""
    return partial(table_of, of, [*columns] or None, condition_)


IS_PAID, HIGH = f("svc") == "pay", f("lat") > 500
QUERIES: dict[str, dict[str, Callable[[Path], Any]]] = {
    "dictionary indices": {
        "id, svc = 'pay'": matching(IS_PAID, "id"),
        "svc and zone, lat > 990": matching(f("lat") > 990, "svc", "zone"),
    },
    "conditions by entry": {"id, svc LIKE '%a%'": matching(pc.match_like(f("svc"), "%a%"), "id")},
    "keys of maps as indices": {
        text: matching(filter_, "id", of="spans") for text, filter_ in attributes.CONDITIONS.items()
    },
    "search in pages": {
        "rare string": matching(pc.match_substring(f("msg"), HAS_FEW)),
        "msg = …": matching(f("msg") == "message number 7 of user 7"),
    },
    "search in values": {
        "string on each page": matching(pc.match_substring(f("msg"), HAS_MANY), "id")
    },
    "stages": {
        "u = 777 and a string": matching(
            pc.match_substring(f("msg"), "user 777") & (f("u") == 777), "id"
        )
    },
    "masks": {"status <> 200": matching(f("status") != 200, "id", "ts", "u")},
    "whole small row groups": {"key < 500": matching(f("key") < 500, "number", of="groups")},
    "larger units": {"DuckDB, lat > 500": matching(HIGH, of="duckdb")},
    "small first units": {"head of 10 rows": partial(head_of, "plain")},
    "page headers": {"pyarrow, head of 10 rows": partial(head_of, "pyarrow")},
    "indexes that pay": {
        "id in 2,000 values": matching(f("id").isin([*range(7, 2_400_000, 1_200)]), of="indexed")
    },
    "few rows left": {
        "id = 1000 and a string": matching(
            (f("id") == 1000) & pc.match_substring(f("msg"), "of user"), of="indexed"
        )
    },
    "order of indexes": {
        "a string and id = 1000": matching(
            pc.match_substring(f("msg"), "of user") & (f("id") == 1000), of="indexed"
        )
    },
}


def write(folder: Path) -> None:
    """Writes the files."""
    with duckdb.connect() as connection:
        table = connection.sql(ROWS_QUERY).to_arrow_table()
        connection.register("rows_of_lake", table)
        connection.execute(f"COPY rows_of_lake TO '{folder / 'duckdb.parquet'}' (FORMAT parquet)")
    ia.write_table(table, folder / "plain.parquet")
    indexes = [ia.Lookup("id"), ia.Lookup("u"), ia.NGram("msg")]
    ia.write_table(table, folder / "indexed.parquet", indexes=indexes)
    pq.write_table(table, folder / "pyarrow.parquet")
    attributes.write(folder / "spans.parquet")
    small_groups.write(folder / "groups.parquet")


def disabled(path: str) -> AbstractContextManager[Any]:
    """Disables a path as long as the context is open."""
    patches = ExitStack()
    for place, name, other in PATHS[path]:
        patches.enter_context(mock.patch.object(place, name, other))
    return patches


def without(path: str, query: Callable[[Path], Any], folder: Path) -> Any:
    """Returns a query's answer without a path."""
    with disabled(path):
        return query(folder)


def main() -> None:
    """Prints a line for each path and query."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write(folder)
        print("| path | query | CPU: with | without | ratio | wall: with | without | ratio |")
        print("|---|---|---:|---:|---:|---:|---:|---:|")
        for path in sys.argv[1:] or PATHS:
            for text, query in QUERIES[path].items():
                answer: pa.Table = query(folder)
                assert answer.equals(without(path, query, folder))
                cells = compare(partial(query, folder), partial(without, path, query, folder))
                line = " | ".join(f"{cell:.2f}" for cell in cells)
                print(f"| {path} | {text} | {line} |", flush=True)


if __name__ == "__main__":
    main()
