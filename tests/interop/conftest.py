"""Tables of all common types; writers and readers by name."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from intarsia.dataset.engine_hand_over import Refusal
from intarsia.engines.duckdb import sql as duckdb_sql

ROWS = 5000
ROW_GROUP_ROWS = 2048


def _numbers(order: np.ndarray) -> dict[str, pa.Array]:
    gaps = order % 7 == 0
    return {
        "i8": pa.array(order % 128, pa.int8(), mask=gaps),
        "i16": pa.array(order, pa.int16(), mask=gaps),
        "i32": pa.array(order * 1000, pa.int32(), mask=gaps),
        "i64": pa.array(order * 10**12, pa.int64(), mask=gaps),
        "u8": pa.array(order % 256, pa.uint8(), mask=gaps),
        "u16": pa.array(order, pa.uint16(), mask=gaps),
        "u32": pa.array(order + 2**31, pa.uint32(), mask=gaps),
        "u64": pa.array(order.astype(np.uint64) + np.uint64(2**63), pa.uint64(), mask=gaps),
        "f32": pa.array(order / 8, pa.float32(), mask=gaps),
        "f64": pa.array(np.where(order % 11 == 0, np.nan, order / 3), pa.float64(), mask=gaps),
        "flag": pa.array(order % 2 == 0, pa.bool_(), mask=gaps),
        "money": pa.array(
            [
                None if gap else Decimal(n).scaleb(-2)
                for n, gap in zip(order.tolist(), gaps, strict=True)
            ],
            pa.decimal128(18, 2),
        ),
    }


def _texts_and_times(order: np.ndarray) -> dict[str, pa.Array]:
    gaps = order % 7 == 0
    micros = 1_400_000_000_000_000 + order * 61_000_001
    texts = [None if gap else f"né {n}" for n, gap in zip(order.tolist(), gaps, strict=True)]
    return {
        "text": pa.array(texts),
        "raw": pa.array([None if t is None else t.encode() for t in texts], pa.binary()),
        "day": pa.array(order, pa.int32(), mask=gaps).cast(pa.date32()),
        "at_s": pa.array(order, pa.int64(), mask=gaps).cast(pa.time64("us")),
        "ts_ms": pa.array(micros // 1000, pa.timestamp("ms"), mask=gaps),
        "ts_us": pa.array(micros, pa.timestamp("us"), mask=gaps),
        "ts_utc": pa.array(micros, pa.timestamp("us", "UTC"), mask=gaps),
    }


def _nested(order: np.ndarray) -> dict[str, pa.Array]:
    lists = [None if n % 7 == 0 else [n, None, n + 1][: n % 4] for n in order.tolist()]
    structs = [
        None if n % 5 == 0 else {"a": n, "b": {"c": f"c{n}" if n % 3 else None}}
        for n in order.tolist()
    ]
    pairs = [[{"k": n, "v": [str(n)]}] if n % 3 else [] for n in order.tolist()]
    inner = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
    pair = pa.struct([("k", pa.int64()), ("v", pa.list_(pa.string()))])
    return {
        "list": pa.array(lists, pa.list_(pa.int64())),
        "struct": pa.array(structs, inner),
        "list_struct": pa.array(pairs, pa.list_(pair)),
    }


def build_table() -> pa.Table:
    order = np.random.default_rng(5).permutation(ROWS)
    columns = {"id": pa.array(order)} | _numbers(order) | _texts_and_times(order) | _nested(order)
    return pa.table(columns | {"nothing": pa.nulls(ROWS, pa.int64())})


def _write_pyarrow(table: pa.Table, path: Path) -> None:
    maps = pa.array([[(f"k{n}", n)] for n in table["id"].to_pylist()], pa.map_("string", "int64"))
    words = pa.array([f"w{n % 9}" for n in table["id"].to_pylist()]).dictionary_encode()
    nanos = table["ts_us"].cast(pa.timestamp("ns", "Europe/Paris"))
    table = table.append_column("map", maps).append_column("word", words)
    pq.write_table(
        table.append_column("ts_ns", nanos),
        path,
        row_group_size=ROW_GROUP_ROWS,
        write_page_index=True,
        data_page_size=4096,
    )


def _write_old_style(table: pa.Table, path: Path) -> None:
    pq.write_table(
        table,
        path,
        row_group_size=ROW_GROUP_ROWS,
        store_schema=False,
        use_dictionary=False,
        write_statistics=False,
        compression="none",
    )


def _write_duckdb(table: pa.Table, path: Path) -> None:
    with duckdb.connect() as connection:
        connection.register("t", table)
        options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP_ROWS}"
        connection.execute(f"COPY (SELECT * FROM t) TO '{path}' ({options})")


def _write_polars(table: pa.Table, path: Path) -> None:
    pl.from_arrow(table).write_parquet(path, row_group_size=ROW_GROUP_ROWS)


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "pyarrow": _write_pyarrow,
    "pyarrow_old_style": _write_old_style,
    "duckdb": _write_duckdb,
    "polars": _write_polars,
}


def _read_duckdb(path: Path) -> pa.Table:
    with duckdb.connect() as connection:
        return connection.sql(f"FROM read_parquet('{path}') ORDER BY id").to_arrow_table()


def _read_datafusion(path: Path) -> pa.Table:
    frame = datafusion.SessionContext().read_parquet(str(path))
    return frame.sort(datafusion.col("id").sort()).to_arrow_table()


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "pyarrow": lambda path: pq.read_table(path).sort_by("id"),
    "duckdb": _read_duckdb,
    "polars": lambda path: pl.read_parquet(path).sort("id").to_arrow(),
    "datafusion": _read_datafusion,
}


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Callable[[Path], pa.Table]:
    return READERS[request.param]


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file by each writer."""
    folder = tmp_path_factory.mktemp("originals")
    table = build_table()
    files = {name: folder / f"{name}.parquet" for name in WRITERS}
    for name, path in files.items():
        WRITERS[name](table, path)
    return files


