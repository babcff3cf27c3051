from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import Said
from rich.console import Console

import intarsia as ia
from intarsia.cli.command_line import cli

ROWS = 120


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two folders of one file each, with columns of several types."""
    for day in (1, 2):
        folder = tmp_path / "lake" / f"day={day}"
        folder.mkdir(parents=True)
        k = range((day - 1) * ROWS // 2, day * ROWS // 2)
        table = pa.table(
            {
                "k": k,
                "word": [f"w{n % 7}" for n in k],
                "gap": [None if n % 2 else n / 4 for n in k],
                "flag": [n % 2 == 0 for n in k],
                "at": pa.array([n * 10**6 for n in k], pa.timestamp("us")),
                "tags": [[n] for n in k],
                "point": [{"x": n} for n in k],
            }
        )
        ia.write_table(table, folder / "part.parquet", row_group_size=20, max_rows_per_page=10)
    return tmp_path / "lake"


@pytest.fixture
def file(lake: Path) -> Path:
    return lake / "day=1" / "part.parquet"


def state(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# --- output of commands -------------------------------------------------------------------------


def test_help_names_every_command(say):
    said = say("--help")
    assert said.code == 0
    assert all(f"  {name} " in said.out for name in COMMANDS if name not in ("list", "add", "drop"))


def test_the_documents_name_every_command():
    text = (Path(__file__).parents[2] / "docs/reference/command-line.md").read_text()
    assert all(f"\nintarsia {name} " in text for name in cli.list_commands(None))


@pytest.mark.parametrize(
    "command",
    [
        ("inspect",),
        ("pages",),
        ("verify",),
        ("scan",),
        ("explain",),
        ("write",),
        ("demo",),
        ("index", "add"),
        ("index", "drop"),
    ],
    ids=" ".join,
)
def test_every_command_has_help(command, say):
    said = say(*command, "--help")
    assert (said.code, said.err) == (0, "")
    assert len(said.lines) > 4


def test_version(say):
    assert ia.__version__ in say("--version").out


def test_inspect_shows_columns_row_groups_and_indexes(say, file):
    ia.add_indexes(file, [ia.Lookup("word")])
    said = say("inspect", file)
    assert (said.code, said.err) == (0, "")
    assert "60 rows, 3 row groups" in said.out
    assert "point.x" in said.out
    assert "index word:lookup" in said.out
    assert "key intarsia" in said.out


def test_inspect_of_a_file_without_rows(say, tmp_path):
    pq.write_table(pa.table({"k": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    said = say("inspect", tmp_path / "a.parquet")
    assert (said.code, said.err) == (0, "")
    assert "0 rows" in said.out


def test_scan_prints_a_table(say, lake):
    said = say("scan", lake, "--where", "k = 7 OR k = 110", "--columns", "k,word,gap,day")
    assert (said.code, said.err) == (0, "")
    assert [line.split() for line in said.lines] == [
        ["k", "word", "gap", "day"],
        ["7", "w0", "NULL", "1"],
        ["110", "w5", "27.5", "2"],
        ["2", "rows"],
    ]


def test_rows_too_wide_for_the_terminal_are_shown_one_by_one(say, tmp_path, monkeypatch):
    table = pa.table({"k": [7, 8], "long name": ["w" * 50, "\x1b[2J\n"]})
    pq.write_table(table, tmp_path / "a.parquet")
    wide = say("scan", tmp_path / "a.parquet").lines
    assert [line.split() for line in wide[1:3]] == [["7", "w" * 50], ["8", "\\x1b[2J\\n"]]
    monkeypatch.delenv("COLUMNS")  # read by a program
    assert say("scan", tmp_path / "a.parquet").lines == wide
    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setenv("COLUMNS", "40")
    assert say("scan", tmp_path / "a.parquet").lines == [
        "  row 1",
        "  k          7",
        f"  long name  {'w' * 50}",
        "  row 2",
        "  k          8",
        "  long name  \\x1b[2J\\n",
        "2 rows",
    ]


def test_scan_skips_damaged_pages(say, tmp_path):
    path = tmp_path / "t.parquet"
    pages = {"max_rows_per_page": 10, "write_batch_size": 10, "write_page_checksum": True}
    pq.write_table(pa.table({"k": range(40)}), path, use_dictionary=False, **pages)
    page = ia.ParquetFile(path).pages(0, "k")[1]
    data = bytearray(path.read_bytes())
    data[page.offset + page.header_size + 20] ^= 1
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said = say("scan", path, "--format", "csv", "--on-corrupt", "skip")
    assert said.code == 3
    assert said.lines == ['"k"', *map(str, [*range(10), *range(20, 40)])]
    assert "column k, page 1" in said.err
    assert "10 rows lost" in said.err
    said = say("scan", path, "--format", "csv", "--on-corrupt", "raise")
    assert said.code == 4
    assert "checksum" in said.err


def test_scan_prints_csv(say, lake):
    said = say("scan", lake, "--where", "k IN (6, 7)", "--columns", "k,gap,word", "--format", "csv")
    assert list(csv.reader(io.StringIO(said.out))) == [
        ["k", "gap", "word"],
        ["6", "1.5", "w6"],
        ["7", "", "w0"],
    ]


def test_a_name_with_a_comma_goes_in_quotes(say, tmp_path):
    pq.write_table(pa.table({"a,b": [1], "k": [2], "c": [3]}), tmp_path / "a.parquet")
    said = say("scan", tmp_path / "a.parquet", "--columns", 'k, "a,b"', "--format", "json")
    assert [json.loads(line) for line in said.lines] == [{"k": 2, "a,b": 1}]
    for wrong in ("a,b", "", "k\nc"):
        assert_refused(say("scan", tmp_path / "a.parquet", "--columns", wrong))


@pytest.mark.parametrize("more", [[], ["--limit", "9"]])
def test_scan_prints_where_rows_are_and_fields_of_structs(more, say, lake):
    columns = ["--columns", "__row_number,point.x,k"]
    said = say("scan", lake, "--where", "k = 6", *columns, "--format", "csv", *more)
    assert list(csv.reader(io.StringIO(said.out))) == [["__row_number", "x", "k"], ["6", "6", "6"]]
    said = say("scan", lake, "--where", "k = 6", *columns, "--format", "json", *more)
    assert [json.loads(line) for line in said.lines] == [{"__row_number": 6, "x": 6, "k": 6}]


def test_files_are_unified_by_column_name(say, tmp_path):
    pq.write_table(pa.table({"k": pa.array([1], pa.int8())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"host": ["b"], "k": [1000]}), tmp_path / "b.parquet")
    unlike = say("scan", tmp_path, "--where", "k > 100")
    assert_refused(unlike)
    assert "int64 cannot be read as int8" in unlike.err
    assert "unless --union-by-name says otherwise" in unlike.err
    options = ["--union-by-name", "--where", "host = 'b'"]
    said = say("scan", tmp_path, "--format", "json", *options)
    assert [json.loads(line) for line in said.lines] == [{"k": 1000, "host": "b"}]
    assert "b.parquet" in say("explain", tmp_path, *options).out
    assert_refused(say("explain", tmp_path, *options[1:]))


def test_scan_prints_json(say, lake):
    said = say("scan", lake, "--where", "k IN (6, 7)", "--format", "json")
    first, second = (json.loads(line) for line in said.lines)
    assert (first["k"], first["gap"], first["tags"], first["point"]) == (6, 1.5, [6], {"x": 6})
    assert (second["k"], second["gap"], second["flag"], second["day"]) == (7, None, False, 1)


def test_values_without_a_json_type_are_printed_as_strings(say, tmp_path):
    values = pa.table({"x": [float("nan"), float("inf"), 1.5], "b": [b"\xff", b"a", None]})
    pq.write_table(values, tmp_path / "a.parquet")
    said = say("scan", tmp_path / "a.parquet", "--format", "json")

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    actual = [json.loads(line, parse_constant=refuse) for line in said.lines]
    assert actual[2] == {"x": 1.5, "b": None}


def test_csv_of_nested_columns_is_refused_with_a_clear_message(say, lake):
    said = say("scan", lake, "--columns", "k,tags", "--format", "csv")
    assert_refused(said)


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary(16)], ids=str)
def test_csv_of_bytes_is_refused_by_name(kind, say, tmp_path):
    table = pa.table({"k": [1], "raw": pa.array([b"0123456789abcdef"], kind)})
    pq.write_table(table, tmp_path / "a.parquet")
    said = say("scan", tmp_path / "a.parquet", "--format", "csv")
    assert_refused(said)
    assert "column raw is bytes" in said.err


def test_csv_of_views_and_extensions_is_written(say, tmp_path):
    table = pa.table(
        {"view": pa.array(["a"], pa.string_view()), "json": pa.array(["[1]"], pa.json_())}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    said = say("scan", tmp_path / "a.parquet", "--format", "csv")
    assert said.lines == ['"view","json"', '"a","[1]"']


@pytest.mark.parametrize("form", ["csv", "json"])
@pytest.mark.parametrize("limit", [0, 1, 30, 75, 1000])
def test_scan_prints_at_most_the_limit(form, limit, say, lake):
    said = say("scan", lake, "--columns", "k", "--format", form, "--limit", limit)
    assert said.code == 0
    assert len(said.lines) - (form == "csv") == min(limit, ROWS)


@pytest.mark.parametrize("limit", [0, 1, 60, 75])
def test_a_table_gives_no_more_rows_than_the_limit(limit, say, lake):
    said = say("scan", lake, "--columns", "k", "--limit", limit)
    assert [int(line) for line in said.lines[1:-1]] == list(range(limit))
    assert said.lines[-1] == ("1 row" if limit == 1 else f"{limit} rows")


def test_a_table_shows_50_rows_and_says_that_there_are_more(say, lake):
    said = say("scan", lake, "--columns", "k")
    assert len(said.lines) == 52
    assert said.lines[-1] == "50 rows, and there are more"


def test_a_table_says_that_there_are_more_also_within_one_row_group(say, tmp_path):
    pq.write_table(pa.table({"k": range(51)}), tmp_path / "a.parquet")
    for where in ([], ["--where", "k >= 0"]):
        said = say("scan", tmp_path / "a.parquet", *where)
        assert said.lines[-1] == "50 rows, and there are more"


def test_a_table_of_exactly_50_rows_mentions_no_more_rows(say, lake):
    assert say("scan", lake, "--where", "k < 50").lines[-1] == "50 rows"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([], ROWS),
        (["--where", "k < 7"], 7),
        (["--where", "k < 7", "--columns", "word", "--format", "json"], 7),
        (["--limit", "3"], 3),
        (["--where", "k < 0"], 0),
    ],
)
def test_scan_counts(more, expected, say, lake):
    assert say("scan", lake, "--count", *more) == (f"{expected}\n", "", 0)


def test_scan_of_nothing_shows_the_columns(say, lake):
    said = say("scan", lake, "--where", "k < 0", "--columns", "k,word")
    assert [line.split() for line in said.lines] == [["k", "word"], ["0", "rows"]]
    said = say("scan", lake, "--where", "k < 0", "--columns", "k,word", "--format", "csv")
    assert said.out.replace('"', "").strip() == "k,word"


def test_text_that_looks_like_markup_is_shown_as_it_is(say, tmp_path):
    pq.write_table(pa.table({"[red]x": ["[bold]hi[/bold]"]}), tmp_path / "a.parquet")
    said = say("scan", tmp_path / "a.parquet")
    assert "[bold]hi[/bold]" in said.out
    assert "[red]x" in said.out


def test_explain_shows_what_a_query_touches(say, lake):
    ia.add_indexes(lake, [ia.Lookup("word", granule_rows=5)])
    said = say("explain", lake, "--where", "word = 'w3' AND k < 30", "--columns", "k")
    assert (said.code, said.err) == (0, "")
    assert "index word:lookup" in said.out
    assert "planned" in said.out
    assert "seconds" not in said.out


def test_explain_analyze_shows_what_was_read(say, lake):
    said = say("explain", lake, "--where", "k = 7", "--analyze")
    assert (said.code, said.err) == (0, "")
    assert "seconds" in said.out
    assert "rows        1 of 120" in said.out


def test_explain_json_is_one_document(say, lake):
    said = say("explain", lake, "--where", "k = 7", "--analyze", "--json")
    assert (said.code, said.err) == (0, "")
    document = json.loads(said.out)
    assert document["read"]["rows"] == {"selected": 1, "total": 120}
    assert [len(file["columns"]) for file in document["files"]] == [7, 0]  # one is not read


def test_index_add_and_list(say, lake):
    before = state(lake)
    added = say("index", "add", lake, "word:lookup", "lookup(k, granule_rows=10)")
    assert added.code == 0
    for name, old in before.items():
        assert (lake / name).read_bytes().startswith(old)
    assert [line.split(",")[0] for line in added.lines] == [
        "word:lookup: added to 2 of 2 files",
        "k:lookup: added to 2 of 2 files",
    ]
    listed = say("index", "list", lake)
    assert (listed.code, listed.err) == (0, "")
    assert sum("word:lookup" in line for line in listed.lines) == 2
    assert sum("k:lookup" in line for line in listed.lines) == 2


def test_index_add_skips_files_that_have_the_index(say, lake):
    first, second = sorted(state(lake))
    say("index", "add", lake / first, "word:lookup")
    before = state(lake)
    assert say("index", "add", lake, "word:lookup", "--missing").code == 0
    after = state(lake)
    assert (after[first], len(after[second]) > len(before[second])) == (before[first], True)


def test_index_drop_restores_the_original_files(say, lake):
    before = state(lake)
    say("index", "add", lake, "lookup(lower(word))", "bloom(k)", "k:distinct")
    assert_refused(say("index", "drop", lake, "word:lookup"), "word:lookup", "lower(word):lookup")
    dropped = say("index", "drop", lake, "k:bloom", "lookup(LOWER(word))")
    assert dropped.code == 0
    assert dropped.lines == [
        "k:bloom: dropped from 2 of 2 files",
        "lower(word):lookup: dropped from 2 of 2 files",
    ]
    assert dropped.err == "2 of 2 files changed\n"
    left = say("index", "list", lake).lines
    assert sum("k:distinct" in line for line in left) == len(before)
    assert not any("lookup" in line or "bloom" in line for line in left)
    assert say("index", "drop", lake, "k:distinct").code == 0
    assert state(lake) == before


def test_index_list_shows_files_without_indexes(say, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": [1]}), path)
    assert say("index", "list", path).lines == [str(path), "  no index"]


def test_index_add_and_list_show_the_formats_own_indexes(say, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(100), "word": ["a"] * 100}), path, row_group_size=50)
    added = say("index", "add", path, "page_index", "bloom(word, fpp=0.1)", "k:lookup", "--all")
    (report,) = ia.list_indexes(path)
    sizes = {own.name: own.bytes for own in report.standard}
    assert added.code == 0
    assert added.lines[0] == str(path)
    assert added.lines[1].startswith("  k:lookup: ")
    assert added.lines[2:4] == [
        f"  page_index: on 4 chunks, {sizes['page_index']:,} bytes",
        f"  word:bloom: on 2 chunks, {sizes['word:bloom']:,} bytes",
    ]
    assert say("index", "list", path).lines == added.lines[:4]
    assert len(added.lines) == 4 + 3
    assert f"page_index: added to 1 of 1 file, {sizes['page_index']:,} bytes" in added.lines


def test_index_add_documents_the_formats_own_indexes(say):
    said = say("index", "add", "--help")
    forms = ("page_index ", "page_index(ts, user_id)", "bloom(user_id, fpp=0.01)")
    assert all(form in said.out for form in forms)


def test_the_exit_code_of_verify_is_the_severity(say, file):
    assert say("verify", file) == Said("", "1 file: 0 errors, 0 warnings\n", 0)
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)
    said = say("verify", file)
    assert (said.code, len(said.lines)) == (4, 1)
    assert said.lines[0].startswith(f"error: {file}, ")


@pytest.mark.filterwarnings("default::intarsia.IntarsiaWarning")
def test_a_damaged_index_is_a_warning_on_stderr_and_the_answer_is_the_same(say, file):
    ia.add_indexes(file, [ia.Lookup("k")])
    entry = ia.list_indexes(file)[0].indexes[0]
    data = bytearray(file.read_bytes())
    data[entry.offset + entry.length - 3] ^= 1
    file.write_bytes(data)
    said = say("scan", file, "--where", "k = 7", "--columns", "k", "--format", "json")
    assert (said.code, said.lines) == (0, ['{"k": 7}'])
    assert said.err.startswith("intarsia: warning: ")
    assert "index k:lookup is ignored" in said.err


# --- what commands refuse -----------------------------------------------------------------------


def assert_refused(said: Said, *words: str) -> None:
    assert said.code in (1, 2, 4, 5)
    assert said.out == ""
    assert "Traceback" not in said.err
    sentence = said.err.strip()
    if not sentence.startswith("Usage: "):
        assert sentence.startswith("intarsia: ")
        assert "\n" not in sentence
    assert "<class" not in sentence
    assert all(word.lower() in sentence.lower() for word in words)


BAD_CONDITIONS = {
    "unknown_column": ("nowhere = 1", "'nowhere' is not there"),
    "unknown_nested_column": ("point.y = 1", "'point.y' is not there"),
    "text_for_a_number": ("k = 'abc'", "'abc'"),
    "number_for_text": ("word = 7", "7"),
    "text_for_a_time": ("at = 'yesterday'", "'yesterday'"),
    "text_for_a_condition": ("flag = 'maybe'", "'maybe'"),
    "number_for_a_list": ("tags = 1", "1"),
    "number_for_a_struct": ("point = 1", "1"),
    "column_of_another_type": ("k = word", "k"),
    "pattern_for_a_number": ("k LIKE 'a%'", "LIKE needs text"),
    "integer_beyond_all_types": ("k = 99999999999999999999999", "99999999999999999999999"),
    "no_condition": ("k + 1", "not a condition"),
    "a_column_that_is_no_condition": ("word", "not a condition"),
    "empty": ("", ""),
    "blank": ("  ", ""),
    "unparsable": ("k = = 3", "cannot parse"),
    "cut_short": ("k >", "cannot parse"),
    "unclosed": ("(k = 1", "cannot parse"),
    "unclosed_text": ("word = 'a", "cannot parse"),
    "a_query": ("SELECT 1", ""),
    "two_statements": ("k = 1; DROP TABLE x", ""),
    "subquery": ("k IN (SELECT 1)", ""),
    "unknown_function": ("frobnicate(k) = 1", "frobnicate"),
}


@pytest.mark.parametrize("command", ["scan", "explain"])
@pytest.mark.parametrize(("where", "words"), BAD_CONDITIONS.values(), ids=BAD_CONDITIONS)
def test_an_invalid_condition_is_refused(command, where, words, say, lake):
    assert_refused(say(command, lake, "--where", where), words)


@pytest.mark.parametrize("command", ["scan", "explain"])
@pytest.mark.parametrize("columns", ["nowhere", "k,nowhere", "", "k,,word", "point.y"])
def test_missing_columns_are_refused(command, columns, say, lake):
    assert_refused(say(command, lake, "--columns", columns), "is not there")


def test_columns_may_have_spaces_after_the_comma(say, file):
    assert say("scan", file, "--columns", "k, word", "--limit", 1).lines[0].split() == ["k", "word"]


def test_a_column_asked_for_twice_is_no_traceback(say, file):
    for where in (["--where", "word = 'w1'"], []):
        said = say("scan", file, "--columns", "k,k", "--format", "json", *where)
        if said.code:
            assert_refused(said, "k")


BAD_INDEXES = {
    "unknown_column": ("nowhere:lookup", 2, "nowhere"),
    "nested_column": ("tags:lookup", 2, "nested"),
    "struct": ("point:lookup", 2, "nested"),
    "leaf_in_a_list": ("tags.list.element:lookup", 2, "nested"),
    "function_of_no_column": ("lookup(lower(nowhere))", 2, "nowhere"),
    "function_not_on_the_list": ("lookup(random())", 2, "random"),
    "boolean_column": ("flag:lookup", 2, "two values"),
    "folder_column": ("day:lookup", 2, "day"),
    "unknown_kind": ("word:telepathy", 2, "telepathy"),
    "unknown_kind_called": ("telepathy(word)", 2, "telepathy"),
    "no_kind": ("word", 2, "word"),
    "no_column": ("lookup()", 2, "column"),
    "empty": ("", 2, ""),
    "unknown_setting": ("lookup(word, colour=1)", 2, "colour"),
    "setting_that_is_no_number": ("lookup(word, granule_rows=many)", 2, "granule_rows"),
    "setting_out_of_range": ("lookup(word, granule_rows=0)", 2, "granule_rows"),
    "unclosed": ("lookup(word", 2, "lookup(word"),
}


@pytest.mark.parametrize(("text", "code", "word"), BAD_INDEXES.values(), ids=BAD_INDEXES)
def test_an_impossible_index_is_refused_and_nothing_is_written(text, code, word, say, lake):
    before = state(lake)
    said = say("index", "add", lake, text)
    assert_refused(said, word)
    assert said.code == code
    assert state(lake) == before


def test_one_bad_index_prevents_writing_the_good_ones(say, lake):
    before = state(lake)
    assert_refused(say("index", "add", lake, "word:lookup", "nowhere:lookup"), "nowhere")
    assert_refused(say("index", "add", lake, "word:lookup", "word:lookup"), "twice")
    assert state(lake) == before


def test_one_bad_file_prevents_changing_the_good_ones(say, lake):
    (lake / "day=2" / "zzz.parquet").write_bytes(b"not Parquet at all")
    before = state(lake)
    assert_refused(say("index", "add", lake, "word:lookup"), "zzz.parquet", "not a Parquet file")
    assert state(lake) == before


@pytest.mark.filterwarnings("always::intarsia.IntarsiaWarning")
def test_a_file_without_the_column_is_skipped_and_reported(say, lake):
    pq.write_table(pa.table({"other": [1]}), lake / "day=2" / "zzz.parquet")
    first = sorted(state(lake))[0]
    assert say("index", "add", lake / first, "word:lookup").err == "1 of 1 file indexed\n"
    said = say("index", "add", lake, "word:lookup", "--no-replace")
    assert said.code == 0
    warning, summary = said.err.splitlines()
    assert "1 of 3 files cannot have it" in warning
    assert "zzz.parquet: no index word:lookup: column 'word' is not there" in warning
    assert summary == "1 of 3 files indexed, 1 had it all, 1 cannot have it"
    (line,) = said.lines
    assert line.startswith("word:lookup: added to 1 of 3 files, ")
    assert line.endswith("; 1 of 3 files had it already; 1 has no column `word`")


def test_twenty_files_are_shown_by_default(say, tmp_path):
    for number in range(23):
        pq.write_table(pa.table({"k": [number]}), tmp_path / f"{number:02}.parquet")
    added = say("index", "add", tmp_path, "k:lookup")
    assert added.err == "23 of 23 files indexed\n"
    assert [line.partition(":")[0] for line in added.lines] == ["k", "page_index"]
    said = say("index", "list", tmp_path)
    assert sum(line.endswith(".parquet") for line in said.lines) == 20
    assert said.lines[-1] == "… and 3 files more: --all shows them"
    shown = say("index", "list", tmp_path, "--all").lines
    assert sum(line.endswith(".parquet") for line in shown) == 23


def test_reports_can_be_printed_as_json(say, lake):
    added = say("index", "add", lake, "k:lookup", "page_index", "--json")
    listed = say("index", "list", lake, "--json")
    dropped = say("index", "drop", lake, "k:lookup", "--json")
    documents = [[json.loads(line) for line in said.lines] for said in (added, listed, dropped)]
    assert [len(files) for files in documents] == [2, 2, 2]
    file = documents[0][0]
    (entry,) = file["indexes"]
    assert (entry["name"], entry["kind"], entry["on"]) == ("k:lookup", "lookup", "k")
    assert (file["added"], file["rows"]) == (["k:lookup"], ROWS // 2)  # has a page index
    assert documents[1][0] == file | {"added": [], "kept": []}
    assert (file["kept"], documents[2][0]["dropped"]) == (["page_index"], ["k:lookup"])
    assert [file["indexes"] for file in documents[2]] == [[], []]


COMMANDS = {
    "inspect": ["inspect"],
    "pages": ["pages"],
    "scan": ["scan"],
    "explain": ["explain"],
    "list": ["index", "list"],
    "add": ["index", "add"],
    "drop": ["index", "drop"],
}


@pytest.fixture(params=COMMANDS)
def on_path(request: pytest.FixtureRequest, say: Callable[..., Said]) -> Callable[[object], Said]:
    """Runs one of all commands on a path."""
    more = ["word:lookup"] if request.param in ("add", "drop") else []
    return lambda path: say(*COMMANDS[request.param], path, *more)


def test_a_missing_path_is_refused(on_path, tmp_path):
    path = tmp_path / "nowhere.parquet"
    assert_refused(on_path(path), str(path), "there is no such file")
    assert not path.exists()


def test_a_glob_without_a_match_is_refused(on_path, tmp_path):
    assert_refused(on_path(tmp_path / "*.parquet"), "there is no such file")


def test_a_uri_of_an_unknown_scheme_is_refused(on_path):
    assert_refused(on_path("telepathy://bucket/a.parquet"), "telepathy://bucket/a.parquet")


def test_an_empty_folder_is_refused(on_path, tmp_path):
    (tmp_path / "empty").mkdir()
    assert_refused(on_path(tmp_path / "empty"), str(tmp_path / "empty"))


@pytest.mark.parametrize(
    "data",
    [b"", b"PAR1", b"k,word\n1,a\n" * 100, b"\x00" * 5000, b"PAR1" * 3],
    ids=["empty", "magic_only", "csv", "zeros", "magic_thrice"],
)
def test_a_file_that_is_not_parquet_is_refused(data, on_path, tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(data)
    assert_refused(on_path(path), str(path))
    assert path.read_bytes() == data


@pytest.mark.parametrize("cut", [1, 4, 8, 9, 100, 1000])
def test_a_file_with_a_cut_footer_is_refused(cut, on_path, file):
    data = file.read_bytes()[:-cut]
    file.write_bytes(data)
    assert_refused(on_path(file), str(file))
    assert file.read_bytes() == data


def test_a_file_whose_footer_lacks_bytes_in_the_middle_is_refused(on_path, file):
    data = file.read_bytes()
    file.write_bytes(data[:-200] + data[-150:])
    assert_refused(on_path(file), str(file))


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["scan"],
        ["index"],
        ["index", "add", "a.parquet"],
        ["pages"],
        ["pages", "a.parquet", "--row-group", "-1"],
        ["verify"],
        ["scan", "a.parquet", "--format", "xml"],
        ["scan", "a.parquet", "--limit", "-1"],
        ["scan", "a.parquet", "--limit", "many"],
        ["scan", "a.parquet", "--colour"],
    ],
    ids=" ".join,
)
def test_wrong_usage_has_exit_code_2(arguments, say):
    said = say(*arguments)
    assert_refused(said)
    assert said.code == 2


# --- the command as it is installed -------------------------------------------------------------


def test_the_installed_command_prints_and_fails_as_it_should(file, tmp_path):
    code = "from intarsia.cli import main; main()"
    command = [sys.executable, "-c", code, "scan"]
    ok = subprocess.run(
        [*command, str(file), "--where", "k = 7", "--columns", "k", "--format", "csv"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ok.stdout.split() == ['"k"', "7"]
    bad = subprocess.run(
        [*command, str(tmp_path / "nowhere")], capture_output=True, text=True, check=False
    )
    assert_refused(Said(bad.stdout, bad.stderr, bad.returncode), "nowhere")


@pytest.mark.parametrize("form", ["csv", "json", "table"])
def test_a_reader_that_stops_early_is_no_traceback(form, tmp_path):
    pq.write_table(pa.table({"k": range(200_000)}), tmp_path / "a.parquet")
    code = "from intarsia.cli import main; main()"
    command = [sys.executable, "-c", code, "scan", str(tmp_path / "a.parquet"), "--format", form]
    with subprocess.Popen(
        [*command, "--limit", "20000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read().decode() == ""
        process.wait(30)


def test_without_its_libraries_the_command_says_what_to_install(monkeypatch):
    code = """
