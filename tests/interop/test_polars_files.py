"""Files that Polars reads by itself for ``ia.polars.scan``: the answers are those in memory."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import intarsia as ia

NAN, INF = math.nan, math.inf
Question = Callable[[pl.LazyFrame], pl.LazyFrame]


def is_polars_own(frame: pl.LazyFrame) -> bool:
    """True if Polars reads the files by itself."""
    plan = frame.explain(optimized=False)
    return "Parquet SCAN" in plan and "PYTHON SCAN" not in plan


def check(question: Question, path: Any, **options: Any) -> None:
    """Assert that both readers answer as Polars does over the rows in memory, or raise as it."""
    scan = ia.polars.scan(path, reader="pages", **options)
    assert not is_polars_own(scan)
    memory = scan.collect().lazy()
    try:
        expected = question(memory).collect()
    except pl.exceptions.PolarsError as failure:
        for reader in ("auto", "engine", "pages"):
            with pytest.raises(type(failure)):
                question(ia.polars.scan(path, reader=reader, **options)).collect()
        return
    for reader in ("auto", "engine", "pages"):
        scan = ia.polars.scan(path, reader=reader, **options)
        assert scan.collect_schema() == memory.collect_schema()
        assert_frame_equal(question(scan).collect(), expected)


# --- any table, file, question ------------------------------------------------------------------

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
    "text": (pa.string(), ["", "é", "\U0001d11e x", "a'b\"", "x" * 100, "x" * 100 + "y", "A", "a"]),
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
    "floats": (pa.list_(pa.float64()), [[NAN], [-0.0], [INF, None], []]),
    "pair": (pa.list_(pa.int16(), 2), [[1, 2], [3, None]]),
    "point": (
        pa.struct([("a", pa.int64()), ("B c", pa.float32())]),
        [{"a": 1, "B c": NAN}, {"a": None, "B c": 0.0}],
    ),
    "nothing": (pa.int64(), [None]),
}
NESTED = {"list", "floats", "pair", "point"}


def array_of(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if isinstance(kind, pa.ExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A table of an ``id`` and up to five columns, of few different values each."""
    count = draw(st.integers(1, 16))
    columns = {"id": pa.array(range(count), pa.int64())}
    for name in draw(
        st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=5, unique=True)
    ):
        kind, values = VALUES[name]
        pool = draw(st.lists(st.sampled_from([*values, None]), min_size=1, max_size=4))
        picked = draw(st.lists(st.integers(0, len(pool) - 1), min_size=count, max_size=count))
        columns[name] = array_of(kind, [pool[at] for at in picked])
    return pa.table(columns)


def write_pyarrow(draw: st.DrawFn, table: pa.Table, folder: Path) -> None:
    """Several files, of one layout each; some lack a column, or have another order of them."""
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
            write_page_index=draw(st.integers(0, 3)) == 0,
            compression=draw(st.sampled_from(["none", "snappy", "zstd"])),
            row_group_size=draw(st.integers(1, 8)),
            data_page_size=draw(st.sampled_from([1, 2**20])),
        )


def write_folders(draw: st.DrawFn, table: pa.Table, folder: Path) -> None:
    """A folder for each value of a column, by DuckDB, which may have it in the files too."""
    table = table.drop_columns(
        [name for name in ("half", "span", "pair") if name in table.column_names]
    )
    unkeyed = {*NESTED, "raw", "uuid", "id"}
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


def write_polars(draw: st.DrawFn, table: pa.Table, folder: Path) -> None:
    """One file or two, with Polars' own types."""
    table = table.drop_columns([name for name in ("uuid",) if name in table.column_names])
    frame = pl.DataFrame(pl.from_arrow(table))
    if "word" in frame.columns and draw(st.booleans()):
        frame = frame.with_columns(pl.col("word").cast(pl.Enum(["", "y", "x"])))
    for part, rows in enumerate(frame.iter_slices(draw(st.sampled_from([8, 16])))):
        rows.write_parquet(
            folder / f"{part}.parquet",
            row_group_size=draw(st.integers(1, 8)),
            statistics=draw(st.sampled_from([True, False, "full"])),
            compression=draw(st.sampled_from(["uncompressed", "zstd"])),
        )


