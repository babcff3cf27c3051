"""Tuples as filters, beside DuckDB, and results as frames of pandas and Polars."""

from __future__ import annotations

import builtins

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import intarsia as ia

WORDS = ["disk full", "Disk FULL", "50%", "50x", "a\\b", "it's", "", "é\nÉ", None]
ROWS = pa.table(
    {
        "k": range(900),
        "word": WORDS * 100,
        "odd.name \"'": WORDS * 100,
        "coded": pa.array(WORDS * 100).dictionary_encode(),
        "gap": [None if n % 3 else n / 7 for n in range(900)],
        "tags": [None if n % 4 else ["x"] for n in range(900)],
        "point": [None if n % 5 else {"x": None if n % 2 else f"w{n % 10}"} for n in range(900)],
    }
)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> ia.Dataset:
    path = tmp_path_factory.mktemp("lake") / "a.parquet"
    ia.write_table(ROWS, path, max_rows_per_page=50, indexes=["ngram(word)"])
    return ia.dataset(path)


def keys_of(condition: str) -> list[int]:
    """Returns the keys of the rows for which a condition of DuckDB is TRUE."""
    rows = ROWS
    query = f"SELECT k FROM rows WHERE {condition} ORDER BY k"
    assert rows.num_rows
    return [k for (k,) in duckdb.sql(query).fetchall()]


PATTERNS = ["%full", "DISK%", "50%", "50_", "a\\b", "%'s", "", "%", "é%É", "%_%"]


@pytest.mark.parametrize("operator", ["like", "not like", "ilike", "not ilike"])
@pytest.mark.parametrize("column", ["word", "odd.name \"'", "coded"])
def test_patterns_match_as_in_duckdb(column, operator, logs):
    quoted = column.replace('"', '""')
    for pattern in PATTERNS:
        literal = pattern.replace("'", "''")
        expected = keys_of(f"\"{quoted}\" {operator} '{literal}'")
        actual = logs.to_table(["k"], [(column, operator, pattern)])
        assert actual["k"].to_pylist() == expected, pattern


@pytest.mark.parametrize("column", ["word", "coded", "gap", "tags", "point", ("point", "x")])
def test_null_is_found_in_columns_of_any_type(column, logs):
    text = column if isinstance(column, str) else ".".join(column)
    for operator in ("is null", "is not null"):
        expected = keys_of(f"{text} {operator}")
        assert 0 < len(expected) < ROWS.num_rows
        assert logs.to_table(["k"], [(column, operator)])["k"].to_pylist() == expected
        assert logs.count_rows([(column, operator, None)]) == len(expected)


def test_tuples_are_joined_by_and_lists_by_or(logs):
    condition = [
        [("word", "like", "50%"), ("k", "not in", [2, 3, 4])],
        [("gap", "is not null"), ("k", "<", 12), ("word", "not like", "%a%")],
    ]
    expected = keys_of(
        "(word LIKE '50%' AND k NOT IN (2, 3, 4)) "
        "OR (gap IS NOT NULL AND k < 12 AND word NOT LIKE '%a%')"
    )
    assert logs.to_table(["k"], condition)["k"].to_pylist() == expected
    assert logs.filter(condition).count_rows() == len(expected)


def test_a_pattern_uses_the_index(logs):
    explanation = logs.explain(filter=[("word", "like", "%nowhere%")])
    assert "index word:ngram" in str(explanation)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ([("word", "like", 5)], "is no list of conditions"),
        ([("word", "like")], "is no list of conditions"),
        ([("word", "is null", 5)], "is no list of conditions"),
        ([("word", "resembles", "x")], "like, not like, ilike, not ilike, is null, is not null"),
        ([("nowhere", "is null")], "'nowhere' is not there"),
        ([("nowhere", "like", "%")], "'nowhere' is not there"),
        ([("k", "like", "%")], "int64"),
        ([], "is no list of conditions"),
        ([[]], "is no list of conditions"),
        ([[("k", "=", 1)], ("k", "=", 2)], "is no list of conditions"),
        ([("k", "=", 1), [("k", "=", 2)]], "is no list of conditions"),
        (["k"], "is no list of conditions"),
    ],
)
def test_wrong_tuples_are_refused(condition, words, logs):
    with pytest.raises(ia.PredicateError, match=words):
        logs.to_table(filter=condition)


# --- frames -------------------------------------------------------------------------------------


def test_frames_have_the_rows_of_a_table(logs):
    columns, condition = ["k", "gap"], [("word", "like", "50%")]
    table = logs.to_table(columns, condition)
    pd.testing.assert_frame_equal(logs.to_pandas(columns, condition), table.to_pandas())
    frame = logs.to_polars(columns, filter=condition)
    assert isinstance(frame, pl.DataFrame)
    assert frame.to_dicts() == table.to_pylist()
    assert logs.to_polars().select("k", "word", "coded", "tags").to_dicts() == [
        {name: row[name] for name in ("k", "word", "coded", "tags")} for row in ROWS.to_pylist()
    ]
    assert logs.to_pandas(filter="k < 0").shape == (0, 7)
    assert logs.filter("k < 3").to_polars(["k"])["k"].to_list() == [0, 1, 2]


@pytest.mark.parametrize("method", ["to_pandas", "to_polars"])
def test_frames_have_the_limits_of_a_table(method, logs):
    with pytest.raises(ia.QueryTimeoutError):
        getattr(logs, method)(filter="k > 5", timeout=1e-9)
    with pytest.raises(ValueError, match="a memory limit is at least"):
        getattr(logs, method)(filter="k > 5", memory_limit=4096)
    with pytest.raises(ia.PredicateError):
        getattr(logs, method)(["nowhere"])


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_missing_package_is_reported_before_the_scan(package, logs, monkeypatch):
    imported = builtins.__import__

    def without(name, *args, **options):
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return imported(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ia.MissingDependencyError, match="(?i)" + package):
        getattr(logs, f"to_{package}")(["nowhere"])
