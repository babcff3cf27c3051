"""``verify`` checks that rows have the order that their row groups state."""

from __future__ import annotations

import decimal
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia as ia
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import framed, read_footer
from intarsia.parquet.thrift import amended, encode


def found(path: Path, table: pa.Table, *order: pq.SortingColumn, rows: int = 100) -> list[str]:
    pq.write_table(table, path, sorting_columns=list(order), row_group_size=rows)
    return [f"{one.severity.name} {one.where.row_group}: {one.message}" for one in ia.verify(path)]


FAULT = "ERROR 0: sorting_columns: row {} comes before the row ahead of it"

ORDERED = {
    "numbers": pa.array([-1, 0, 0, 2**40]),
    "beyond half": pa.array([0, 1, 2**63, 2**64 - 1], pa.uint64()),
    "small": pa.array([0, 127, 128, 255], pa.uint8()),
    "bytes": pa.array([b"", b"a", b"a\0", b"\xff"]),
    "text": pa.array(["", "Z", "a", "\U0001f600"]),
    "yes and no": pa.array([False, False, True]),
    "decimals": pa.array([decimal.Decimal(n) for n in (-300, -2, 0, 5, 300)], pa.decimal128(30, 0)),
    "short decimals": pa.array([decimal.Decimal(n) for n in (-9, 0, 9)], pa.decimal128(4, 0)),
    "zeros": pa.array([-1.0, 0.0, -0.0, 1.5]),
    "halves": pa.array([-2.0, 0.5, 1.0], pa.float16()),
    "dates": pa.array([-5, 0, 5], pa.date32()),
    "of one width": pa.array([b"\x01\x02", b"\x7f\0", b"\x80\0"], pa.binary(2)),
    "few": pa.array(["a", "b", "b", "c"]).dictionary_encode(),
}


@pytest.mark.parametrize("values", ORDERED.values(), ids=ORDERED)
def test_rows_in_the_stated_order(tmp_path, values):
    table, path = pa.table({"x": range(len(values)), "c": values}), tmp_path / "a.parquet"
    assert found(path, table, pq.SortingColumn(1)) == []
    falling = table.take(list(reversed(range(len(values)))))
    assert found(path, falling, pq.SortingColumn(1, descending=True)) == []
    last = FAULT.format(1)
    assert found(path, falling, pq.SortingColumn(1)) == [last]
    assert len(found(path, table, pq.SortingColumn(1, descending=True))) == 1


def test_nulls_are_first_or_last_as_stated(tmp_path):
    path = tmp_path / "a.parquet"
    first, last = pa.table({"c": [None, None, 1, 2]}), pa.table({"c": [1, 2, None, None]})
    for descending in (False, True):
        one, other = (first, last) if not descending else (first.slice(0, 3), last.slice(1))
        assert found(path, one, pq.SortingColumn(0, descending, nulls_first=True)) == []
        assert found(path, other, pq.SortingColumn(0, descending, nulls_first=False)) == []
        assert len(found(path, one, pq.SortingColumn(0, descending, nulls_first=False))) == 1
        assert len(found(path, other, pq.SortingColumn(0, descending, nulls_first=True))) == 1
    assert found(path, pa.table({"c": pa.nulls(4, pa.int64())}), pq.SortingColumn(0)) == []


def test_a_second_column_counts_where_the_first_is_equal(tmp_path):
    path, both = tmp_path / "a.parquet", (pq.SortingColumn(1), pq.SortingColumn(0, True))
    table = pa.table({"b": [5, 4, 9, 8], "a": ["x", "x", "y", "y"]})
    assert found(path, table, *both) == []
    table = pa.table({"b": [5, 4, 8, 9], "a": ["x", "x", "y", "y"]})
    assert found(path, table, *both) == [FAULT.format(3)]
    assert found(path, table, both[0]) == []


def test_row_groups_that_overlap_are_a_warning(tmp_path):
    path, order = tmp_path / "a.parquet", pq.SortingColumn(0)
    warned = "its first row comes before the last one of the row group ahead of it"
    for values in ([1, 5, 3, 7], ["b", "d", "a", "e"], [decimal.Decimal(n) for n in (1, 999, 2)]):
        table = pa.table({"c": values})
        (told,) = found(path, table, order, rows=2)
        assert told == f"WARNING 1: sorting_columns: {warned}; the file has no such order"
    table = pa.table({"c": pa.array([None, None, 1, 2, 2, 3])})
    assert found(path, table, pq.SortingColumn(0, nulls_first=True), rows=2) == []
    assert len(found(path, table, order, rows=2)) == 1


def test_a_column_stated_twice_counts_once(tmp_path):
    path, table = tmp_path / "a.parquet", pa.table({"c": [1, 2, 2], "d": [1, 5, 4]})
    again = [pq.SortingColumn(0), pq.SortingColumn(0, True), pq.SortingColumn(1)]
    assert found(path, table, *again) == [FAULT.format(2)]


def test_no_finding_where_readers_disagree(tmp_path):
    path, nan = tmp_path / "a.parquet", float("nan")
    table = pa.table({"c": [nan, 2.0, 1.0], "l": [[2], [1], [0]], "d": [3, 2, 1]})
    for columns in ((0,), (1,), (0, 2), (1, 2)):
        assert found(path, table, *map(pq.SortingColumn, columns)) == []
    inner = pa.table({"s": [{"x": 1}, {"x": 2}, {"x": 1}]})
    assert found(path, inner, pq.SortingColumn(0)) == [FAULT.format(2)]


def test_no_memory_is_allocated_for_claimed_rows(tmp_path):
    path = tmp_path / "a.parquet"
    schema = pa.schema([pa.field("c", pa.int64(), nullable=False)])
    assert found(path, pa.table({"c": [1, 2]}, schema=schema), pq.SortingColumn(0)) == []
    data = path.read_bytes()
    footer = read_footer(BufferSource(data))
    groups = [amended(footer.metadata.row_groups[0], num_rows=1 << 45)]
    raw = encode(amended(footer.metadata, row_groups=groups))
    path.write_bytes(data[: footer.offset] + framed(raw))
    assert any("rows" in finding.message for finding in ia.verify(path))


def test_a_missing_sorting_column_is_a_finding(tmp_path):
    path = tmp_path / "a.parquet"
    claims: list[Any] = found(path, pa.table({"c": [1, 2]}), pq.SortingColumn(7))
    assert claims == ["ERROR 0: sorting_columns: there is no column 7"]


@given(st.lists(st.one_of(st.none(), st.integers(-(10**37), 10**37)), max_size=9), st.booleans())
def test_decimals_are_compared_as_numbers(tmp_path_factory, numbers, descending):
    path = tmp_path_factory.mktemp("sorting") / "a.parquet"
    values = [None if n is None else decimal.Decimal(n) for n in numbers]
    table = pa.table({"c": pa.array(values, pa.decimal128(38, 0))})
    told = found(path, table, pq.SortingColumn(0, descending, nulls_first=True))
    keys = [(n is not None, 0 if n is None else -n if descending else n) for n in numbers]
    assert (told == []) == all(one <= other for one, other in itertools.pairwise(keys))
    assert all(one.startswith("ERROR 0: sorting_columns") for one in told)
