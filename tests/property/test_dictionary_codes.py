"""Filters on strings that are read as dictionary indices give the answers of the strings."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.scan import dictionary_codes, predicate_order, schema_adapter

TEXTS = ["api", "web", "", "é", "API", "db%", "a_b", "z" * 40]
texts = st.sampled_from([*TEXTS, None])
constants = st.sampled_from([*TEXTS, "absent"])
T, U, row = pc.field("t"), pc.field("u"), pc.field("i")
FIELDS = st.sampled_from([T, U, pc.field("s", "t"), pc.field("s", "v", "u")])
COMPARED = (
    lambda f, a, b: f == a,
    lambda f, a, b: f != a,
    lambda f, a, b: (f >= a) & (f < b),
    lambda f, a, b: f.isin([a, b]),
    lambda f, a, b: ~f.isin([a]),
    lambda f, a, b: ~(f == a) | (f == b),
)
ASKED = (
    lambda f, a, b: f.is_null(),
    lambda f, a, b: f.is_valid() & (f != b),
    lambda f, a, b: f.isin([a, None]),
    lambda f, a, b: pc.match_like(f, "%a%"),
    lambda f, a, b: pc.match_substring(f, "b"),
    lambda f, a, b: pc.utf8_lower(f) == a,
    lambda f, a, b: pc.utf8_length(f) > 2,
    lambda f, a, b: pc.if_else(f == a, True, f == b),
    lambda f, a, b: pc.coalesce(pc.starts_with(f, "a"), True),
)


@st.composite
def filters(draw):
    def one():
        field = draw(FIELDS)
        return draw(st.sampled_from(COMPARED + ASKED))(field, draw(constants), draw(constants))

    first = one()
    match draw(st.integers(0, 4)):
        case 0:
            return first
        case 1:
            return first & one()
        case 2:
            return first | one()
        case 3:
            return first & (row < draw(st.integers(0, 60))) & one()
        case _:
            return ~(first & (row > draw(st.integers(0, 60))))


def written(path, columns, writer, large):
    kind = pa.large_string() if large else pa.string()
    table = pa.table({"t": pa.array(columns[0], kind), "u": pa.array(columns[1], kind)})
    inner = pa.StructArray.from_arrays([*table["u"].chunks], ["u"])
    outer = pa.StructArray.from_arrays(
        [*table["t"].chunks, inner],
        ["t", "v"],
        mask=pa.array([i % 5 == 3 for i in range(len(inner))]),
    )
    table = table.append_column("i", pa.array(range(len(columns[0])), pa.int64()))
    table = table.append_column("s", outer)
    match writer:
        case "polars":
            pl.from_arrow(table).write_parquet(path, row_group_size=60)
            return pq.read_table(path)
        case "paged":
            options = {"max_rows_per_page": 7, "write_batch_size": 1, "write_page_index": True}
            pq.write_table(table, path, row_group_size=30, **options)
        case "some plain":  # plain pages follow with more values
            pq.write_table(
                *(table, path),
                row_group_size=30,
                dictionary_pagesize_limit=12,
                data_page_size=20,
                write_batch_size=1,
            )
        case _:
            pq.write_table(table, path, use_dictionary=["t", "s.t"])
    return table


@pytest.fixture(params=["compared", "all"])
def anyhow(request, always_coded, monkeypatch):
    """Reads indices of columns that are compared, or also of others, which become strings again."""
    if request.param == "all":
        monkeypatch.setattr(schema_adapter, "_MIN_DICTIONARY_ROWS", 1)
        monkeypatch.setattr(schema_adapter, "has_few_entries", lambda *_: True)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(texts, texts), min_size=1, max_size=70),
    st.sampled_from(["paged", "polars", "some plain", "one of two"]),
    st.booleans(),
    filters(),
)
def test_answers_equal_those_of_strings(anyhow, tmp_path, rows, writer, large, condition):
    table = written(tmp_path / "a.parquet", list(zip(*rows, strict=True)), writer, large)
    expected = table.filter(condition)
    ds = ia.dataset(tmp_path / "a.parquet")
    assert ds.to_table(filter=condition).to_pylist() == expected.to_pylist()
    assert ds.to_table(["u", "t"], filter=condition).equals(expected.select(["u", "t"]))
    assert ds.to_table(["i"], filter=condition).equals(expected.select(["i"]))
    assert ds.to_table(["s.v.u", "i"], filter=condition)["i"].equals(expected["i"])
    assert ds.count_rows(condition) == expected.num_rows


@pytest.mark.parametrize("writer", ["paged", "polars", "one of two"])
@pytest.mark.parametrize(
    "condition", [T == "web", pc.match_like(T, "%e%"), (T != "api") & (row > 3)]
)
def test_strings_are_read_as_dictionary_indices(always_coded, tmp_path, writer, condition):
    columns = [["api", "web", None] * 20, ["x", "y", "z"] * 20]
    table = written(tmp_path / "a.parquet", columns, writer, False)
    ds = ia.dataset(tmp_path / "a.parquet")
    assert ds.to_table(["i", "t"], filter=condition).equals(
        table.select(["i", "t"]).filter(condition)
    )
    assert always_coded == {"t"}


def test_few_rows_and_conditions_on_whole_rows_are_read_as_strings(
    always_coded, tmp_path, monkeypatch
):
    columns = [["api", "web", None] * 20, ["x", "y", "z"] * 20]
    table = written(tmp_path / "a.parquet", columns, "paged", False)
    ds = ia.dataset(tmp_path / "a.parquet")
    both = pc.utf8_length(T) > pc.utf8_length(U)
    assert ds.to_table(filter=both).equals(table.filter(both))
    monkeypatch.setattr(predicate_order, "STAGED_ROWS", 61)
    assert ds.to_table(filter=T == "web").equals(table.filter(T == "web"))
    assert always_coded == set()


def test_unused_dictionary_strings_fail_no_condition(tmp_path):
    """Arrow dictionaries are written with all their values, used or not."""
    rows = 100_000
    texts = pa.array(["1", "2", None, "abc"] * (rows // 4)).dictionary_encode()
    table = pa.table({"t": texts}).filter(pc.or_kleene(T.is_null(), T != "abc"))
    pq.write_table(table, tmp_path / "a.parquet", store_schema=False)
    ds = ia.dataset(tmp_path / "a.parquet")
    condition = T.cast(pa.int64()) == 2
    assert ds.count_rows(condition) == ds.to_table(filter=condition).num_rows == rows // 4
    assert ds.count_rows("CAST(t AS BIGINT) = 2 OR t IS NULL") == rows // 2
    pq.write_table(pa.table({"t": texts}), tmp_path / "a.parquet", store_schema=False)
    with pytest.raises(ia.PredicateError, match="'abc'"):
        ds.count_rows(condition)


def repeating(path):
    """A file whose dictionaries repeat a string, which pyarrow's indices do not reveal."""
    texts = pa.array(["a", "b", "x", "c"]).take(pa.array([0, 1, 2, 3, 1, None] * 20_000))
    table = pa.table({"t": texts, "i": range(120_000)})
    options = {"compression": "none", "write_statistics": False, "row_group_size": 60_000}
    pq.write_table(table, path, **options)
    data = path.read_bytes()
    assert data.count(b"\1\0\0\0x") == 2
    path.write_bytes(data.replace(b"\1\0\0\0x", b"\1\0\0\0a"))
    return table.set_column(0, "t", pc.replace_substring(texts, "x", "a"))