import sys
sys.modules["click"] = None
from intarsia.cli import main
main()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.strip() == (
        "intarsia: the command line needs click: install the extra, intarsia[cli]"
    )


def test_sidecars_do_not_change_their_files(say, lake, tmp_path):
    before = {path: path.read_bytes() for path in lake.rglob("*.parquet")}
    added = say("index", "add", lake, "k:lookup", "--sidecar")
    assert added.code == 0
    listed = say("index", "list", lake).lines
    assert sum(line.endswith(", in its sidecar") for line in listed) == 2
    assert {path: path.read_bytes() for path in lake.rglob("*.parquet")} == before
    assert "index k:lookup" in say("explain", lake, "--where", "k = 7").out
    assert say("verify", lake).code == 0
    assert say("index", "drop", lake, "k:lookup", "--sidecar").code == 0
    there = tmp_path / "there"
    assert say("index", "add", lake, "k:lookup", "--sidecar-folder", there).code == 0
    assert "index k:lookup" not in say("explain", lake, "--where", "k = 7").out
    folder = ("--sidecar-folder", there)
    assert "index k:lookup" in say("explain", lake, "--where", "k = 7", *folder).out
    assert say("verify", lake, *folder).code == 0
    assert say("scan", lake, "--where", "k = 7", "--format", "json", *folder).code == 0
    assert ", in its sidecar" in say("index", "list", lake, *folder).out


