"""Values in JSON text in filters and as index terms, beside DuckDB."""

from __future__ import annotations

import json
import random

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import intarsia as ia

ODD = [
    None,
    "{}",
    "[]",
    "null",
    '"text"',
    "17",
    '{"user": null}',
    '{"user": {"id": null}}',
    '{"user": "u1"}',
    '{"user": {"id": "u1"}, "user": {"id": "u2"}}',
    '{"a.b": 1, "a": {"b": 2}}',
    '{"a": {"b": [10, {"c": "d"}]}}',
    '{"n": 1.50, "big": 123456789012345678901234567890, "e": 1e3, "neg": -0.0}',
    '{"t": true, "f": false}',
    '{"text": "caf\\u00e9 \\"quoted\\" \\n", "é": "ü"}',
    ' { "user" : { "id" : "u3" } } ',
    '{"a b": "c", "": "empty", "k\\"q": 1, "a[0]": "bracket"}',
    '["x", "y", {"z": 1}]',
]


def drawn_rows() -> pa.Table:
    draw = random.Random(7)
    documents = []
    for i in range(600):
        if draw.random() < 0.3:
            documents.append(draw.choice(ODD))
        else:
            user = {"id": f"u{draw.randint(0, 300)}", "age": draw.choice([None, i % 90])}
            documents.append(json.dumps({"user": user, "a.b": i % 3, "a": {"b": [i % 4, 5]}}))
    return pa.table(
        {
            "k": range(600),
            "doc": documents,
            "s": pa.array([{"doc": text} for text in documents]),
            "dictionary": pa.array(documents).dictionary_encode(),
        }
    )


ROWS = drawn_rows()
CONDITIONS = [
    "doc->>'$.user.id' = 'u7'",
    "doc->>'$.user.id' IN ('u7', 'u8', 'u1')",
    "doc->>'$.user.id' LIKE 'u1%'",
    "doc->>'$.user.id' IS NULL",
    "NOT doc->>'$.user.id' = 'u7'",
    "doc->>'$.user.id' <> 'u7' AND k < 50",
    "doc->>'$.user.id' > 'u5'",
    "doc->>'user' = '{\"id\":\"u1\"}'",
    "doc->>'a.b' = '1'",
    "doc->>'$.a.b' = '2'",
    "doc->>'$.\"a.b\"' = '1'",
    "doc->>'/a/b/0' = '3'",
    "doc->>'$.a.b[1]' = '5'",
    "doc->>'$.a.b[#-1]' = '5'",
    "doc->>'$.a.b[1].c' = 'd'",
    "doc->>'a[0]' = 'bracket'",
    "doc->>'a b' = 'c'",
    "doc->>'' = 'empty'",
    "doc->>0 = 'x'",
    "doc->>'$[1]' = 'y'",
    "doc->>'n' = '1.5'",
    "doc->>'big' = '123456789012345678901234567890'",
    "doc->>'e' = '1000.0'",
    "doc->>'neg' = '-0.0'",
    "doc->>'t' = 'true'",
    "doc->>'text' LIKE 'caf%'",
    "doc->>'é' = 'ü'",
    "doc->>'$' = '17'",
    "json_extract_string(doc, '$.user.id') = 'u7'",
    "json_extract_string(doc, 'user') IS NOT NULL",
    "s.doc->>'$.user.id' = 'u7'",
    "dictionary->>'$.user.id' = 'u7'",
    "lower(doc->>'$.user.id') = 'u7'",
    "length(doc->>'$.user.id') = 2",
    "coalesce(doc->>'$.user.id', 'none') = 'none'",
    "CAST(doc->>'$.user.age' AS BIGINT) = 17",
    "doc->>'$.user.id' = doc->>'$.user.id'",
    "doc->>'$.user.id' = 'u7' OR doc->>'a.b' = '1'",
    "starts_with(doc->>'$.user.id', 'u2')",
]
INDEXES = [
    "lookup(doc->>'$.user.id', granule_rows=20)",
    "ngram(doc->>'$.user.id', granule_rows=20)",
    "distinct(doc->>'a.b', granule_rows=20)",
    "lookup(s.doc->>'$.user.id', granule_rows=20)",
    "minmax(CAST(doc->>'$.user.age' AS BIGINT), granule_rows=20)",
]


