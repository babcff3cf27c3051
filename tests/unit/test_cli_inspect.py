"""``intarsia inspect``: its output, and that it fits the terminal."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

import intarsia as ia
from intarsia.cli.actions import inspect
from intarsia.cli.command_line import cli
from intarsia.cli.output.json_document import jsonable
from intarsia.errors import PredicateError
from intarsia.io.source import BufferSource
from intarsia.parquet.compact_protocol import list_elements, list_span, replace_fields, spans
from intarsia.parquet.enum_names import type_name
from intarsia.parquet.footer import framed, read_footer

ROWS = 1000


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
    """Four row groups with columns of many types."""
    k = range(ROWS)
    columns = {
        "k": pa.array(k, pa.int64()),
        "word": [f"w{n % 7}" for n in k],
        "gap": [None if n % 2 else n / 4 for n in k],
        "flag": [n % 2 == 0 for n in k],
        "small": pa.array([n % 200 for n in k], pa.uint8()),
        "money": pa.array([decimal.Decimal(n) / 100 for n in k], pa.decimal128(12, 2)),
        "day": [datetime.date(2024, 1, 1) + datetime.timedelta(days=n) for n in k],
        "at": pa.array([n * 10**6 + 1 for n in k], pa.timestamp("us", "UTC")),
        "raw": [bytes([255, n % 256]) for n in k],
        "tags": [[n, n] for n in k],
        "point": [{"x": n, "y": {"z": float(n)}} for n in k],
    }
    schema = pa.schema(
        [
            pa.field(name, pa.array(values).type if isinstance(values, list) else values.type)
            for name, values in columns.items()
        ]
    )
    schema = schema.set(0, pa.field("k", pa.int64(), nullable=False))
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table(columns, schema=schema),
        path,
        row_group_size=250,
        compression={"k": "SNAPPY", "word": "ZSTD"},
        write_page_index=True,
        sorting_columns=[pq.SortingColumn(0, descending=True)],
    )
    return path


def document(result: Result) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    actual: dict[str, Any] = json.loads(result.stdout, parse_constant=refuse)
    return actual


def damage_chunk(path: Path, group: int, leaf: int) -> None:
    """Makes a chunk's metadata in the footer undecodable: required fields are missing."""
    data = path.read_bytes()
    footer = read_footer(BufferSource(data)).raw
    fields = {span.number: span for span in spans(footer)[0]}
    groups = list_elements(fields[4].value)
    parts = spans(groups[group])[0]
    chunks = list_elements(next(part.value for part in parts if part.number == 1))
    inner = spans(chunks[leaf])[0]
    emptied = [span._replace(value=b"\0") for span in inner if span.number == 3]
    chunks[leaf] = replace_fields(inner, emptied)
    groups[group] = replace_fields(parts, [list_span(1, chunks)])
    path.write_bytes(
        data[: -len(footer) - 8] + framed(replace_fields(fields.values(), [list_span(4, groups)]))
    )


# --- JSON ---------------------------------------------------------------------------------------


def test_json_equals_pyarrows_footer(say, file):
    result = say("inspect", file, "--json")
    assert result.exit_code == 0
    actual, expected = document(result), pq.read_metadata(file)
    size = file.stat().st_size
    assert (actual["file"], actual["size"], actual["indexes"]) == (str(file), size, [])
    assert actual["footer"] == {
        "offset": size - 8 - expected.serialized_size,
        "length": expected.serialized_size,
    }
    metadata = actual["metadata"]
    assert metadata["num_rows"] == expected.num_rows
    assert metadata["created_by"] == expected.created_by
    assert [e["name"] for e in metadata["schema"]][:3] == ["schema", "k", "word"]
    keys = {entry["key"]: entry["value"] for entry in metadata["key_value_metadata"]}
    assert keys == {k.decode(): v.decode() for k, v in expected.metadata.items()}
    assert metadata["column_orders"] == [{"TYPE_ORDER": {}}] * expected.num_columns
    assert len(metadata["row_groups"]) == expected.num_row_groups