def test_an_index_that_some_files_lack_is_reported(say, lake):
    first = sorted(lake.rglob("*.parquet"))[0]
    assert say("index", "add", first, "k:lookup").code == 0
    assert "k:lookup is missing in 1 of 2 files" in say("index", "list", lake).out


def test_an_added_value_list_is_dropped(say, tmp_path):
    table = pa.table({"k": range(90), "m": [float("nan")] * 90, "word": ["a"] * 90})
    pq.write_table(table, tmp_path / "own.parquet", write_page_index=True)
    pq.write_table(table, tmp_path / "plain.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(2):
            pq.write_table(table.drop(["word"]), tmp_path / f"without{number}.parquet")
        before = state(tmp_path)
        for indexes in (
            ["page_index"],
            ["page_index(k)"],  # other columns have offset indexes
            ["page_index(m)", "bloom(k)", "k:lookup"],
            ["word:lookup", "lookup(lower(word))", "bloom(word)", "page_index(k, word)"],
        ):
            added = say("index", "add", tmp_path, *indexes)
            assert (added.code, state(tmp_path) == before) == (0, False)
            dropped = say("index", "drop", tmp_path, *indexes)
            assert (dropped.code, len(dropped.lines)) == (0, len(indexes))
            assert any("kept in 1 of 4 files: it was there before" in x for x in dropped.lines)
            assert state(tmp_path) == before
        only = tmp_path / "own.parquet"
        assert say("index", "drop", only, "page_index(k)").lines == [
            "page_index: kept in 1 of 1 file: it was there before"
        ]
        assert_refused(say("index", "drop", only, "bloom(k)"), "k:bloom")
        (report,) = ia.drop_indexes(only, ["page_index"])
        assert (report.dropped, report.kept) == ((), ("page_index",))


@pytest.mark.parametrize("beside", [(), ("--sidecar",)])
def test_all_added_indexes_are_dropped_at_once(say, lake, beside):
    before = state(lake)
    say("index", "add", lake, "word:lookup", "lookup(lower(word))", "k:distinct", *beside)
    if not beside:
        say("index", "add", lake, "bloom(k)", "page_index")
    dropped = say("index", "drop", lake, "--all", *beside)
    assert (dropped.code, dropped.err) == (0, "2 of 2 files changed\n")
    assert state(lake) == before
    again = say("index", "drop", lake, "--all", *beside)
    assert (again.code, again.out, again.err) == (0, "", "0 of 2 files changed\n")
    assert say("index", "drop", lake, "word:lookup", "--all").code == 2
    assert say("index", "drop", lake).code == 2
    for wrong in ({}, {"indexes": ["word:lookup"], "all": True}):
        with pytest.raises(ia.IndexSpecError, match="all=True"):
            ia.drop_indexes(lake, **wrong)


def test_an_added_value_list_is_dropped_from_a_file_without_rows(say, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": pa.array([], pa.int64())}), path)
    before = path.read_bytes()
    for command in ("add", "drop"):
        assert say("index", command, path, "bloom(k)", "page_index").code == 0
    assert path.read_bytes() == before


@pytest.mark.filterwarnings("ignore::intarsia.IntarsiaWarning")
def test_only_files_that_can_have_an_index_are_reported_to_lack_it(say, tmp_path):
    tables = {"a": {"w": ["a"]}, "b": {"w": ["b"]}, "int": {"w": [1]}, "no": {"k": [1]}}
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    added = say("index", "add", tmp_path, "ngram(w)", "lookup(lower(w))", "--no-page-index").lines
    assert added[0].startswith("w:ngram: added to 2 of 4 files, ")
    assert "; 1 cannot have it: " in added[0]
    assert all(line.endswith("; 1 has no column `w`") for line in added)
    listed = say("index", "list", tmp_path).out
    assert "w:ngram: 2 of 4 files; 1 cannot have it: " in listed
    assert "--no-replace" not in listed
    say("index", "drop", tmp_path / "b.parquet", "--all")
    lines = say("index", "list", tmp_path).lines
    (line,) = (line for line in lines if line.startswith("w:ngram is missing"))
    assert line.startswith("w:ngram is missing in 1 of 4 files: index add --no-replace adds it; 1 ")
    assert say("index", "add", tmp_path, "ngram(w)", "--missing").code == 0


def test_an_index_that_only_some_files_have_is_a_note(say, lake):
    first, second = sorted(lake.rglob("*.parquet"))
    assert say("verify", lake, "--strict").code == 0
    say("index", "add", first, "k:lookup")
    note = f"{second}: it has no index k:lookup, which 1 of the 2 files have"
    said = say("verify", lake)
    assert (said.lines, said.code) == ([f"note: {note}"], 0)
    assert said.err == "2 files: 0 errors, 0 warnings, 1 note\n"
    assert say("verify", lake, "--strict").code == 3
    said = say("verify", lake, "--json")
    assert (json.loads(said.out)["severity"], said.code) == ("note", 0)
    (actual,) = ia.verify(lake)
    assert actual.severity is ia.Severity.NOTE
    assert ia.Severity.NOTE < ia.Severity.WARNING < ia.Severity.ERROR
    pq.write_table(pq.read_table(first).slice(1), first)  # its sidecar belongs to the old version
    ia.add_indexes(second, ["k:lookup"], sidecar=True)
    pq.write_table(pq.read_table(second).slice(1), second)
    said = say("verify", lake)
    assert "warning: " in said.out
    assert say("verify", lake).code == say("verify", lake, "--strict").code == 3
    first.write_bytes(b"torn")
    assert say("verify", lake).code == say("verify", lake, "--strict").code == 4


def test_advice_is_a_table_or_json(say, lake):
    options = ("--where", "k = 7", "--where", "k > 5")
    said = say("index", "advise", lake, *options)
    assert said.code == 0
    assert f"{lake}: 2 files, {ROWS} rows" in said.lines[0]
    actual = json.loads(say("index", "advise", lake, *options, "--json").out)
    assert [one["filter"] for one in actual["filters"]] == ["k = 7", "k > 5"]


def test_catalog(say, tmp_path: Path) -> None:
    for number in range(6):
        table = pa.table({"n": list(range(number * 10, number * 10 + 10))})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    ia.add_indexes(tmp_path, ["lookup(n)"])
    assert json.loads(say("catalog", "build", tmp_path, "--json").out)["read"] == 6
    assert "read      0" in say("catalog", "refresh", tmp_path).lines
    shown = say("catalog", "show", tmp_path)
    assert "rows      60" in shown.lines
    assert shown.lines[-1].startswith("index n:lookup: 6 files, 60 keys, ")
    assert say("scan", tmp_path, "--where", "n = 33", "--format", "csv").lines[1:] == ["33"]
    assert say("catalog", "drop", tmp_path).out == "6 files removed\n"
    missing = say("catalog", "show", tmp_path)
    assert missing.code == 5
    assert "no catalog" in missing.err


@pytest.mark.parametrize(
    "environment",
    [{"COLUMNS": "0"}, {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii"}],
)
def test_an_unusual_terminal_gets_all_output(environment, file) -> None:
    program = "from intarsia.cli.command_line import run; run()"
    command = [sys.executable, "-c", program, "inspect", str(file)]
    given = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | environment
    done = subprocess.run(command, capture_output=True, env=given, check=False, timeout=600)
    assert (done.stderr, done.returncode) == (b"", 0)
    assert b"60 rows" in done.stdout


@pytest.mark.parametrize("form", ["json", "csv"])
def test_rows_are_complete_in_any_encoding(form, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": ["é€", "😀", "\\u20ac"]}), path)
    program = "from intarsia.cli.command_line import run; run()"
    command = [sys.executable, "-c", program, "scan", str(path), "--format", form]
    given = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, capture_output=True, env=given, check=True, timeout=600)
    if form == "csv":
        rows = list(csv.reader(done.stdout.decode().splitlines()))
        assert rows == [["t"], ["é€"], ["😀"], ["\\u20ac"]]
    else:
        actual = [json.loads(line)["t"] for line in done.stdout.decode("latin-1").splitlines()]
        assert actual == ["é€", "😀", "\\u20ac"]


def test_a_name_that_is_not_utf8_is_printed(say, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    os.rename(tmp_path / "a.parquet", os.fsencode(tmp_path) + b"/b\xff.parquet")
    said = say("scan", tmp_path)
    assert (said.code, said.out) == (5, "")
    assert said.err.startswith(f"intarsia: {tmp_path}: cannot be accessed: 'utf-8' codec")
    with pytest.raises(ia.PathError, match=r"b\\xff.parquet: cannot be accessed"):
        ia.dataset(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.parquet"))