@pytest.fixture(scope="module", params=[[], INDEXES], ids=["plain", "indexed"])
def lake(request, tmp_path_factory: pytest.TempPathFactory) -> ia.Dataset:
    path = tmp_path_factory.mktemp("json") / "a.parquet"
    ia.write_table(ROWS, path, max_rows_per_page=50, row_group_size=200, indexes=request.param)
    return ia.dataset(path)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filters_match_the_rows_of_duckdb(condition, lake):
    rows = ROWS
    for one in (condition, f"NOT ({condition})"):
        query = f"SELECT k FROM rows WHERE {one} ORDER BY k"
        expected = [k for (k,) in duckdb.sql(query).fetchall()]
        assert lake.to_table(["k"], one)["k"].to_pylist() == expected
        assert lake.count_rows(one) == len(expected)
        assert ia.sql(query, rows=lake)["k"].to_pylist() == expected
    assert rows.num_rows


def test_indexes_on_values_in_json_leave_granules(tmp_path):
    path = tmp_path / "a.parquet"
    documents = [json.dumps({"user": {"id": f"u{i}"}}) for i in range(1000)]
    index = "lookup(payload->>'$.user.id', granule_rows=10)"
    ia.write_table(pa.table({"payload": documents}), path, indexes=[index], max_rows_per_page=10)
    data = ia.dataset(path)
    conditions = [
        "payload->>'$.user.id' = 'u7'",
        "json_extract_string(payload, '$.user.id') = 'u7'",
        ia.json_extract_string("payload", "$.user.id") == "u7",
    ]
    for condition in conditions:
        (file,) = data.explain(filter=condition).files
        assert file.plan.steps[-1].rows == 10
        assert data.to_table(filter=condition)["payload"].to_pylist() == [documents[7]]
    query = f"SELECT * FROM data WHERE {conditions[0]}"
    assert "json_extract_string(payload, '$.user.id'):lookup decided" in str(
        ia.explain_sql(query, data=data)
    )
    assert ia.sql(query, data=data).num_rows == 1


def test_one_path_has_one_form(tmp_path):
    path = tmp_path / "a.parquet"
    ia.write_table(pa.table({"p": ['{"a": 1}']}), path, indexes=["lookup(p->>'a')"])
    ia.add_indexes(path, ["lookup(json_extract_string(p, '$.a'))", "lookup(p->>0)"])
    assert {entry.on for entry in ia.list_indexes(path)[0].entries} == {
        "json_extract_string(p, '$.a')",
        "json_extract_string(p, '$[0]')",
    }


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("doc->>'$.*' = 'x'", "several values"),
        ("doc->>'$[''a'']' = 'x'", "path error"),
        ("doc->>k = 'x'", "no path in JSON"),
        ("k->>'a' = 'x'", "needs text"),
        ("broken->>'a' = 'x'", "Malformed JSON"),
    ],
)
def test_other_paths_and_documents_are_refused(condition, words, tmp_path):
    path = tmp_path / "a.parquet"
    rows = pa.table({"k": [1], "doc": ['{"a": 1}'], "broken": ["{a"]})
    ia.write_table(rows, path)
    with pytest.raises(ia.PredicateError, match=words):
        ia.dataset(path).to_table(filter=condition)


def test_expressions_compute_columns_and_refuse_other_types(tmp_path):
    path = tmp_path / "a.parquet"
    ia.write_table(pa.table({"doc": ['{"a": 1}', None], "k": [1, 2]}), path)
    data = ia.dataset(path)
    columns = {"a": ia.json_extract_string("doc", "a"), "k": pc.field("k")}
    assert data.to_table(columns).to_pydict() == {"a": ["1", None], "k": [1, 2]}
    with pytest.raises(ia.PredicateError, match="holds no JSON"):
        data.to_table(filter=ia.json_extract_string("k", "a") == "1")