def test_dictionaries_that_repeat_a_string_are_read_as_strings(tmp_path):
    table = repeating(tmp_path / "a.parquet")
    ds = ia.dataset(tmp_path / "a.parquet")
    for condition in (T == "a", T != "c", pc.match_like(T, "%a%")):
        assert ds.to_table(filter=condition).equals(table.filter(condition))
        assert ds.count_rows(condition) == table.filter(condition).num_rows
    actual = ia.sql("SELECT t, count(*) AS n FROM t GROUP BY t ORDER BY t", t=ds)
    assert actual.to_pylist() == [
        {"t": "a", "n": 40_000},
        {"t": "b", "n": 40_000},
        {"t": "c", "n": 20_000},
        {"t": None, "n": 20_000},
    ]
    frame = ia.polars.scan(ds).filter(pl.col("i") >= 4)
    assert frame.collect()["t"].to_list() == table["t"].to_pylist()[4:]


def test_compared_fields_of_structs_are_read_as_dictionary_indices(always_coded, tmp_path):
    columns = [["api", "web", None] * 20, ["x", "y", "z"] * 20]
    table = written(tmp_path / "a.parquet", columns, "paged", False)
    ds = ia.dataset(tmp_path / "a.parquet")
    t, u = pc.field("s", "t"), pc.field("s", "v", "u")
    for condition, decoded in (
        ((t == "web") & (u != "z"), {"s.t", "s.v.u"}),
        (t.isin(["api", "web"]) | (row > 50), {"s.t"}),
        (pc.match_like(t, "%e%"), set()),
        ((t == "web") & (pc.utf8_upper(u) == "Y"), set()),
    ):
        always_coded.clear()
        assert ds.to_table(filter=condition).equals(table.filter(condition))
        assert always_coded == decoded


