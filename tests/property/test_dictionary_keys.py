"""Map values whose keys are read as dictionary indices: the answers are those of string keys."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia as ia

pytestmark = pytest.mark.filterwarnings("ignore:.*a page index is ignored")
"""Without rows pyarrow writes empty pages, which nothing reveals."""

KEYS = ["host", "user", "", "é"]
VALUES = ["a", "b", "", "long " * 9]
ROW = pc.field("i")
CODED = {"m.key_value.key", "s.m.key_value.key"}


def value(key, *path):
    return pc.map_lookup(pc.field(*(path or ("m",))), key, "first")


@st.composite
def filters(draw):
    def one():
        of = draw(st.sampled_from([("m",), ("s", "m")]))
        actual, constant = value(draw(st.sampled_from(KEYS)), *of), draw(st.sampled_from(VALUES))
        return draw(
            st.sampled_from(
                [
                    actual == constant,
                    actual != constant,
                    actual.isin([constant, "a"]),
                    ~(actual < constant),
                    actual.is_null(),
                    pc.match_like(actual, "%a%"),
                    ia.map_contains("m", "host"),
                ]
            )
        )

    parts = one(), one(), draw(st.integers(0, 70)) > ROW
    joined = [parts[0], parts[0] & parts[1], parts[0] | parts[1], parts[2] & parts[0]]
    return draw(st.sampled_from([*joined, ~joined[1]]))


def written(path, cells, writer):
    maps = pa.array(cells, pa.map_(pa.string(), pa.string()))
    mask = pa.array([i % 5 == 3 for i in range(len(cells))])
    within = pa.StructArray.from_arrays([maps], ["m"], mask=mask)
    table = pa.table({"i": range(len(cells)), "m": maps, "s": within})
    match writer:
        case "pages of different rows":
            options = {"max_rows_per_page": 7, "write_batch_size": 1, "write_page_index": True}
            options |= {"data_page_size": 150, "data_page_version": "2.0"}
        case "some plain":  # plain pages of keys follow
            options = {"dictionary_pagesize_limit": 6, "data_page_size": 20, "write_batch_size": 1}
        case _:
            options = {}
    pq.write_table(table, path, row_group_size=30, **options)
    return table


ENTRIES = st.lists(
    st.tuples(st.sampled_from(KEYS), st.none() | st.sampled_from(VALUES)), max_size=4
)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.none() | ENTRIES, min_size=1, max_size=70),
    st.sampled_from(["pages of different rows", "some plain", "whole"]),
    filters(),
)
def test_answers_equal_those_of_string_keys(always_coded, tmp_path, cells, writer, condition):
    table = written(tmp_path / "a.parquet", cells, writer)
    source = ia.dataset(tmp_path / "a.parquet")
    expected = source.to_table(filter=ROW >= 0).to_pylist()
    assert expected == table.to_pylist()
    actual = source.to_table(filter=condition)
    assert actual.schema == table.schema
    if "ia." not in str(condition):
        assert actual.to_pylist() == table.filter(condition).to_pylist()
    assert source.to_table(["i"], filter=condition)["i"].equals(actual["i"])
    assert source.count_rows(condition) == actual.num_rows


@pytest.mark.parametrize("writer", ["pages of different rows", "whole"])
@pytest.mark.parametrize(
    ("condition", "coded"),
    [
        (value("host") == "a", {"m.key_value.key"}),
        ((value("host", "s", "m") == "a") & (value("user") != "b"), CODED),
        (value("user").isin(["b", "c"]) | (ROW > 50), {"m.key_value.key"}),
        (pc.match_like(value("host"), "a%"), {"m.key_value.key"}),
        (pc.utf8_length(value("host", "s", "m")) == pc.field("i"), {"s.m.key_value.key"}),
        (ia.map_contains("m", "host") & (value("host") == "a"), set()),
    ],
    ids=["one", "within a struct", "several", "searched", "computed", "keys too"],
)
def test_keys_are_read_as_dictionary_indices_if_values_are_compared(
    always_coded, tmp_path, writer, condition, coded
):
    cells = [[("host", "ab"[i % 2]), ("user", "cb"[i % 3 == 0] * (i % 9))] for i in range(60)]
    table = written(tmp_path / "a.parquet", cells, writer)
    source = ia.dataset(tmp_path / "a.parquet")
    actual = source.to_table(filter=condition)
    if "ia." not in str(condition):
        assert actual.equals(table.filter(condition))
    assert 0 < actual.num_rows < 60
    assert always_coded == coded


def test_dictionaries_that_repeat_a_key_are_read_as_strings(tmp_path):
    """pyarrow's indices do not reveal the repetition."""
    cells = [[(key, f"v{i % 50}")] for i, key in enumerate(["kay", "bee", "xee"] * 40_000)]
    table = pa.table({"i": range(120_000), "m": pa.array(cells, pa.map_(pa.string(), pa.string()))})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression="none", write_statistics=False)
    raw = path.read_bytes()
    assert raw.count(b"\3\0\0\0xee") == 1
    path.write_bytes(raw.replace(b"\3\0\0\0xee", b"\3\0\0\0kay"))
    table = pa.table({"i": table["i"], "m": pq.read_table(path)["m"]})
    source = ia.dataset(path)
    for condition in (value("kay") == "v7", value("bee").isin(["v7"]), value("xee") == "v7"):
        assert source.to_table(filter=condition).equals(table.filter(condition))


