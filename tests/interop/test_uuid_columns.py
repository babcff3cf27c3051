"""UUID and JSON columns in files of several writers: bytes and strings with logical types."""

from __future__ import annotations

import uuid

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia

ROWS = 3_000
IDS = [uuid.UUID(int=(i * 2**100 + i * 7919) % 2**128) for i in range(ROWS)]
SOME = str(IDS[77])


@pytest.fixture(params=["no Arrow schema", "Arrow's types", "within a struct"])
def path(request, tmp_path):
    """Rows of ``i``, ``id`` and ``js``; DuckDB stores no Arrow schema."""
    path = tmp_path / "a.parquet"
    bytes_ = [None if i % 10 == 5 else one.bytes for i, one in enumerate(IDS)]
    ids = pa.array(bytes_, pa.binary(16)).cast(pa.uuid())
    texts = pa.array([f'{{"K":{i}}}' for i in range(ROWS)])
    js = pa.ExtensionArray.from_storage(pa.json_(), texts)
    table = pa.table({"i": range(ROWS), "id": ids, "js": js})
    if request.param == "within a struct":
        within = pa.StructArray.from_arrays([ids, js], ["id", "js"])
        table = table.append_column("s", within)
    options = {"row_group_size": 1_000, "max_rows_per_page": 100, "write_page_index": True}
    pq.write_table(table, path, store_schema=request.param == "Arrow's types", **options)
    return path


def of_duckdb(query, path):
    return duckdb.sql(query.replace("FROM t", f"FROM '{path}'")).to_arrow_table().to_pylist()


@pytest.mark.parametrize(
    "condition",
    [
        f"id = '{SOME}'",
        f"id = '{SOME.upper()}'",
        f"id = '{SOME.replace('-', '')}'",
        f"id = UUID '{SOME}'",
        f"id = '{SOME}'::UUID AND i > 5",
        f"id IN ('{SOME}', '{IDS[5]}', '{IDS[6]}')",
        f"id IN ('{SOME}', NULL)",
        f"id <> '{SOME}'",
        f"NOT (id = '{SOME}')",
        f"id > '{IDS[1500]}'",
        f"id BETWEEN '{IDS[10]}' AND '{IDS[20]}'",
        f"id IS NOT DISTINCT FROM '{SOME}'",
        "id IS NULL",
        "js LIKE '%77%'",
        """js = '{"K":77}'""",
        "js->>'K' = '77'",
    ],
)
def test_sql_has_what_duckdb_reads(condition, path):
    for query in (f"SELECT i FROM t WHERE {condition} ORDER BY i", "SELECT min(id) AS m FROM t"):
        assert ia.sql(query, t=path).to_pylist() == of_duckdb(query, path)


def test_sql_gives_uuids(path):
    query = "SELECT id FROM t WHERE i IN (77, 75) ORDER BY i"
    assert ia.sql(query, t=path).to_pylist() == of_duckdb(query, path)
    dated = ia.dataset(path).filter(pc.field("i") == 77)
    assert ia.sql("SELECT typeof(id) AS t FROM t", t=dated).to_pylist() == [{"t": "UUID"}]


@pytest.mark.parametrize("path", ["within a struct"], indirect=True)
def test_sql_gives_uuids_within_structs(path):
    query = f"SELECT i, s.id AS id FROM t WHERE s.id = '{SOME}'"
    assert ia.sql(query, t=path).to_pylist() == of_duckdb(query, path)
    actual = ia.dataset(path).to_table(["i"], filter=f"s.id = '{SOME}'")
    assert actual.to_pylist() == [{"i": 77}]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (f"id = '{SOME}'", [77]),
        (f"id = UUID '{SOME.upper()}'", [77]),
        (f"id IN ('{SOME}', '{IDS[6]}')", [6, 77]),
        (f"id::UUID = '{SOME}'", [77]),
        (f"id < '{IDS[3]}' AND i < 100", [0, 1, 2, *range(ROWS, ROWS)]),
        ("js LIKE '%77}'", [77, *range(177, ROWS, 100)]),
        ("""lower(js) = '{"k":77}'""", [77]),
    ],
)
def test_conditions_in_text(condition, expected, path):
    actual = ia.dataset(path).to_table(["i"], filter=condition)["i"].to_pylist()
    if "<" in condition:  # the leading bytes grow, then start again
        expected = [i for i, one in enumerate(IDS[:100]) if i % 10 != 5 and one < IDS[3]]
    assert actual == expected


@pytest.mark.parametrize("kind", ["lookup", "distinct", "minmax", "bloom"])
def test_indexes_of_uuids_are_used(kind, path):
    ia.add_indexes(path, [f"id:{kind}"])
    ds = ia.dataset(path)
    for condition in (f"id = '{SOME}'", f"id = '{uuid.UUID(int=2**127 + 1)}'"):
        bare = [i for i, one in enumerate(IDS) if str(one) in condition]
        assert ds.to_table(["i"], filter=condition)["i"].to_pylist() == bare
        assert ia.sql(f"SELECT i FROM t WHERE {condition}", t=ds)["i"].to_pylist() == bare
    # Excluded by page, or by row group; row groups have values of the full range.
    most = {"lookup": 200, "distinct": 200, "minmax": ROWS, "bloom": 1_000}[kind]
    assert ds.plan(["i"], f"id = '{SOME}'").figures.rows.selected <= most


