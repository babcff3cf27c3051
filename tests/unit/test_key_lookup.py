"""``Dataset.lookup`` gives the rows that comparing each row with each key gives."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import intarsia as ia

ROWS = 3_000
START = datetime(2020, 1, 1)
VALUES = {
    "int8": (pa.int8(), lambda i: i % 250 - 125),
    "uint16": (pa.uint16(), lambda i: i * 20 % 60_000),
    "int32": (pa.int32(), lambda i: i * 7 - 900),
    "int64": (pa.int64(), lambda i: i * 2**50 - 2**61),
    "uint64": (pa.uint64(), lambda i: 2**64 - 1 - i),
    "float16": (pa.float16(), lambda i: np.float16([0.0, -0.0, math.nan, 1.5, i % 9][i % 5])),
    "float": (pa.float32(), lambda i: [0.0, -0.0, math.nan, 1.5, i / 4][i % 5]),
    "double": (pa.float64(), lambda i: [0.0, -0.0, math.nan, 1.5, i / 3][i % 5]),
    "string": (pa.string(), lambda i: f"v{i // 2}"),
    "large_string": (pa.large_string(), lambda i: f"v{i // 2}"),
    "string_view": (pa.string_view(), lambda i: f"v{i // 2}"),
    "binary": (pa.binary(), lambda i: b"\0" * (i % 3) + str(i).encode()),
    "fixed": (pa.binary(4), lambda i: (i // 2).to_bytes(4, "big")),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), lambda i: f"v{i % 40}"),
    "decimal32": (pa.decimal32(7, 2), lambda i: Decimal(i) / 4),
    "decimal128": (pa.decimal128(20, 2), lambda i: Decimal(i) / 4 - 100),
    "date": (pa.date32(), lambda i: date(2020, 1, 1) + timedelta(days=i // 2)),
    "time": (pa.time64("us"), lambda i: time(i % 24, i % 60, 1, i)),
    "timestamp": (pa.timestamp("us"), lambda i: START + timedelta(seconds=i // 2)),
    "zoned": (pa.timestamp("ms", "UTC"), lambda i: START.replace(tzinfo=UTC) + timedelta(hours=i)),
    "duration": (pa.duration("us"), lambda i: timedelta(milliseconds=i)),
    "boolean": (pa.bool_(), lambda i: i % 2 == 0),
    "uuid": (pa.uuid(), lambda i: uuid.UUID(int=i // 2).bytes),
}
NOT_INDEXED = {"float16", "boolean"}


def table_of(kind, value):
    values = [None if i % 11 == 3 else value(i) for i in range(ROWS)]
    return pa.table({"n": pa.array(range(ROWS)), "k": pa.array(values, kind)})


def expected(stored, keys, order):
    """Compares each row with each key; returns the rows' numbers and the keys' positions."""
    pairs = [
        (row, number)
        for row, value in enumerate(stored)
        for number, key in enumerate(keys)
        if value is not None and value == key
    ]
    return sorted(pairs, key=lambda pair: (pair[1], pair[0]) if order == "keys" else pair)


def pairs_of(table):
    return list(zip(table["n"].to_pylist(), table["__key_number"].to_pylist(), strict=True))


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("order", ["keys", "storage"])
def test_lookup_gives_what_comparing_all_rows_gives(tmp_path, name, order):
    kind, value = VALUES[name]
    table = table_of(kind, value)
    indexes = [] if name in NOT_INDEXED else [ia.Lookup("k")]
    ia.write_table(table, tmp_path / "a.parquet", indexes=indexes, row_group_size=1_000)
    stored = table["k"].to_pylist()
    keys = [stored[i] for i in (2_500, 4, 5, 6, 7, 8, 2_500, 1_234)] + [None, stored[9]]
    absent = pa.array([value(10**5 % ROWS)], kind).to_pylist()[0]
    keys.insert(3, absent)
    actual = ia.dataset(tmp_path / "a.parquet").lookup("k", keys, ["n"], order=order)
    assert actual.column_names == ["n", "__key_number"]
    assert pairs_of(actual) == expected(stored, keys, order)
    assert actual.num_rows > 5


def lake(folder, *, indexes=(), sidecar=False, catalog=False, partitioned=False):
    for number in range(6):
        path = folder / (f"part={number % 2}" if partitioned else "") / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        numbers = np.arange(number * 500, number * 500 + 500)
        table = pa.table({"n": numbers, "k": [f"key {i * 7919 % 2_003}" for i in numbers]})
        ia.write_table(table, path, indexes=() if sidecar else indexes)
    if sidecar:
        ia.add_indexes(folder, indexes, sidecar=True)
    if catalog:
        ia.build_catalog(folder)
    return ia.dataset(folder)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"indexes": [ia.Lookup("k")]},
        {"indexes": [ia.Lookup("k")], "sidecar": True},
        {"indexes": [ia.Lookup("k")], "catalog": True},
        {"indexes": [ia.Lookup("k")], "partitioned": True, "catalog": True},
    ],
    ids=["plain", "index", "sidecar", "catalog", "partitions"],
)
@pytest.mark.parametrize("count", [1, 40, 3_000])
def test_lookup_reads_many_files(tmp_path, options, count):
    data = lake(tmp_path, **options)
    keys = [f"key {i}" for i in np.random.default_rng(1).integers(0, 2_500, count)]
    rows = data.to_table(["n", "k"])
    by_place = expected(rows["k"].to_pylist(), keys, "storage")
    numbers = rows["n"].to_pylist()
    storage = data.lookup("k", keys, ["n"], order="storage")
    assert pairs_of(storage) == [(numbers[row], number) for row, number in by_place]
    in_keys = data.lookup("k", pa.chunked_array([keys]))
    assert in_keys.column_names == [*data.schema.names, "__key_number"]
    assert pairs_of(in_keys) == sorted(pairs_of(storage), key=lambda pair: pair[1])
    assert all(
        keys[n] == k for k, n in zip(*in_keys.select([1, -1]).to_pydict().values(), strict=True)
    )


def test_lookup_of_partition_values_and_under_a_filter(tmp_path):
    data = lake(tmp_path, partitioned=True)
    table = data.filter(pc.field("n") < 700).lookup("part", [1, 5, 0], ["n"])
    first, last = list(range(500, 700)), list(range(500))
    assert table["n"].to_pylist() == first + last
    assert table["__key_number"].to_pylist() == [0] * 200 + [2] * 500


def test_columns_of_a_lookup(tmp_path):
    data = lake(tmp_path, indexes=[ia.Lookup("k")])
    assert data.lookup("k", ["key 0", "no"], []).to_pydict() == {"__key_number": [0, 0]}
    computed = data.lookup("k", ["key 0"], {"m": pc.field("n") * 2})
    assert computed.to_pydict() == {"m": [0, 4006], "__key_number": [0, 0]}
    empty = data.lookup("k", [])
    assert empty.schema == data.schema.append(pa.field("__key_number", pa.int64()))
    assert data.lookup("k", [None, "no"]).schema == empty.schema
    assert data.lookup("k", ["key 0"]).schema == empty.schema
    named = data.lookup("k", ["key 5"], ["k", "k", "__filename", "__row_number"])
    assert named.column_names == ["k", "k", "__filename", "__row_number", "__key_number"]


def test_fields_of_structs_have_keys(tmp_path):
    structs = [None if i % 5 == 0 else {"id": i % 7} for i in range(100)]
    ia.write_table(pa.table({"u": structs, "n": range(100)}), tmp_path / "a.parquet")
    table = ia.dataset(tmp_path / "a.parquet").lookup("u.id", [3, 9, 3], ["n"])
    stored = [None if one is None else one["id"] for one in structs]
    assert pairs_of(table) == expected(stored, [3, 9, 3], "keys")


@pytest.mark.parametrize(
    ("on", "indexed"),
    [
        ("lower(k)", "lower(k)"),
        (pc.utf8_lower(pc.field("k")), "lower(k)"),
        ("doc->>'$.id'", "doc->>'$.id'"),
        (pc.field("k"), "k"),
    ],
    ids=str,
)
@pytest.mark.parametrize("order", ["keys", "storage"])
def test_expressions_have_keys(tmp_path, on, indexed, order):
    names = [None if i % 11 == 3 else f"Key{i // 3}" for i in range(ROWS)]
    docs = [None if i % 9 == 3 else f'{{"id": "key{i // 3}"}}' for i in range(ROWS)]
    table = pa.table({"n": range(ROWS), "k": names, "doc": docs, "s": [{"x": 1}] * ROWS})
    ia.write_table(table, tmp_path / "a.parquet", indexes=[ia.Lookup(indexed, granule_rows=100)])
    data = ia.dataset(tmp_path / "a.parquet")
    keys = ["key9", "Key9", "absent", None, "key9", "key700", "Key9", "Key700"]
    stored = [value and value[8:-2] for value in docs] if "doc" in str(on) else names
    if "lower" in str(on):
        stored = [value and value.lower() for value in stored]
    profiled = data.profiled()
    actual = profiled.lookup(on, keys, ["n", "n", "s.x", "__row_number"], order=order)
    assert actual.column_names == ["n", "n", "x", "__row_number", "__key_number"]
    rows = [row for row, _ in expected(stored, keys, order)]
    assert actual.column(0).to_pylist() == actual["__row_number"].to_pylist() == rows
    assert actual["__key_number"].to_pylist() == [n for _, n in expected(stored, keys, order)]
    assert len(rows) > 5
    scanned = profiled.explain_profiled(0.0)
    assert scanned.plan.figures.rows.selected < ROWS
    assert data.lookup(on, keys).drop_columns(["__key_number"]).schema == data.schema
    assert data.lookup(on, [], {"m": pc.field("n") + 1}).column_names == ["m", "__key_number"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("absent", [1]), "absent"),
        (("lower(absent)", ["a"]), "absent"),
        (("abs(n)", ["a"]), "do not fit"),
        (("n", ["text"]), "do not fit"),
        (("n", [1.5]), "do not fit"),
        (("n", np.array([1.5])), "do not fit"),
        (("n", pa.array([1.5])), "do not fit"),
        (("n", [2**70]), "do not fit"),
        (("list", [[1]]), "no keys are looked up"),
        (("n", [1], ["absent"]), "absent"),
    ],
)
def test_wrong_lookups_are_refused(tmp_path, arguments, error):
    ia.write_table(pa.table({"n": [1], "list": [[1]]}), tmp_path / "a.parquet")
    with pytest.raises(ia.PredicateError, match=error):
        ia.dataset(tmp_path / "a.parquet").lookup(*arguments)
    with pytest.raises(ValueError, match="order is"):
        ia.dataset(tmp_path / "a.parquet").lookup("n", [1], order="random")


def test_one_scan_looks_up_100_000_keys(tmp_path):
    """Each page is read once, however many keys it has."""
    rows = 200_000
    numbers = np.random.default_rng(2).permutation(rows)
    path = tmp_path / "a.parquet"
    ia.write_table(pa.table({"k": numbers, "n": range(rows)}), path, indexes=[ia.Lookup("k")])
    keys = np.arange(0, 2 * rows, 4)
    data = ia.dataset(path).profiled()
    table = data.lookup("k", keys, ["n"])
    assert table["__key_number"].to_pylist() == list(range(rows // 4))
    assert (numbers[table["n"].to_numpy()] == keys[: rows // 4]).all()
    explanation = data.explain_profiled(0.0)
    assert explanation.read.bytes.selected < 1.1 * path.stat().st_size
