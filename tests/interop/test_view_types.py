"""String and binary columns that a file's writer stored as Arrow views, as DataFusion does."""

from __future__ import annotations

from pathlib import Path

import datafusion
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia

ROWS = 1000
TABLE = pa.table(
    {
        "i": range(ROWS),
        "s": pa.array([None if i % 7 == 0 else f"s{i}" for i in range(ROWS)], pa.string_view()),
        "b": pa.array([b"%d" % i for i in range(ROWS)], pa.binary_view()),
        "l": pa.array([[f"x{i}"] for i in range(ROWS)], pa.list_(pa.string_view())),
        "st": pa.array([{"x": f"y{i}"} for i in range(ROWS)], pa.struct([("x", pa.string_view())])),
    }
)
FILTERS = {
    "another column": (pc.field("i") == 5, [5]),
    "text": (pc.field("s") == "s5", [5]),
    "constant view": (pc.field("s") == pa.scalar("s5", pa.string_view()), [5]),
    "constant view of bytes": (pc.scalar(pa.scalar(b"7", pa.binary_view())) == pc.field("b"), [7]),
    "bytes": (pc.field("b") == b"7", [7]),
    "prefix": (pc.starts_with(pc.field("s"), "s99"), [99, *range(990, 994), *range(995, 1000)]),
    "several": (pc.field("s").isin(["s8", "s9", "none"]), [8, 9]),
    "nulls": (pc.field("s").is_null() & (pc.field("i") < 20), [0, 7, 14]),
    "field of a struct": (pc.field("st", "x") == "y7", [7]),
    "list": (ia.list_contains("l", "x9"), [9]),
}
INDEXES = {"none": [], "some": ["s:lookup", "s:ngram", "b:lookup", "l:elements", "st.x:lookup"]}


@pytest.fixture(scope="module", params=INDEXES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("views") / "a.parquet"
    datafusion.SessionContext().from_arrow(TABLE).write_parquet(str(path))
    assert pq.read_schema(path).types == TABLE.schema.types
    if INDEXES[request.param]:
        ia.add_indexes(path, INDEXES[request.param])
    return path


@pytest.mark.parametrize("name", FILTERS)
def test_filtered_rows_remain_views(name: str, path: Path) -> None:
    condition, rows = FILTERS[name]
    expected = [TABLE.slice(row, 1).to_pylist()[0] for row in rows]
    data = ia.dataset(path)
    for actual in (data.to_table(filter=condition), ia.ParquetFile(path).read(filter=condition)):
        assert actual.schema.types == TABLE.schema.types
        assert actual.to_pylist() == expected
    assert data.count_rows(filter=condition) == len(rows)
    assert data.head(1, filter=condition).to_pylist() == expected[:1]


def test_comparing_with_a_null_view_does_not_crash(tmp_path: Path) -> None:
    """pyarrow lacks this kernel, and crashes on NULL of large_string compared with strings."""
    pq.write_table(pa.table({"t": ["a", None]}), tmp_path / "t.parquet")
    with pytest.raises(ia.PredicateError, match="no kernel"):
        ia.dataset(tmp_path).to_table(filter=pc.field("t") == pa.scalar(None, pa.string_view()))


def test_rows_are_taken_by_number(path: Path) -> None:
    for data in (ia.dataset(path), ia.dataset(path, on_corrupt="skip")):
        actual = data.take([999, 3, 3])
        assert actual.schema.types == TABLE.schema.types
        assert actual["s"].to_pylist() == ["s999", "s3", "s3"]


@pytest.mark.parametrize("column", ["s", "b", "st.x"])
@pytest.mark.parametrize("form", ["{} = NULL", "NULL >= {}", "i = 5 AND NOT {} <> NULL"])
def test_comparing_with_null_is_null(column: str, form: str, path: Path) -> None:
    condition = form.format(column)
    assert ia.dataset(path).count_rows(filter=condition) == 0
    for sql, rows in ((condition, 0), (f"({condition}) IS NULL", 1 if "AND" in form else ROWS)):
        actual = ia.sql(f"SELECT count(*) AS n FROM t WHERE {sql}", t=path)
        assert actual.to_pylist() == [{"n": rows}]
