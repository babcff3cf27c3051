"""Filters that people rarely write: very long, very deep, or with bytes that are not UTF-8."""

from __future__ import annotations

import functools
import operator
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia

ROWS = 70_000
"""More conditions than are evaluated in one call."""
LENGTH = 1500
"""Far more conditions than Python's recursion limit allows, if each were nested in the one before.
"""
A, S = pc.field("a"), pc.field("s")


def alternating(before: pc.Expression, i: int) -> pc.Expression:
    return before | (i == A) if i % 2 else before & (i != A)


LONG = {
    "or": functools.reduce(operator.or_, (i == A for i in range(LENGTH))),
    "or_from_the_right": functools.reduce(lambda x, y: y | x, (i == A for i in range(LENGTH))),
    "and": functools.reduce(operator.and_, (i != A for i in range(LENGTH))),
    "texts": functools.reduce(operator.or_, (pc.match_substring(S, f"{i}x") for i in range(400))),
    "alternating": functools.reduce(alternating, range(LENGTH), A == 7),
    "not": functools.reduce(lambda x, _: ~x, range(LENGTH + 1), A == 7),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("odd") / "odd.parquet"
    table = pa.table({"a": range(ROWS), "s": [f"{i}x" for i in range(ROWS)]})
    pq.write_table(table, path, row_group_size=ROWS // 2, write_page_index=True)
    ia.add_indexes(path, [ia.Lookup("a"), ia.NGram("s")])
    return path


@pytest.mark.parametrize("name", LONG)
def test_a_long_filter_is_answered(name: str, path: Path) -> None:
    data, condition = ia.dataset(path), LONG[name]
    expected = pads.dataset(path).to_table(filter=condition)
    assert data.to_table(filter=condition).equals(expected)
    assert data.count_rows(filter=condition) == expected.num_rows > 0


def test_engines_may_pass_long_alternatives(path: Path) -> None:
    conditions = " OR ".join(f"a = {i}" for i in range(400))
    query, data = f"SELECT count(*) AS n FROM data WHERE {conditions}", ia.dataset(path)
    assert ia.sql(query, data=data).to_pydict() == {"n": [400]}
    assert duckdb.sql(query).fetchall() == [(400,)]
    expected = functools.reduce(operator.or_, (pl.col("a") == i for i in range(400)))
    assert ia.polars.scan(path).filter(expected).collect().height == 400


# --- bytes that are not UTF-8 -------------------------------------------------------------------

BYTES = [b"\xff\xfeab", b"ab", None, b"\xff", b"", b"a\xff"]
SEARCHES = {
    "match_substring": b"\xff",
    "starts_with": b"\xff",
    "ends_with": b"\xff",
    "match_like": b"%\xff%",
}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("function", SEARCHES)
def test_patterns_may_be_bytes(function: str, kind: pa.DataType, tmp_path: Path) -> None:
    path = tmp_path / "bytes.parquet"
    pq.write_table(pa.table({"b": pa.array(BYTES * 40, kind)}), path)
    ia.add_indexes(path, [ia.NGram("b"), ia.Words("b")])
    actual = getattr(pc, function)(pc.field("b"), SEARCHES[function])
    for condition in (
        actual,
        ~actual,
        actual & (pc.field("b") != b"ab"),
        actual | pc.field("b").is_null(),
    ):
        expected = pads.dataset(path).to_table(filter=condition)
        assert ia.dataset(path).to_table(filter=condition).equals(expected)
        assert ia.dataset(path).count_rows(filter=condition) == expected.num_rows > 0


def test_explain_shows_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "b.parquet"
    pq.write_table(pa.table({"b": pa.array([b"\xff", b"a"]), "f": pa.array([b"\xff", b"a"])}), path)
    ds = ia.dataset(path)
    for condition in (
        pc.starts_with(pc.field("b"), b"\xff"),
        pc.match_substring(pc.field("b"), b"\xff") & (pc.field("f") == b"\xff"),
    ):
        assert ds.to_table(filter=condition).num_rows == 1
        for analyze in (False, True):
            assert "0xff" in str(ds.explain(filter=condition, analyze=analyze))
        assert "0xff" in str(ia.advise(path, condition))
    fixed = tmp_path / "f.parquet"
    pq.write_table(pa.table({"f": pa.array([b"\xff\xff"], pa.binary(2))}), fixed)
    with pytest.raises(ia.PredicateError, match="no kernel"):
        ia.dataset(fixed).to_table(filter=pc.starts_with(pc.field("f"), b"\xff"))


@pytest.mark.parametrize("kind", [pa.binary_view(), pa.string_view()], ids=str)
def test_sets_of_views_may_hold_a_null(kind: pa.DataType, tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    pq.write_table(pa.table({"v": pa.array([b"a", None, b"b"])}), path)
    condition = pc.is_in(pc.field("v"), value_set=pa.array([b"a", None]).cast(kind))
    actual = ia.dataset(path).to_table(filter=condition)
    assert actual.equals(pads.dataset(path).to_table(filter=condition))
    assert actual.num_rows == 2


class Marked(pa.ExtensionType):
    """A user-defined extension type without a hash."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "intarsia.tests.marked")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Marked:
        return cls()


def test_a_type_without_a_hash_does_not_disable_indexes(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        hash(Marked())
    path = tmp_path / "m.parquet"
    marked = pa.ExtensionArray.from_storage(Marked(), pa.array(["x", "y"]))
    pa.register_extension_type(Marked())
    try:
        pq.write_table(pa.table({"s": ["A", "b"], "m": marked}), path)
        ia.add_indexes(path, [ia.Lookup(pc.utf8_lower(pc.field("s")))])
        assert ia.verify(path) == []
        assert len(ia.advise(path, "lower(s) = 'a'").filters) == 1
        expected = pc.utf8_lower(pc.field("s")) == "a"
        assert ia.dataset(path).to_table(filter=expected).column("s").to_pylist() == ["A"]
        for kind in (ia.MinMax, ia.Distinct):
            with pytest.raises(ia.IndexSpecError, match="extension"):
                ia.add_indexes(path, [kind("m")])
        with pytest.raises(ia.PredicateError, match="no kernel"):
            ia.dataset(path).to_table(filter=pc.match_like(pc.field("m"), "x%"))
    finally:
        pa.unregister_extension_type("intarsia.tests.marked")


@pytest.mark.parametrize("name", ["__intarsia_row", "__intarsia_call_0", "__intarsia_place"])
def test_columns_may_have_names_used_internally(name: str, tmp_path: Path) -> None:
    for number in range(5):  # many small files are decoded together
        table = pa.table({name: [100, 200, 300], "n": [number, 7, 8], "tags": [["a"], [], None]})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    ds = ia.dataset(tmp_path)
    for expected in (pc.field(name) == 200, pc.field(name) + pc.field("n") == 207):
        assert ds.count_rows(filter=expected) == 5
        assert ds.to_table(filter=expected).column(name).to_pylist() == [200] * 5
        assert ds.take([0, 3], filter=expected).column(name).to_pylist() == [200] * 2
    tagged = f"SELECT n FROM t WHERE list_contains(tags, 'a') AND {name} = 100"
    assert sorted(ia.sql(tagged, t=ds).column("n").to_pylist()) == [0, 1, 2, 3, 4]
