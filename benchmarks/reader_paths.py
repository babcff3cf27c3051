"""Compares queries with and without each special path of our own reader.

The data is the table of ``foreign_lakes.py``, 2,400,000 rows. Intarsia writes it with and without
indexes, DuckDB and pyarrow without. ``small`` has it in 500 files, ``keys`` in 100 files with a
lookup. The other files are those of ``attributes.py`` and ``small_groups.py``. The data stays in
the folder ``bench-data``.

``python benchmarks/reader_paths.py`` prints a line for each path, query and storage. Files of
``remote``, an fsspec file system, are never handed over to an engine; local ones may be. A cell is
the median of 7 alternating runs in milliseconds: the processor times with and without the path and
their ratio, then the wall times with theirs. A path whose ratio is below 1.3, or which gains less
than 3 ms, on both storages, is to be deleted. ``python benchmarks/reader_paths.py masks local``
runs one path on one storage.
"""

import functools
import operator
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import attributes
import duckdb
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import small_groups
from foreign_lakes import ROWS_QUERY, compare

import intarsia as ia
from intarsia import process_state
from intarsia.dataset import dataset
from intarsia.index.section.reader import PageCache
from intarsia.parquet import footer_cache
from intarsia.plan import cost_model, planner
from intarsia.scan import (
    column_reader,
    count,
    predicate_order,
    request,
    schema_adapter,
    small_row_groups,
    unit_reader,
    units,
)
from intarsia.scan.files import file_pruning
from intarsia.scan.filter import condition, value_set
from intarsia.scan.predicate_order import Stage
from intarsia.scan.unit_reader import UnitReader

FOLDER = Path("bench-data/reader_paths")
SMALL_FILES, KEY_FILES = 500, 100
FILES = {"small": "small", "keys": "keys"}
"""Folders of many files; others are single files."""
f = pc.field
HAS_FEW, HAS_MANY = "number 777777 of", "777 of user"
COSTS = cost_model.COSTS
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
    "comparisons": [(condition, "comparison_of", lambda *_: None)],
    "hashes of IN": [(value_set, "_MIN_HASHED_VALUES", 1 << 60)],
    "tuples": [(request, "with_tuple_membership", lambda node, _: node)],
    "whole small row groups": [(small_row_groups, "_may_be_small", lambda *_: False)],
    "larger units": [(units, "_cut_bytes", lambda *_: 0.0)],
    "small first units": [(units, "COSTS", replace(COSTS, first_unit_rows=COSTS.unit_rows))],
    "page headers": [(units, "make_offset_indexes", lambda *_: None)],
    "columns together": [(column_reader, "_with_same_rows", lambda _: [])],
    "columns in blocks": [(column_reader, "_COLUMNS_PER_BLOCK", 1 << 30)],
    "pages among threads": [(column_reader, "_DIVIDED_BYTES", 1 << 60)],
    "likely rows": [(unit_reader, "_allows_reading_at_once", lambda *_: False)],
    "indexes that pay": [(planner, "may_pay", lambda *_: True)],
    "few rows left": [(planner, "is_little", lambda *_: False)],
    "order of indexes": [(planner, "by_promise", lambda indexes: [*indexes.items()])],
    "cached pages of indexes": [(PageCache, "get", lambda *_: {})],
    "proven rows": [
        (count, "_proven", lambda file, part, request: (0, part.plan(file, request).rows))
    ],
    "small files together": [(file_pruning, "matching_rows", lambda *_: {})],
    "rows of small files together": [(file_pruning, "readers", lambda *_: {})],
    "keys of many files": [(planner, "file_keys", lambda *_: None)],
    "footer layouts": [(footer_cache, "_shape_of", lambda *_: None)],
    "counts by pyarrow": [(dataset, "count_matching", lambda *_: None)],
}
"""Each path, with the attributes that disable it."""
Query = Callable[[str], Any]
"""Returns the answer of a query on files of one storage: "local" or "remote"."""


def opened(name: str, storage: str) -> ia.Dataset:
    """Opens a file, or the folder of many files."""
    place = FOLDER.absolute() / (name if name in FILES else f"{name}.parquet")
    is_remote = storage == "remote"
    return ia.dataset(str(place), filesystem=fsspec.filesystem("local") if is_remote else None)


