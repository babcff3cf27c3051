"""Each exit code of the command line, by commands that end with it."""

from __future__ import annotations

import builtins
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.cli import exit_codes
from intarsia.cli.exit_codes import (
    BAD_DATA,
    MISSING_PATH,
    OTHER_ERROR,
    PARTIAL_SUCCESS,
    WRONG_USE,
)

PUBLIC_BASES = {*dir(builtins), *ia.__all__} - {"IntarsiaError"}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A sound file, one with a damaged page, one cut short, and one that is no Parquet file."""
    sound = tmp_path / "sound.parquet"
    table = pa.table({"k": range(1000), "s": [f"word{n}" for n in range(1000)]})
    pq.write_table(table, sound, write_page_checksum=True, use_dictionary=False, compression=None)
    data = sound.read_bytes()
    at = data.index(b"word500")
    (tmp_path / "damaged.parquet").write_bytes(data[:at] + b"W" + data[at + 1 :])
    (tmp_path / "torn.parquet").write_bytes(data[:-100])
    (tmp_path / "text.parquet").write_bytes(b"k,s\n" * 100)
    return tmp_path


COMMANDS = {
    "scan": (0, ["scan", "sound.parquet", "--count"]),
    "sql": (0, ["sql", "SELECT count(*) FROM t", "t=sound.parquet"]),
    "verify": (0, ["verify", "sound.parquet"]),
    "wrong value": (OTHER_ERROR, ["sql", "SELECT CAST(s AS INT) FROM t", "t=sound.parquet"]),
    "no command": (WRONG_USE, ["frobnicate"]),
    "option": (WRONG_USE, ["scan", "sound.parquet", "--limit", "x"]),
    "condition": (WRONG_USE, ["scan", "sound.parquet", "--where", "nowhere = 1"]),
    "column": (WRONG_USE, ["scan", "sound.parquet", "--columns", "nowhere"]),
    "order": (WRONG_USE, ["scan", "sound.parquet", "--order-by", "nowhere"]),
    "index": (WRONG_USE, ["index", "add", "sound.parquet", "telepathy(k)"]),
    "query": (WRONG_USE, ["sql", "SELEC"]),
    "table": (WRONG_USE, ["sql", "SELECT * FROM u", "t=sound.parquet"]),
    "sql column": (WRONG_USE, ["sql", "SELECT nowhere FROM t", "t=sound.parquet"]),
    "rows left out": (PARTIAL_SUCCESS, ["scan", "damaged.parquet", "--on-corrupt", "skip"]),
    "written in part": (
        PARTIAL_SUCCESS,
        ["write", "damaged.parquet", "out.parquet", "--on-corrupt", "skip"],
    ),
    "recovered": (PARTIAL_SUCCESS, ["recover", "torn.parquet", "out.parquet"]),
    "inspected": (PARTIAL_SUCCESS, ["inspect", "."]),
    "pages": (PARTIAL_SUCCESS, ["pages", "."]),
    "damage": (BAD_DATA, ["scan", "damaged.parquet", "--on-corrupt", "raise"]),
    "sql of damage": (BAD_DATA, ["sql", "FROM t", "t=torn.parquet"]),
    "no Parquet": (BAD_DATA, ["scan", "text.parquet"]),
    "torn": (BAD_DATA, ["inspect", "torn.parquet"]),
    "verified": (BAD_DATA, ["verify", "damaged.parquet"]),
    "nothing recovered": (BAD_DATA, ["recover", "text.parquet", "out.parquet"]),
    "missing": (MISSING_PATH, ["scan", "nowhere.parquet"]),
    "missing table": (MISSING_PATH, ["sql", "FROM t", "t=nowhere.parquet"]),
    "missing folder": (MISSING_PATH, ["write", "sound.parquet", "nowhere/out.parquet"]),
    "missing text": (MISSING_PATH, ["write", "nowhere.csv", "out.parquet"]),
    "missing glob": (MISSING_PATH, ["index", "list", "*.nowhere"]),
}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("code", "arguments"), COMMANDS.values(), ids=COMMANDS)
def test_each_outcome_has_its_exit_code(code, arguments, lake, say, monkeypatch):
    monkeypatch.chdir(lake)
    said = say(*arguments)
    assert said.code == code, said
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ia.PathError("a"), MISSING_PATH),
        (PermissionError("a"), MISSING_PATH),
        (ia.PredicateError("a"), WRONG_USE),
        (ia.IndexSpecError("a"), WRONG_USE),
        (ia.FormatError("a"), BAD_DATA),
        (ia.UnsupportedError("a"), OTHER_ERROR),
        (ia.OutOfMemoryError("a"), OTHER_ERROR),
        (ia.MissingDependencyError("a"), OTHER_ERROR),
        (OSError(28, "No space left on device"), OTHER_ERROR),
        (pa.ArrowInvalid("a"), OTHER_ERROR),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_error_has_a_code_without_duckdb_too(error, code, monkeypatch):
    monkeypatch.delitem(sys.modules, "duckdb", raising=False)
    assert exit_codes.code_of(error) == code


def test_the_reference_lists_every_code():
    text = (Path(__file__).parents[2] / "docs/reference/command-line.md").read_text()
    rows = re.findall(r"^\| ([\d, ]+) \|", text, re.MULTILINE)
    listed = {int(code) for row in rows for code in row.split(", ")}
    codes = {value for value in vars(exit_codes).values() if isinstance(value, int)}
    assert listed == {0, *codes}


def test_the_reference_lists_every_error_with_its_bases_and_its_code():
    text = (Path(__file__).parents[2] / "docs/reference/python/errors.md").read_text()
    rows = re.findall(r"^\| `(\w+Error)` \| (.*?) \|.*\| (\d+) \|$", text, re.MULTILINE)
    listed = {name: ({*re.findall(r"`(\w+)`", bases)}, int(code)) for name, bases, code in rows}
    classes = {name: value for name, value in vars(ia.errors).items() if name in ia.__all__}
    errors = {
        name: (
            {base.__name__ for base in value.__bases__ if base.__name__ in PUBLIC_BASES},
            exit_codes.TIMED_OUT
            if value is ia.QueryTimeoutError
            else exit_codes.code_of(value("")),
        )
        for name, value in classes.items()
        if name.endswith("Error") and value is not ia.IntarsiaError
    }
    assert listed == errors
