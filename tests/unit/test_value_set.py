"""A ``ValueSet`` contains what pyarrow's ``is_in`` finds in its constants."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import intarsia as ia
import intarsia.scan.filter.value_set as value_set
import intarsia.scan.units as units
from intarsia.scan.filter.value_set import ValueSet

MANY = 16 * 1024
START = datetime(2020, 1, 1)
VALUES = {
    "int16": (pa.int16(), lambda i: i % 60_000 - 30_000),
    "int32": (pa.int32(), lambda i: i * 7 - 900),
    "uint64": (pa.uint64(), lambda i: 2**64 - 1 - i),
    "float": (pa.float64(), lambda i: [0.0, -0.0, float("nan"), i / 3][i % 4]),
    "string": (pa.string(), lambda i: f"{'v' * (i % 13)}{i}"),
    "large_string": (pa.large_string(), lambda i: f"v{i:08}"),
    "binary": (pa.binary(), lambda i: b"\0" * (i % 3) + str(i).encode()),
    "timestamp": (pa.timestamp("us"), lambda i: START + timedelta(seconds=i)),
    "zoned": (pa.timestamp("ms", "UTC"), lambda i: START.replace(tzinfo=UTC) + timedelta(hours=i)),
    "date32": (pa.date32(), lambda i: date(1970, 1, 1) + timedelta(days=i)),
    "date64": (pa.date64(), lambda i: date(1970, 1, 1) + timedelta(days=i)),
}


@pytest.fixture(autouse=True)
def _hashes_many(monkeypatch):
    monkeypatch.setattr(value_set, "_MIN_HASHED_VALUES", MANY)


def constants_and_column(name):
    """Returns constants, some twice, and a column with NULLs whose first chunk is a slice."""
    kind, value = VALUES[name]
    constants = [value(2 * i) for i in range(MANY)] + [value(0)]
    stored = [None if i % 11 == 3 else value(i) for i in range(3_000)]
    chunks = [pa.array(stored, kind).slice(5), pa.array([], kind), pa.nulls(3, kind)]
    return pa.array(constants, kind), pa.chunked_array([*chunks, pa.array(stored[:9], kind)])


@pytest.mark.parametrize("name", VALUES)
def test_a_set_contains_what_is_in_finds(name):
    constants, column = constants_and_column(name)
    contained = ValueSet(constants).contains(column)
    expected = pc.is_in(column, value_set=constants)
    assert contained.type == pa.bool_()
    assert contained.to_pylist() == expected.to_pylist()
    assert 0 < pc.sum(contained).as_py() < len(column)


def test_values_with_equal_hashes_are_compared(monkeypatch):
    constants, column = constants_and_column("string")
    hashes = value_set._hashes
    monkeypatch.setattr(value_set, "_hashes", lambda values: hashes(values) & np.uint64(3))
    contained = ValueSet(constants).contains(column)
    assert contained.to_pylist() == pc.is_in(column, value_set=constants).to_pylist()


def test_units_share_the_hashes_of_constants(tmp_path, monkeypatch):
    """Each unit compares the constants that it may hold, not all of them."""
    rows, sizes = 40 * MANY, []
    numbers = np.random.default_rng(2).permutation(rows)
    table = pa.table({"k": numbers, "n": range(rows)})
    ia.write_table(table, tmp_path / "a.parquet", row_group_size=rows // 16)
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, unit_rows=rows // 16))
    is_in = pc.is_in

    def counted(values, *, value_set):
        sizes.append(len(value_set))
        return is_in(values, value_set=value_set)

    monkeypatch.setattr(value_set.pc, "is_in", counted)
    keys = np.arange(0, 4 * MANY, 2)
    matching = ia.dataset(tmp_path / "a.parquet").to_table(
        filter=pc.field("k").isin(pa.array(keys))
    )
    assert sorted(matching["k"].to_pylist()) == keys.tolist()
    assert len(sizes) >= 2
    assert sum(sizes) < 1.1 * len(keys)