@pytest.mark.parametrize("kind", ["ngram", "words", "distinct", "lookup", "minmax"])
def test_indexes_of_json_are_used(kind, path):
    ia.add_indexes(path, [f"js:{kind}"])
    ds = ia.dataset(path)
    condition = {
        "ngram": "js LIKE '%:777}'",
        "words": "contains_words(js, '777')",
    }.get(kind, """js = '{"K":777}'""")
    assert ds.to_table(["i"], filter=condition)["i"].to_pylist() == [777]
    stores_schema = ds.schema.field("js").type != pa.string()
    if not (kind == "words" and stores_schema):  # a cast decides the message
        assert ds.plan(["i"], condition).figures.rows.selected <= 200


def test_strings_that_are_not_uuids_are_an_error(path):
    ds = ia.dataset(path)
    with pytest.raises(ia.PredicateError, match=r"is no UUID|cannot be read as fixed_size_binary"):
        ds.to_table(filter="id = 'nope'")
    with pytest.raises(ia.PredicateError, match="i is int64, which cannot be cast to UUID"):
        ds.to_table(filter=f"i::UUID = '{SOME}'")
    with pytest.raises(ia.PredicateError, match="a UUID does not compare with int64"):
        ds.to_table(filter=f"i = UUID '{SOME}'")
    with pytest.raises(ia.PredicateError, match="a UUID does not compare with string"):
        ds.to_table(filter=f"js = '{SOME}'::UUID")
    if ds.schema.field("id").type == pa.uuid():
        with pytest.raises(ia.PredicateError, match="no cast to string"):
            ds.to_table(filter=f"id::VARCHAR = '{SOME}'")
        for text, count in (
            (f"{{{SOME}}}", 1),
            (SOME.replace("-", ""), 1),
            (f"urn:uuid:{SOME}", 0),
        ):
            if count:
                assert ds.count_rows(filter=f"id = '{text}'") == count
            else:
                with pytest.raises(ia.PredicateError, match="is no UUID"):
                    ds.count_rows(filter=f"id = '{text}'")
    for text in ("nope", f"urn:uuid:{SOME}"):
        with pytest.raises(duckdb.ConversionException):
            ia.sql(f"SELECT i FROM t WHERE id = '{text}'", t=path)


def test_sixteen_bytes_without_the_uuid_type_are_bytes(tmp_path):
    table = pa.table({"b": pa.array([b"abcdefghijklmnop", None], pa.binary(16)), "i": [0, 1]})
    pq.write_table(table, tmp_path / "a.parquet")
    ds = ia.dataset(tmp_path / "a.parquet")
    assert ds.to_table(["i"], filter="b = 'abcdefghijklmnop'")["i"].to_pylist() == [0]
    actual = ia.sql("SELECT typeof(b) AS t FROM t LIMIT 1", t=ds)
    assert actual.to_pylist() == [{"t": "BLOB"}]


def test_few_files_are_opened_to_find_uuid_columns(tmp_path):
    schema = pa.schema({"i": pa.int64(), "a": pa.binary(16), "b": pa.binary(16)})
    for number in range(20):
        pq.write_table(pa.table({"i": [number]}), tmp_path / f"{number}.parquet")
    (tmp_path / "00.parquet").write_bytes(b"no file of Parquet's")
    ds = ia.dataset(tmp_path, schema=schema)
    with pytest.raises(ia.FormatError, match=r"00\.parquet"):
        ia.sql("SELECT i FROM t", t=ds)
    (tmp_path / "00.parquet").unlink()
    ds = ia.dataset(tmp_path, schema=schema)
    assert ia.sql("SELECT count(a) AS n FROM t", t=ds).to_pylist() == [{"n": 0}]


@pytest.mark.parametrize("stores_schema", [True, False])
def test_uuids_within_lists_and_maps(tmp_path, stores_schema):
    path = tmp_path / "a.parquet"
    ids = pa.array([one.bytes for one in IDS], pa.binary(16)).cast(pa.uuid())
    pairs = pa.array(range(0, ROWS + 1, 2), pa.int32())
    table = pa.table(
        {
            "i": range(ROWS // 2),
            "l": pa.ListArray.from_arrays(pairs, ids),
            "m": pa.MapArray.from_arrays(pairs, pa.array(["a", "b"] * (ROWS // 2)), ids),
        }
    )
    pq.write_table(table, path, store_schema=stores_schema, row_group_size=100)
    ia.add_indexes(path, ["l:elements"])
    for condition in (f"list_contains(l, '{SOME}')", f"m['b'] = '{SOME}'", f"l[2] = '{SOME}'"):
        query = f"SELECT i FROM t WHERE {condition}"
        assert ia.sql(query, t=path).to_pylist() == of_duckdb(query, path) == [{"i": 38}]
    actual = ia.dataset(path)
    condition = f"list_contains(l, '{SOME}')"
    assert actual.to_table(["i"], filter=condition).to_pylist() == [{"i": 38}]
    assert actual.plan(["i"], condition).figures.rows.selected == 100


@pytest.mark.parametrize(
    "condition",
    ["j > '{'", "j = 'abc'", "j IN ('abc', 'x')", "(j) = ''", "j BETWEEN '1' AND '{'", "j = s"],
)
def test_duckdb_compares_json_and_reports_invalid_json(condition, tmp_path):
    texts = pa.array(['{"a":1}', '{"a":2}', None] * 10)
    js = pa.ExtensionArray.from_storage(pa.json_(), texts)
    table = pa.table({"i": range(30), "j": js, "s": ["x"] * 30})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(duckdb.ConversionException, match="Malformed JSON"):
        ia.sql(f"SELECT count(*) FROM t WHERE {condition}", t=tmp_path / "a.parquet")