def test_json_has_every_chunk_as_in_pyarrow(say, file):
    metadata, expected = (
        document(say("inspect", file, "--json"))["metadata"],
        pq.read_metadata(file),
    )
    for i, group in enumerate(metadata["row_groups"]):
        known = expected.row_group(i)
        assert (group["num_rows"], group["total_byte_size"]) == (
            known.num_rows,
            known.total_byte_size,
        )
        assert len(group["columns"]) == known.num_columns
        for j, chunk in enumerate(group["columns"]):
            column, inner = known.column(j), chunk["meta_data"]
            assert ".".join(inner["path_in_schema"]) == column.path_in_schema
            assert inner["type"] == column.physical_type
            assert inner["codec"] == column.compression
            assert sorted(inner["encodings"]) == sorted(column.encodings)
            assert inner["num_values"] == column.num_values
            assert inner["total_compressed_size"] == column.total_compressed_size
            assert inner["total_uncompressed_size"] == column.total_uncompressed_size
            assert inner["data_page_offset"] == column.data_page_offset
            assert inner["statistics"]["null_count"] == column.statistics.null_count
            assert ("offset_index_offset" in chunk) == column.has_offset_index


def test_json_names_types_and_leaves_out_what_is_not_set(say, file):
    schema = {e["name"]: e for e in document(say("inspect", file, "--json"))["metadata"]["schema"]}
    assert schema["k"] == {"type": "INT64", "repetition_type": "REQUIRED", "name": "k"}
    assert schema["word"]["logicalType"] == {"STRING": {}}
    assert schema["word"]["converted_type"] == "UTF8"
    assert schema["at"]["logicalType"] == {
        "TIMESTAMP": {"isAdjustedToUTC": True, "unit": {"MICROS": {}}}
    }
    assert schema["money"]["logicalType"] == {"DECIMAL": {"scale": 2, "precision": 12}}
    assert schema["small"]["logicalType"] == {"INTEGER": {"bitWidth": 8, "isSigned": False}}


def test_json_has_bounds_as_values(say, file):
    group = document(say("inspect", file, "--json"))["metadata"]["row_groups"][1]
    bounds = {
        ".".join(chunk["meta_data"]["path_in_schema"]): (
            chunk["meta_data"]["statistics"]["min_value"],
            chunk["meta_data"]["statistics"]["max_value"],
        )
        for chunk in group["columns"]
    }
    assert bounds["k"] == (250, 499)
    assert bounds["word"] == ("w0", "w6")
    assert bounds["gap"] == (62.5, 124.5)
    assert bounds["flag"] == (False, True)
    assert bounds["money"] == ("2.50", "4.99")
    assert bounds["day"] == ("2024-09-07", "2025-05-14")
    assert bounds["at"] == ("1970-01-01T00:04:10.000001Z", "1970-01-01T00:08:19.000001Z")
    assert bounds["raw"] == ("0xff00", "0xffff")


def test_json_lists_embedded_indexes_and_one_column_only(say, file):
    ia.add_indexes(file, ["word:lookup"])
    actual = document(say("inspect", file, "--json", "-c", "point"))
    (entry,) = actual["indexes"]
    assert (entry["name"], entry["kind"], entry["on"]) == ("word:lookup", "lookup", "word")
    for group in actual["metadata"]["row_groups"]:
        paths = [".".join(chunk["meta_data"]["path_in_schema"]) for chunk in group["columns"]]
        assert paths == ["point.x", "point.y.z"]


def test_json_is_strict_where_numbers_are_not(say, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [float("inf"), 1.0], "b": [b"\xff", b"a"]}), path)
    (group,) = document(say("inspect", path, "--json"))["metadata"]["row_groups"]
    assert group["columns"][0]["meta_data"]["statistics"]["max_value"] == "inf"
    assert group["columns"][1]["meta_data"]["statistics"]["max_value"] == "0xff"


def test_bytes_are_base_64():
    assert jsonable({"b": [b"\xff\x00", (1, None)]}) == {
        "b": [base64.b64encode(b"\xff\x00").decode(), [1, None]]
    }


def test_a_chunk_that_cannot_be_decoded_does_not_hide_the_others(say, file):
    damage_chunk(file, 1, 1)
    result = say("inspect", file, "--json")
    assert result.exit_code == 3
    groups = document(result)["metadata"]["row_groups"]
    broken = [
        (i, j) for i, g in enumerate(groups) for j, c in enumerate(g["columns"]) if "error" in c
    ]
    assert broken == [(1, 1)]
    assert len(groups) == 4
    for arguments in ([], ["-c", "word"]):
        shown = say("inspect", file, *arguments)
        assert shown.exit_code == 3
        assert "error: " in shown.stdout
        assert "row group 1, column word" in " ".join(shown.stdout.split())
    assert say("inspect", file, "-c", "k").exit_code == 0


