"""Unusual names, paths and settings on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia
from intarsia.cli.command_line import IN_SHELL, run


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"a": [1, 2], "s": ["x", "y"]}), path)
    return path


def written(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path)
    return path


def test_columns_of_the_same_name_are_distinguished(say, tmp_path):
    table = pa.table({"st": [{"a": 1}], "tt": [{"a": 5}], "a": [7]})
    path = written(tmp_path / "two.parquet", table)
    said = say("scan", path, "--columns", "st.a,tt.a,a", "--format", "json")
    assert json.loads(said.out) == {"st.a": 1, "tt.a": 5, "a": 7}
    _, err, code = say("scan", path, "--columns", "a,a", "--format", "json")
    assert (code, "two columns are called a" in err) == (2, True)


def test_fields_of_the_same_name_are_all_shown_and_cannot_be_selected(say, tmp_path):
    struct = pa.StructArray.from_arrays([pa.array([1]), pa.array([3])], names=["a", "a"])
    path = written(tmp_path / "twice.parquet", pa.table({"s": struct, "x": [2]}))
    said = say("scan", path, "--format", "json")
    assert json.loads(said.out) == {"s": [["a", 1], ["a", 3]], "x": 2}
    assert say("scan", path, "--columns", "s.a").code == 2
    _, err, code = say("index", "add", path, "s.a:lookup")
    assert (code, "two fields are called 'a'" in err) == (2, True)


def test_a_name_with_blanks_around_it(say, tmp_path):
    path = written(tmp_path / "lead.parquet", pa.table({"id": [1], " id": [10]}))
    assert say("scan", path, "--columns", '" id"', "--format", "csv").out == '" id"\n10\n'
    assert say("scan", path, "--columns", "id ", "--format", "csv").out == '"id"\n1\n'


def test_both_columns_of_a_name_are_inspected(say, tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([3])], names=["a", "a"])
    said = say("inspect", written(tmp_path / "a.parquet", table), "-c", "a")
    assert said.out.count("a: INT64") == 2


def test_a_file_without_columns_has_no_rows(say, tmp_path):
    path = written(tmp_path / "none.parquet", pa.table({}))
    assert say("scan", path).out.split() == ["0", "rows"]
    assert say("scan", path, "--limit", "7").out.split() == ["0", "rows"]


def test_an_empty_folder_of_sidecars_is_refused(say, plain):
    before = plain.read_bytes()
    for command in ("add", "drop"):
        _, err, code = say("index", command, plain, "a:lookup", "--sidecar-folder", "")
        assert (code, "the path is empty" in err) == (5, True)
    assert plain.read_bytes() == before


def test_page_indexes_are_dropped_together(say, plain):
    say("index", "add", plain, "page_index")
    before = plain.read_bytes()
    _, err, code = say("index", "drop", plain, "page_index(a)")
    assert (code, "dropped together" in err) == (2, True)
    assert plain.read_bytes() == before


def test_recover_replaces_regular_files_alone(say, plain, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    _, err, code = say("recover", plain, tmp_path / "pipe")
    assert (code, "device or a pipe" in err) == (5, True)
    model = written(tmp_path / "model.parquet", pa.table({"a": [5], "s": ["z"]}))
    before = model.read_bytes()
    _, err, code = say("recover", plain, model, "--schema-from", model)
    assert (code, "the file that the schema is from" in err) == (5, True)
    assert model.read_bytes() == before


def test_timestamps_that_pyarrow_misprints_are_refused(say, tmp_path):
    far = pa.array([2**63 - 1, None], pa.int64()).cast(pa.timestamp("us", "UTC"))
    path = written(tmp_path / "far.parquet", pa.table({"t": far}))
    _, err, code = say("scan", path, "--format", "csv")
    assert (code, "beyond the calendar" in err) == (2, True)
    said = say("scan", path, "--format", "json")
    assert said.lines == ['{"t": 9223372036854775807}', '{"t": null}']


def test_too_large_numbers_are_refused(say, plain):
    assert say("scan", plain, "--limit", 2**63).code == 2
    assert say("scan", plain, "--limit", 2**62).out.split()[-2:] == ["2", "rows"]
    _, err, code = say("index", "add", plain, f"lookup(a, granule_rows={'9' * 5000})")
    assert (code, "granule_rows" in err) == (2, True)


def test_a_closed_stdout_is_no_traceback(plain, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["intarsia", "scan", str(plain), "--format", "csv"])
    monkeypatch.setattr(sys, "stdout", None)
    run()


def test_columns_count_though_rows_are_counted(say, plain):
    assert say("scan", plain, "--columns", "a", "--count").out == "2\n"
    _, err, code = say("scan", plain, "--columns", "zzz", "--count")
    assert (code, "'zzz' is not there" in err) == (2, True)


def test_unusual_spellings_of_settings(say, plain):
    _, err, code = say("index", "add", plain, "lookup(a, granule_rows=10, granule_rows=20)")
    assert (code, "given twice" in err) == (2, True)
    _, err, code = say("index", "add", plain, "lookup(a, granule_rows=-5)")
    assert (code, "must be 1 to" in err) == (2, True)
    assert say("index", "add", plain, "a : lookup", "bloom(a, fpp=1e-3)").code == 0
    assert "a:lookup" in say("index", "list", plain).out


def test_a_file_without_rows_is_given_no_bloom_filter(say, tmp_path):
    path = written(tmp_path / "empty.parquet", pa.table({"a": pa.array([], pa.int64())}))
    out, err, code = say("index", "add", path, "bloom(a)", "page_index")
    assert (out, code) == ("", 0)
    assert "0 of 1 file indexed" in err


def test_advice_is_for_the_command_line(say, plain):
    say("index", "add", plain, "a:lookup", "--sidecar")
    for words, advice in (
        (("index", "drop", plain, "a:lookup"), "is dropped with --sidecar"),
        (("catalog", "show", plain.parent), "intarsia catalog build makes one"),
    ):
        _, err, code = say(*words)
        assert (code in (1, 2, 4, 5), advice in err) == (True, True), err


@pytest.mark.parametrize("said", IN_SHELL)
def test_messages_that_the_command_line_rewords_still_exist(said):
    sources = Path(intarsia.__file__).parent.rglob("*.py")
    assert any(said in path.read_text() for path in sources if path.parent.name != "cli")


def test_an_interrupted_command_says_so(say, plain, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("intarsia.cli.actions.scan.opened", interrupted)
    _, err, code = say("scan", plain)
    assert (err.strip(), code) == ("intarsia: interrupted", 130)


def test_an_interruption_before_any_command_is_no_traceback():
    script = """
import sys, types
from intarsia.cli import main
class Imported(types.ModuleType):
    def __getattr__(self, name):
        raise KeyboardInterrupt
sys.modules["intarsia.cli.command_line"] = Imported("intarsia.cli.command_line")
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"")