def test_few_strings_are_read_as_dictionary_indices_and_converted_back(always_coded, tmp_path):
    rows = 20_000
    table = pa.table(
        {
            "t": ["api", "web", None, ""] * (rows // 4),
            "u": [f"{i}" for i in range(rows)],
            "s": [None if i % 5 == 3 else {"t": f"x{i % 7}"} for i in range(rows)],
            "i": range(rows),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", write_page_index=True, max_rows_per_page=500)
    ds = ia.dataset(tmp_path / "a.parquet")
    for condition, decoded in ((row >= 100, {"t", "s.t"}), (row < 100, set())):
        always_coded.clear()
        assert ds.to_table(filter=condition).equals(table.filter(condition))
        assert always_coded == decoded
    always_coded.clear()
    assert ds.take([5, 19_000]).equals(table.take([5, 19_000]))
    assert always_coded == set()


def test_strings_that_exceed_one_array_become_several(monkeypatch):
    class Values:
        """Values whose cast fails, like pyarrow's for too many bytes."""

        def __init__(self, chunks):
            self.chunks = chunks

        def cast(self, kind):
            raise pa.ArrowInvalid("Take operation overflowed binary array capacity")

    texts = pa.array(["a", None, "b"] * 5)
    monkeypatch.setattr(dictionary_codes, "_CAST_ROWS", 4)
    actual = dictionary_codes.cast_to_strings(
        Values([texts.dictionary_encode(), texts[:2].dictionary_encode()]), pa.string()
    )
    assert actual.to_pylist() == [*texts.to_pylist(), "a", None]
    assert actual.num_chunks == 5


@pytest.mark.parametrize("has_page_index", [True, False])
def test_plain_pages_are_detected_without_the_footer(
    always_coded, tmp_path, monkeypatch, has_page_index
):
    """For example in Polars' files, whose footers do not name the encodings of pages."""
    texts = [f"text {n % 23}" for n in range(600)]
    options = {"dictionary_pagesize_limit": 60, "data_page_size": 100, "write_batch_size": 10}
    table = pa.table({"t": texts, "i": range(600)})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, write_page_index=has_page_index, row_group_size=300, **options)
    monkeypatch.setattr(dictionary_codes, "data_page_encodings", lambda chunk: set())
    monkeypatch.setattr(dictionary_codes, "has_dictionary_pages_only", lambda chunk: False)
    ds = ia.dataset(path)
    for _ in range(2):
        for condition in (T == "text 7", pc.match_like(T, "%2%"), (T != "text 1") & (row > 20)):
            assert ds.to_table(filter=condition).equals(table.filter(condition))
    assert ds.scan_source.cache.get(str(path)).without_dictionary_indices >= {(0, 0)}


def test_a_partition_column_is_not_read_as_dictionary_indices(always_coded, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"t={name}").mkdir()
        inner = pa.table({"t": [name] * 100, "i": range(100)})
        pq.write_table(inner, tmp_path / f"t={name}" / "0.parquet")
    ds = ia.dataset(tmp_path, partitioning="hive")
    actual = ds.to_table(filter=(T == "b") & (row < 3))
    assert actual.to_pydict() == {"t": ["b"] * 3, "i": [0, 1, 2]}


def test_fields_with_pages_of_different_rows_are_read_as_strings(always_coded, tmp_path):
    rows = 4_000
    fields = {
        "x": [f"x{n % 5}" for n in range(rows)],
        "y": [f"y{n % 7}" * 9 for n in range(rows)],
    }
    struct = pa.StructArray.from_arrays(map(pa.array, fields.values()), [*fields])
    table = pa.table({"s": struct, "i": range(rows)})
    path = tmp_path / "a.parquet"
    options = {"data_page_size": 300, "write_batch_size": 10, "write_page_index": True}
    pq.write_table(table, path, max_rows_per_page=rows, **options)
    ds = ia.dataset(path)
    x, y = pc.field("s", "x"), pc.field("s", "y")
    for condition in ((x == "x3") & (y != "y1" * 9), (row >= 1_000) & (x == "x3") & (y < "y4")):
        assert ds.to_table(filter=condition).equals(table.filter(condition))


def test_a_field_of_another_type_in_a_second_file(always_coded, tmp_path):
    first = pa.table({"s": [{"t": "7"}, {"t": "8"}] * 50, "i": range(100)})
    second = pa.table({"s": [{"t": 7}, {"t": None}] * 50, "i": range(100, 200)})
    pq.write_table(first, tmp_path / "0.parquet")
    pq.write_table(second, tmp_path / "1.parquet")
    ds = ia.dataset(tmp_path)
    actual = ds.to_table(filter=(pc.field("s", "t") == "7") & (row >= 98))
    assert actual["i"].to_pylist() == [98, *range(100, 200, 2)]
    assert set(actual["s"].to_pylist()[0]) == {"t"}