def test_the_page_of_a_damaged_chunk_has_the_others(say, file, tmp_path):
    damage_chunk(file, 1, 1)
    assert say("inspect", file, "--html", tmp_path / "page.html").exit_code == 3
    page = (tmp_path / "page.html").read_text()
    assert "What could not be decoded" in page
    assert 'aria-label="word: 3 pages"' in page
    assert 'aria-label="k: 4 pages"' in page


# --- tables -------------------------------------------------------------------------------------


def rows_of(text: str, title: str) -> dict[str, list[str]]:
    """The cells of a table, by the first column."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:1] == title.split()[:1])
    rows = {}
    for line in lines[start + 1 :]:
        if not line.strip():
            break
        first, *others = line.split()
        rows[first] = others
    return rows


def test_the_overview_describes_the_file(say, file):
    ia.add_indexes(file, ["word:lookup", "bloom(k)"])
    result = say("inspect", file, columns=200)
    assert result.exit_code == 0
    expected = pq.read_metadata(file)
    text = " ".join(result.stdout.split())
    assert f"{file.stat().st_size:,} bytes, 1,000 rows, 4 row groups of 250 rows" in text
    assert f"written by {expected.created_by}, format version 2" in text
    offset = file.stat().st_size - 8 - expected.serialized_size
    assert f"footer at {offset:,}, {expected.serialized_size:,} bytes" in text
    rows = rows_of(result.stdout, "column")
    assert list(rows) == [expected.schema.column(i).path for i in range(expected.num_columns)]
    total = sum(expected.row_group(i).column(0).total_compressed_size for i in range(4))
    assert rows["k"][:5] == ["INT64", "SNAPPY", "DICT", "0", f"{total:,}"]
    assert rows["k"][-1] == "page,bloom"
    assert rows["word"][0] == "STRING?"
    assert rows["word"][-1] == "page,lookup"
    assert rows["gap"][3] == "500"
    assert "index word:lookup" in text
    assert "index page_index: on 48 chunks" in text
    assert "index k:bloom: on 4 chunks" in text
    assert "k descending" in text


def test_an_offset_index_without_bounds_is_shown(say, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(10), "v": range(10)}), path)
    assert rows_of(say("inspect", path).stdout, "column")["k"][-1] == "-"
    ia.add_indexes(path, ["page_index(k)"])
    rows = rows_of(say("inspect", path).stdout, "column")
    assert (rows["k"][-1], rows["v"][-1]) == ("page", "offset")


def test_row_groups_have_a_line_each_if_few_or_requested(say, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(11)}), path, row_group_size=1)
    assert "uncompressed" not in say("inspect", path).stdout
    text = say("inspect", path, "--all").stdout
    assert [row[0] for row in rows_of(text, "row group").values()] == ["1"] * 11


def test_500_columns_show_the_largest_40_in_order_at_any_width(say, tmp_path):
    path = tmp_path / "a.parquet"
    names = [f"measurement_of_a_long_name_{'x' * (n % 50)}_{n:03}" for n in range(500)]
    pq.write_table(
        pa.table({name: [str(i) * (n + 1) for i in range(3)] for n, name in enumerate(names)}), path
    )
    for columns in (80, 100, 200):
        result = say("inspect", path, columns=columns)
        assert all(cell_len(line) <= columns for line in result.stdout.splitlines())
        shown = [line for line in result.stdout.splitlines() if line.startswith("  measurement")]
        assert [line.split()[0][-3:] for line in shown] == [f"{n:03}" for n in range(460, 500)]
        assert "460 smaller columns: --all shows them" in result.stdout
    everything = say("inspect", path, "--all")
    assert all(cell_len(line) <= 80 for line in everything.stdout.splitlines())
    assert sum(line.startswith("  measurement") for line in everything.stdout.splitlines()) == 500
    assert "--all" not in everything.stdout


@pytest.mark.parametrize("columns", [60, 80, 300])
def test_one_column_has_a_line_per_row_group(columns, say, file):
    ia.add_indexes(file, ["bloom(word)"])
    result = say("inspect", file, "-c", "word", columns=columns)
    assert result.exit_code == 0
    assert all(cell_len(line) <= columns for line in result.stdout.splitlines())
    assert "word: STRING?" in result.stdout
    metadata = pq.read_metadata(file)
    for i in range(4):
        chunk = metadata.row_group(i).column(1)
        assert f"{chunk.total_compressed_size:,}" in result.stdout
    rows = rows_of(result.stdout, "row group")
    assert rows["2"][:6] == ["250", "250", "0", "-", "w0", "w6"]


def test_a_root_stands_for_its_leaves(say, file):
    text = say("inspect", file, "-c", "point", "-c", "point.x").stdout
    headings = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert headings == ["point.x: INT64?", "point.y.z: DOUBLE?"]


@pytest.mark.parametrize("command", ["inspect", "pages"])
@pytest.mark.parametrize("name", ["nowhere", "", "point.nowhere"])
def test_a_missing_column_is_refused(command, name, say, file):
    with pytest.raises(PredicateError, match="is not there"):
        say(command, file, "-c", name)


def test_types_are_named_by_what_they_mean(file):
    names = {leaf.name: type_name(leaf) for leaf in ia.ParquetFile(file).schema.leaves}
    assert names == {
        "k": "INT64",
        "word": "STRING?",
        "gap": "DOUBLE?",
        "flag": "BOOLEAN?",
        "small": "INT(8, unsigned)?",
        "money": "DECIMAL(12,2)?",
        "day": "DATE?",
        "at": "TIMESTAMP(us, UTC)?",
        "raw": "BYTE_ARRAY?",
        "tags.list.element": "INT64*",
        "point.x": "INT64?",
        "point.y.z": "DOUBLE?",
    }


def test_names_and_values_cannot_steer_the_terminal(say, tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"a\x1b[31m\nb": ["\x1b]0;x\x07"]})
    pq.write_table(table.replace_schema_metadata({"k\r": "\x1b[2J"}), path)
    for arguments in (["inspect"], ["inspect", "-c", "a\x1b[31m\nb"], ["pages"]):
        result = say(arguments[0], path, *arguments[1:])
        assert result.exit_code == 0
        assert not {"\x1b", "\r", "\x07"} & set(result.stdout)
        assert "a\\x1b[31m\\nb" in result.stdout


# --- several files --------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Three Parquet files and one file that is not. The last Parquet file has another type and no
    index.
    """
    folder = tmp_path / "lake"
    folder.mkdir()
    for number in range(2):
        table = pa.table({"k": range(100), "s": ["a", None] * 50})
        ia.write_table(table, folder / f"{number}.parquet", indexes=["k:lookup"], row_group_size=50)
    pq.write_table(pa.table({"k": pa.array(range(7), pa.int32())}), folder / "2.parquet")
    return folder