def write_indexed(draw: st.DrawFn, table: pa.Table, folder: Path) -> None:
    unindexed = {*NESTED, "time", "span", "half", "nothing", "flag"}
    scalar = [name for name in table.column_names if name not in unindexed]
    indexes = [ia.Lookup(name) for name in scalar if draw(st.booleans())]
    ia.write_table(table, folder / "0.parquet", indexes=indexes, row_group_size=4)


WRITERS = [write_pyarrow, write_pyarrow, write_folders, write_polars, write_indexed]


def predicate_of(draw: st.DrawFn, frame: pl.DataFrame) -> pl.Expr:
    """A predicate on a column of ``frame`` and values that it holds, or two of them."""
    name = draw(st.sampled_from(frame.columns))
    column, kind = pl.col(name), frame.schema[name]
    kinds = [column.is_null(), column.is_not_null()]
    if not kind.is_nested():
        values = frame[name].drop_nulls().to_list() or [None]
        one, other = (pl.lit(draw(st.sampled_from(values)), kind) for _ in range(2))
        kinds += [column == one, column != one, column < one, column <= one, column > one]
        kinds += [column >= one, column.is_between(one, other), column.eq_missing(one)]
        kinds += [column.ne_missing(one), column.is_in(values[:2]), column == pl.col(name).max()]
    if kind.is_float():
        kinds += [column.is_nan(), column.is_not_nan(), column.is_finite(), column == NAN]
        kinds += [column.abs() >= 0.0, column > 0.0, column <= 1e300]
    if kind.is_integer():
        kinds += [column + 1 > 0, column.cast(pl.Float64) <= 5.5, column > 2.5]
    if kind == pl.String:
        kinds += [column.str.starts_with("x"), column.str.contains("b"), column > "a"]
    if kind.is_temporal() and kind in (pl.Date, pl.Datetime):
        kinds += [column.dt.year() > 1999]
    found = draw(st.sampled_from(kinds))
    if draw(st.integers(0, 2)) == 0:
        found = ~found
    if draw(st.integers(0, 3)) == 0:
        second = predicate_of(draw, frame)
        found = draw(st.sampled_from([found & second, found | second]))
    return found


def questions_of(draw: st.DrawFn, frame: pl.DataFrame) -> list[Question]:
    """Questions of all kinds, over columns and values of ``frame``."""
    where, also = (predicate_of(draw, frame) for _ in range(2))
    name = draw(st.sampled_from(frame.columns))
    plain = [name for name, kind in frame.schema.items() if not kind.is_nested()]
    key = draw(st.sampled_from(plain))
    start, count = draw(st.integers(-17, 17)), draw(st.integers(0, 17))
    questions: list[Question] = [
        lambda f: f.filter(where),
        lambda f: f.filter(where, also).select(name),
        lambda f: f.filter(where).select(pl.len()),
        lambda f: f.filter(where).head(2),
        lambda f: f.head(count).filter(where),
        lambda f: f.slice(start, count),
        lambda f: f.tail(count).select(name),
        lambda f: f.with_row_index().filter(where).select("index"),
        lambda f: f.select(pl.col(key).min().alias("a"), pl.col(key).max().alias("b")),
        lambda f: f.filter(where).group_by(key, maintain_order=True).agg(pl.len()),
        lambda f: f.sort(key, descending=True, maintain_order=True).head(3),
        lambda f: f.select(pl.col(key).is_null().sum().alias("a"), pl.col(name).first().alias("b")),
        lambda f: f.join(f.filter(where), on="id", how="semi", maintain_order="left").select("id"),
        lambda f: pl.concat([f.filter(where), f.filter(also)]).select("id", name),
    ]
    return draw(st.lists(st.sampled_from(questions), min_size=5, max_size=5, unique=True))


@settings(max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.data())
def test_any_question_of_any_file_is_answered_as_in_memory(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("any")
    data.draw(st.sampled_from(WRITERS))(data.draw, data.draw(tables()), folder)
    frame = ia.polars.scan(folder, reader="pages").collect()
    for question in [lambda f: f, *questions_of(data.draw, frame)]:
        check(question, folder)
