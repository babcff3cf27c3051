"""``intarsia demo`` gives the answers of brute force, and the commands it proposes work."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.cli.demo import queries

ROWS = 3000


def test_answers_equal_brute_force_and_commands_run(say, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = say("demo", "--rows", ROWS)
    path = Path("intarsia-demo", "logs.parquet")
    assert (said.code, said.err) == (0, "")
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert said.lines[0].startswith(f"{path}: 3,000 rows, {path.stat().st_size:,} bytes, ")
    answers = [line for line in said.lines if "  yes  " in line]
    assert len(answers) == 5
    assert all(" of " in line for line in answers)
    assert answers[0].split()[:4] == ["one", "trace", "1", "yes"]
    commands = [line for line in said.lines if line.startswith("  intarsia ")]
    assert [command.split()[1] for command in commands] == ["inspect", "explain", "scan", "index"]
    for command in commands:
        ran = say(*shlex.split(command)[1:])
        assert (ran.code, ran.err) == (0, ""), command
        assert ran.out


def test_the_table_is_the_same_each_time(say, tmp_path):
    for folder in ("a", "b b"):
        assert say("demo", tmp_path / folder, "--rows", ROWS).code == 0
    first, second = (pq.read_table(tmp_path / f / "logs.parquet") for f in ("a", "b b"))
    assert first.equals(second)
    assert first.column("ts").to_pylist() == sorted(first.column("ts").to_pylist())
    (report,) = ia.list_indexes(tmp_path / "a")
    assert [entry.name for entry in report.indexes] == [
        "trace_id:lookup",
        "user_id:lookup",
        "msg:ngram",
    ]
    assert say("verify", tmp_path / "a").code == 0


def test_numbers_equal_those_of_explain(say, tmp_path):
    said = say("demo", tmp_path, "--rows", 20_000)
    where = said.lines[2].removeprefix("one trace: ")
    read = ia.dataset(tmp_path).explain(filter=where, analyze=True).read
    line = next(line for line in said.lines if line.startswith("  one trace "))
    assert f"  {read.pages.selected:,} of {read.pages.total:,}  " in line
    assert f"{read.bytes.selected:,} of {read.bytes.total:,}" in line
    assert line.endswith(f"{read.bytes.total / read.bytes.selected:,.1f}")
    assert read.pages.selected < read.pages.total


def test_the_demo_works_with_one_row(say, tmp_path):
    assert say("demo", tmp_path, "--rows", 1).code == 0


def test_a_wrong_answer_is_reported(say, tmp_path, monkeypatch):
    def wrong(row: object) -> list[queries.Question]:
        first, *others = questions(row)
        return [replace(first, where="trace_id = 'none'"), *others]

    questions = queries.questions
    monkeypatch.setattr("intarsia.cli.actions.demo.questions", wrong)
    said = say("demo", tmp_path, "--rows", ROWS)
    assert said.code == 1
    assert "1 of 5 answers differ from brute force" in said.out
    assert "  NO  " in said.out
    assert "To try next" not in said.out


def test_an_invalid_folder_is_refused(say, tmp_path):
    (tmp_path / "a").write_text("a file")
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        said = say("demo", folder, "--rows", 1)
        assert (said.code, said.out) == (5, "")
        assert "there can be no such folder" in said.err
    assert say("demo", tmp_path, "--rows", 0).code == 2


@pytest.mark.parametrize("rows", [1, 50_001, 150_001])
def test_a_few_messages_contain_the_rare_word(rows, say, tmp_path):
    assert say("demo", tmp_path, "--rows", rows).code == 0
    rare = pc.match_substring(pq.read_table(tmp_path).column("msg"), "overheat")
    assert pc.sum(rare).as_py() == (rows + 49_999) // 100_000


@pytest.mark.parametrize("folder", ["day=1", "a%20b=c"])
def test_a_folder_may_have_a_hive_name(folder, say, tmp_path):
    assert "NO" not in say("demo", tmp_path / folder, "--rows", "100").out


def test_a_remote_path_is_refused_before_anything_is_written(say, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = say("demo", "s3://bucket/x", "--rows", "10")
    assert (said.code, list(tmp_path.iterdir())) == (5, [])
    assert say("demo", f"file://{tmp_path}/here", "--rows", "10").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
