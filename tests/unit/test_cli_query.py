"""``intarsia sql``, ``scan --order-by`` and completion."""

from __future__ import annotations

import io
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia

ROWS = 80_000
"""Enough that the bounds of pages decide what is read."""


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    drawn = random.Random(48)
    value = [drawn.choice([None, math.nan, drawn.random(), drawn.random()]) for _ in range(ROWS)]
    return pa.table(
        {
            "k": range(ROWS),
            "value": pa.array(value),
            "word": pa.array([f"w{n % 7}" for n in range(ROWS)]).dictionary_encode(),
            "point": [{"x": n % 5} for n in range(ROWS)],
        }
    )


@pytest.fixture(scope="module")
def logs(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake") / "logs.parquet"
    ia.write_table(rows, path, max_rows_per_page=1000)
    return path


def keys_in_order(rows: pa.Table, column: str, descends: bool) -> list[int]:
    """Returns the keys sorted by Python: NaN is the greatest value, NULL is last."""
    values = enumerate(rows.column(column).to_pylist())
    known = [(isinstance(v, float) and math.isnan(v), v, k) for k, v in values if v is not None]
    known = [(is_nan, 0 if is_nan else value, key) for is_nan, value, key in known]
    known.sort(key=lambda one: one[:2], reverse=descends)
    nulls = [k for k, value in enumerate(rows.column(column).to_pylist()) if value is None]
    return [key for *_, key in known] + nulls


@pytest.mark.parametrize("limit", [0, 1, 100, None])
@pytest.mark.parametrize("descends", [False, True])
@pytest.mark.parametrize("column", ["k", "value"])
def test_rows_come_in_order(column, descends, limit, rows, logs, say):
    more = [] if limit is None else ["--limit", limit]
    order = f"{column} desc, k" if descends else f"{column}, k ASC"
    said = say("scan", logs, "--order-by", order, "--columns", "k", "--format", "json", *more)
    assert (said.code, said.err) == (0, "")
    keys = [json.loads(line)["k"] for line in said.lines]
    expected = keys_in_order(rows, column, descends)
    if descends and column == "value":  # rows that Python's reversed sort leaves the other way
        values = rows.column(column).to_pylist()
        assert [repr(values[key]) for key in keys] == [repr(values[k]) for k in expected[:limit]]
    else:
        assert keys == expected[:limit]


def test_order_is_by_several_columns_and_fields_after_the_filter(rows, logs, say):
    options = ("--order-by", "word DESC,point.x,k desc", "--columns", "k,word,k", "--limit", 4)
    said = say("scan", logs, *options, "--where", "k < 1000", "--format", "csv")
    expected = rows.slice(0, 1000).to_pylist()
    expected.sort(key=lambda row: (-int(row["word"][1:]), row["point"]["x"], -row["k"]))
    assert said.lines[1:] == [f'{r["k"]},"{r["word"]}",{r["k"]}' for r in expected[:4]]


def test_the_first_rows_are_read_by_the_bounds_of_pages(logs, say, monkeypatch):
    filters = []
    to_table = ia.Dataset.to_table

    def spied(self, columns=None, filter=None, **options):  # noqa: A002
        filters.append(filter)
        return to_table(self, columns, filter, **options)

    monkeypatch.setattr(ia.Dataset, "to_table", spied)
    said = say("scan", logs, "--order-by", "k DESC", "--limit", 2, "--columns", "k")
    assert said.lines[1:3] == [f"  {ROWS - 1}", f"  {ROWS - 2}"]
    assert str(filters) == f"[<pyarrow.compute.Expression (k >= {ROWS - 2})>]"


def test_a_table_in_order_shows_50_rows(logs, say):
    said = say("scan", logs, "--order-by", "k DESC", "--columns", "k")
    assert said.lines[1] == f"  {ROWS - 1}"
    assert said.lines[51:] == ["50 rows, and there are more"]


def test_an_order_by_a_missing_column_is_refused(logs, say):
    said = say("scan", logs, "--order-by", "nowhere DESC")
    assert "column 'nowhere' is not there" in said.err
    assert said.code != 0


QUERY = "SELECT word, count(*) AS n FROM logs WHERE k < 100 GROUP BY ALL ORDER BY ALL LIMIT 2"
ANSWER = [{"word": "w0", "n": 15}, {"word": "w1", "n": 15}]


def test_a_query_prints_a_table_csv_or_json(logs, say):
    said = say("sql", QUERY, f"logs={logs}")
    assert (said.code, said.err) == (0, "")
    assert said.lines == ["  word   n", "  w0    15", "  w1    15", "2 rows"]
    assert say("sql", QUERY, f"logs={logs}", "--format", "csv").lines == [
        '"word","n"',
        '"w0",15',
        '"w1",15',
    ]
    said = say("sql", QUERY, f"logs={logs}", "--format", "json")
    assert [json.loads(line) for line in said.lines] == ANSWER


def test_a_query_is_read_from_standard_input(logs, say, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(QUERY))
    assert say("sql", "-", f"logs={logs}").lines[-1] == "2 rows"


def test_the_name_of_the_output_gives_its_format(logs, say, tmp_path):
    for name in ("a.parquet", "a.csv", "a.jsonl"):
        (tmp_path / name).write_text("an earlier file")
        said = say("sql", QUERY, f"logs={logs}", "--output", tmp_path / name)
        assert said == ("", "", 0)
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == ANSWER
    assert (tmp_path / "a.csv").read_text() == '"word","n"\n"w0",15\n"w1",15\n'
    assert list(map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines())) == ANSWER
    said = say("sql", QUERY, f"logs={logs}", "--output", tmp_path / "b", "--format", "table")
    assert (tmp_path / "b").read_text().splitlines()[-1] == "2 rows"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.csv",
        "a.jsonl",
        "a.parquet",
        "b",
    ]


