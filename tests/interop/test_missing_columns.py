"""Columns that some files lack are NULL there, but a function of NULL may not be NULL.

Each filter is applied to a data set in which half of the files lack all columns but ``id``. The
answer is compared with that of the same rows in memory.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.expr.evaluate import compute_columns, evaluate
from intarsia.pruning.term import PROPAGATES_NULL, parse_term

FULL = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "n": pa.array([1, 5, None], pa.int64()),
        "text": ["a", None, "zz"],
        "m": pa.array([[("h", "a")], None, [("h", None)]], pa.map_(pa.string(), pa.string())),
        "s": pa.array([{"x": 5}, None, {"x": None}], pa.struct([("x", pa.int64())])),
        "f": [1.5, float("nan"), None],
        "ts": pa.array([0, 10**15, None], pa.timestamp("us")),
    }
)
LACKING = pa.table({"id": pa.array([5, 3, None], pa.int64())})
TOGETHER = pa.concat_tables([FULL, LACKING], promote_options="default")

n, text, x, number = pc.field("n"), pc.field("text"), pc.field("s", "x"), pc.field("id")
h = pc.map_lookup(pc.field("m"), pa.scalar("h"), "first")
TERMS = {
    "coalesced_constant": pc.equal(pc.coalesce(n, pc.scalar(5)), 5),
    "coalesced_column": pc.equal(pc.coalesce(n, number), 3),
    "coalesced_column_first": pc.equal(pc.coalesce(number, n), 3),
    "coalesced_map_value": pc.equal(pc.utf8_lower(pc.coalesce(h, pc.scalar("ZZ"))), "zz"),
    "coalesced_text": pc.coalesce(text, pc.scalar("zz")) == "zz",
    "coalesced_like": pc.match_like(pc.coalesce(text, pc.scalar("zz")), "z%"),
    "coalesced_substring": pc.match_substring(pc.coalesce(text, pc.scalar("zzz")), "zzz"),
    "coalesced_prefix": pc.starts_with(pc.coalesce(text, pc.scalar("zz")), "z"),
    "coalesced_field": pc.coalesce(x, pc.scalar(5)) == 5,
    "coalesced_nan": pc.is_nan(pc.coalesce(pc.field("f"), pc.scalar(float("nan")))),
    "coalesced_year": pc.year(pc.coalesce(pc.field("ts"), pa.scalar(0, pa.timestamp("us"))))
    == 1970,
    "coalesced_in": pc.coalesce(n, pc.scalar(5)).isin([5, 7]),
    "coalesced_not_in": ~pc.coalesce(n, pc.scalar(5)).isin([1, 7]),
    "coalesced_sum": pc.add_checked(pc.coalesce(n, pc.scalar(5)), number) == 8,
    "length_of_coalesced": pc.utf8_length(pc.coalesce(text, pc.scalar("zzz"))) == 3,
    "coalesced_is_null": pc.is_null(pc.coalesce(n, pc.scalar(5))),
    "coalesced_is_valid": pc.is_valid(pc.coalesce(n, number)),
    "coalesced_function": pc.coalesce(pc.abs(n), pc.scalar(5)) == 5,
    "nested_coalesce": pc.coalesce(pc.coalesce(n, x), number, pc.scalar(9)) == 9,
    "coalesce_of_nulls": pc.is_null(pc.coalesce(n, x)),
    "if_else": pc.if_else(pc.is_null(n), number, n) == 3,
    "case_when": pc.case_when(pc.make_struct(pc.is_null(n)), pc.scalar(1), pc.scalar(0)) == 1,
    "plain": n == 5,
    "plain_null": pc.is_null(n),
    "sum": pc.add_checked(n, number) == 2,
    "sum_is_null": pc.is_null(pc.add_checked(n, number)),
    "or": (n == 1) | (pc.coalesce(n, pc.scalar(5)) == 5),
    "kleene": pc.is_null((n == 1) | (number == 3)),
    "compared_is_valid": pc.is_valid(n == 5),
    "is_in_with_null": n.isin(pa.array([1, None])),
    "null_is_nan": pc.is_nan(pc.field("f")),
    "words": ia.contains_words(pc.coalesce(text, pc.scalar("disk full")), "full"),
}
FILTERS = {**TERMS, **{f"not_{name}": ~filter_ for name, filter_ in TERMS.items()}}
SQL = [
    "coalesce(n, 5) = 5",
    "coalesce(n, id) = 3",
    "lower(coalesce(m['h'], 'zz')) = 'zz'",
    "coalesce(n, 5) IS NULL",
    "coalesce(n, 5) IN (5, 6)",
    "NOT coalesce(n, 5) = 5",
    "coalesce(text, 'zz') LIKE 'z%'",
    "ifnull(n, 5) = 5",
    "CASE WHEN n IS NULL THEN id ELSE n END = 3",
    "n IS DISTINCT FROM 1",
    "n IS NOT DISTINCT FROM NULL",
    "coalesce(s.x, n, id) = 5",
    "concat(text, 'b') = 'b'",
    "greatest(n, id) = 5",
    "least(n, id) = 5",
    "nullif(n, 1) IS NULL",
    "n = 5 OR id = 3",
]


MEMORY = duckdb.connect()
MEMORY.register("memory", TOGETHER)


def ids(table: pa.Table) -> list[int | None]:
    return table.column("id").to_pylist()


def folder(path: Path, layout: str) -> Path:
    """``FULL`` and ``LACKING``, one file each, or many small files that are read together."""
    for number in range(8 if layout == "many" else 1):
        pq.write_table(FULL, path / f"a{number}.parquet")
        pq.write_table(LACKING, path / f"b{number}.parquet")
    if layout == "catalog":
        ia.build_catalog(path)
    return path


@pytest.fixture(scope="module", params=["two", "many", "catalog"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ia.Dataset:
    made = ia.dataset(
        folder(tmp_path_factory.mktemp("lake"), request.param), schema=TOGETHER.schema
    )
    assert (request.param == "catalog") == (made.scan_source.cache.catalog is not None)
    return made


def answers(data: ia.Dataset, matching: list[int | None]) -> list[int | None]:
    return sorted(matching * (len(data.files) // 2), key=str)


@pytest.mark.parametrize("name", FILTERS)
def test_filters_answer_as_in_memory(data: ia.Dataset, name: str) -> None:
    expected = FILTERS[name]
    matching = answers(data, ids(evaluate(expected, TOGETHER)))
    assert sorted(ids(data.to_table(filter=expected)), key=str) == matching
    assert data.count_rows(filter=expected) == len(matching)


@pytest.mark.parametrize("where", SQL)
def test_sql_answers_as_in_memory(data: ia.Dataset, where: str) -> None:
    matching = MEMORY.sql(f"SELECT id FROM memory WHERE {where}").to_arrow_table()
    actual = ia.sql(f"SELECT id FROM data WHERE {where}", data=data)
    assert sorted(ids(actual), key=str) == answers(data, ids(matching))


def test_polars_answers_as_in_memory(data: ia.Dataset) -> None:
    c = pl.col
    expected = [
        pl.coalesce(c("n"), 5) == 5,
        c("n").fill_null(c("id")) == 3,
        c("text").fill_null("zz").str.starts_with("z"),
        c("n").is_null() & (c("id") == 5),
        c("n").eq_missing(None),
    ]
    memory = pl.DataFrame(TOGETHER.drop_columns(["m"]))
    for one in expected:
        matching = memory.filter(one)["id"].to_list()
        actual = ia.polars.scan(data).filter(one).select("id").collect()["id"].to_list()
        assert sorted(actual, key=str) == answers(data, matching), one


def test_union_by_name_answers_as_in_memory(tmp_path: Path) -> None:
    pq.write_table(LACKING, tmp_path / "a.parquet")
    pq.write_table(FULL, tmp_path / "b.parquet")
    data = ia.dataset(tmp_path, union_by_name=True)
    for expected in FILTERS.values():
        matching = ids(evaluate(expected, TOGETHER))
        assert sorted(ids(data.to_table(filter=expected)), key=str) == sorted(matching, key=str)


def test_files_are_left_out_where_a_function_of_missing_columns_cannot_match(
    data: ia.Dataset,
) -> None:
    for expected in ("coalesce(n, 7) = 9", "lower(text) = 'q'", "n + id = 3", "coalesce(n, 5) > 5"):
        names = [Path(file.path).name for file in data.plan(filter=expected).files]
        assert not any(name.startswith("b") for name in names), expected


def test_functions_of_partition_columns_exclude_folders(tmp_path: Path) -> None:
    for region in ("EU", "US", "eu"):
        (tmp_path / f"region={region}").mkdir()
        pq.write_table(LACKING, tmp_path / f"region={region}" / "a.parquet")
    data = ia.dataset(tmp_path)
    plan = data.plan(filter="lower(region) = 'eu'")
    assert len(plan.files) == 2
    assert data.count_rows(filter="lower(region) = 'eu'") == 6
    assert data.count_rows(filter="lower(coalesce(region, 'x')) LIKE 'u%'") == 3


def test_every_function_says_whether_it_propagates_null() -> None:
    schema = pa.schema([("i", pa.int64()), ("f", pa.float64()), ("t", pa.string())])
    schema = schema.append(pa.field("ts", pa.timestamp("us")))
    schema = schema.append(pa.field("m", pa.map_(pa.string(), pa.string())))
    schema = schema.append(pa.field("l", pa.list_(pa.struct([("x", pa.int64())]))))
    texts = {
        "coalesce": "coalesce(i, 5)",
        "day_of_week": "dayofweek(ts)",
        "map_lookup": "m['key']",
        "negate_checked": "-i",
        "cast": "CAST(i AS VARCHAR)",
        "utf8_lower": "lower(t)",
        "utf8_upper": "upper(t)",
        "utf8_length": "length(t)",
        "abs": "abs(i)",
        "floor": "floor(f)",
        "ceil": "ceil(f)",
        "iso_week": "week(ts)",
        "day_of_year": "dayofyear(ts)",
        "add_checked": "i + 5",
        "subtract_checked": "i - 5",
        "multiply_checked": "i * 5",
        "list_element": "l[1]",
        "struct_field": "l[1].x",
        "ia.json_extract_string": "t->>'a'",
        **{name: f"{name}(ts)" for name in ("quarter", "month", "day", "hour", "minute", "second")},
    }
    assert texts.keys() == PROPAGATES_NULL.keys()
    nulls = pa.table([pa.nulls(1, one.type) for one in schema], schema=schema)
    for function, sql in texts.items():
        term = parse_term(sql, schema)
        assert term.node.function == function
        value = compute_columns({"value": term.expression}, nulls).column(0)[0]
        assert PROPAGATES_NULL[function] == (not value.is_valid), function