@pytest.mark.parametrize("kind", [pa.int64(), pa.date32(), pa.string_view(), pa.large_string()])
def test_keys_of_another_type_in_a_file_are_read_in_that_type(always_coded, tmp_path, kind):
    numbers = pa.array([3, 4, 5] * 20, pa.int32())
    typed = numbers.cast(kind) if kind == pa.date32() else numbers.cast(pa.string()).cast(kind)
    texts = typed.cast(pa.string())
    for name, keys in (("0", texts), ("1", typed)):
        maps = pa.MapArray.from_arrays(pa.array(range(61), pa.int32()), keys, texts)
        pq.write_table(pa.table({"i": range(60), "m": maps}), tmp_path / f"{name}.parquet")
    source, key = ia.dataset(tmp_path), texts[1].as_py()
    condition = value(key) == key
    assert source.count_rows(condition) == source.to_table(filter=condition).num_rows == 40


@pytest.mark.parametrize("column", ["m", "t"])
def test_out_of_range_dictionary_indices_are_damage(tmp_path, column):
    count = 120_000
    keys = pa.array(["host", "user", "role"] * (count // 3))
    values = pa.array([f"v{i % 50}" for i in range(count)])
    maps = pa.MapArray.from_arrays(pa.array(range(count + 1), pa.int32()), keys, values)
    path = tmp_path / "a.parquet"
    table = pa.table({"i": range(count), "m": maps, "t": keys})
    pq.write_table(table, path, compression="none", write_statistics=False)
    raw, group = bytearray(path.read_bytes()), pq.read_metadata(path).row_group(0)
    (chunk,) = (
        chunk
        for chunk in map(group.column, range(group.num_columns))
        if chunk.path_in_schema in ("m.key_value.key", "t") and chunk.path_in_schema[0] == column
    )
    raw[chunk.dictionary_page_offset + chunk.total_compressed_size - 60] = 0xFF  # indices of 2 bits
    path.write_bytes(raw)
    asked = pc.field("t") == "user" if column == "t" else value("user") == "v7"
    for columns in (None, ["i"]):
        with pytest.raises(ia.FormatError, match=f"column {column}.*dictionary bounds"):
            ia.dataset(path).to_table(columns, filter=asked)
    with pytest.warns(ia.CorruptDataWarning, match="dictionary bounds.* rows lost"):
        actual = ia.dataset(path, on_corrupt="skip").to_table(filter=asked)
    assert actual.num_rows < table.filter(asked).num_rows
