"""``ia.dataset(…, union_by_name=True)``: all columns of all files, unified as in DuckDB."""

from __future__ import annotations

import datetime
import decimal
import re
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia as ia

MOMENTS = [datetime.datetime(2026, 1, day) for day in (1, 2, 3)]
WORDS = ["a", None, "é"]
KINDS: dict[str, list[pa.Array]] = {
    "whole": [
        pa.array([1, None, 2], kind)
        for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint32(), pa.int64())
    ],
    "floats": [pa.array([0.1, None, -0.0], kind) for kind in (pa.float32(), pa.float64())],
    "texts": [
        *(pa.array(WORDS, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())),
        pa.array(WORDS).dictionary_encode(),
    ],
    "moments": [pa.array(MOMENTS, pa.timestamp(unit)) for unit in ("ms", "us", "ns")],
    "zoned": [pa.array(MOMENTS, pa.timestamp(unit, "UTC")) for unit in ("ms", "us", "ns")],
    "decimals": [
        pa.array([decimal.Decimal("1.20"), None, decimal.Decimal("-0.01")], kind)
        for kind in (pa.decimal128(5, 2), pa.decimal128(18, 2), pa.decimal128(20, 4))
    ],
    "numbers": [
        pa.array([1, None, 3], kind)
        for kind in (pa.int8(), pa.uint8(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
    ],
    "lists": [
        *(
            pa.array([["a", None], None, []], kind(pa.string()))
            for kind in (pa.list_, pa.large_list)
        ),
        pa.array([["a", None], None, []], pa.large_list(pa.large_string())),
    ],
    "structs": [
        pa.array([{"a": 1, "b": "x", "c": [2]}, None, {}], pa.struct(fields))
        for fields in (
            {"a": pa.int8()},
            {"a": pa.int64(), "b": pa.string()},
            {"b": pa.large_string(), "a": pa.int32(), "c": pa.list_(pa.int8())},
            {"c": pa.large_list(pa.int64())},
        )
    ],
    "maps": [
        pa.array([[("k", 1)], None, []], pa.map_(key, value))
        for key in (pa.string(), pa.large_string())
        for value in (pa.int16(), pa.int64())
    ],
    "nothing": [pa.nulls(3), *(pa.array([1, 2, 3], kind) for kind in (pa.int8(), pa.int64()))],
}
columns = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(arrays) for name, arrays in KINDS.items()}
)


def write(folder: Path, tables: list[pa.Table]) -> list[str]:
    paths = [str(folder / f"{at}.parquet") for at in range(len(tables))]
    for table, path in zip(tables, paths, strict=True):
        pq.write_table(table, path)
    return paths


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(files=st.lists(columns, min_size=1, max_size=4))
def test_rows_equal_duckdbs_union_by_name(files, tmp_path):
    tables = [pa.table({"file": [at] * 3, **file}) for at, file in enumerate(files)]
    paths = write(tmp_path, tables)
    data = ia.dataset(paths, union_by_name=True)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        theirs = connection.read_parquet(paths, union_by_name=True)
        actual = data.to_table()
        assert set(data.schema.names) == set(theirs.columns)
        rows = connection.sql(f"SELECT {', '.join(theirs.columns)} FROM actual").fetchall()
        assert sorted(map(repr, rows)) == sorted(map(repr, theirs.fetchall()))
    for name in set(data.schema.names) - {"nothing"}:
        values = actual[name].to_pylist()
        assert data.count_rows(pc.field(name).is_null()) == values.count(None)
        some = next((value for value in values if value is not None), None)
        if some is not None and not pa.types.is_nested(data.schema.field(name).type):
            assert data.count_rows(pc.field(name) == pa.scalar(some)) == values.count(some)
    if "lists" in data.schema.names:
        lists = actual["lists"].to_pylist()
        assert data.count_rows("list_contains(lists, 'a')") == lists.count(["a", None])
    if "structs" in data.schema.names and "a" in data.schema.field("structs").type.names:
        structs = [value or {} for value in actual["structs"].to_pylist()]
        assert data.count_rows("structs.a = 1") == sum(value.get("a") == 1 for value in structs)


def test_files_of_several_writers(tmp_path):
    rows = {"id": [1, 2], "ts": MOMENTS[:2], "msg": ["a", "b"]}
    pq.write_table(pa.table(rows), tmp_path / "arrow.parquet")
    pl.DataFrame(rows).write_parquet(tmp_path / "polars.parquet")
    pa.table(rows).to_pandas().to_parquet(tmp_path / "pandas.parquet")
    duckdb.sql(f"COPY (SELECT 3::INT AS id, 'x' AS level) TO '{tmp_path}/duck.parquet'")
    data = ia.dataset(tmp_path, union_by_name=True)
    assert data.count_rows("id = 2 AND msg = 'b' AND level IS NULL") == 3
    assert data.to_table(["id", "ts"], "level = 'x'").to_pylist() == [{"id": 3, "ts": None}]
    actual = ia.sql("SELECT count(level) AS n, max(ts) AS last FROM d", d=data).to_pydict()
    assert actual == {"n": [1], "last": [MOMENTS[1]]}


