"""Items of lists by their position in filters, beside DuckDB."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

import intarsia as ia


def drawn_rows() -> pa.Table:
    draw = random.Random(481)

    def item():
        if draw.random() < 0.2:
            return None
        sku = draw.choice([None, "a", "b", "c%"])
        tags = draw.choice([None, [], ["x"], ["y", "x"], [None, "x"]])
        return {"sku": sku, "Qty": draw.choice([None, *range(5)]), "tags": tags}

    def some(make, most=4):
        return [make() for _ in range(draw.randint(0, most))] if draw.random() > 0.1 else None

    count = 600
    kinds = {
        "k": pa.int64(),
        "tags": pa.list_(pa.string()),
        "large": pa.large_list(pa.int32()),
        "items": pa.list_(
            pa.struct([("sku", pa.string()), ("Qty", pa.int64()), ("tags", pa.list_(pa.string()))])
        ),
        "p": pa.struct([("n", pa.list_(pa.float64()))]),
        "grid": pa.list_(pa.list_(pa.int64())),
        "m": pa.map_(pa.string(), pa.list_(pa.int64())),
    }
    values = {
        "k": list(range(count)),
        "tags": [some(lambda: draw.choice([None, "x", "y", "z"])) for _ in range(count)],
        "large": [some(lambda: draw.randint(0, 4)) for _ in range(count)],
        "items": [some(item) for _ in range(count)],
        "p": [
            None if draw.random() < 0.1 else {"n": some(lambda: draw.choice([None, 0.5, 1.5]))}
            for _ in range(count)
        ],
        "grid": [some(lambda: some(lambda: draw.randint(0, 3))) for _ in range(count)],
        "m": [[("a", [draw.randint(0, 3)])] if draw.random() < 0.7 else [] for _ in range(count)],
    }
    return pa.table({name: pa.array(values[name], kind) for name, kind in kinds.items()})


ROWS = drawn_rows()
CONDITIONS = [
    "tags[1] = 'x'",
    "tags[4] = 'x'",
    "tags[9] = 'x'",
    "tags[9] IS NULL",
    "tags[100000] IS NULL",
    "NOT tags[2] = 'x'",
    "tags[2] <> 'x'",
    "tags[1] IS NULL",
    "tags[1] IS NOT NULL AND tags[2] IS NULL",
    "tags[1] IN ('x', 'z')",
    "tags[1] NOT IN ('x', 'z')",
    "tags[1] LIKE '%y'",
    "lower(tags[1]) = 'x'",
    "upper(tags[2]) = 'Y'",
    "coalesce(tags[1], 'none') = 'none'",
    "tags[1] = tags[2]",
    "tags[1] IS DISTINCT FROM 'x'",
    "large[1] > 2",
    "large[2] BETWEEN 1 AND 3",
    "large[1] + large[2] = 4",
    "items[1].sku = 'a'",
    "items[1].sku LIKE 'c\\%' ESCAPE '\\'",
    "items[2].qty >= 3",
    "items[2].Qty IS NULL",
    "items[1].QTY + 1 = 4",
    "items[1].tags[2] = 'x'",
    "items[1].tags[1] IS NULL OR items[2].sku = 'b'",
    "items[1] IS NULL",
    "length(items[1].tags) = 2",
    "length(tags[1]) = 1",
    "list_contains(items[1].tags, 'y')",
    "p.n[1] = 0.5",
    "p.n[2] IS NULL",
    "grid[2][1] = 3",
    "grid[1][3] IS NULL",
    "m['a'][1] = 2",
    "CAST(large[1] AS DOUBLE) < 1.5",
]


INDEXES = ["tags[1]:distinct", "items[1].sku:lookup", "items[2].Qty:distinct", "large[1]:minmax"]


@pytest.fixture(scope="module", params=[[], INDEXES], ids=["plain", "indexed"])
def lake(request, tmp_path_factory: pytest.TempPathFactory) -> ia.Dataset:
    path = tmp_path_factory.mktemp("items") / "a.parquet"
    ia.write_table(ROWS, path, max_rows_per_page=50, row_group_size=200)
    if request.param:
        ia.add_indexes(path, [f"{on}({of}, granule_rows=20)" for of, _, on in map(parts, INDEXES)])
    return ia.dataset(path)


def parts(index):
    return index.rpartition(":")


def test_indexes_on_items_leave_granules(tmp_path):
    path = tmp_path / "a.parquet"
    rows = pa.table(
        {
            "tags": [[f"t{i}", "x"] for i in range(1000)],
            "items": [[{"sku": f"s{i}"}, {"sku": "z"}] for i in range(1000)],
        }
    )
    indexes = ["lookup(tags[1], granule_rows=10)", "lookup(items[1].sku, granule_rows=10)"]
    ia.write_table(rows, path, indexes=indexes, max_rows_per_page=10)
    data = ia.dataset(path)
    for condition in ("tags[1] = 't7'", "items[1].SKU = 's7'"):
        (file,) = data.explain(filter=condition).files
        assert file.plan.steps[-1].rows == 10
        assert data.to_table(filter=condition).num_rows == 1
        text = ia.explain_sql(f"SELECT * FROM data WHERE {condition}", data=data)
        assert ":lookup decided" in str(text)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filters_on_items_match_the_rows_of_duckdb(condition, lake):
    rows = ROWS
    query = f"SELECT k FROM rows WHERE {condition} ORDER BY k"
    expected = [k for (k,) in duckdb.sql(query).fetchall()]
    assert rows.num_rows
    assert lake.to_table(["k"], condition)["k"].to_pylist() == expected
    assert lake.count_rows(condition) == len(expected)
    opposite = f"SELECT k FROM rows WHERE NOT ({condition}) ORDER BY k"
    expected = [k for (k,) in duckdb.sql(opposite).fetchall()]
    assert lake.to_table(["k"], f"NOT ({condition})")["k"].to_pylist() == expected


@pytest.mark.parametrize("condition", CONDITIONS)
def test_queries_with_items_have_the_rows_of_duckdb(condition, lake):
    rows = ROWS
    query = f"SELECT k FROM rows WHERE {condition} ORDER BY k"
    assert ia.sql(query, rows=lake).to_pydict() == duckdb.sql(query).to_arrow_table().to_pydict()
    assert rows.num_rows


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("tags[0] = 'x'", "not a value"),
        ("tags[-1] = 'x'", "not a value"),
        ("tags[k] = 'x'", "not a value"),
        ("tags[100001] = 'x'", "not a value"),
        ("tags[999999999] = 'x'", "not a value"),
        ("tags[99999999999999999999] = 'x'", "not a value"),
        ("tags[1:2] = 'x'", "not a value"),
        ("k[1] = 1", "not a value"),
        ("items[1].nowhere = 1", "is not there"),
        ("tags[1].sku = 'a'", "is not there"),
        ("tags[1] = 5", "tags"),
        ("nowhere[1] = 5", "is not there"),
    ],
)
def test_other_positions_and_fields_are_refused(condition, words, lake):
    with pytest.raises(ia.PredicateError, match=words):
        lake.to_table(filter=condition)
