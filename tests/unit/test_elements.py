"""``Elements``: its column types, its build settings, and the interfaces that use it."""

import math

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.file.open_file import OpenedFile
from intarsia.index.base import Subject
from intarsia.index.indexed_type import order_of_type
from intarsia.pruning.predicates import How, SearchPredicate
from intarsia.pruning.term import field_term
from intarsia.sql.where_clause import parse_where

ROWS, PAGE = 4000, 100
#  rows    0 … 999   1000 … 1999   2000 … 2999   3000 … 3999
#  tags    t0 … t3999, every tenth row "common"; every third list NULL, every fifth empty
LISTS = [
    None if i % 3 == 1 else [] if i % 5 == 2 else [f"t{i}", None, *["common"] * (i % 10 == 0)]
    for i in range(ROWS)
]
TABLE = pa.table(
    {
        "n": range(ROWS),
        "tags": pa.array(LISTS, pa.list_(pa.string())),
        "numbers": pa.array([[i, i + 0.5] if i % 2 else None for i in range(ROWS)]),
        "attributes": pa.array(
            [[(f"k{i}", i), ("k", i)] if i % 7 else None for i in range(ROWS)],
            pa.map_(pa.string(), pa.int64()),
        ),
        "s": [
            {"deep": {"tags": [f"d{i}"] if i % 2 else []}} if i % 3 else None for i in range(ROWS)
        ],
        "matrix": [[[i]] for i in range(ROWS)],
        "people": [[{"name": f"p{i}"}] for i in range(ROWS)],
    }
)
ON = ["tags", "numbers", "attributes", "s.deep.tags"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("elements") / "t.parquet"
    pq.write_table(
        TABLE, path, row_group_size=1000, max_rows_per_page=PAGE, write_batch_size=PAGE,
        write_page_index=True, use_dictionary=False,
    )  # fmt: skip
    ia.add_indexes(path, [ia.Elements(on) for on in ON])
    return path


@pytest.fixture
def opened(monkeypatch):
    """Every file that is opened."""
    actual = []
    real = OpenedFile.__init__

    def spy(self, *args, **kwargs):
        actual.append(self)
        real(self, *args, **kwargs)

    monkeypatch.setattr(OpenedFile, "__init__", spy)
    return actual


DEEP = pc.field("s", "deep", "tags")
ASKED = {
    "one": (ia.list_contains("tags", "t3000"), [3000], "tags"),
    "any": (ia.list_contains_any("tags", ["t5", "t6", "t11", "x"]), [5, 6, 11], "tags"),
    "all": (ia.list_contains_all("tags", ["t3000", "common"]), [3000], "tags"),
    "absent": (ia.list_contains("tags", "t1"), [], "tags"),
    "all, one absent": (ia.list_contains_all("tags", ["common", "none"]), [], "tags"),
    "none": (ia.list_contains_any("tags", []), [], "tags"),
    "NULL": (ia.list_contains("tags", None), [], "tags"),
    "number of another type": (ia.list_contains("numbers", 3001), [3001], "numbers"),
    "number that none can be": (ia.list_contains("numbers", 2**53 + 1), [], "numbers"),
    "NaN": (ia.list_contains("numbers", math.nan), [], "numbers"),
    "key": (ia.map_contains("attributes", "k3001"), [3001], "attributes"),
    "within structs": (ia.list_contains(DEEP, "d3001"), [3001], "s.deep.tags"),
}


@pytest.mark.parametrize(("condition", "rows", "on"), ASKED.values(), ids=ASKED)
def test_pages_without_the_element_are_not_read(file, condition, rows, on):
    source = ia.dataset(file)
    account = source.explain(["n"], filter=condition, analyze=True)
    assert source.to_table(["n"], filter=condition)["n"].to_pylist() == rows
    steps = {step.source: step.rows for step in account.files[0].plan.steps}
    pages = len({row // PAGE for row in rows})
    assert steps.get(f"index {on}:elements", 0) == pages * PAGE
    # A row may continue in the next page, so one more page of the list's own column is read.
    leaves = sum(leaf.name.startswith(on) for leaf in ia.ParquetFile(file).schema.leaves)
    assert account.read.pages.selected <= pages * (1 + 2 * leaves)


def test_conditions_on_many_values_look_up_the_first_ones(file):
    index = ia.Elements("tags")
    of = Subject(field_term("tags"), pa.string(), order_of_type(pa.string()))
    values = pa.array([str(i) for i in range(1000)])
    formula = index.keys_for(SearchPredicate(of.term, How.LIST_ALL, values=values), of)
    assert len(formula.parts) == 64
    many = ia.list_contains_all("tags", values)
    assert ia.dataset(file).to_table(filter=many).num_rows == 0


def test_the_index_is_not_used_for_negated_conditions(file):
    """The index is not used for NOT, NULL or any non-empty list."""
    for condition, count in [
        (~ia.list_contains("tags", "t0"), sum(cell is not None for cell in LISTS) - 1),
        (~ia.list_contains("tags", None), sum(cell == [] for cell in LISTS)),
        (ia.list_contains_all("tags", []), sum(cell is not None for cell in LISTS)),
        (ia.list_contains("tags", "t0").is_null(), sum(cell is None for cell in LISTS)),
    ]:
        assert ia.dataset(file).count_rows(filter=condition) == count
        plan = ia.dataset(file).explain(filter=condition).files[0].plan
        assert plan.rows.num_rows == ROWS


SQL = [
    "list_contains(tags, 't3000')",
    "'t3000' = ANY(tags)",
    "list_has_any(tags, ['t3000', 'x'])",
    "list_has_all(tags, ['common', 't3000'])",
    "list_contains(tags, 't3000') AND n > 5",
    "list_contains(numbers, 3001)",
    "map_contains(attributes, 'k3001')",
]


@pytest.mark.parametrize("condition", SQL)
def test_sql_uses_the_index(file, opened, condition):
    actual = ia.sql(f"SELECT n FROM t WHERE {condition}", t=file)["n"].to_pylist()
    assert actual == [3000] or actual == [3001]
    assert 0 < sum(each.pages_read for each in opened) <= 5


@pytest.mark.parametrize("condition", SQL)
def test_spark_plans_use_the_index(file, condition):
    """``ias.read`` plans with ``Dataset.plan`` and the result of ``parse_where``."""
    source = ia.dataset(file)
    plan = source.plan(["n"], parse_where(condition, source.schema))
    assert [part.rows.num_rows for part in plan.files] == [PAGE]


@pytest.mark.parametrize(
    "predicate",
    [
        pl.col("tags").list.contains("t3000"),
        pl.col("tags").list.contains(pl.lit("t3000")) & (pl.col("n") >= 3000),
        (pl.col("tags").list.contains("t3000") | (pl.col("n") == 2)) & (pl.col("n") > 2),
    ],
    ids=str,
)
def test_polars_uses_the_index(file, opened, predicate):
    frame = ia.polars.scan(file, reader="pages").filter(predicate).select("n").collect()
    assert frame["n"].to_list() == [3000]
    assert 0 < sum(each.pages_read for each in opened) <= 8


@pytest.mark.parametrize(
    ("on", "reason"),
    [
        ("n", "not a list"),
        ("matrix", "nested"),
        ("people", "nested"),
        ("people.list.element.name", "nested in lists"),
        ("s.deep", "not a list"),
        ("s.deep.none", "is not there"),
        ("s.none.tags", "is not there"),
        ("none", "is not there"),
        ("lower(tags)", "is not there"),
    ],
)
def test_columns_that_cannot_have_the_index(file, on, reason):
    before = file.read_bytes()
    with pytest.raises(ia.IndexSpecError, match=reason):
        ia.add_indexes(file, ia.Elements(on))
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([[1.0]], pa.list_(pa.float16())),
        pa.array([[None]], pa.list_(pa.null())),
    ],
    ids=lambda cells: str(cells.type),
)
def test_elements_that_never_compare_equal_are_refused(tmp_path, cells):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"l": cells}), path)
    with pytest.raises(ia.IndexSpecError, match="equal nothing"):
        ia.add_indexes(path, "l:elements")


def test_lists_of_another_width_share_the_index(tmp_path):
    """One file has 32-bit elements, the other 64-bit; the data set reads both as 64-bit."""
    for name, kind in (("a", pa.int64()), ("b", pa.int32())):
        cells = pa.array([[i] for i in range(1000)], pa.list_(kind))
        ia.write_table(
            pa.table({"l": cells}), tmp_path / f"{name}.parquet",
            indexes=[ia.Elements("l", granule_rows=10)],
        )  # fmt: skip
    source = ia.dataset(tmp_path)
    for value, left in ((7, 10), (2**40, 0)):
        condition = ia.list_contains("l", value)
        files = source.explain(filter=condition).files
        assert [file.plan.rows.num_rows for file in files] == [left, left]
        assert source.to_table(filter=condition).num_rows == (2 if left else 0)


def test_the_index_is_listed_and_dropped(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path)
    before = path.read_bytes()
    ia.add_indexes(path, ["tags:elements", "elements(attributes, granule_rows=64)"])
    names = [entry.name for entry in ia.list_indexes(path)[0].indexes]
    assert names == ["tags:elements", "attributes:elements"]
    assert ia.verify(path) == []
    ia.drop_indexes(path, all=True)
    assert path.read_bytes() == before
