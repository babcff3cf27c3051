"""``intarsia write`` to folders, and in the types of another file."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import intarsia as ia

DAYS = [datetime.date(2026, 1, 1 + i % 3) for i in range(90)]
TABLE = pa.table(
    {
        "id": pa.array(range(90), pa.int64()),
        "day": DAYS,
        "name": [None if i % 4 == 0 else f"n{i}" for i in range(90)],
    }
)


def put(folder, form):
    """Writes the rows as two files of a format."""
    folder.mkdir()
    for number, part in enumerate((TABLE.slice(0, 50), TABLE.slice(50))):
        path = folder / f"{number}.{form}"
        if form == "csv":
            pacsv.write_csv(part, path)
        elif form == "jsonl":
            rows = [{**row, "day": str(row["day"])} for row in part.to_pylist()]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            pq.write_table(part, path)
    return folder


def rows_of(path):
    return ia.dataset(path).to_table(["id", "day", "name"]).sort_by("id")


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_folders_become_partitioned_folders(form, say, tmp_path):
    source, out = put(tmp_path / "source", form), tmp_path / "lake"
    like = tmp_path / "like.parquet"
    pq.write_table(TABLE.slice(0, 0), like)
    options = ["--partition-by", "day", "--index", "id:lookup", "--schema-from", like]
    options += ["--null", ""] if form == "csv" else []
    said = say("write", source, out, *options, "--json")
    assert said.code == 0, said
    assert json.loads(said.out) == {
        "path": str(out),
        "files": 3,
        "rows": 90,
        "file_bytes": sum(file.stat().st_size for file in out.rglob("*.parquet")),
    }
    assert said.err.startswith(f"{out}: 90 rows in 3 files")
    assert sorted(path.name for path in out.iterdir()) == [
        "_SUCCESS",
        *(f"day=2026-01-0{day}" for day in (1, 2, 3)),
    ]
    assert rows_of(out).cast(TABLE.schema).equals(TABLE)
    for file in ia.dataset(out).files:
        assert [entry.name for entry in ia.list_indexes(file)[0].indexes] == ["id:lookup"]
        assert pq.read_schema(file) == TABLE.schema.remove(1)


def test_existing_files_stay_or_go(say, tmp_path):
    source, out = put(tmp_path / "source", "parquet"), tmp_path / "lake"
    assert say("write", source, f"{out}/").code == 0
    assert sorted(path.name for path in out.iterdir()) == ["_SUCCESS", "part-0.parquet"]
    said = say("write", source, f"{out}/")
    assert said.code == 5
    assert "--existing-data-behavior append keeps them, overwrite replaces them" in said.err
    for behavior, expected in (("append", 180), ("overwrite", 90), ("delete_matching", 90)):
        options = ("--existing-data-behavior", behavior)
        assert say("write", source, out, *options).code == 0
        assert ia.dataset(out).count_rows() == expected
    assert say("write", source, out, *options, "--max-rows-per-file", "40").code == 0
    files = ia.dataset(out).files
    assert [pq.read_metadata(file).num_rows for file in files] == [40, 40, 10]
    assert rows_of(out).equals(TABLE)


def test_a_folder_is_replaced_by_its_own_rows(say, tmp_path):
    source = put(tmp_path / "lake", "parquet")
    said = say("write", source, source, "--existing-data-behavior", "append")
    assert said.code == 5
    assert "its rows there twice" in said.err
    options = ("--existing-data-behavior", "overwrite", "--sort-by", "name")
    assert say("write", source, source, *options).code == 0
    names = ia.dataset(source).to_table(["name"])["name"].to_pylist()
    present = sorted(name for name in TABLE["name"].to_pylist() if name is not None)
    assert names == present + [None] * (90 - len(present))


def test_a_failed_write_leaves_the_folder_as_it_was(say, tmp_path):
    source, out = put(tmp_path / "source", "csv"), tmp_path / "lake"
    assert say("write", source, out, "--partition-by", "day").code == 0
    before = {path: path.stat() for path in out.rglob("*")}
    (source / "2.csv").write_text("id,day,name\nx,2026-01-01,y\n")
    for behavior in ("append", "overwrite"):
        options = ("--partition-by", "day", "--existing-data-behavior", behavior)
        said = say("write", source, out, *options)
        assert said.code == 4
        assert "2.csv: cannot be read" in said.err
        assert {path: path.stat() for path in out.rglob("*")} == before


def test_too_many_partitions_are_an_error(say, tmp_path):
    pq.write_table(pa.table({"id": range(2000), "x": range(2000)}), tmp_path / "a.parquet")
    said = say("write", tmp_path / "a.parquet", tmp_path / "out", "--partition-by", "id")
    assert said.code == 5
    assert "2,000 partitions within 2,000 rows" in said.err
    said = say("write", tmp_path / "a.parquet", tmp_path / "out", "--partition-by", "day")
    assert said.code == 2
    assert "column 'day' is not there" in said.err
    assert not (tmp_path / "out").exists()


# --- types of another file ----------------------------------------------------------------------

NESTED = pa.schema(
    [
        ("attrs", pa.map_(pa.string(), pa.int64())),
        ("seen", pa.list_(pa.map_(pa.int32(), pa.date32()))),
        ("at", pa.struct([("day", pa.date32()), ("tags", pa.map_(pa.string(), pa.string()))])),
        ("amount", pa.decimal128(38, 19)),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("id", pa.int16()),
    ]
)
LINES = [
    '{"id": 1, "attrs": {"a": 1, "b": null}, "amount": 0.1234567890123456789, "kind": "x"}',
    '{"id": 2, "attrs": {}, "seen": [{"5": "2026-01-02"}, null, {}]}',
    '{"id": 3, "at": {"day": "2026-01-03", "tags": {"ü\\u0000\\"": "\\ud83d\\ude00"}}}',
    "{}",
]
VALUES = [
    {
        "attrs": [("a", 1), ("b", None)],
        "seen": None,
        "at": None,
        "amount": Decimal("0.1234567890123456789"),
        "kind": "x",
        "id": 1,
    },
    {
        "attrs": [],
        "seen": [[(5, datetime.date(2026, 1, 2))], None, []],
        "at": None,
        "amount": None,
        "kind": None,
        "id": 2,
    },
    {
        "attrs": None,
        "seen": None,
        "at": {"day": datetime.date(2026, 1, 3), "tags": [('ü\0"', "\U0001f600")]},
        "amount": None,
        "kind": None,
        "id": 3,
    },
    dict.fromkeys(NESTED.names),
]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_objects_become_maps_and_strings_become_dates(say, tmp_path, end):
    (tmp_path / "a.jsonl").write_text(end.join(LINES))
    pq.write_table(NESTED.empty_table(), tmp_path / "like.parquet")
    out = tmp_path / "out.parquet"
    said = say("write", tmp_path / "a.jsonl", out, "--schema-from", tmp_path / "like.parquet")
    assert said.code == 0, said
    actual = pq.read_table(out)
    assert actual.schema == NESTED
    assert actual.to_pylist() == VALUES


def test_maps_are_those_that_duckdb_reads(say, tmp_path):
    lines = [json.dumps({"m": {f"k{j}": j / 7 for j in range(i % 40)}}) for i in range(3000)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    out = tmp_path / "out.parquet"
    said = say("write", tmp_path / "a.jsonl", out, "--type", "m=map(varchar, double)")
    assert said.code == 0, said
    options = "columns={m: 'MAP(VARCHAR, DOUBLE)'}, format='newline_delimited'"
    query = f"SELECT m FROM read_json('{tmp_path / 'a.jsonl'}', {options})"
    expected = duckdb.sql(query).to_arrow_table()
    assert pq.read_table(out).to_pylist() == expected.to_pylist()


def test_lines_that_are_no_objects_of_the_type_are_refused(say, tmp_path):
    for line in ('{"m": [1]}', '{"m": {"a": "x"}}', '{"m": ', "[1]", '{"m": {"a": 1}} {"m'):
        (tmp_path / "a.jsonl").write_text(f'{{"m": {{"a": 1}}}}\n{line}\n')
        out = tmp_path / "out.parquet"
        said = say("write", tmp_path / "a.jsonl", out, "--type", "m=map(varchar, bigint)")
        assert said.code == 4, line
        assert "a.jsonl: cannot be read" in said.err
        assert not out.exists()


def test_columns_and_types_of_another_file(say, tmp_path):
    schema = pa.schema(
        [("name", pa.large_string()), pa.field("id", pa.int32(), metadata={"unit": "1"})],
    )
    pq.write_table(schema.empty_table(), tmp_path / "like.parquet")
    out = tmp_path / "out.parquet"
    for form in ("csv", "jsonl", "parquet"):
        source = put(tmp_path / form, form)
        columns = ("--columns", "id,name") if form == "parquet" else ()
        like = ("--schema-from", tmp_path / "like.parquet")
        said = say("write", source, out, *columns, *like)
        if columns:
            assert said.code == 0, said
            actual = pq.read_table(out)
            assert [field.metadata for field in actual.schema] == [None, {b"unit": b"1"}]
            assert actual.equals(TABLE.select(["name", "id"]).cast(schema))
        else:
            assert said.code == 4
            assert "it has day besides" in said.err
    said = say("write", source, out, *like, "--type", "id=int64")
    assert said.code == 2
    assert "exclude each other" in said.err
    pq.write_table(pa.table({"id": [300]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": pa.array([], pa.int8())}), tmp_path / "like.parquet")
    said = say("write", tmp_path / "a.parquet", out, *like)
    assert said.code == 1
    assert "300 not in range" in said.err