def test_the_files_of_a_folder_are_summarized(say, lake):
    result = say("inspect", lake, columns=200)
    assert result.exit_code == 0
    sizes = [(lake / f"{n}.parquet").stat().st_size for n in range(3)]
    lines = [line.split() for line in result.output.splitlines()]
    assert f"  3 files, {sum(sizes):,} bytes, 207 rows, 5 row groups" in result.output
    (k,) = (line for line in lines if line[:1] == ["k"])
    assert k[1:4] == ["INT64?,", "INT32?", "all"]
    assert "page 2/3,lookup 2/3" in result.output
    (s,) = (line for line in lines if line[:1] == ["s"])
    assert (s[2], s[5]) == ("2", "100")
    assert ["0.parquet", "100", "2", f"{sizes[0]:,}", "k:lookup"] in lines
    assert ["2.parquet", "7", "1", f"{sizes[2]:,}", "-"] in lines
    (report, _, _) = ia.list_indexes(lake)
    total = 2 * report.indexes[0].length
    assert f"index k:lookup: in 2 of 3 files, {total:,} bytes" in result.output


def test_a_glob_shows_only_matching_files(say, lake):
    assert "2 files, " in say("inspect", lake / "[01].parquet").output


def test_a_file_that_is_not_parquet_is_reported_among_the_others(say, lake):
    (lake / "3.parquet").write_bytes(b"no Parquet at all")
    result = say("inspect", lake)
    assert result.exit_code == 3
    assert "3 files, " in result.output
    assert "3.parquet" in result.output.partition("error: ")[2]


def test_each_file_is_shown_for_a_column_or_json(say, lake):
    result = say("inspect", lake, "--column", "k")
    assert [line.endswith(".parquet") for line in result.output.splitlines()].count(True) == 3
    (lake / "3.parquet").write_bytes(b"no Parquet at all")
    result = say("inspect", lake, "--json")
    documents = [json.loads(line) for line in result.output.splitlines()]
    assert [d.get("metadata", {}).get("num_rows") for d in documents] == [100, 100, 7, None]
    assert documents[3]["file"].endswith("3.parquet")
    assert "error" in documents[3]
    assert result.exit_code == 3


