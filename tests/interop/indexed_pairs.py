"""Files whose pages and row groups can be skipped, and copies of them that have indexes."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

import intarsia as ia

field = pads.field


@dataclass(frozen=True)
class Pair:
    """A file or folder, and a copy that has indexes."""

    before: Path
    after: Path

    @classmethod
    def of(cls, before: Path, indexes: list[Any]) -> Pair:
        after = before.with_name(f"indexed-{before.name}")
        (shutil.copytree if before.is_dir() else shutil.copy)(before, after)
        for checksum in after.rglob(".*.crc"):
            checksum.unlink()
        ia.add_indexes(after, indexes)
        assert before.is_dir() or after.read_bytes().startswith(before.read_bytes())
        return cls(before, after)


# --- page indexes --------------------------------------------------------------------------------

PAGE_ROWS = 1024
ORDERED_ROWS = 120_000
DAY = dt.date(2020, 1, 1)
PAGE_CONDITIONS: dict[str, tuple[str, pads.Expression]] = {
    "equals": ("id = 60000", field("id") == 60_000),
    "range": ("id BETWEEN 60000 AND 60100", (field("id") >= 60_000) & (field("id") <= 60_100)),
    "above": ("id > 119900", field("id") > 119_900),
    "below": ("id < 100", field("id") < 100),
    "nothing": ("id > 100 AND id < 50", (field("id") > 100) & (field("id") < 50)),
    "in": ("id IN (5, 60000, 119999)", field("id").isin([5, 60_000, 119_999])),
    "or": ("id < 5 OR id = 70000", (field("id") < 5) | (field("id") == 70_000)),
    "or_of_two": ("id < 5 OR down = 70000", (field("id") < 5) | (field("down") == 70_000)),
    "and": ("id > 90000 AND down > 29990", (field("id") > 90_000) & (field("down") > 29_990)),
    "descending": ("down BETWEEN 20 AND 40", (field("down") >= 20) & (field("down") <= 40)),
    "text": (
        f"name = '{'né' * 20}-060000-{'z' * 40}'",
        field("name") == f"{'né' * 20}-060000-{'z' * 40}",
    ),
    "text_range": (f"name < '{'né' * 20}-000100'", field("name") < f"{'né' * 20}-000100"),
    "date": ("day = DATE '2020-02-20'", field("day") == dt.date(2020, 2, 20)),
    "among_nulls": ("gaps < 40100", field("gaps") < 40_100),
    "is_not_null": ("gaps IS NOT NULL", field("gaps").is_valid()),
    "unordered": ("waves = 3.25", field("waves") == 3.25),
}


def ordered_table() -> pa.Table:
    numbers = np.arange(ORDERED_ROWS)
    noise = np.random.default_rng(1)
    names = [f"{'né' * 20}-{n:06}-{'z' * 40}" for n in range(ORDERED_ROWS)]
    return pa.table(
        {
            "id": numbers,
            "down": ORDERED_ROWS - numbers,
            "name": names,
            "day": pa.array(numbers // 1000 + (DAY - dt.date(1970, 1, 1)).days, pa.int32()).cast(
                pa.date32()
            ),
            "gaps": pa.array(numbers, mask=(numbers < 40_000) | (numbers >= 42_000)),
            "waves": (numbers // PAGE_ROWS * 7 % 16) + noise.integers(0, 4, ORDERED_ROWS) / 4.0,
            "noise": noise.random(ORDERED_ROWS),
        }
    )


def write_ordered(path: Path) -> Path:
    """Writes one row group of 118 pages a column, without page indexes."""
    pq.write_table(
        ordered_table(),
        path,
        row_group_size=ORDERED_ROWS,
        compression="none",
        use_dictionary=False,
        max_rows_per_page=PAGE_ROWS,
        write_batch_size=PAGE_ROWS,
        write_page_index=False,
    )
    return path


# --- page indexes of nested columns --------------------------------------------------------------

NESTED_ROWS = 6000


def nested_table() -> pa.Table:
    sizes = np.random.default_rng(3).integers(-1, 9, NESTED_ROWS).tolist()
    sizes[1000] = sizes[4000] = 3000  # longer than a page
    numbers = range(NESTED_ROWS)
    lists = [None if size < 0 else list(range(n, n + size)) for n, size in enumerate(sizes)]
    pairs = [
        actual
        and [None if i % 5 == 4 else {"a": i, "b": f"b{i}" if i % 3 else None} for i in actual]
        for actual in lists
    ]
    maps = [
        None if size < 0 else [(f"k{i}", n + i) for i in range(size)]
        for n, size in enumerate(sizes)
    ]
    return pa.table(
        {
            "id": pa.array(numbers),
            "word": [f"w{n % 3000:05}" for n in numbers],
            "list": pa.array(lists, pa.list_(pa.int32())),
            "pairs": pa.array(pairs, pa.list_(pa.struct([("a", "int64"), ("b", "string")]))),
            "map": pa.array(maps, pa.map_("string", "int64")),
            "lists": pa.array(
                [actual and [actual[:2], None, [], actual[2:]] for actual in lists],
                pa.list_(pa.list_(pa.int32())),
            ),
            "struct": pa.array(
                [None if n % 7 == 0 else {"x": n, "y": lists[n]} for n in numbers],
                pa.struct([("x", "int32"), ("y", pa.list_(pa.int32()))]),
            ),
            "flag": pa.array([None if n % 11 == 0 else n % 2 == 0 for n in numbers]),
        }
    )


def write_nested(path: Path, page_version: str) -> Path:
    """Writes two row groups of small pages, without page indexes."""
    pq.write_table(
        nested_table(),
        path,
        row_group_size=NESTED_ROWS // 2,
        data_page_size=2000,
        data_page_version=page_version,
        use_dictionary=["word"],
        write_batch_size=50,
        write_page_index=False,
    )
    return path


# --- bloom filters -------------------------------------------------------------------------------

GROUPS = 8
GROUP_ROWS = 2000
BLOOM_ROWS = GROUPS * GROUP_ROWS
EPOCH = dt.datetime(2020, 1, 1)
BLOOM_COLUMNS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "i16": (pa.int16(), lambda n: n - 15_000),
    "i32": (pa.int32(), lambda n: n * 10_007),
    "i64": (pa.int64(), lambda n: n * 10_000_000_007),
    "u32": (pa.uint32(), lambda n: n + 2**31),
    "u64": (pa.uint64(), lambda n: n + 2**63),
    "f32": (pa.float32(), lambda n: n / 4),
    "f64": (pa.float64(), lambda n: n / 3),
    "text": (pa.string(), "né {:06}".format),
    "raw": (pa.binary(), lambda n: b"b%06d" % n),
    "fixed": (pa.binary(8), lambda n: n.to_bytes(8, "big")),
    "day": (pa.date32(), lambda n: DAY + dt.timedelta(n)),
    "ts": (pa.timestamp("us"), lambda n: EPOCH + dt.timedelta(microseconds=n * 60_000_001)),
    "ts_utc": (
        pa.timestamp("us", "UTC"),
        lambda n: (EPOCH + dt.timedelta(microseconds=n * 60_000_001)).replace(tzinfo=dt.UTC),
    ),
    "money": (pa.decimal128(9, 2), lambda n: Decimal(n - 9_000).scaleb(-2)),
    "fortune": (pa.decimal128(30, 5), lambda n: Decimal(n - 9_000).scaleb(-5)),
}
"""A column's type, and its n-th value in ascending order."""


