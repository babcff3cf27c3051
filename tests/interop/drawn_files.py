"""Columns, tables and Parquet files drawn by Hypothesis, of all types that both engines read."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Collection
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

import intarsia as ia

NAN, INF = math.nan, math.inf
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), [-128, 127, 0]),
    "i16": (pa.int16(), [-(2**15), 2**15 - 1, 0]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1, 0]),
    "i64": (pa.int64(), [-(2**62), 2**62, 0, 5]),
    "u8": (pa.uint8(), [0, 255, 128]),
    "u16": (pa.uint16(), [0, 2**16 - 1, 2**15]),
    "u32": (pa.uint32(), [0, 2**32 - 1, 2**31]),
    "u64": (pa.uint64(), [0, 2**64 - 1, 2**63]),
    "half": (pa.float16(), [NAN, -0.0, 1.5]),
    "f32": (pa.float32(), [NAN, -0.0, 0.0, INF, -INF, 1.5]),
    "f64": (pa.float64(), [NAN, -0.0, 0.0, INF, -INF, 1.5]),
    "text": (pa.string(), ["", "é", "\U0001d11e x", "a'b\"", "x" * 300, "x" * 300 + "y", "A", "a"]),
    "large": (pa.large_string(), ["", "é", "b"]),
    "word": (pa.dictionary(pa.int32(), pa.string()), ["x", "y", ""]),
    "raw": (pa.binary(), [b"", b"\xff" * 70, b"\x00", b"a", b"\x80"]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2020, 2, 29)]),
    "us": (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 9)]),
    "utc": (pa.timestamp("us", "UTC"), [dt.datetime(1970, 1, 1), dt.datetime(2020, 3, 29, 1, 30)]),
    "paris": (
        pa.timestamp("us", "Europe/Paris"),
        [dt.datetime(1970, 1, 1), dt.datetime(2020, 3, 29)],
    ),
    "ms": (pa.timestamp("ms"), [dt.datetime(1, 1, 1), dt.datetime(2020, 3, 29, 1, 30)]),
    "ns": (pa.timestamp("ns"), [dt.datetime(1970, 1, 1), dt.datetime(2020, 3, 29, 1, 30)]),
    "time": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999999)]),
    "span": (pa.duration("us"), [dt.timedelta(0), dt.timedelta(days=-1)]),
    "d5": (pa.decimal128(5, 2), [Decimal("-999.99"), Decimal("999.99"), Decimal("0.01")]),
    "d18": (pa.decimal128(18, 0), [Decimal(10**17), Decimal(-5)]),
    "d38": (pa.decimal128(38, 10), [Decimal("-1.5"), Decimal(10**26), Decimal("0.0000000001")]),
    "uuid": (pa.uuid(), [uuid.UUID(int=n).bytes for n in (0, 2**127, 2**128 - 1)]),
    "list": (pa.list_(pa.int32()), [[], [1, None], [2]]),
    "texts": (pa.list_(pa.string()), [[], ["a", None], [""]]),
    "floats": (pa.list_(pa.float64()), [[NAN], [-0.0], [INF, None], []]),
    "pair": (pa.list_(pa.int16(), 2), [[1, 2], [3, None]]),
    "point": (
        pa.struct([("a", pa.int64()), ("B c", pa.string())]),
        [{"a": 1, "B c": None}, {"a": None, "B c": "x"}],
    ),
    "place": (
        pa.struct([("a", pa.int64()), ("B c", pa.float32())]),
        [{"a": 1, "B c": NAN}, {"a": None, "B c": 0.0}],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("b", None), ("a", 2)]]),
    "nothing": (pa.int64(), [None]),
}
NESTED = {"list", "texts", "floats", "pair", "point", "place", "map"}


def array_of(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if isinstance(kind, pa.ExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


@st.composite
def tables(draw: st.DrawFn, without: Collection[str] = ()) -> pa.Table:
    """A table of an ``id`` and up to five columns, each with few distinct values."""
    count = draw(st.integers(1, 16))
    columns = {"id": pa.array(range(count), pa.int64())}
    names = st.sampled_from(sorted(set(VALUES).difference(without)))
    for name in draw(st.lists(names, min_size=1, max_size=5, unique=True)):
        kind, values = VALUES[name]
        pool = draw(st.lists(st.sampled_from([*values, None]), min_size=1, max_size=4))
        picked = draw(st.lists(st.integers(0, len(pool) - 1), min_size=count, max_size=count))
        columns[name] = array_of(kind, [pool[at] for at in picked])
    return pa.table(columns)


def write_pyarrow(
    draw: st.DrawFn,
    table: pa.Table,
    folder: Path,
    has_page_index: st.SearchStrategy[bool] | None = None,
) -> None:
    """Writes files of different layouts; some lack a column, or have them in another order."""
    parts = draw(st.integers(1, 3))
    for part in range(parts):
        start, stop = (table.num_rows * at // parts for at in (part, part + 1))
        rows = table.slice(start, stop - start)
        if part and draw(st.integers(0, 3)) == 0:
            rows = rows.select(draw(st.permutations(rows.column_names)))
        if part and draw(st.integers(0, 7)) == 0:
            rows = rows.drop_columns(draw(st.sampled_from(rows.column_names[1:])))
        pq.write_table(
            rows,
            folder / f"{part}.parquet",
            version=draw(st.sampled_from(["1.0", "2.6"])),
            data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
            write_statistics=draw(st.booleans()),
            use_dictionary=draw(st.booleans()),
            store_decimal_as_integer=draw(st.booleans()),
            store_schema=draw(st.booleans()),
            write_page_index=draw(st.booleans() if has_page_index is None else has_page_index),
            compression=draw(st.sampled_from(["none", "snappy", "zstd"])),
            row_group_size=draw(st.integers(1, 8)),
            data_page_size=draw(st.sampled_from([1, 2**20])),
        )


def write_duckdb(
    draw: st.DrawFn, table: pa.Table, folder: Path, without_folders: Collection[str] = ()
) -> None:
    """Writes one file, or a folder for each value of a column, which may be in the files too."""
    unkeyed = {*NESTED, "raw", "id", *without_folders}
    scalar = [name for name in table.column_names if name not in unkeyed]
    keys = draw(st.lists(st.sampled_from(scalar), max_size=2, unique=True)) if scalar else []
    options = f"FORMAT parquet, ROW_GROUP_SIZE {draw(st.integers(1, 8))}"
    if keys:
        options += f", PARTITION_BY ({', '.join(keys)})"
        options += f", WRITE_PARTITION_COLUMNS {draw(st.booleans())}"
    target = folder if keys else folder / "0.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", table)
        connection.execute(f"COPY (SELECT * FROM t) TO '{target}' ({options}, OVERWRITE_OR_IGNORE)")


def write_indexed(draw: st.DrawFn, table: pa.Table, folder: Path) -> None:
    """Writes one file with lookups on some columns; a lookup on two values would be refused."""
    unindexed = {*NESTED, "time", "span", "half", "nothing", "flag"}
    scalar = [name for name in table.column_names if name not in unindexed]
    indexes = [ia.Lookup(name) for name in scalar if draw(st.booleans())]
    ia.write_table(table, folder / "0.parquet", indexes=indexes, row_group_size=4)


def write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    """Writes a file of these columns and creates its folders; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path
