"""IN lists of any length match the values that pyarrow says they match."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia as ia
from intarsia.expr.tree import read_expression
from intarsia.scan.filter.condition import comparison_of, holds

KINDS = [
    pa.int8(),
    pa.uint16(),
    pa.int32(),
    pa.int64(),
    pa.uint64(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.float64(),
    pa.string(),
]
NUMBERS = st.integers(0, 9) | st.integers(0, 127)


def of_kind(numbers, kind):
    texts = [None if number is None else str(number) for number in numbers]
    return pa.array(texts if kind == pa.string() else numbers, kind)


@given(
    st.lists(st.lists(NUMBERS | st.none(), max_size=40), max_size=3),
    st.lists(NUMBERS, max_size=20),
    st.sampled_from(KINDS),
    st.integers(0, 3),
)
def test_in_lists_match_the_values_that_pyarrow_finds(chunks, wanted, kind, skipped):
    values = pa.chunked_array([of_kind(chunk, kind).slice(skipped) for chunk in chunks], kind)
    assert found_as_pyarrow_finds(values, of_kind(wanted, kind))


def test_numbers_at_the_edges_of_their_type():
    edges = [-(2**63), -1, 0, 2**63 - 1]
    values = pa.chunked_array([pa.array(edges * 2000)])
    for constants in ([-1], [2**63 - 1, -(2**63)], [5]):
        assert found_as_pyarrow_finds(values, pa.array(constants, pa.int64()))


def found_as_pyarrow_finds(values, constants):
    table = pa.table({"f": values})
    node = comparison_of(read_expression(pc.field("f").isin(constants)), table.schema)
    return holds(node, table).equals(pc.is_in(values, value_set=constants))


@given(
    st.lists(NUMBERS | st.none(), max_size=40),
    st.sampled_from([pa.int64(), pa.int8(), pa.uint32(), pa.int16()]),
    st.lists(st.integers(-5, 300) | st.none(), max_size=6),
)
def test_conditions_with_in_lists_equal_pyarrows(values, kind, wanted):
    table = pa.table({"f": pa.array(values, kind)})
    one = pc.field("f").isin(pa.array(wanted, pa.int64()))
    for condition in (one, ~one, one | (pc.field("f") == 3), one & (pc.field("f") > 2)):
        node = comparison_of(read_expression(condition), table.schema)
        if node is not None:
            assert table.filter(holds(node, table)).equals(table.filter(condition))
    assert None not in wanted or node is None


@pytest.mark.parametrize("count", [3, 1000, 300_000])
def test_a_filter_with_many_values(tmp_path, count):
    rows = np.random.default_rng(1).integers(0, 10**6, 100_000)
    table = pa.table({"f": rows, "n": range(len(rows))})
    condition = pc.field("f").isin(pa.array(np.arange(count) * 3))
    pq.write_table(table, tmp_path / "a.parquet", write_page_index=True)
    actual = ia.dataset(tmp_path / "a.parquet").to_table(filter=condition)
    assert actual.equals(table.filter(condition))