cached_dataset = functools.cache(opened)


def table_of(name: str, columns: list[str] | None, filter_: pc.Expression, storage: str) -> Any:
    """Returns the matching rows. A single file is opened anew."""
    data = cached_dataset(name, storage) if name in FILES else opened(name, storage)
    return data.to_table(columns, filter_)


def count_of(name: str, filter_: pc.Expression, storage: str) -> Any:
    """Returns the number of matching rows of files that are open."""
    return cached_dataset(name, storage).count_rows(filter_)


def head_of(name: str, storage: str) -> Any:
    """Returns the first rows of a file whose footer is not cached."""
    process_state.clear()
    return opened(name, storage).head(10)


def first_count(name: str, filter_: pc.Expression, storage: str) -> Any:
    """Returns the number of matching rows of files whose footers are not cached."""
    process_state.clear()
    footer_cache._shapes = ()
    return opened(name, storage).count_rows(filter_)


def ten_times(query: Query, storage: str) -> Any:
    """Returns the last answer of a query that runs ten times."""
    return [query(storage) for _ in range(10)][-1]


def matching(condition_: pc.Expression, *columns: str, of: str = "plain") -> Query:
    """Returns the query for ``columns``, by default all, of the rows that pass a condition."""
    return partial(table_of, of, [*columns] or None, condition_)


def counting(condition_: pc.Expression, of: str = "plain") -> Query:
    """Returns the query for the number of rows that pass a condition."""
    return partial(count_of, of, condition_)


