"""Fields of structs in SQL: only used fields are read, and the answers are those over all fields.

::

    a.parquet    u: struct<id, Name, v: struct<x, y>, pad>    pad is a long text
    b.parquet    u: struct<more, id (int32), v: struct<x>>    no name, one more field
    c.parquet    no u
"""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

import intarsia as ia
from intarsia.scan import schema_adapter as read_columns
from intarsia.sql.query.projection_pushdown import paths_used

ROWS = 3_000
U = pa.struct(
    {
        "id": pa.int64(),
        "Name": pa.string(),
        "v": pa.struct({"x": pa.int8(), "y": pa.float64()}),
        "pad": pa.string(),
    }
)
SCHEMA = pa.schema({"i": pa.int64(), "u": U, "l": pa.list_(pa.int64())})


def value(i):
    if i % 11 == 0:
        return None
    v = None if i % 7 == 0 else {"x": i % 100, "y": i / 2 if i % 5 else None}
    return {"id": i if i % 3 else None, "Name": f"n{i % 40}", "v": v, "pad": f"{i:05}" * 40}


def table_of(start):
    rows = range(start, start + ROWS)
    return pa.table(
        {"i": rows, "u": map(value, rows), "l": [[i, i + 1] for i in rows]}, schema=SCHEMA
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fields")
    options = {"row_group_size": 1_000, "max_rows_per_page": 100, "write_page_index": True}
    pq.write_table(table_of(0), folder / "a.parquet", **options)
    other = table_of(ROWS)
    less = pa.struct({"more": pa.string(), "id": pa.int32(), "v": pa.struct({"x": pa.int8()})})
    values = [
        None
        if one is None
        else {"more": "m", "id": one["id"], "v": one["v"] and {"x": one["v"]["x"]}}
        for one in other["u"].to_pylist()
    ]
    other = other.set_column(1, "u", pa.array(values, less))
    pq.write_table(other, folder / "b.parquet", **options)
    pq.write_table(table_of(2 * ROWS).drop(["u"]), folder / "c.parquet", **options)
    return folder


@pytest.fixture
def leaves(monkeypatch):
    """The paths of all leaves that are decoded."""
    actual = set()
    read = read_columns.read_rows

    def read_rows(file, roots, *args, **options):
        actual.update(file.schema.leaves[leaf].name for root in roots for leaf in root.leaves)
        return read(file, roots, *args, **options)

    monkeypatch.setattr(read_columns, "read_rows", read_rows)
    return actual


ALL = [("i",), ("u",), ("l",)]
ID, NAME, X, Y = ("u", "id"), ("u", "Name"), ("u", "v", "x"), ("u", "v", "y")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("u.id", [ID]),
        ("t.u.id, U.NAME", [ID, NAME]),
        ("main.t.u.id", [ID]),
        ("u.v.x + u.v.y", [X, Y]),
        ("u.v, i", [("i",), ("u", "v")]),
        ("u['id'], (u['v'])['x']", [ID, ("u", "v")]),
        ("u['v']['y']", [Y]),
        ("sum(u.id) FILTER (WHERE u.v.y > 1)", [ID, Y]),
        ("EXISTS (SELECT 1 FROM s WHERE s.id = t.u.v.x)", [X]),
        ("count(*)", []),
        # A whole struct, or what may be one
        ("u", [("u",)]),
        ("u.id, u", [("u",)]),
        ("u IS NULL, u.id", [("u",)]),
        ("(u).id", [("u",)]),
        ("struct_extract(u, 'id'), u.Name", [("u",)]),
        ("u.id AS u", [("u",)]),
        ("u[1], u.id", [("u",)]),
        ("u[i], u.id", [("i",), ("u",)]),
        ("u.nope, u.id", [("u",)]),
        ("u.id.upper(), u.Name", [("u",)]),
        ("list_transform(l, u -> u + i), u.id", [("i",), ("u",), ("l",)]),
        ("u.*", ALL),
        ("t, u.id", ALL),
        ("COLUMNS('u'), u.id", ALL),
        ("u.id, #2", ALL),
    ],
)
def test_fields_that_a_query_uses(output, expected):
    tree = sqlglot.parse_one(f"SELECT {output} FROM t", dialect="duckdb")
    table = next(table for table in tree.find_all(exp.Table) if table.name == "t")
    assert sorted(paths_used(table, SCHEMA)) == sorted(expected)