def test_a_table_of_a_query_shows_50_rows(logs, say, tmp_path):
    said = say("sql", "FROM logs ORDER BY k", f"logs={logs}")
    assert said.lines[-1] == "50 rows, and there are more"
    path = tmp_path / "rows.txt"
    query = "FROM logs ORDER BY k LIMIT 60"
    say("sql", query, f"logs={logs}", "--output", path, "--format", "table")
    assert path.read_text().splitlines()[-1] == "60 rows"


def test_a_wrong_query_is_refused_in_one_line(logs, say, tmp_path):
    said = say("sql", "SELECT * FROM log", f"logs={logs}")
    assert said.err.startswith("intarsia: Catalog Error: Table with name log does not exist!")
    assert said.err.endswith("tables are given by name: intarsia sql QUERY NAME=PATH\n")
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.code != 0
    assert "Parser Error" in say("sql", "SELEC", f"logs={logs}").err
    said = say("sql", "SELECT 1 / 'x' FROM logs", f"logs={logs}", "--output", tmp_path / "a.csv")
    assert (said.code != 0, list(tmp_path.iterdir())) == (True, [])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([QUERY, "logs"], "'logs' is not NAME=PATH"),
        ([QUERY, "=logs"], "'=logs' is not NAME=PATH"),
        ([QUERY, "--format", "parquet"], "--output names a file"),
        ([QUERY, "--output", "a.txt"], "a.txt: --format says what to write"),
        ([QUERY, "--output", "a.orc"], "a.orc: --format says what to write"),
    ],
)
def test_wrong_arguments_of_sql_are_refused(arguments, words, say):
    said = say("sql", *arguments)
    assert (said.code, words in said.err) == (2, True)


def test_tables_have_the_options_of_data_sets(say, tmp_path):
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        columns = {"k": [day]} if day == 1 else {"k": [day], "more": ["x"]}
        pq.write_table(pa.table(columns), tmp_path / f"day={day}" / "a.parquet")
    query = "SELECT k, more, day FROM lake ORDER BY k"
    said = say("sql", query, f"lake={tmp_path}", "--union-by-name", "--format", "json")
    assert [json.loads(line) for line in said.lines] == [
        {"k": 1, "more": None, "day": 1},
        {"k": 2, "more": "x", "day": 2},
    ]
    assert say("sql", query, f"lake={tmp_path}", "--partitioning", "none").code != 0


def completed(words: str, position: int) -> list[str]:
    environment = {"_INTARSIA_COMPLETE": "bash_complete", "COMP_WORDS": words}
    code = "from intarsia.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv[0] = 'intarsia'; {code}"],
        env=os.environ | environment | {"COMP_CWORD": str(position)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell_is_printed(shell, say):
    said = say("completion", shell)
    assert said.code == 0
    assert f"_INTARSIA_COMPLETE={shell}_complete" in said.out


def test_commands_options_and_paths_are_completed():
    assert completed("intarsia sc", 1) == ["plain,scan"]
    assert completed("intarsia scan --order", 2) == ["plain,--order-by"]
    assert completed("intarsia scan lo", 2) == ["file,lo"]
    assert completed("intarsia index add lo", 3) == ["file,lo"]


def test_paths_are_completed_after_names_and_kinds_of_tables(tmp_path):
    (tmp_path / "logs.parquet").touch()
    (tmp_path / "lake").mkdir()
    both = [f"{tmp_path}/lake/", f"{tmp_path}/logs.parquet"]
    for words in ("sql q t=", "scan delta:", "sql q t=iceberg:"):
        values = completed(f"intarsia {words}{tmp_path}/l", len(words.split()))
        assert values == [f"plain,{words.split()[-1]}{path}" for path in both]
    assert completed("intarsia sql q lo", 3) == ["file,lo"]  # bash passes this of t=lo
