"""Nested columns of a data set: fields of structs by their paths, and engines that read slices.

::

    i    0 … 2999, three row groups     a filter that leaves two long runs, so arrays are sliced
    x    one nested type per test
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia

ROWS = 3000
KEPT = pc.field("i") != 705
POINT = pa.struct({"c": pa.int64()})
TEXTS = pa.dictionary(pa.int32(), pa.string())
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "struct": (POINT, lambda i: {"c": i}),
    "struct_of_struct": (pa.struct({"b": POINT}), lambda i: {"b": {"c": i} if i % 5 else None}),
    "three_structs": (
        pa.struct({"a": pa.string(), "b": pa.struct({"d": POINT})}),
        lambda i: None if i % 7 == 0 else {"a": f"{i}", "b": {"d": {"c": i}}},
    ),
    "struct_of_list_of_struct": (
        pa.struct({"b": pa.list_(POINT)}),
        lambda i: {"b": [{"c": i}] * (i % 3)},
    ),
    "list_of_struct_of_struct": (
        pa.list_(pa.struct({"b": POINT})),
        lambda i: [{"b": {"c": i}}] * (i % 3),
    ),
    "pair_of_structs": (pa.list_(POINT, 2), lambda i: [{"c": i}, {"c": -i}]),
    "struct_of_pair_of_structs": (
        pa.struct({"p": pa.list_(POINT, 2)}),
        lambda i: {"p": [{"c": i}, {"c": -i}]},
    ),
    "map_of_struct": (pa.map_(pa.string(), POINT), lambda i: [(f"{i}", {"c": i})] * (i % 2)),
    "struct_of_dictionary": (pa.struct({"d": TEXTS}), lambda i: {"d": f"{i % 7}"}),
    "list_of_dictionary": (pa.list_(TEXTS), lambda i: [f"{i % 7}"] * (i % 3)),
}


@pytest.fixture(params=TYPES)
def nested(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    kind, value = TYPES[request.param]
    values = pa.array([value(i) for i in range(ROWS)], kind)
    table = pa.table({"i": range(ROWS), "x": values})
    path = tmp_path / "nested.parquet"
    pq.write_table(
        table, path, row_group_size=ROWS // 3, data_page_size=2000, write_page_index=True
    )
    return path


def rows(column: pa.ChunkedArray) -> list[Any]:
    return column.to_pylist()


def by_duckdb(data: Any) -> list[Any]:
    return rows(duckdb.sql("SELECT x FROM data WHERE i <> 705").to_arrow_table()["x"])


def by_sql(data: ia.Dataset) -> list[Any]:
    return rows(ia.sql("SELECT x FROM data WHERE i <> 705", data=data)["x"])


def by_datafusion(data: ia.Dataset) -> list[Any]:
    context = datafusion.SessionContext()
    context.register_dataset("data", data)
    return rows(context.sql("SELECT x FROM data WHERE i <> 705").to_arrow_table()["x"])


def by_duckdb_from_a_table(data: ia.Dataset) -> list[Any]:
    return by_duckdb(data.to_table(filter=KEPT))


def by_small_batches(data: ia.Dataset) -> list[Any]:
    batches = data.to_batches(filter=KEPT, batch_size=100)
    return by_duckdb(pa.RecordBatchReader.from_batches(data.schema, batches))


@pytest.mark.parametrize(
    "ask", [by_duckdb, by_sql, by_datafusion, by_duckdb_from_a_table, by_small_batches]
)
def test_engines_read_slices_of_nested_columns(ask, nested: Path) -> None:
    expected = rows(pads.dataset(nested).to_table(filter=KEPT)["x"])
    assert ask(ia.dataset(nested)) == expected


def test_nested_columns_equal_pyarrows(nested: Path) -> None:
    theirs, ours = pads.dataset(nested), ia.dataset(nested)
    for expected in (KEPT, pc.field("i").isin([3, 1500, 2999]), pc.field("i") == 1001):
        assert ours.to_table(filter=expected).equals(theirs.to_table(filter=expected))
    assert ours.take([2999, 0, 1500]).equals(theirs.take([2999, 0, 1500]))
    assert ia.ParquetFile(nested).read().equals(theirs.to_table())


# --- fields of structs, by their paths ----------------------------------------------------------


@pytest.fixture
def points(tmp_path: Path) -> Path:
    """A struct with NULLs at each level, a required field, and names that contain dots."""
    fields = [pa.field("a", pa.int64(), nullable=False), pa.field("b", POINT)]
    kind = pa.struct(fields)
    values = [None if i % 5 == 0 else {"a": i, "b": {"c": i} if i % 3 else None} for i in range(50)]
    schema = pa.schema(
        [
            pa.field("i", pa.int64(), nullable=False, metadata={"unit": "m"}),
            ("st", kind),
            ("st.a", pa.string()),
        ]
    )
    table = pa.table(
        {"i": range(50), "st": pa.array(values, kind), "st.a": ["flat"] * 50}, schema=schema
    )
    path = tmp_path / "points.parquet"
    pq.write_table(table, path, row_group_size=20, data_page_size=50, write_page_index=True)
    return path


@pytest.mark.parametrize(
    "columns", [["st.b.c"], ["i", "st.b"], ["st.a"], ["st.b.c", "st"], ["st.b", "st.b.c"]]
)
@pytest.mark.parametrize("paths", [None, pc.field("i") > 30, pc.field("st", "a") == 7, KEPT])
def test_dotted_paths_select_columns_as_in_pyarrow(columns, paths, points: Path) -> None:
    theirs, ours = pads.dataset(points), ia.dataset(points)
    expected = theirs.to_table(columns, filter=paths)
    actual = ours.to_table(columns, filter=paths)
    assert actual.equals(expected)
    assert actual.schema.equals(expected.schema, check_metadata=True)
    assert ours.head(7, columns, filter=paths).equals(expected.slice(0, 7))
    assert ours.scanner(columns, filter=paths).to_table().equals(expected)


@pytest.mark.parametrize("columns", [["i", "i"], ["st.b.c", "i", "st.b.c", "i"]])
def test_a_column_of_a_file_that_is_asked_for_twice_comes_once(columns, points: Path) -> None:
    file, theirs = ia.ParquetFile(points), pq.ParquetFile(points)
    expected = theirs.read(columns).select(list(dict.fromkeys(c.split(".")[0] for c in columns)))
    assert file.read(columns).equals(expected)
    assert next(file.iter_batches(columns=columns)).schema.names == expected.schema.names


def test_a_path_reads_only_its_own_leaves(points: Path) -> None:
    data = ia.dataset(points)
    (file,) = data.plan(["st.b.c"], "i = 7").files
    assert {column.column for column in file.columns} == {"i", "st.b.c"}
    assert data.take([6, 1], ["st.b.c"]).to_pydict() == {"c": [None, 1]}


@pytest.mark.parametrize("path", ["st.q", "i.x", "st.", ".st", "st.b.c.d"])
def test_unknown_paths_are_refused(path: str, points: Path) -> None:
    with pytest.raises(ia.PredicateError, match="not there"):
        ia.dataset(points).to_table([path], filter=KEPT)