def test_fields_that_differ_by_case_are_read_together():
    tree = sqlglot.parse_one("SELECT u.A, w.b FROM t", dialect="duckdb")
    two = pa.struct({"a": pa.int8(), "A": pa.int8()})
    schema = pa.schema({"u": two, "w": pa.struct({"b": pa.int8(), "c": two})})
    assert list(paths_used(tree.find(exp.Table), schema)) == [("u",), ("w", "b")]


def test_columns_that_differ_by_case_are_read_whole():
    """DuckDB names the second of them u_1."""
    tree = sqlglot.parse_one("SELECT u.id, u_1.id FROM t", dialect="duckdb")
    schema = pa.schema({"U": U, "u": U, "i": pa.int64()})
    assert list(paths_used(tree.find(exp.Table), schema)) == [("U",), ("u",), ("i",)]


WAYS = [
    "SELECT u.id, #2 FROM t ORDER BY i",
    "SELECT u.id FROM t WHERE #2 IS NOT NULL ORDER BY i",
    "SELECT u.id, (#2).v FROM t ORDER BY i",
    "SELECT main.t.u.id FROM t ORDER BY i",
    "SELECT t.u.id, x.u.v FROM t JOIN t AS x USING (i) ORDER BY i",
    "SELECT u.id, u IS NULL AS n FROM t ORDER BY i",
]


@pytest.mark.parametrize("query", WAYS)
def test_structs_used_as_values_are_read_whole(query, folder):
    ds = ia.dataset(folder)
    con = duckdb.connect()
    con.register("t", ds.to_table())
    assert ia.sql(query, t=ds).to_pylist() == con.sql(query).to_arrow_table().to_pylist()


QUERIES = {
    "SELECT sum(u.id) FROM t": {"u.id"},
    "SELECT u['v']['x'] AS x, count(*) FROM t GROUP BY ALL ORDER BY ALL": {"u.v.x"},
    "SELECT u.v AS v FROM t WHERE u.id BETWEEN 2990 AND 3010 ORDER BY i": {
        *("i", "u.id", "u.v.x", "u.v.y"),
    },
    "SELECT a.u.id, b.i FROM t AS a JOIN t AS b ON a.u.v.x = b.i WHERE b.i < 20 ORDER BY ALL": {
        *("u.id", "u.v.x", "i"),
    },
    "WITH r AS (SELECT i, u.id AS id FROM t) SELECT max(id) FROM r WHERE i % 5 = 1": {"i", "u.id"},
    "SELECT i FROM t WHERE u.Name = 'n5' AND hash(u.id) % 2 = 0 ORDER BY i": {
        *("i", "u.Name", "u.id"),
    },
    "SELECT u.Name AS n FROM t ORDER BY i DESC LIMIT 5": {"i", "u.Name"},
    "SELECT u.id FROM t WHERE i > 100 ORDER BY i LIMIT 5": {"i", "u.id"},
}


@pytest.mark.parametrize("query", QUERIES)
def test_no_others_are_read(query, folder, leaves):
    ds = ia.dataset(folder)
    whole = ds.to_table()
    leaves.clear()
    actual = ia.sql(query, t=ds)
    needed = QUERIES[query]
    assert leaves <= needed | ({"u.more"} if "u.Name" in needed else set())  # b has no u.Name
    con = duckdb.connect()
    con.register("t", whole)
    assert actual.to_pylist() == con.sql(query).to_arrow_table().to_pylist()


def test_errors_about_missing_fields_are_duckdbs(folder):
    t = ia.dataset(folder).to_table()
    with pytest.raises(duckdb.BinderException) as expected:
        duckdb.sql("SELECT u.nope, u.id FROM t")
    assert t.num_rows
    with pytest.raises(duckdb.BinderException) as raised:
        ia.sql("SELECT u.nope, u.id FROM t", t=folder)
    assert str(raised.value).splitlines()[:3] == str(expected.value).splitlines()[:3]


def test_a_filter_of_the_data_set_keeps_its_fields(folder, leaves):
    ds = ia.dataset(folder).filter(pc.field("u", "v", "x") == 5)
    whole = ds.to_table()
    leaves.clear()
    actual = ia.sql("SELECT u.id, i FROM t ORDER BY i", t=ds)
    assert actual["i"].to_pylist() == whole["i"].to_pylist()
    assert actual["id"].to_pylist() == pc.struct_field(whole["u"], "id").to_pylist()
    assert leaves == {"i", "u.id", "u.v.x"}


