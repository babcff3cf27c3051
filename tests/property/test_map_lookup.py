"""``map_lookup`` over all rows at once gives the values of pyarrow's, row by row."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.expr.map_lookup import first_values

SETTINGS = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
KEYS = ["", "a", "b", "aa", "日本"]
VALUES = {
    pa.string(): ["", "x", "xy"],
    pa.int64(): [0, -1, 7],
    pa.float64(): [0.5, -0.0, float("nan")],
    pa.list_(pa.int8()): [[], [1, 2]],
}


@st.composite
def maps(draw, kinds=tuple(VALUES)):
    kind = draw(st.sampled_from(kinds))
    entry = st.tuples(st.sampled_from(KEYS), st.none() | st.sampled_from(VALUES[kind]))
    cells = draw(st.lists(st.none() | st.lists(entry, max_size=4), max_size=30))
    return pa.array(cells, pa.map_(pa.string(), kind))


def with_entries_under_nulls(held, mask):
    """The same offsets and entries with some maps NULL, whose entries remain."""
    return pa.MapArray.from_arrays(
        held.offsets, held.keys, held.items, mask=pa.array(mask, pa.bool_())
    )


def with_coded_keys(held):
    coded = held.keys.dictionary_encode()
    return pa.MapArray.from_arrays(
        held.offsets, coded, held.items, mask=held.is_null() if held.null_count else None
    )


@SETTINGS
@given(data=st.data())
def test_the_first_value_of_a_key_is_the_one_that_pyarrow_finds(data):
    held, key = data.draw(maps()), data.draw(st.sampled_from([*KEYS, "none"]))
    if data.draw(st.booleans()):
        mask = data.draw(st.lists(st.booleans(), min_size=len(held), max_size=len(held)))
        held = with_entries_under_nulls(held, mask)
    start = data.draw(st.integers(0, len(held)))
    cut = held.slice(start, data.draw(st.integers(0, len(held))))
    due = pc.map_lookup(cut, key, "first")
    for form in (cut, with_coded_keys(held).slice(start, len(cut))):
        actual = first_values(pa.chunked_array([form]), pa.scalar(key))
        assert repr(actual.to_pylist()) == repr(due.to_pylist())
        assert actual.type == due.type


@settings(SETTINGS, max_examples=60)
@given(data=st.data())
def test_filters_on_map_values_find_what_pyarrow_finds(data, tmp_path_factory):
    held = data.draw(maps(kinds=(pa.string(), pa.int64(), pa.float64())))
    table = pa.table(
        {"n": range(len(held)), "m": held, "s": pa.StructArray.from_arrays([held], ["m"])}
    )
    path = tmp_path_factory.mktemp("maps") / "t.parquet"
    pq.write_table(table, path, row_group_size=data.draw(st.integers(1, 30)))
    of = data.draw(st.sampled_from([pc.field("m"), pc.field("s", "m")]))
    value = pc.map_lookup(of, data.draw(st.sampled_from(KEYS)), "first")
    constants = VALUES[held.type.item_type]
    one = data.draw(st.sampled_from(constants))
    conditions = [
        value == one,
        value != one,
        value >= one,
        value.isin(constants[:2]),
        value.is_null(),
    ]
    if held.type.item_type == pa.string():
        conditions += [pc.match_substring(value, "x"), pc.utf8_length(value) > 1]
    condition = data.draw(st.sampled_from(conditions))
    other = data.draw(st.sampled_from(conditions))
    for asked in (condition, ~condition, condition & other, condition | ~other):
        actual = ia.dataset(path).to_table(["n"], filter=asked)
        assert actual.equals(table.filter(asked).select(["n"])), str(asked)


@pytest.mark.parametrize("within", ["itself", "a struct"])
@pytest.mark.parametrize("occurrence", ["first", "last"])
@pytest.mark.parametrize("key", ["k1", 1])
def test_keys_keep_their_values_when_maps_are_cast(tmp_path, within, occurrence, key):
    """pyarrow's cast of a slice puts keys and values at different offsets."""
    text = isinstance(key, str)
    for name, kind, numbers in (("0", pa.int64(), [7]), ("1", pa.int32(), range(40))):
        cells = [[(f"k{i % 5}" if text else i % 5, i)] for i in numbers]
        held = pa.array(cells, pa.map_(pa.string() if text else pa.int64(), kind))
        held = pa.StructArray.from_arrays([held], ["m"]) if within == "a struct" else held
        ia.write_table(
            pa.table({"id": [100] if name == "0" else numbers, "m": held}),
            tmp_path / f"{name}.parquet", indexes=[ia.MinMax("id", granule_rows=1)],
        )  # fmt: skip
    source = ia.dataset(tmp_path)
    of = pc.field("m", "m") if within == "a struct" else pc.field("m")
    value = pc.map_lookup(of, pa.scalar(key), occurrence)
    some = (pc.field("id") > 3) & (pc.field("id") < 38)
    assert source.explain(filter=some).planned.rows.selected == 34
    due = [6, 11, 16, 21, 26, 31, 36]
    actual = source.to_table(["id", "m"], filter=some & (value > 0))
    assert actual["id"].to_pylist() == due
    assert source.count_rows(some & (value >= 16)) == 5
    computed = source.to_table({"v": value}, filter=some)["v"]
    assert computed.drop_null().to_pylist() == due
    maps = actual["m"] if within == "itself" else pc.struct_field(actual["m"], "m")
    assert pc.map_lookup(maps, pa.scalar(key), occurrence).to_pylist() == due


def test_null_maps_have_no_value_even_with_entries():
    keys, items = pa.array(["k", "k", "k"]), pa.array([1, 2, 3])
    mask = pa.array([True, False, True])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), keys, items, mask=mask)
    actual = first_values(pa.chunked_array([maps]), pa.scalar("k"))
    assert actual.to_pylist() == [None, 2, None]


def test_a_dictionary_may_have_a_key_twice():
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1]), pa.array(["k", "x", "k"]))
    items = pa.array([1, 2, 3, 4])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), keys, items)
    actual = first_values(pa.chunked_array([maps]), pa.scalar("k"))
    assert actual.to_pylist() == [1, None, 3, None]
