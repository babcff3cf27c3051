"""Values of maps' keys, all rows at once: as pyarrow's ``map_lookup`` gives them, row by row."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.predicate.map_values import first_values

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
    """The same offsets and entries, of which some maps are NULL, whatever they hold."""
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
        found = first_values(pa.chunked_array([form]), pa.scalar(key))
        assert repr(found.to_pylist()) == repr(due.to_pylist())
        assert found.type == due.type


@settings(SETTINGS, max_examples=60)
@given(data=st.data())
def test_filters_on_them_find_what_pyarrow_finds(data, tmp_path_factory):
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
        found = ia.dataset(path).to_table(["n"], filter=asked)
        assert found.equals(table.filter(asked).select(["n"])), str(asked)