def test_a_data_set_of_fewer_fields_reads_no_others(folder, leaves):
    less = pa.struct({"v": pa.struct({"x": pa.int64()}), "id": pa.int64()})
    schema = SCHEMA.set(1, pa.field("u", less))
    ds = ia.dataset(folder, schema=schema)
    assert [column.column for column in ds.plan(["u"]).files[0].columns] == ["u.id", "u.v.x"]
    actual = ds.to_table(["u", "i"], filter=pc.field("i") >= 50)
    assert leaves == {"i", "u.id", "u.v.x"}
    expected = [
        None if one is None else {"v": one["v"] and {"x": one["v"]["x"]}, "id": one["id"]}
        for one in map(value, range(50, 2 * ROWS))
    ]
    assert actual["u"].to_pylist() == expected + [None] * ROWS


PATHS = ["u.id", "u.Name", "u.v", "u.v.x", "u.v.y", "u['v']['y']", "u", "i", "t.u.id", "l[1]"]
CONDITIONS = ["TRUE", "u.id > 1500", "u.v.x = 7", "u IS NULL", "length(u.Name) = 2", "i < 4000"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(PATHS), min_size=1, max_size=4),
    st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=2),
    st.sampled_from(["ORDER BY i", "ORDER BY i LIMIT 7", "ORDER BY u.id, i LIMIT 20 OFFSET 3"]),
)
def test_reading_any_fields_equals_reading_all(folder, outputs, conditions, order):
    ds = ia.dataset(folder)
    named = ", ".join(f"{path} AS c{at}" for at, path in enumerate(outputs))
    query = f"SELECT {named} FROM t WHERE {' AND '.join(conditions)} {order}"
    con = duckdb.connect()
    con.register("t", ds.to_table())
    assert ia.sql(query, t=ds).to_pylist() == con.sql(query).to_arrow_table().to_pylist()


def test_structs_of_which_a_file_has_none_of_the_fields(tmp_path):
    """At least one leaf of each requested struct is read, to tell which structs are NULL."""
    inner = pa.struct({"n": pa.int64(), "l": pa.list_(pa.int64())})
    kind = pa.struct({"x": pa.int64(), "in": inner, "deep": pa.struct({"l": pa.list_(inner)})})
    values = [
        {"x": 1, "in": {"n": 1, "l": [1]}, "deep": {"l": [None]}},
        {"x": 2, "in": None, "deep": None},
        None,
    ]
    table = pa.table({"k": [1, 2, 3], "s": pa.array(values, kind)})
    pq.write_table(table, tmp_path / "a.parquet")
    for condition, expected in (
        ({"in": pa.struct({"y": pa.int8()})}, [{"in": {"y": None}}, {"in": None}, None]),
        ({"y": pa.int8()}, [{"y": None}, {"y": None}, None]),
        ({"deep": pa.struct({"y": pa.int8()})}, [{"deep": {"y": None}}, {"deep": None}, None]),
        ({"x": pa.int64(), "in": pa.struct([])}, None),
    ):
        schema = pa.schema({"k": pa.int64(), "s": pa.struct(condition)})
        ds = ia.dataset(tmp_path / "a.parquet", schema=schema)
        actual = ds.to_table(["s"], filter=pc.field("k") > 0)["s"]
        assert actual.type == pa.struct(condition)
        assert actual.to_pylist() == (expected or table["s"].cast(pa.struct(condition)).to_pylist())


def test_fields_that_a_file_has_in_a_type_with_fewer_values(tmp_path):
    """Fields are cast only if requested; values that do not fit raise an error then."""
    wide = pa.array([{"n": 2**40, "t": "a"}, {"n": 1, "t": "b"}])
    pq.write_table(pa.table({"k": [1, 2], "s": wide}), tmp_path / "a.parquet")
    narrow = pa.schema({"k": pa.int64(), "s": pa.struct({"n": pa.int8()})})
    ds = ia.dataset(tmp_path / "a.parquet", schema=narrow)
    assert ds.to_table(filter=pc.field("k") == 2)["s"].to_pylist() == [{"n": 1}]
    with pytest.raises(ia.FormatError, match="cannot be read as struct"):
        ds.to_table(filter=pc.field("k") == 1)


def test_two_fields_of_the_same_name_do_not_affect_other_columns(tmp_path):
    twice = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array(["a", "b"])], ["x", "x"])
    pq.write_table(pa.table({"s": twice, "k": [1, 2]}), tmp_path / "a.parquet")
    assert ia.sql("SELECT k FROM t", t=tmp_path / "a.parquet")["k"].to_pylist() == [1, 2]