IS_PAID, HIGH = f("svc") == "pay", f("lat") > 500
PAIRS = functools.reduce(
    operator.or_, [(f("u") == n) & (f("status") == 200) for n in range(0, 20_000, 100)]
)
QUERIES: dict[str, dict[str, Query]] = {
    "dictionary indices": {
        "count of svc = 'pay'": counting(IS_PAID),
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
    "comparisons": {
        "id and u, lat > 100": matching(f("lat") > 100, "id", "u"),
        "u = 777": matching(f("u") == 777),
        "id = 1000, by a lookup": matching(f("id") == 1000, of="indexed"),
    },
    "hashes of IN": {
        f"id IN {n:,} values": matching(f("id").isin(pa.array(np.arange(n) * 47)), "u")
        for n in (200_000, 1_000_000)
    },
    "tuples": {"200 pairs of u and status": matching(PAIRS, "id")},
    "whole small row groups": {"key < 500": matching(f("key") < 500, "number", of="groups")},
    "larger units": {"DuckDB, lat > 500": matching(HIGH, of="duckdb")},
    "small first units": {"head of 10 rows": partial(head_of, "plain")},
    "page headers": {"pyarrow, head of 10 rows": partial(head_of, "pyarrow")},
    "columns together": {
        "id = 1000, by a lookup": matching(f("id") == 1000, of="indexed"),
        "id < 2,400": matching(f("id") < 2_400, of="indexed"),
    },
    "columns in blocks": {"1,000 columns, c0 > 0": matching(f("c0") > 0, of="wide")},
    "pages among threads": {
        "msg, lat > 990": matching(f("lat") > 990, "msg"),
        "count of lat > 990": counting(f("lat") > 990),
    },
    "likely rows": {
        "id = 1000, by a lookup": matching(f("id") == 1000, of="indexed"),
        "id < 2,400": matching(f("id") < 2_400, of="indexed"),
    },
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
    "cached pages of indexes": {
        "id = 1000, ten times": partial(
            ten_times, partial(count_of, "indexed", (f("id") == 1000) & (f("u") >= 0))
        ),
        "msg = …, ten times": partial(
            ten_times, counting(pc.match_substring(f("msg"), HAS_FEW), of="indexed")
        ),
    },
    "proven rows": {
        "count of id < 1,000,000": counting(f("id") < 1_000_000),
        "count of id < 1,000,000, small": counting(f("id") < 1_000_000, of="small"),
    },
    "small files together": {
        "u = 777": matching(f("u") == 777, of="small"),
        "count of status = 404": counting(f("status") == 404, of="small"),
        "lat > 990": matching(f("lat") > 990, of="small"),
        "msg = …": matching(f("msg") == "message number 7 of user 7", of="small"),
    },
    "rows of small files together": {
        "lat > 990": matching(f("lat") > 990, of="small"),
        "lat > 990, id": matching(f("lat") > 990, "id", of="small"),
        "status = 404": matching(f("status") == 404, of="small"),
    },
    "keys of many files": {
        "trace = …": matching(f("trace") == "c4ca4238a0b923820dcc509a6f75849b", of="keys"),
        "trace IN 10 values": matching(
            f("trace").isin([f"{n:032x}" for n in range(10)]), of="keys"
        ),
        "count of trace = …": counting(f("trace") == "0", of="keys"),
    },
    "footer layouts": {
        "count of id < 0, small": partial(first_count, "small", f("id") < 0),
        "count of id < 0, keys": partial(first_count, "keys", f("id") < 0),
    },
    "counts by pyarrow": {
        "count of lat > 500": counting(f("lat") > 500),
        "count of lat > 500, pyarrow": counting(f("lat") > 500, of="pyarrow"),
        "count of lat > 500, small": counting(f("lat") > 500, of="small"),
    },
}


def write(folder: Path) -> None:
    """Writes the files."""
    folder.mkdir(parents=True)
    with duckdb.connect() as connection:
        table = connection.sql(ROWS_QUERY).to_arrow_table()
        connection.register("rows_of_lake", table)
        connection.execute(f"COPY rows_of_lake TO '{folder / 'duckdb.parquet'}' (FORMAT parquet)")
        traces = connection.sql("SELECT md5(id::VARCHAR) AS trace FROM rows_of_lake")
        with_traces = table.append_column("trace", traces.to_arrow_table()["trace"])
    ia.write_table(table, folder / "plain.parquet")
    indexes = [ia.Lookup("id"), ia.Lookup("u"), ia.NGram("msg")]
    ia.write_table(table, folder / "indexed.parquet", indexes=indexes)
    pq.write_table(table, folder / "pyarrow.parquet")
    attributes.write(folder / "spans.parquet")
    small_groups.write(folder / "groups.parquet")
    small_groups.write_wide(folder / "wide.parquet")
    for name in FILES.values():
        (folder / name).mkdir()
    rows = len(table) // SMALL_FILES
    for number in range(SMALL_FILES):
        place = folder / f"small/{number:04}.parquet"
        pq.write_table(table.slice(number * rows, rows), place, write_page_index=True)
    rows = len(table) // KEY_FILES
    for number in range(KEY_FILES):
        place, part = folder / f"keys/{number:04}.parquet", with_traces.slice(number * rows, rows)
        ia.write_table(part, place, indexes=[ia.Lookup("trace")])


def disabled(path: str) -> AbstractContextManager[Any]:
    """Disables a path as long as the context is open."""
    patches = ExitStack()
    for place, name, other in PATHS[path]:
        patches.enter_context(mock.patch.object(place, name, other))
    return patches


def without(path: str, query: Query, storage: str) -> Any:
    """Returns a query's answer without a path."""
    with disabled(path):
        return query(storage)


def main() -> None:
    """Prints a line for each path, query and storage."""
    if not FOLDER.exists():
        write(FOLDER)
    storages = [name for name in sys.argv[1:] if name in ("local", "remote")] or ["local", "remote"]
    paths = [name for name in sys.argv[1:] if name in PATHS] or PATHS
    print("| path | query | storage | CPU: with | without | ratio | wall: with | without | ratio |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for path in paths:
        for text, query in QUERIES[path].items():
            for storage in storages:
                answer = query(storage)
                others = without(path, query, storage)
                assert answer.equals(others) if isinstance(answer, pa.Table) else answer == others
                cells = compare(partial(query, storage), partial(without, path, query, storage))
                line = " | ".join(f"{cell:.2f}" for cell in cells)
                print(f"| {path} | {text} | {storage} | {line} |", flush=True)


if __name__ == "__main__":
    main()
