"""``intarsia write``: its inputs, its output, and that a failure leaves nothing."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import warnings
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.ipc as ipc
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.cli.input import other_formats
from intarsia.io.external_sort import Workspace
from intarsia.parquet.metadata import ConvertedType, Empty, GeometryType, LogicalType
from intarsia.writer import row_sorting
from intarsia.writer.parquet_writer import open_writer
from intarsia.writer.type_annotations import Annotation

ROWS = 500
TABLE = pa.table(
    {
        "k": pa.array(range(ROWS), pa.int64()),
        "word": [f"w{n % 50}" for n in range(ROWS)],
        "x": [n / 4 for n in range(ROWS)],
        "gap": pa.array([None if n % 3 else n for n in range(ROWS)], pa.int64()),
    }
)


def put(path: Path, form: str, table: pa.Table = TABLE) -> Path:
    """Writes a table in another format."""
    match form:
        case "csv" | "tsv":
            delimiter = "\t" if form == "tsv" else ","
            pacsv.write_csv(table, path, pacsv.WriteOptions(delimiter=delimiter))
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        case "feather":
            feather.write_feather(table, str(path), compression="lz4")
        case "arrows":
            with ipc.new_stream(path, table.schema) as out:
                out.write_table(table, max_chunksize=100)
        case "orc":
            orc.write_table(table, str(path))
        case _:
            pq.write_table(table, path)
    return path


FORMS = ("csv", "tsv", "jsonl", "feather", "arrows", "orc", "parquet")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "to").mkdir()
    return tmp_path / "to" / "out.parquet"


@pytest.fixture
def stdin(monkeypatch):
    """Replaces standard input by these bytes."""

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


def assert_refused(said, out, *words, code=None):
    assert said.code in (1, 2, 4, 5) if code is None else said.code == code, said
    assert said.out == ""
    assert all(word in said.err for word in words), said.err
    if code is None:
        assert said.err.startswith("intarsia: ")
        assert said.err.count("\n") == 1
    assert list(out.parent.iterdir()) == []


# --- inputs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_every_format_is_read_by_its_name(form, say, tmp_path, out):
    path = put(tmp_path / f"a.{form}", form)
    said = say("write", path, out)
    assert (said.code, said.out) == (0, "")
    assert pq.read_table(out).equals(TABLE)
    assert [p.name for p in out.parent.iterdir()] == [out.name]


@pytest.mark.parametrize("form", FORMS)
def test_conditions_columns_and_limits_mean_the_same_in_every_format(form, say, tmp_path, out):
    path = put(tmp_path / f"a.{form}", form)
    options = ["--where", "k >= 100 AND lower(word) LIKE 'w1%'", "--columns", "word,k"]
    matching = TABLE.filter((pc.field("k") >= 100) & pc.starts_with(pc.field("word"), "w1"))
    assert say("write", path, out, *options).code == 0
    assert pq.read_table(out).equals(matching.select(["word", "k"]))
    assert say("write", path, out, *options, "--limit", 7).code == 0
    assert pq.read_table(out).equals(matching.select(["word", "k"]).slice(0, 7))
    assert say("write", path, out, "--limit", 0).code == 0
    assert pq.read_table(out).equals(TABLE.slice(0, 0))


@pytest.mark.parametrize("form", ["jsonl", "feather", "parquet"])
def test_intarsias_own_conditions_on_lists_and_fields(form, say, tmp_path, out):
    table = pa.table({"tags": [["a"], ["b", "c"], []], "p": [{"x": n} for n in range(3)]})
    path = put(tmp_path / f"a.{form}", form, table)
    options = ["--where", "list_contains(tags, 'c')", "--columns", "p.x,tags"]
    assert say("write", path, out, *options).code == 0
    assert pq.read_table(out).to_pydict() == {"x": [1], "tags": [["b", "c"]]}


@pytest.mark.parametrize(
    ("form", "name"), [("csv", "csv"), ("jsonl", "json"), ("arrows", "arrow"), ("feather", "arrow")]
)
def test_standard_input(form, name, say, tmp_path, out, stdin):
    stdin(put(tmp_path / f"a.{form}", form).read_bytes())
    assert say("write", "-", out, "--from", name, "--where", "k < 9").code == 0
    assert pq.read_table(out).equals(TABLE.slice(0, 9))


def test_standard_input_without_a_format(say, out, stdin):
    for more in ((), ("--from", "parquet"), ("--from", "orc")):
        stdin(b"a\n1\n")
        assert_refused(say("write", "-", out, *more), out, "--from csv, json or arrow", code=2)
    stdin(b"")
    assert_refused(say("write", "-", out, "--from", "csv"), out, "standard input: cannot be read")


def test_compressed_text(say, tmp_path, out):
    path = put(tmp_path / "a.csv", "csv")
    packed = tmp_path / "b.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert say("write", packed, out).code == 0
    assert pq.read_table(out).equals(TABLE)


@pytest.mark.parametrize("form", ["csv", "jsonl", "feather", "orc"])
def test_folders_and_globs_of_other_formats(form, say, tmp_path, out):
    for day in (1, 2):
        folder = tmp_path / "lake" / f"day={day}"
        folder.mkdir(parents=True)
        put(folder / f"a.{form}", form, TABLE.slice(day * 10, 10))
        (folder / "notes.txt").write_text("not data")
    expected = TABLE.slice(10, 20).append_column("day", pa.array([1] * 10 + [2] * 10, pa.int32()))
    for source in (tmp_path / "lake", tmp_path / "lake" / "*" / f"*.{form}"):
        assert say("write", source, out).code == 0
        assert pq.read_table(out).equals(expected)
    assert (
        say("write", tmp_path / "lake", out, "--where", "day = 2", "--columns", "day,k").code == 0
    )
    assert pq.read_table(out).equals(expected.slice(10).select(["day", "k"]))


def test_parquet_is_read_as_scan_reads_it(say, tmp_path, out):
    for day in (1, 2):
        (tmp_path / "lake" / f"day={day}").mkdir(parents=True)
        more = {"host": ["b"]} if day == 2 else {}
        table = pa.table({"k": [day], **more})
        pq.write_table(table, tmp_path / "lake" / f"day={day}" / "a.parquet")
    assert say("write", tmp_path / "lake", out).code == 0
    assert pq.read_table(out).to_pydict() == {"k": [1, 2], "day": [1, 2]}
    assert say("write", tmp_path / "lake", out, "--union-by-name").code == 0
    assert pq.read_table(out).to_pydict() == {"k": [1, 2], "host": [None, "b"], "day": [1, 2]}
    options = ["--columns", "__row_number,k", "--where", "day = 2"]
    assert say("write", tmp_path / "lake", out, *options).code == 0
    assert pq.read_table(out).to_pydict() == {"__row_number": [0], "k": [2]}


def test_csv_options_are_respected(say, tmp_path, out):
    path = tmp_path / "a.txt"
    path.write_text('00123;NA;1.50\n00124;"NA";x\n')
    options = ["--from", "csv", "--delimiter", ";", "--no-header", "--null", "NA"]
    types = ["--type", "f0=string", "--type", "f2=varchar"]
    assert say("write", path, out, *options, *types).code == 0
    rows = {"f0": ["00123", "00124"], "f1": [None, "NA"], "f2": ["1.50", "x"]}
    assert pq.read_table(out).to_pydict() == rows
    path.write_text("a\\tb\n1\t2\n".replace("\\t", "\t"))
    types = ["--type", "a=decimal(10, 2)", "--type", "b=TIMESTAMPTZ"]
    path.write_text("a\tb\n1\t2026-01-01T00:00:00Z\n")
    assert say("write", path, out, "--from", "csv", "--delimiter", r"\t", *types).code == 0
    assert pq.read_schema(out).types == [pa.decimal128(10, 2), pa.timestamp("us", "UTC")]


def test_quoted_csv_values_may_contain_line_feeds(say, tmp_path, out):
    path = put(tmp_path / "a.csv", "csv", pa.table({"s": ["a\nb", 'c"d', ""]}))
    assert say("write", path, out).code == 0
    assert pq.read_table(out).to_pydict() == {"s": ["a\nb", 'c"d', ""]}


def test_columns_that_only_later_rows_or_files_have_are_an_error(say, tmp_path, out, monkeypatch):
    monkeypatch.setattr(other_formats, "_BLOCK_BYTES", 64)
    late = tmp_path / "a.jsonl"
    late.write_text('{"a": 1}\n' * 50 + '{"a": 2, "b": 3}\n')
    assert_refused(
        say("write", late, out), out, str(late), "unexpected field", "--type COLUMN=TYPE"
    )
    assert say("write", late, out, "--type", "b=int64").code == 0
    assert pq.read_table(out).column("b").to_pylist() == [None] * 50 + [3]
    out.unlink()
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "texts" / "2.csv").write_text("a,c\n1,2\n")
    said = say("write", tmp_path / "texts", out)
    assert_refused(said, out, "2.csv", "it lacks b and has c besides")
    (tmp_path / "texts" / "2.csv").write_text("b,a\n2,1\n")
    assert say("write", tmp_path / "texts", out).code == 0
    assert pq.read_table(out).to_pydict() == {"a": [1, 1], "b": [2, 2]}


def test_dictionaries_and_views_stay(say, tmp_path, out):
    texts = pa.array(["x", None, "x", "y"])
    table = pa.table({"d": texts.dictionary_encode(), "v": texts.cast(pa.string_view())})
    feather.write_feather(table, str(tmp_path / "a.feather"))
    assert say("write", tmp_path / "a.feather", out, "--where", "d = 'x'").code == 0
    actual = ia.ParquetFile(out).read()
    assert actual.schema.types == table.schema.types
    assert actual.to_pydict() == {"d": ["x", "x"], "v": ["x", "x"]}


# --- outputs ------------------------------------------------------------------------------------


def test_indexes_are_written_and_used(say, tmp_path, out):
    path = put(tmp_path / "a.csv", "csv")
    indexes = [
        "--index",
        "lookup(word, granule_rows=10)",
        "--index",
        "k:minmax",
        "--index",
        "bloom(k)",
    ]
    layout = ["--row-group-size", 200, "--max-rows-per-page", 20]
    said = say("write", path, out, *indexes, *layout)
    assert said.code == 0
    (report,) = ia.list_indexes(out)
    assert [entry.name for entry in report.indexes] == ["word:lookup", "k:minmax"]
    assert {own.name for own in report.standard} == {"page_index", "k:bloom"}
    assert said.err.startswith(f"{out}: 500 rows, {out.stat().st_size:,} bytes; word:lookup ")
    assert all(f"{entry.name} {entry.length:,} bytes (" in said.err for entry in report.indexes)
    assert pq.read_metadata(out).num_row_groups == 3
    explained = ia.dataset(out).explain(filter="word = 'w7'", analyze=True)
    assert "word:lookup" in str(explained)
    assert explained.read.rows.selected == 10
    assert explained.read.pages.selected < explained.read.pages.total
    assert say("verify", out).code == 0


def test_rows_are_sorted(say, tmp_path, out):
    numbers = [3.0, None, float("nan"), 1.0, 2.0, 1.0]
    path = put(tmp_path / "a.parquet", "parquet", pa.table({".n": numbers, "i": range(6)}))
    assert say("write", path, out, "--sort-by", ".n,i", "--row-group-size", 4).code == 0
    assert pq.read_table(out).column("i").to_pylist() == [3, 5, 4, 0, 2, 1]
    assert [pq.read_metadata(out).row_group(n).num_rows for n in (0, 1)] == [4, 2]
    out.unlink()
    wrong = say("write", path, out, "--sort-by", "j", "--columns", "i")
    assert_refused(wrong, out, "column 'j' is not there")


def test_settings_of_the_writer_are_applied(say, tmp_path, out):
    path = put(tmp_path / "a.parquet", "parquet")
    more = ["--compression", "gzip", "--compression-level", 9, "--checkpoint-row-groups", 1]
    assert say("write", path, out, *more, "--row-group-size", 100).code == 0
    metadata = pq.read_metadata(out)
    assert (metadata.num_row_groups, metadata.row_group(0).column(0).compression) == (5, "GZIP")
    assert say("write", path, out, "--compression", "lzo").code == 2
    assert say("write", path, out, "--row-group-size", 0).code == 2


def test_a_row_group_ends_by_its_bytes_as_well(say, tmp_path, out, monkeypatch):
    monkeypatch.setattr("intarsia.cli.actions.write.ROW_GROUP_BYTES", 4000)
    path = put(tmp_path / "a.parquet", "parquet")
    assert say("write", path, out).code == 0
    assert pq.read_metadata(out).num_row_groups > 2
    assert pq.read_table(out).equals(TABLE)
    assert say("write", path, out, "--row-group-size", 500).code == 0
    assert pq.read_metadata(out).num_row_groups == 1


def test_the_report_as_json_is_that_of_index_list(say, tmp_path, out):
    path = put(tmp_path / "a.parquet", "parquet")
    said = say("write", path, out, "--index", "k:lookup", "--json")
    document = json.loads(said.out)
    assert document == json.loads(say("index", "list", out, "--json").out)
    assert (document["rows"], document["indexes"][0]["name"]) == (ROWS, "k:lookup")
    assert said.err.startswith(f"{out}: 500 rows")


def test_progress_is_shown_on_a_terminal_and_erased(say, tmp_path, out, monkeypatch):
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    path = put(tmp_path / "a.parquet", "parquet")
    for more in ([], ["--where", "k < 9"], ["--limit", "3"]):
        said = say("write", path, out, *more)
        assert (said.code, said.out) == (0, "")
        assert said.err.splitlines()[-1].startswith(f"{out}: ")


# --- failures leave nothing ---------------------------------------------------------------------


def test_a_source_that_fails_midway_leaves_nothing(say, tmp_path, out, monkeypatch):
    monkeypatch.setattr(other_formats, "_BLOCK_BYTES", 64)
    path = tmp_path / "a.csv"
    path.write_text("a\n" + "1\n" * 1000 + "x\n")
    said = say("write", path, out, "--row-group-size", 10, "--index", "a:lookup")
    assert_refused(said, out, str(path), "invalid value 'x'", "--type COLUMN=TYPE")
    out.write_bytes(b"what was there")
    assert say("write", path, out).code == 4
    assert out.read_bytes() == b"what was there"
    assert [p.name for p in out.parent.iterdir()] == [out.name]


def test_written_rows_are_kept_on_request(say, tmp_path, out, monkeypatch):
    monkeypatch.setattr(other_formats, "_BLOCK_BYTES", 64)
    path = tmp_path / "a.csv"
    path.write_text("a\n" + "1\n" * 1000 + "x\n")
    more = ["--row-group-size", 10, "--checkpoint-row-groups", 1, "--keep-unfinished"]
    said = say("write", path, out, *more)
    (unfinished,) = out.parent.iterdir()
    assert said.code == 4
    assert said.err.endswith(f"; what was written so far is in {unfinished}\n")
    assert say("recover", unfinished, out).code in (0, 3)
    assert pq.read_metadata(out).num_rows > 900


def test_damage_in_parquet_is_an_error_or_left_out(say, tmp_path, out):
    path = tmp_path / "t.parquet"
    pages = {"max_rows_per_page": 10, "write_batch_size": 10, "write_page_checksum": True}
    pq.write_table(pa.table({"k": range(40)}), path, use_dictionary=False, **pages)
    page = ia.ParquetFile(path).pages(0, "k")[1]
    data = bytearray(path.read_bytes())
    data[page.offset + page.header_size + 20] ^= 1
    path.write_bytes(data)
    assert_refused(say("write", path, out, "--on-corrupt", "raise"), out, "checksum")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said = say("write", path, out, "--on-corrupt", "skip")
    assert "10 rows lost" in said.err
    assert pq.read_table(out).column("k").to_pylist() == [*range(10), *range(20, 40)]


def test_an_interruption_leaves_nothing(say, tmp_path, out, monkeypatch):
    path = put(tmp_path / "a.parquet", "parquet")

    def interrupted(*_):
        assert len(list(out.parent.iterdir())) == 1  # the temporary file
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "intarsia.writer.sampled_dictionaries.SampledDictionaryWriter.write_table", interrupted
    )
    said = say("write", path, out)
    assert (said.code, said.err.strip()) == (130, "intarsia: interrupted")
    assert list(out.parent.iterdir()) == []


def test_an_index_that_cannot_be_built_leaves_nothing(say, tmp_path, out):
    path = put(tmp_path / "a.parquet", "parquet")
    wrong = {"nope:lookup": "'nope' is not there", "k:nope": "no index kind", "k": "not an index"}
    for index, message in wrong.items():
        assert_refused(say("write", path, out, "--index", index), out, message)
    twice = say("write", path, out, "--index", "k:lookup", "--index", "lookup(k)")
    assert_refused(twice, out, "asked for twice")


# --- where OUT is SOURCE, or part of it ---------------------------------------------------------


def state(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("form", ["csv", "feather", "parquet"])
def test_the_source_is_not_overwritten(form, say, tmp_path):
    path = put(tmp_path / f"a.{form}", form)
    (tmp_path / "b").symlink_to(path)
    before = state(tmp_path)
    for source, target in ((path, path), (path, tmp_path / "b"), (tmp_path, path)):
        said = say("write", source, target)
        assert said.code == 5
        assert "not to be changed" in said.err
        assert state(tmp_path) == before


def test_an_output_that_the_source_would_include_is_refused(say, tmp_path):
    (tmp_path / "lake" / "day=1").mkdir(parents=True)
    put(tmp_path / "lake" / "day=1" / "a.parquet", "parquet")
    before = state(tmp_path)
    lake = tmp_path / "lake"
    for source, target in (
        (lake, lake / "all.parquet"),
        (lake, lake / "day=1" / "all"),
        (lake / "*", lake / "day=1" / "all.parquet"),
        (lake / "**" / "*.parquet", lake / "all.parquet"),
    ):
        said = say("write", source, target)
        assert said.code == 5, (source, target)
        assert "its rows there twice" in said.err
        assert state(tmp_path) == before
    for target in (tmp_path / "all.parquet", lake / "_all.parquet", lake / ".all.parquet"):
        assert say("write", lake, target).code == 0
    assert say("write", lake / "day=1" / "a.parquet", lake / "b.parquet").code == 0
    assert say("write", lake / "day=1" / "a.*", lake / "c.parquet").code == 0


def test_a_file_beside_others_of_another_format(say, tmp_path):
    put(tmp_path / "a.csv", "csv")
    for _ in range(2):  # at the second time, the folder contains both
        assert say("write", tmp_path, tmp_path / "b.parquet", "--from", "csv").code == 0
        assert pq.read_table(tmp_path / "b.parquet").equals(TABLE)
    assert "files of csv, parquet: --from" in say("write", tmp_path, tmp_path / "c").err


# --- refusals -----------------------------------------------------------------------------------


def test_places_that_cannot_be_written_to(say, tmp_path, out):
    path = put(tmp_path / "a.parquet", "parquet")
    for target, message in (
        (tmp_path / "nowhere" / "a", "there is no such folder to write to"),
        (tmp_path, "there is a folder where the file is to be"),
        ("s3://bucket/key?endpoint_override=localhost:1", "bucket/key: cannot be written"),
        ("/dev/null", "a device or a pipe"),
    ):
        assert_refused(say("write", path, target), out, message)
    assert_refused(say("write", path, "-"), out, "OUT is a file", code=2)


def test_sources_that_cannot_be_read(say, tmp_path, out):
    assert_refused(say("write", tmp_path / "a.csv", out), out, "there is no such file")
    assert_refused(say("write", tmp_path / "a.parquet", out), out, "there is no such file")
    (tmp_path / "b").write_text("no Parquet")
    assert_refused(say("write", tmp_path / "b", out), out, "for a Parquet file")
    for form in ("csv", "jsonl", "arrow", "orc"):
        (tmp_path / f"c.{form}").write_bytes(b"")
        assert_refused(say("write", tmp_path / f"c.{form}", out), out, "cannot be read")


def test_dangerous_file_names_are_refused(say, tmp_path, out):
    path = tmp_path / "a.csv"
    for data, message in ((b"a,a\n1,2\n", "two columns are called a"), (b"\xff,b\n1,2\n", "utf-8")):
        path.write_bytes(data)
        assert_refused(say("write", path, out), out, f"{path}: cannot be read: ", message)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([3])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "a.parquet")
    assert say("write", tmp_path / "a.parquet", out).code in (2, 4)
    assert list(out.parent.iterdir()) == []


def test_a_header_alone_is_a_file_without_rows(say, tmp_path, out):
    (tmp_path / "a.csv").write_text("a,b\n")
    assert say("write", tmp_path / "a.csv", out, "--type", "a=int64").code == 0
    actual = pq.read_table(out)
    assert (actual.num_rows, actual.column_names) == (0, ["a", "b"])
    assert say("write", tmp_path / "a.csv", out, "--sort-by", "a").code == 0


def test_options_of_other_formats_are_refused(say, tmp_path, out):
    path, text = put(tmp_path / "a.parquet", "parquet"), put(tmp_path / "a.csv", "csv")
    for source, *options, message in (
        (path, "--delimiter", ";", "of CSV, not of parquet"),
        (path, "--no-header", "of CSV, not of parquet"),
        (path, "--type", "k=int64", "of CSV and JSON, not of parquet"),
        (text, "--union-by-name", "of Parquet, not of csv"),
        (text, "--on-corrupt", "skip", "of Parquet, not of csv"),
        (text, "--delimiter", ";;", "one character"),
        (text, "--type", "k", "not COLUMN=TYPE"),
        (text, "--type", "k=nix", "no type 'nix'"),
        (text, "--columns", "k,k", "two columns are called k"),
        (text, "--from", "xml", "'xml' is not one of"),
    ):
        assert_refused(say("write", source, out, *options), out, message, code=2)


def test_columns_that_are_not_there(say, tmp_path, out):
    for form in ("csv", "parquet"):
        path = put(tmp_path / f"a.{form}", form)
        assert_refused(say("write", path, out, "--columns", "kk"), out, "'kk' is not there")
        assert_refused(say("write", path, out, "--where", "kk = 1"), out, "'kk' is not there")
        assert_refused(say("write", path, out, "--where", "k ="), out)
    text = tmp_path / "a.csv"
    assert_refused(say("write", text, out, "--type", "kk=int64"), out, "'kk' is not there")
    assert_refused(say("write", text, out, "--columns", "__filename"), out, "Parquet only")


# --- unusual inputs -------------------------------------------------------------------------------


def test_json_strings_that_are_not_utf8_are_refused(say, tmp_path, out):
    (tmp_path / "a.json").write_bytes(b'{"a": "\xff"}\n')
    said = say("write", tmp_path / "a.json", out)
    assert (said.code, "a.json" in said.err, out.exists()) == (4, True, False)


def test_objects_without_fields_are_no_rows(say, tmp_path, out):
    (tmp_path / "a.json").write_text("{}\n{}\n")
    said = say("write", tmp_path / "a.json", out)
    assert (said.code, "no column" in said.err, out.exists()) == (4, True, False)


def test_a_glob_through_a_link_lists_the_target_folder(say, tmp_path):
    (tmp_path / "real").mkdir()
    put(tmp_path / "real" / "a.parquet", "parquet")
    (tmp_path / "link").symlink_to("real")
    for source, target in (("link", "real"), ("real", "link")):
        said = say("write", tmp_path / source / "*.parquet", tmp_path / target / "new.parquet")
        assert (said.code, "one of the files" in said.err) == (5, True)
    assert say("write", tmp_path / "link" / "*.parquet", tmp_path / "real" / "new.pq").code == 0


@pytest.mark.parametrize(
    "options", [("--row-group-size", "9" * 20), ("--delimiter", "é"), ("--columns", "__filename,k")]
)
def test_impossible_settings_are_wrong_usage(options, say, tmp_path, out):
    form = "parquet" if "--columns" in options else "csv"
    said = say("write", put(tmp_path / f"a.{form}", form), out, *options)
    assert (said.code, out.exists()) == (2, False)


def test_types_are_named_as_in_pyarrow_or_sql(say, tmp_path, out):
    (tmp_path / "a.csv").write_text("at,n,b=c\n2026-01-02 03:04:05Z,1,2\n")
    types = {"at": "timestamp[us, tz=UTC]", "n": "decimal(9, 2)"}
    options = [part for name, kind in types.items() for part in ("--type", f"{name}={kind}")]
    assert say("write", tmp_path / "a.csv", out, *options).code == 0
    assert pq.read_schema(out).types[:2] == [pa.timestamp("us", "UTC"), pa.decimal128(9, 2)]
    assert say("write", tmp_path / "a.csv", out, "--type", "at=TIMESTAMPTZ").code == 0
    assert pq.read_schema(out).types[0] == pa.timestamp("us", "UTC")


def test_the_error_about_a_pipe_mentions_standard_input(say, tmp_path, out):
    os.mkfifo(tmp_path / "pipe.csv")
    said = say("write", tmp_path / "pipe.csv", out)
    assert (said.code, "- reads standard input" in said.err) == (2, True)


def test_dictionaries_and_views_are_put_in_order_by_their_values(say, tmp_path, out):
    words = pa.array(["b", None, "a", "c"])
    columns = {"d": words.dictionary_encode(), "v": words.cast(pa.string_view()), "n": range(4)}
    feather.write_feather(pa.table(columns), str(tmp_path / "a.feather"))
    for by in columns:
        assert say("write", tmp_path / "a.feather", out, "--sort-by", by).code == 0
        expected = [0, 1, 2, 3] if by == "n" else [2, 0, 3, 1]
        assert pq.read_table(out)["n"].to_pylist() == expected


@pytest.mark.parametrize("is_folder", [False, True])
def test_rows_that_do_not_fit_into_memory_are_sorted_on_disk(is_folder, say, tmp_path, monkeypatch):
    monkeypatch.setattr(row_sorting, "SORTED_BYTES", 2000)
    spilled = []
    new_path = Workspace.new_path
    monkeypatch.setattr(Workspace, "new_path", lambda work: spilled.append(work) or new_path(work))
    source, out = put(tmp_path / "a.arrows", "arrows"), tmp_path / "out"
    options = ("--sort-by", "gap,word", *(["--max-rows-per-file", 90] if is_folder else []))
    assert say("write", source, out, *options).code == 0
    assert len(spilled) > 3
    expected = sorted(
        TABLE.to_pylist(), key=lambda row: (row["gap"] is None, row["gap"] or 0, row["word"])
    )
    files = [out / f"part-{number}.parquet" for number in range(6)] if is_folder else [out]
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert rows == expected


SAID = {
    "e": {"converted_type": ConvertedType.ENUM, "logicalType": LogicalType(ENUM=Empty())},
    "v": {"converted_type": ConvertedType.INTERVAL},
    "g": {"logicalType": LogicalType(GEOMETRY=GeometryType())},
}
SAID_SCHEMA = pa.schema(
    {
        "k": pa.int64(),
        "e": pa.binary(),
        "v": pa.binary(12),
        "s": pa.struct({"e": pa.binary(), "plain": pa.binary()}),
        "g": pa.binary(),
    }
)


def span(days):
    """An INTERVAL: months, days and milliseconds, 4 bytes each."""
    return bytes(4) + days.to_bytes(4, "little") + bytes(4)


def put_annotated(path, said):
    """Writes a file whose leaves of these names have annotations that Arrow lacks."""
    values = [
        {"k": k, "e": b"e1", "v": span(k % 9), "s": {"e": b"e2", "plain": b"p"}, "g": b"\1"}
        for k in range(ROWS)
    ]
    pq.write_table(SAID_SCHEMA.empty_table(), path)
    leaves = ia.ParquetFile(path).schema.leaves
    fields = {leaf.elements[-1]: said[leaf.path[-1]] for leaf in leaves if leaf.path[-1] in said}
    with open_writer(SAID_SCHEMA, path, annotations=fields) as writer:
        writer.write_table(pa.Table.from_pylist(values, SAID_SCHEMA))
    return path


def names_said(path):
    """The annotations of a file's leaves that Arrow lacks, by path."""
    schema = ia.ParquetFile(path).schema
    actual = {
        leaf.name: Annotation(leaf.element.converted_type, leaf.element.logicalType).name
        for leaf in schema.leaves
    }
    return {name: said for name, said in actual.items() if said not in ("", "INTEGER")}