def write_bloomed(path: Path, names: Iterable[str], dictionaries: list[str]) -> Path:
    """Writes all even numbers below 32,000 in random order, as columns of the types ``names``.

    Each row group has small and large ones.
    """
    numbers = (np.random.default_rng(7).permutation(BLOOM_ROWS) * 2).tolist()
    columns = {
        name: pa.array(map(value, numbers), type_)
        for name, (type_, value) in BLOOM_COLUMNS.items()
        if name in names
    }
    pq.write_table(
        pa.table({"id": numbers} | columns),
        path,
        row_group_size=GROUP_ROWS,
        compression="none",
        use_dictionary=dictionaries,
        write_page_index=False,
    )
    return path


# --- zeros and NaN -------------------------------------------------------------------------------

ODD_NANS = {"float": np.uint32(0xFFC00123), "double": np.uint64(0xFFF8000000000123)}


def float_table(sql_type: str) -> pa.Table:
    """Ten pages of 100 rows with different zeros, NaN and numbers; row group bounds exclude
    nothing.
    """
    noise = np.random.default_rng(2)
    x = noise.choice([-5.0, -1.0, -0.25, 0.25, 1.0, 1.5, 5.0], (10, 100))
    x[2:5] = noise.choice([0.25, 0.5, 1.25], (3, 100))  # nothing above two, except NaN
    x[0, 7] = x[5, 3] = 0.0
    x[1, 7] = x[5, 9] = -0.0
    x[2, ::9] = np.nan
    x[6] = 0.0
    x[7] = -0.0
    x[8] = np.nan
    x = x.ravel().astype(np.float32 if sql_type == "float" else np.float64)
    odd = ODD_NANS[sql_type]
    x.view(odd.dtype)[303] = odd
    return pa.table({"id": np.arange(1000), "x": pa.array(x, mask=np.arange(1000) % 10 == 5)})


def write_floats(path: Path, sql_type: str, groups: int, *, statistics: bool) -> None:
    pq.write_table(
        float_table(sql_type),
        path,
        row_group_size=1000 // groups,
        use_dictionary=False,
        max_rows_per_page=100,
        write_batch_size=100,
        write_page_index=False,
        write_statistics=statistics,
    )
