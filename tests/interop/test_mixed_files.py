"""Data sets of files that differ in columns, types, writers and numbers of rows.

pyarrow's answer is right. Where pyarrow raises, Intarsia raises its own error.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import intarsia as ia

field = pads.field
MONEY = [Decimal("1.10"), Decimal("2.20"), None, Decimal("3.30")]
A, AB = pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int64()), ("b", pa.int64())])
AB_VALUES = [{"a": 1, "b": 2}, None, {"a": 3, "b": None}, {"a": 5, "b": 1}]
A_VALUES = [{"a": 1}, None, {"a": None}, {"a": 3}]
SECOND = datetime.datetime(1970, 1, 1, 0, 0, 1)


def ints(kind: pa.DataType, *values: int | None) -> pa.Array:
    return pa.array(values, kind)


def texts(kind: pa.DataType, *values: str | None) -> pa.Array:
    return pa.array(values, pa.string()).cast(kind)


WORDS, OTHERS = ("a", "b", None, "c"), ("a", "d", None, "c")
WORD_TYPES = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "binary": pa.binary(),
}
MIXES: dict[str, tuple[pa.Array, pa.Array, Any]] = {
    "narrower_int": (ints(pa.int64(), 1, 5, None, 2**40), ints(pa.int32(), 1, 5, None, 7), 4),
    "wider_int": (ints(pa.int32(), 1, 2, None, 4), ints(pa.int64(), 1, 5, None, 7), 3),
    "wider_int_overflows": (ints(pa.int32(), 1, 2, None, 4), ints(pa.int64(), 1, 2**40, 3, 4), 3),
    "signed_and_unsigned": (ints(pa.uint8(), 1, 200, None, 4), ints(pa.int64(), 1, -5, 3, 4), 3),
    "int_then_float": (ints(pa.int64(), 1, 2**53 + 1, None, 4), pa.array([1.0, 2, None, 4]), 2),
    "float_then_int": (pa.array([1.5, 2, None, 4]), ints(pa.int64(), 1, 2, None, 2**53 + 1), 1.6),
    "float_then_double": (
        pa.array([1.5, 0.1, None, 4], pa.float32()),
        pa.array([1.5, 0.1, None, float("nan")]),
        0.1,
    ),
    "double_then_float": (
        pa.array([1.5, 0.1, None, 4]),
        pa.array([1.5, 0.1, None, float("nan")], pa.float32()),
        0.1,
    ),
    "millis_then_micros": (
        ints(pa.timestamp("ms"), 1, 1000, None, 3),
        ints(pa.timestamp("us"), 1000, 1_000_000, None, 3000),
        SECOND,
    ),
    "millis_then_finer_micros": (
        ints(pa.timestamp("ms"), 1, 1000, None, 3),
        ints(pa.timestamp("us"), 1000, 1_000_001, None, 3000),
        SECOND,
    ),
    "micros_then_millis": (
        ints(pa.timestamp("us"), 1000, 1_000_001, None, 3),
        ints(pa.timestamp("ms"), 1, 1000, None, 3),
        SECOND,
    ),
    "nanos_then_micros": (
        ints(pa.timestamp("ns"), 1000, 1_000_000_001, None, 3),
        ints(pa.timestamp("us"), 1, 1_000_000, None, 3),
        SECOND,
    ),
    "utc_then_naive": (
        ints(pa.timestamp("us", "UTC"), 1, 2000, None, 3),
        ints(pa.timestamp("us"), 1, 2000, None, 3),
        None,
    ),
    "date_then_timestamp": (
        ints(pa.date32(), 1, 2000, None, 3),
        ints(pa.timestamp("us"), 0, 86_400_000_000, None, 3),
        datetime.date(1970, 1, 2),
    ),
    "wider_decimal": (
        pa.array(MONEY, pa.decimal128(9, 2)),
        pa.array(MONEY, pa.decimal128(20, 2)),
        MONEY[1],
    ),
    "narrower_decimal": (
        pa.array(MONEY, pa.decimal128(20, 2)),
        pa.array(MONEY, pa.decimal128(9, 2)),
        MONEY[1],
    ),
    "more_places": (
        pa.array(MONEY, pa.decimal128(9, 2)),
        pa.array(MONEY, pa.decimal128(12, 4)),
        MONEY[1],
    ),
    "fewer_places": (
        pa.array(MONEY, pa.decimal128(12, 4)),
        pa.array(MONEY, pa.decimal128(9, 2)),
        MONEY[1],
    ),
    "decimal_then_int": (
        pa.array(MONEY, pa.decimal128(12, 2)),
        ints(pa.int32(), 1, 2, None, 3),
        MONEY[1],
    ),
    "bool_then_int": (pa.array([True, False, None, True]), ints(pa.int32(), 1, 0, None, 3), None),
    "int_then_text": (ints(pa.int32(), 1, 0, None, 3), texts(pa.string(), "1", "x", None, "3"), 2),
    "int_then_nothing": (ints(pa.int32(), 1, 0, None, 3), pa.nulls(4), 0),
    "nothing_then_int": (pa.nulls(4), ints(pa.int32(), 1, 0, None, 3), None),
    "struct_with_more": (pa.array(A_VALUES, A), pa.array(AB_VALUES, AB), None),
    "struct_with_less": (pa.array(AB_VALUES, AB), pa.array(A_VALUES, A), None),
    "struct_in_other_order": (
        pa.array(AB_VALUES, AB),
        pa.array(AB_VALUES, pa.struct(list(reversed(list(AB))))),
        None,
    ),
    "struct_of_narrower": (
        pa.array(A_VALUES, A),
        pa.array(A_VALUES, pa.struct([("a", pa.int32())])),
        None,
    ),
    "list_of_narrower": (
        pa.array([[1], None, [], [2, 3]], pa.list_(pa.int64())),
        pa.array([[1], None, [], [2, 3]], pa.list_(pa.int32())),
        None,
    ),
    "large_list": (
        pa.array([[1], None, [], [2, 3]], pa.list_(pa.int64())),
        pa.array([[1], None, [], [2, 3]], pa.large_list(pa.int64())),
        None,
    ),
} | {
    f"{first}_then_{second}": (texts(one, *WORDS), texts(other, *OTHERS), "b")
    for first, one in WORD_TYPES.items()
    for second, other in WORD_TYPES.items()
    if first != second
}


def filters_of(mix: str) -> dict[str, pads.Expression]:
    first, _, value = MIXES[mix]
    x = field("x")
    actual = {"key": field("k") >= 2, "valid": x.is_valid(), "null": x.is_null()}
    if value is not None:
        actual |= {"equal": x == value, "above": x > value, "up_to": x <= value}
        actual |= {"not_above": ~(x > value), "in": x.isin([value])}
        actual |= {"or_key": (x == value) | (field("k") == 11)}
    if pa.types.is_struct(first.type):
        actual |= {"field": field("x", "a") > 1}
    return actual


QUERIES = {
    "to_table": lambda data, predicate: data.to_table(filter=predicate),
    "count_rows": lambda data, predicate: data.count_rows(filter=predicate),
    "one_column": lambda data, predicate: data.to_table(columns=["k"], filter=predicate),
    "computed": lambda data, predicate: data.to_table(
        columns={"y": field("k") + 1}, filter=predicate
    ),
    "take": lambda data, predicate: data.take([0], filter=predicate),
}
FEW = ("to_table", "count_rows")


def outcome(query: Any, *args: Any) -> Any:
    """Converts an answer so that NaN equals NaN; None for an error of pyarrow or Intarsia."""
    try:
        actual = query(*args)
    except (pa.ArrowException, IndexError, ia.IntarsiaError):
        return None
    return (actual.schema, str(actual.to_pylist())) if isinstance(actual, pa.Table) else actual


def row_by_row(data: pads.Dataset, predicate: pads.Expression) -> list[dict[str, Any]]:
    """Filters row by row, where pyarrow raises because of values that were not requested."""
    actual: list[dict[str, Any]] = []
    for path in data.files:
        table = pq.ParquetFile(path).read()
        for f in data.schema:
            if f.name not in table.column_names:
                table = table.append_column(f, pa.nulls(len(table), f.type))
        for i in range(len(table)):
            with contextlib.suppress(pa.ArrowException):
                row = table.select(data.schema.names)[i : i + 1].cast(data.schema)
                actual += pads.dataset(row).to_table(filter=predicate).to_pylist()
    return actual


def same(
    ours: pads.Dataset, theirs: pads.Dataset, predicate: pads.Expression, names: Any = QUERIES
) -> None:
    expected = outcome(QUERIES["to_table"], theirs, predicate)
    if expected is None:
        actual = outcome(QUERIES["to_table"], ours, predicate)
        assert actual is None or actual[1] == str(row_by_row(theirs, predicate))
        return
    for name in names:
        query = QUERIES[name]
        assert outcome(query, ours, predicate) == outcome(query, theirs, predicate), name
    head = theirs.to_table(filter=predicate)[:3]
    assert str(ours.head(3, filter=predicate).to_pylist()) == str(head.to_pylist())


@pytest.mark.parametrize("mix", MIXES)
def test_a_column_of_two_types(mix: str, tmp_path: Path) -> None:
    for i, values in enumerate(MIXES[mix][:2]):
        table = pa.table({"k": [10 * i + row for row in range(4)], "x": values})
        ia.write_table(table, tmp_path / f"{i}.parquet", max_rows_per_page=2, write_batch_size=1)
    ours, theirs = ia.dataset(tmp_path), pads.dataset(tmp_path)
    for name, predicate in filters_of(mix).items():
        same(ours, theirs, predicate, QUERIES if name == "key" else FEW)


@pytest.mark.parametrize("mix", MIXES)
def test_a_given_type_replaces_both_types(mix: str, tmp_path: Path) -> None:
    for i, values in enumerate(MIXES[mix][:2]):
        table = pa.table({"k": [10 * i + row for row in range(4)], "x": values})
        pq.write_table(table, tmp_path / f"{i}.parquet", write_page_index=True)
    schema = pa.schema([("more", pa.int8()), ("x", MIXES[mix][1].type), ("k", pa.int64())])
    ours, theirs = (f.dataset(tmp_path, schema=schema) for f in (ia, pads))
    for predicate in filters_of(mix).values():
        same(ours, theirs, predicate, FEW)


TABLES = {
    "plain": pa.table({"k": [1, 2, 3], "x": [5, None, 7]}),
    "no_x": pa.table({"k": [4, 5]}),
    "no_k": pa.table({"x": [8, None]}),
    "more": pa.table({"new": ["a", "b"], "k": [6, 7], "x": [9, 9]}),
    "no_rows": pa.table({"k": pa.array([], pa.int64()), "x": pa.array([], pa.int64())}),
    "required": pa.table(
        {"k": [8], "x": [1]},
        schema=pa.schema([pa.field("k", pa.int64(), False), pa.field("x", pa.int64(), False)]),
    ),
    "neither": pa.table({"other": [1.5, 2.5, 3.5]}),
}


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    """Files of ``TABLES``, one without row groups, and one without columns."""
    for i, table in enumerate(TABLES.values()):
        pq.write_table(table, tmp_path / f"{i}.parquet", write_page_index=True)
    pq.ParquetWriter(tmp_path / "8.parquet", TABLES["plain"].schema).close()
    pq.write_table(pa.table({}), tmp_path / "9.parquet")
    return tmp_path


def test_files_that_lack_a_column_have_more_or_have_no_rows(uneven: Path) -> None:
    assert pq.read_metadata(uneven / "8.parquet").num_row_groups == 0
    ours, theirs = ia.dataset(uneven), pads.dataset(uneven)
    k, x = field("k"), field("x")
    for predicate in (
        k > 2, k.is_null(), x.is_null(), ~(x > 7), (k == 5) | (x == 8), x.isin([1, 9]), k < 0,
        k.is_null() & x.is_null(), x.is_null() | (k < 3),
    ):  # fmt: skip
        same(ours, theirs, predicate)
    assert ours.take([11, 0, 4]).equals(theirs.take([11, 0, 4]))
    assert ours.to_table().equals(theirs.to_table())
    assert ours.head(6).equals(theirs.head(6))
    assert ours.count_rows() == theirs.count_rows()


def test_a_schema_with_columns_that_no_single_file_has(uneven: Path) -> None:
    schema = pa.schema([("new", pa.string()), ("other", pa.float32()), ("k", pa.int16())])
    ours, theirs = (f.dataset(uneven, schema=schema) for f in (ia, pads))
    for predicate in (
        field("new") == "b",
        field("other") > 2,
        field("k") > 2,
        field("new").is_null(),
    ):
        same(ours, theirs, predicate)


def test_a_data_set_of_files_without_rows(tmp_path: Path) -> None:
    for i in range(3):
        pq.write_table(TABLES["no_rows"], tmp_path / f"{i}.parquet")
    data = ia.dataset(tmp_path)
    assert data.to_table(filter=field("k") > 1).equals(TABLES["no_rows"])
    assert data.count_rows(filter=field("k").is_null()) == 0
    assert data.head(5).num_rows == 0


@pytest.mark.filterwarnings("ignore:of 3 files looked into, 2 lack name.lookup")
def test_files_of_several_writers_in_hive_folders(tmp_path: Path) -> None:
    rows = 6000
    table = pa.table(
        {
            "id": pa.array(np.random.default_rng(3).permutation(rows)),
            "name": [f"n{i % 97}" for i in range(rows)],
            "at": pa.array(range(0, rows * 60, 60), pa.timestamp("s")).cast(pa.timestamp("us")),
            "value": [None if i % 5 == 0 else i / 8 for i in range(rows)],
        }
    )
    thirds = [table[i : i + 2000] for i in range(0, rows, 2000)]
    folders = [tmp_path / f"day={day}" / "region=eu" for day in (1, 2, 3)]
    for folder in folders:
        folder.mkdir(parents=True)
    ia.write_table(
        thirds[0], folders[0] / "a.parquet", max_rows_per_page=100, indexes=[ia.Lookup("name")]
    )
    with duckdb.connect() as connection:
        connection.register("t", thirds[1])
        connection.execute(f"COPY (FROM t) TO '{folders[1] / 'b.parquet'}' (FORMAT parquet)")
    pl.from_arrow(thirds[2]).write_parquet(folders[2] / "c.parquet")
    ours, theirs = ia.dataset(tmp_path), pads.dataset(tmp_path, partitioning="hive")
    assert ours.schema.equals(theirs.schema)
    noon = datetime.datetime(1970, 1, 2, 12)
    for predicate in (
        field("name") == "n50",
        (field("id") < 40) & (field("day") > 1),
        (field("at") >= noon) & (field("at") < noon + datetime.timedelta(hours=2)),
        field("value").is_null() & (field("id") < 100),
        (field("day") == 2) | (field("name") == "n3"),
    ):
        expected = theirs.to_table(filter=predicate)
        assert ours.to_table(filter=predicate).equals(expected)
        assert ours.count_rows(filter=predicate) == expected.num_rows > 0
        assert ours.head(7, filter=predicate).equals(expected[:7])


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_two_thousand_files_keep_few_open_and_take_seconds(tmp_path: Path) -> None:
    for i in range(2000):
        pq.write_table(pa.table({"k": [i, i + 1], "x": [str(i), None]}), tmp_path / f"{i:04}")
    gc.collect()
    before = open_files()
    start = time.process_time()
    data = ia.dataset(tmp_path)
    assert data.to_table(filter=field("k") == 1234).column("x").to_pylist() == [None, "1234"]
    assert data.count_rows(filter=field("k") < 1000) == 1999
    assert data.head(3, filter=field("k") > 1500).num_rows == 3
    assert open_files() - before < 160
    assert time.process_time() - start < 60
    del data
    for _ in range(100):  # reads begun ahead of the head are still in progress
        gc.collect()
        if open_files() - before < 10:
            return
        time.sleep(0.05)
    pytest.fail("files are left open")


@pytest.mark.parametrize("count", [1, 20], ids=["one_by_one", "together"])
def test_json_in_two_storage_types(count: int, tmp_path: Path) -> None:
    texts = pa.array(["{}", None, "[1]"])
    large = pa.ExtensionArray.from_storage(pa.json_(pa.large_string()), texts.cast("large_string"))
    small = pa.ExtensionArray.from_storage(pa.json_(), texts)
    for i in range(count):
        first, second = (tmp_path / f"{i:02}{which}.parquet" for which in "ab")
        pq.write_table(pa.table({"x": large, "n": range(3)}), first)
        pq.write_table(pa.table({"x": small, "n": range(3)}), second, store_schema=False)
    condition = pads.field("n") >= 1
    actual = ia.dataset(tmp_path).to_table(filter=condition)
    assert actual.equals(pads.dataset(tmp_path).to_table(filter=condition))
    assert actual["x"].type == pa.json_(pa.large_string())


def test_extension_types_of_writers_that_store_no_arrow_schema(tmp_path: Path) -> None:
    duckdb.sql(
        f"""COPY (SELECT uuid() u, '{{"a": 1}}'::JSON j, i FROM range(10) t(i))
        TO '{tmp_path}/a.parquet'"""
    )
    theirs = pads.dataset(tmp_path)
    elsewhere = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    ways = [lambda: ia.dataset(tmp_path), lambda: ia.dataset(tmp_path, union_by_name=True)]
    ways.append(lambda: ia.dataset("/", filesystem=elsewhere))
    kinds = pa.schema({"u": pa.uuid(), "j": pa.json_(), "i": pa.int64()})
    own = theirs.to_table().slice(3, 1).cast(kinds)
    predicate = (pads.field("u") == own["u"][0]) & pc.match_substring(pads.field("j"), "a")
    for _ in range(2):
        for open_ in ways:
            assert open_().schema.types == kinds.types
            assert open_().to_table(filter=predicate).to_pylist() == own.to_pylist()
            assert open_().count_rows(filter=predicate) == 1
        ia.build_catalog(tmp_path)
    assert ia.ParquetFile(tmp_path / "a.parquet").schema_arrow.types[0] == pa.uuid()


@pytest.mark.parametrize("first", ["duckdb", "pyarrow"])
def test_extension_types_are_unified_with_bytes_of_other_writers(
    first: str, tmp_path: Path
) -> None:
    at = {"duckdb": tmp_path / "b.parquet", "pyarrow": tmp_path / "c.parquet"}
    at[first] = tmp_path / "a.parquet"
    duckdb.sql(f"COPY (SELECT uuid() u, '{{}}'::JSON j FROM range(5)) TO '{at['duckdb']}'")
    own = pa.table({"u": pa.array([b"x" * 16], pa.uuid()), "j": pa.array(["[]"], pa.json_())})
    pq.write_table(own, at["pyarrow"])
    data = ia.dataset(tmp_path, union_by_name=True)
    assert data.schema.types == [pa.uuid(), pa.json_()]
    actual = data.to_table()
    assert actual.num_rows == 6
    place = 0 if first == "pyarrow" else 5
    assert actual.slice(place, 1).to_pylist() == own.to_pylist()