def test_files_that_lack_the_column_are_reported(say, lake):
    for command in ("inspect", "pages"):
        result = say(command, lake, "--column", "s")
        assert result.exit_code == 3
        assert result.output.count("column 's' is not there") == 1
        result = say(command, lake, "--column", "s", "--json")
        text = result.output if command == "pages" else f"[{','.join(result.output.splitlines())}]"
        actual = json.loads(text)
        assert [item["file"][-9:] for item in actual if "error" in item] == ["2.parquet"]
        assert len(actual) > 2
        assert result.exit_code == 3


def test_a_damaged_chunk_is_reported_among_files(say, lake):
    table = pa.table({"k": range(100), "s": ["a"] * 100})
    pq.write_table(table, lake / "3.parquet", row_group_size=50)
    damage_chunk(lake / "3.parquet", 1, 1)
    (lake / "2.parquet").unlink()
    for more in ((), ("--column", "s"), ("--json",)):
        result = say("inspect", lake, *more, columns=200)
        assert result.exit_code == 3
        assert "required" in " ".join(result.output.split())
    summed = say("inspect", lake, columns=200).output
    assert "3 files" in summed
    assert "bloom" not in summed
    ia.add_indexes(lake / "1.parquet", ia.Bloom("k"))
    assert "bloom 1/3" in say("inspect", lake, columns=200).output


def test_a_file_deleted_in_between_is_reported(say, lake, monkeypatch):
    listed = str(lake / "gone.parquet")
    real = inspect.data_files
    monkeypatch.setattr(
        inspect,
        "data_files",
        lambda path, **options: (real(path, **options)[0], [listed, *real(path)[1]]),
    )
    for more in ((), ("--json",)):
        result = say("inspect", lake, *more)
        assert (result.exit_code, "gone.parquet" in result.output) == (3, True)
        assert "2.parquet" in result.output


def test_names_that_are_no_utf8(say, tmp_path):
    for command in ("inspect", "pages"):
        with pytest.raises(ia.PathError):
            say(command, os.fsdecode(os.fsencode(tmp_path) + b"/n\xff"))


def test_page_indexes_without_bounds_are_distinguished_in_a_summary(say, tmp_path):
    table = pa.table({"x": pa.array([1.5, float("nan")])})
    for number in range(2):
        pq.write_table(table, tmp_path / f"{number}.parquet", write_statistics=False)
        ia.add_indexes(tmp_path / f"{number}.parquet", ia.PageIndex())
    alone, all_of_them = (say("inspect", at).output for at in (tmp_path / "0.parquet", tmp_path))
    for said in (alone, all_of_them):
        (line,) = (line.split() for line in said.splitlines() if line.startswith("  x "))
        assert line[-1] == "offset"
    assert " - " in next(line for line in all_of_them.splitlines() if line.startswith("  x "))


def test_an_html_page_shows_one_file(say, lake, tmp_path):
    result = say("inspect", lake, "--html", tmp_path / "page.html")
    assert (result.exit_code, (tmp_path / "page.html").exists()) == (2, False)


def test_long_lists_of_files_are_cut_short(say, tmp_path):
    for number in range(25):
        pq.write_table(pa.table({f"c{number}": [1]}), tmp_path / f"{number}.parquet")
    assert "… and 5 more files: --all shows them." in say("inspect", tmp_path).output
    assert "24.parquet" in say("inspect", tmp_path, "--all").output


def test_the_pages_of_all_files_are_shown(say, lake):
    result = say("pages", lake, "--column", "k", "--row-group", "1")
    assert result.exit_code == 0
    assert result.output.count("row group 1, column k") == 2
    assert result.output.count("no pages") == 1  # the last has one row group
    actual = json.loads(say("pages", lake, "--column", "k", "--json").output)
    assert [item["file"][-9:] for item in actual if item["type"] != "DICTIONARY_PAGE"] == [
        "0.parquet", "0.parquet", "1.parquet", "1.parquet", "2.parquet",
    ]  # fmt: skip
    assert "file" not in json.loads(say("pages", lake / "0.parquet", "--json").output)[0]
    (lake / "3.parquet").write_bytes(b"no Parquet at all")
    for more in ((), ("--json",)):
        result = say("pages", lake, *more)
        assert (result.exit_code, "3.parquet" in result.output) == (3, True)