@pytest.mark.parametrize("is_far", [False, True])
@pytest.mark.parametrize("partitioning", ["hive", ["day"], None])
def test_keys_of_folders_come_last(tmp_path, partitioning, is_far):
    for day, table in (("1", pa.table({"a": [1]})), ("2", pa.table({"b": ["x"], "a": [2]}))):
        folder = tmp_path / (f"day={day}" if partitioning == "hive" else day)
        folder.mkdir()
        pq.write_table(table, folder / "f.parquet")
    where = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()) if is_far else None
    source = "/" if is_far else tmp_path
    data = ia.dataset(source, filesystem=where, partitioning=partitioning, union_by_name=True)
    keys = [] if partitioning is None else ["day"]
    assert data.schema.names == ["a", "b", *keys]
    assert data.to_table(["a", "b"], "a = 2").to_pylist() == [{"a": 2, "b": "x"}]
    if keys:
        assert data.to_table(["a", "b"], "day = 1").to_pylist() == [{"a": 1, "b": None}]


def test_fields_of_structs_are_unified_and_nullable(tmp_path):
    for name in "xy":
        kind = pa.struct([pa.field(name, pa.int64(), nullable=False)])
        pq.write_table(pa.table({"s": pa.array([{name: 1}], kind)}), tmp_path / f"{name}.parquet")
    data = ia.dataset(tmp_path, union_by_name=True)
    assert data.to_table()["s"].to_pylist() == [{"x": 1, "y": None}, {"x": None, "y": 1}]


def test_dictionaries_in_lists_become_strings_if_other_files_have_strings(tmp_path):
    words = pa.array([["a", None], None, []], pa.list_(pa.dictionary(pa.int8(), pa.string())))
    write(tmp_path, [pa.table({"w": words}), pa.table({"w": words.cast(pa.list_(pa.string()))})])
    actual = ia.dataset(tmp_path, union_by_name=True).to_table()
    assert actual.schema.field("w").type == pa.list_(pa.string())
    assert actual["w"].to_pylist() == words.to_pylist() * 2


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (pa.int64(), pa.string()),
        (pa.float64(), pa.decimal128(5, 2)),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.int64()), pa.list_(pa.string())),
        (pa.struct([("x", pa.int64())]), pa.struct([("x", pa.bool_())])),
        (pa.int64(), pa.list_(pa.int64())),
    ],
)
def test_incompatible_files_are_named(tmp_path, kind, other):
    kinds = [pa.null(), kind, kind, other, pa.null(), other]
    write(tmp_path, [pa.table({"n": pa.nulls(1, kind)}) for kind in kinds])
    shown = f"{kind} vs {other}".replace("item", "element")  # as the format specifies it
    named = rf"3\.parquet: .*{re.escape(shown)}.*give a schema"
    with pytest.raises(ia.UnsupportedError, match=named):
        ia.dataset(tmp_path, union_by_name=True)


@pytest.mark.parametrize(
    ("kind", "value", "other", "wide"),
    [
        (pa.uint64(), 2**63, pa.int8(), pa.int64()),
        (pa.int64(), 2**53 + 1, pa.float32(), pa.float64()),
        (pa.binary(), b"\xff", pa.string(), pa.binary()),
    ],
)
def test_values_that_exceed_the_common_type_are_refused(tmp_path, kind, value, other, wide):
    write(tmp_path, [pa.table({"n": pa.array([value], kind)}), pa.table({"n": pa.nulls(2, other)})])
    data = ia.dataset(tmp_path, union_by_name=True)
    assert data.schema.field("n").type == wide
    if pa.types.is_integer(kind):
        with pytest.raises(ia.FormatError, match=r"0\.parquet, column n: .* cannot be read as"):
            data.to_table(filter="n IS NOT NULL")
    else:
        assert data.to_table(filter="n IS NOT NULL")["n"].to_pylist() == [value]


def test_invalid_combinations_are_refused(tmp_path):
    write(tmp_path, [pa.table({"n": [1]})])
    with pytest.raises(ValueError, match="schema says them"):
        ia.dataset(tmp_path, schema=pa.schema([("n", pa.int64())]), union_by_name=True)
    with pytest.raises(ValueError, match="types of its keys"):
        ia.dataset(tmp_path, partitioning=pads.partitioning(flavor="hive"), union_by_name=True)


def test_files_of_one_schema_keep_it(tmp_path):
    table = pa.table({"n": pa.array([1], pa.int8())}).replace_schema_metadata({"who": "me"})
    write(tmp_path, [table, table])
    assert ia.dataset(tmp_path, union_by_name=True).schema.equals(table.schema, check_metadata=True)