def test_new_files_keep_the_annotations_of_columns(say, tmp_path, out):
    source = put_annotated(tmp_path / "a.parquet", SAID)
    expected = {"e": "ENUM", "v": "INTERVAL", "s.e": "ENUM", "g": "GEOMETRY"}
    assert names_said(source) == expected
    options = ("--where", "k >= 100", "--sort-by", "v", "--index", "e:lookup")
    assert say("write", source, out, *options).code == 0
    assert names_said(out) == expected
    assert ia.verify(out) == []
    matching = ia.dataset(source).to_table(filter=pc.field("k") >= 100)
    assert ia.dataset(out).to_table().sort_by("k").equals(matching)
    by_duckdb = duckdb.sql(f"SELECT e, v FROM '{out}' WHERE k = 499").fetchall()
    assert by_duckdb == duckdb.sql(f"SELECT e, v FROM '{source}' WHERE k = 499").fetchall()

    assert say("write", source, out, "--columns", "s.e,k,g").code == 0
    assert names_said(out) == {"g": "GEOMETRY"}
    twice = say("write", source, out, "--columns", "s.e,e")
    assert (twice.code, "two columns are called e" in twice.err) == (2, True)


def test_contradictory_annotations_are_dropped(say, tmp_path, out):
    folder = tmp_path / "lake"
    folder.mkdir()
    put_annotated(folder / "a.parquet", SAID)
    put_annotated(folder / "b.parquet", {"e": SAID["e"]})
    pq.write_table(pa.table({"k": [1]}), folder / "c.parquet")
    assert say("write", folder, out).code == 0
    assert names_said(out) == {"e": "ENUM", "s.e": "ENUM"}
    assert ia.verify(out) == []
    assert ia.dataset(out).count_rows() == 2 * ROWS + 1