@pytest.fixture(scope="session")
def awkward() -> pa.Table:
    """Few rows of all types, with values that engines treat differently: NaN, zeros, NULL, time
    zones.
    """
    moments = [datetime.datetime(2020, 1, day, 12, 0, 0, day) for day in range(1, 8)]
    return pa.table(
        {
            "row": range(8),
            "i": pa.array([1, 2, 3, 7, -7, None, 2**62, 0], pa.int64()),
            "i8": pa.array([1, 2, 100, -100, 0, None, 127, 3], pa.int8()),
            "u": pa.array([1, 2, 2**63, 0, 5, None, 2**64 - 1, 3], pa.uint64()),
            "f": pa.array(
                [0.1, 1.5, 2.5, -0.0, float("nan"), None, 0.0, float("inf")], pa.float32()
            ),
            "d": pa.array(
                [0.1, 1.5, float("nan"), -0.0, 7, None, 0.0, float("-inf")], pa.float64()
            ),
            "dec": pa.array(
                [Decimal(v) for v in ("1.10", "2.50", "-3.00", "0.00", "9.99", "1.11", "5.00")]
                + [None],
                pa.decimal128(9, 2),
            ),
            "s": ["a_b", "axb", "a\\_b", "A\nB", "10%", None, "", "Éſİß"],
            "ls": pa.array(["x", None, "y", "z", "xy", "", "Ж", "X"], pa.large_string()),
            "di": pa.array(["x", None, "y", "z", "xy", "", "x", "y"]).dictionary_encode(),
            "bin": pa.array([b"x", None, b"y", b"z", b"xy", b"", b"\xff", b"\\"]),
            "b": [True, False, None, True, False, None, True, False],
            "date": [moment.date() for moment in moments] + [None],
            "time": pa.array([moment.time() for moment in moments] + [None], pa.time64("us")),
            "ts": pa.array([*moments, None], pa.timestamp("us")),
            "ts_ms": pa.array(
                [*(m.replace(microsecond=0) for m in moments), None], pa.timestamp("ms")
            ),
            "ts_ns": pa.array([*moments, None], pa.timestamp("ns")),
            "tz": pa.array([*moments, None], pa.timestamp("us", "UTC")),
            "paris": pa.array([*moments, None], pa.timestamp("us", "Europe/Paris")),
            "st": pa.array(
                [{"a": n, "B c": -n} if n % 3 else None for n in range(8)],
                pa.struct([("a", pa.int64()), ("B c", pa.int64())]),
            ),
            "l": pa.array(
                [[1, 2], [], None, [None], [2], [3, None], [2, 2], [1]], pa.list_(pa.int64())
            ),
            "la": pa.array(
                [[1, 2], None, [None, 2], [3, 4], [2, 2], None, [5, None], [None, None]],
                pa.list_(pa.int64(), 2),
            ),
            "lu": pa.array([[2**63], [2], None, [None], [], [5], [0], [2]], pa.list_(pa.uint64())),
            "lf": pa.array(
                [[0.1], [float("nan")], None, [None], [], [-0.0], [0.0], [2.5, 0.1]],
                pa.list_(pa.float32()),
            ),
            "ld": pa.array(
                [[0.1], [float("nan")], None, [None], [], [-0.0], [0.0], [7.0]],
                pa.list_(pa.float64()),
            ),
            "ldec": pa.array(
                [[Decimal("1.10")], [Decimal("1.11")], None, [None], [], [], [], []],
                pa.list_(pa.decimal128(9, 2)),
            ),
            "lt": pa.array(
                [["a", "é"], ["A"], None, [None], [], ["é"], ["b"], ["a", None]],
                pa.list_(pa.string()),
            ),
            "ldate": pa.array(
                [[moment.date()] for moment in moments] + [None], pa.list_(pa.date32())
            ),
            "lts": pa.array(
                [[moment] for moment in moments] + [None], pa.list_(pa.timestamp("us"))
            ),
            "m": pa.array(
                [[("a", 1)], [], None, [("b", None)], [("a", 2), ("b", 3)], [], [], [("é", 1)]],
                pa.map_(pa.string(), pa.int64()),
            ),
            "mt": pa.array(
                [
                    [("k", "ab")],
                    [],
                    None,
                    [("k", None)],
                    [("x", "ab"), ("k", "AX%b")],
                    [("k", "")],
                    [("it's", "é")],
                    [("k", "é")],
                ],
                pa.map_(pa.string(), pa.string()),
            ),
            "stl": pa.array(
                [{"l": [n]} if n % 3 else None for n in range(8)],
                pa.struct([("l", pa.list_(pa.int64()))]),
            ),
            "Odd Name": range(8),
            "t": range(8),
            "nothing": pa.nulls(8, pa.int64()),
        }
    )


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers the preliminary queries of ``ia.sql`` at once, without another session."""
    begin = duckdb_sql.session

    def shared(*, shared: bool) -> Any:
        assert shared
        return begin(shared=shared)

    monkeypatch.setattr(duckdb_sql, "session", shared)


@pytest.fixture
def by_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents ``ia.sql`` from handing files to DuckDB's own reader."""
    reason = Refusal("the reader of pages is tested")
    monkeypatch.setattr(duckdb_sql, "hand_over", lambda *_, **__: reason)
