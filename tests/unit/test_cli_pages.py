"""``intarsia pages`` and ``intarsia verify``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

import intarsia as ia
from intarsia.cli.command_line import cli
from intarsia.io.source import BufferSource
from intarsia.parquet.compact_protocol import list_span, replace_fields, spans
from intarsia.parquet.footer import framed, read_footer
from intarsia.parquet.metadata import RowGroup
from intarsia.parquet.thrift import amended, encode

ROWS = 60


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs ``intarsia`` in a terminal with the given number of columns."""

    def call(*arguments: object, columns: int = 80) -> Result:
        monkeypatch.setenv("COLUMNS", str(columns))
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two row groups of three pages of ten rows a column, with checksums."""
    table = pa.table(
        {
            "k": range(ROWS),
            "word": [None if n % 10 == 0 else f"w{n % 3}" for n in range(ROWS)],
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=30,
        max_rows_per_page=10,
        use_dictionary=["word"],
        write_page_index=True,
        write_page_checksum=True,
    )
    return path


def row_groups_of(result: Result) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(result.stdout)
    return items


# --- pages --------------------------------------------------------------------------------------


def test_json_has_every_page(say, file):
    result = say("pages", file, "--json")
    assert result.exit_code == 0
    pages = row_groups_of(result)
    key = ("row_group", "column", "number", "type", "first_row", "num_rows", "null_count")
    expected = []
    for group in range(2):
        expected += [(group, "k", n, "DATA_PAGE", n * 10, 10, 0) for n in range(3)]
        expected += [(group, "word", 0, "DICTIONARY_PAGE", None, None, None)]
        expected += [(group, "word", n + 1, "DATA_PAGE", n * 10, 10, 1) for n in range(3)]
    assert [tuple(page[name] for name in key) for page in pages] == expected
    bounds = [(page["min"], page["max"]) for page in pages if page["column"] == "k"]
    assert bounds == [(n, n + 9) for n in range(0, ROWS, 10)]
    assert {(p["min"], p["max"]) for p in pages if p["column"] == "word" and p["num_rows"]} == {
        ("w0", "w2")
    }
    assert all(isinstance(page["crc"], int) for page in pages)
    known = pq.read_metadata(file).row_group(1).column(1)
    last = pages[-4:]
    sizes = sum(page["header_size"] + page["compressed_size"] for page in last)
    assert (last[0]["offset"], sizes) == (known.dictionary_page_offset, known.total_compressed_size)


def test_the_table_has_a_line_per_page(say, file):
    result = say("pages", file, columns=200)
    pages = row_groups_of(say("pages", file, "--json"))
    assert result.exit_code == 0
    headings = [line for line in result.stdout.splitlines() if line.startswith("row group")]
    assert headings == [f"row group {g}, column {c}" for g in (0, 1) for c in ("k", "word")]
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith("   ")]
    expected = [
        [
            str(page["number"]),
            "DICT" if page["first_row"] is None else "V1",
            "DICT" if page["encoding"].endswith("DICTIONARY") else page["encoding"],
            *(
                "-" if page[name] is None else f"{page[name]:,}"
                for name in (
                    "first_row",
                    "num_rows",
                    "num_values",
                    "null_count",
                    "offset",
                    "compressed_size",
                    "uncompressed_size",
                )
            ),
            "-" if page["min"] is None else str(page["min"]),
            "-" if page["max"] is None else str(page["max"]),
            f"{page['crc']:08x}",
        ]
        for page in pages
    ]
    assert lines == expected


def test_pages_of_some_columns_and_row_groups(say, file):
    pages = row_groups_of(say("pages", file, "--json", "-c", "k", "--row-group", 1))
    assert {(page["row_group"], page["column"]) for page in pages} == {(1, "k")}
    assert say("pages", file, "--row-group", 2).exit_code == 2


def test_100_pages_are_shown_and_the_others_counted(say, tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"a": range(150), "b": range(150)})
    pq.write_table(table, path, max_rows_per_page=2, use_dictionary=False, row_group_size=90)
    total = 2 * (45 + 30)
    result = say("pages", path)
    assert sum(line.startswith("   ") for line in result.stdout.splitlines()) == 100
    assert f"{total - 100} more pages: --all shows them" in result.stdout
    everything = say("pages", path, "--all")
    assert sum(line.startswith("   ") for line in everything.stdout.splitlines()) == total
    assert "--all" not in everything.stdout
    assert len(row_groups_of(say("pages", path, "--json"))) == total


def test_long_bounds_and_names_fit_80_columns(say, tmp_path):
    path = tmp_path / "a.parquet"
    name = "a_column_of_a_" + "very_" * 30 + "long_name"
    words = [c * 300 for c in "abcdefghij漢"]
    schema = pa.schema([(name, pa.string()), ("wide", pa.decimal128(38, 2))])
    pq.write_table(
        pa.table([words, [10**35 + n for n in range(11)]], schema=schema), path, max_rows_per_page=2
    )
    for arguments in (["pages"], ["inspect"], ["inspect", "-c", name], ["pages", "--dictionary"]):
        result = say(arguments[0], path, *arguments[1:])
        assert result.exit_code == 0
        assert all(cell_len(line) <= 80 for line in result.stdout.splitlines())
        assert "…" in result.stdout
    text = say("pages", path, "-c", "wide").stdout
    assert f"{10**35}.00" in text
    assert "No room here for:" in text


def test_a_chunk_that_cannot_be_decoded_does_not_hide_the_others(say, file):
    first = row_groups_of(say("pages", file, "--json", "-c", "k", "--row-group", 0))
    data = bytearray(file.read_bytes())
    at = first[1]["offset"]
    data[at : at + 8] = b"\xff" * 8
    file.write_bytes(data)
    result = say("pages", file, "--json")
    assert result.exit_code == 3
    pages = row_groups_of(result)
    assert [page.get("number") for page in pages[:2]] == [0, None]
    assert pages[1].keys() == {"row_group", "column", "error"}
    assert (pages[1]["row_group"], pages[1]["column"]) == (0, "k")
    assert len(pages) == 14 - 2 + 1
    shown = say("pages", file)
    assert shown.exit_code == 3
    assert shown.stdout.count("error: ") == 1
    assert "row group 1, column word" in shown.stdout


def test_files_without_pages_say_so(say, tmp_path):
    path = tmp_path / "a.parquet"
    pq.ParquetWriter(path, pa.schema([("k", pa.int64())])).close()
    assert say("pages", path).stdout.strip() == "no pages"
    assert say("pages", path, "--dictionary").stdout.strip() == "no dictionaries"
    assert row_groups_of(say("pages", path, "--json")) == []


# --- dictionaries -------------------------------------------------------------------------------


def test_dictionaries(say, file):
    result = say("pages", file, "--dictionary", "--json")
    assert result.exit_code == 0
    assert row_groups_of(result) == [
        {"row_group": group, "column": "word", "index": index, "value": value}
        for group in (0, 1)
        for index, value in enumerate(("w1", "w2", "w0"))
    ]
    text = say("pages", file, "--dictionary", "--row-group", 1).stdout
    assert [line.split() for line in text.splitlines() if line] == [
        ["row", "group", "1,", "column", "word"],
        ["index", "value"],
        ["0", "w1"],
        ["1", "w2"],
        ["2", "w0"],
    ]


def test_100_entries_are_shown_by_default(say, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [f"v{n}" for n in range(130)], "b": range(130)}), path)
    result = say("pages", path, "--dictionary")
    assert sum(line.startswith("   ") for line in result.stdout.splitlines()) == 100
    assert "160 more: --all shows them" in result.stdout
    assert len(row_groups_of(say("pages", path, "--dictionary", "--json"))) == 260
    text = say("pages", path, "--dictionary", "--all").stdout
    assert sum(line.startswith("   ") for line in text.splitlines()) == 260


def test_entries_beyond_pythons_types_are_shown(say, tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "ns": pa.array([1, 2], pa.timestamp("ns", "Europe/Paris")),
            "far": pa.array([2**40, -(2**60)], pa.timestamp("ms")),
            "day": pa.array([2**30, 0], pa.date32()),
            "raw": [b"\xff", b""],
        }
    )
    pq.write_table(table, path)
    result = say("pages", path, "--dictionary", "--json")
    assert result.exit_code == 0
    values = {(item["column"], item["index"]): item["value"] for item in row_groups_of(result)}
    assert values["ns", 0].endswith("00.000000001Z")
    assert values["day", 0] == 2**30
    assert values["day", 1] == "1970-01-01"
    assert values["raw", 0] == "0xff"
    assert len(values) == 8


# --- verify -------------------------------------------------------------------------------------


def test_a_clean_file_has_exit_code_0(say, file):
    result = say("verify", file)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "1 file: 0 errors, 0 warnings\n"


def test_damage_has_exit_code_4_and_names_the_place(say, file):
    page = row_groups_of(say("pages", file, "--json", "-c", "k", "--row-group", 1))[2]
    data = bytearray(file.read_bytes())
    data[page["offset"] + page["header_size"] + 12] ^= 1
    file.write_bytes(data)
    result = say("verify", file, "--json")
    assert result.exit_code == 4
    findings = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(
        finding.keys() == {"severity", "file", "row_group", "column", "page", "offset", "message"}
        for finding in findings
    )
    first = findings[0]
    assert (first["severity"], first["file"], first["row_group"], first["column"]) == (
        "error",
        str(file),
        1,
        "k",
    )
    assert "checksum" in first["message"]
    text = say("verify", file)
    assert text.exit_code == 4
    assert text.stdout.splitlines() == [str(finding) for finding in ia.verify(file)]
    assert text.stderr.startswith("1 file: ")
    assert "0 warnings" in text.stderr


def test_warnings_alone_have_exit_code_3(say, file):
    data = file.read_bytes()
    footer = read_footer(BufferSource(data))
    groups: list[RowGroup] = list(footer.metadata.row_groups)
    groups[1] = amended(groups[1], ordinal=7)
    new = replace_fields(spans(footer.raw)[0], [list_span(4, [encode(group) for group in groups])])
    file.write_bytes(data[: footer.offset] + framed(new))
    pq.write_table(pa.table({"k": [1]}), file.with_name("b.parquet"))
    result = say("verify", file.parent)
    assert result.exit_code == 3
    lines = result.stdout.splitlines()
    assert lines[-1].startswith(f"warning: {file}, row group 1: ")
    assert len(lines) == 2
    assert result.stderr == "2 files: 0 errors, 2 warnings\n"


def test_a_file_that_is_not_parquet_is_a_finding(say, tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"not Parquet at all")
    result = say("verify", path)
    assert result.exit_code == 4
    assert "not a Parquet file" in result.stdout
