"""``intarsia rewrite``, and ``intarsia recover`` of a folder."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.dataset.commit_log import CommitEntry

TABLE = pa.table({"k": range(300), "a,b": [f"w{n % 7}" for n in range(300)]})


@pytest.fixture
def lake(tmp_path):
    for part in range(4):
        path = tmp_path / "lake" / f"day={part % 2}" / f"{part}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(TABLE.slice(part * 70, 70), path)
    return tmp_path / "lake"


def test_files_are_rewritten_and_summed_up(say, lake):
    said = say("rewrite", lake, "--index", "k:lookup", "--rows-per-page", 10)
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("280 rows: 4 files, ")
    assert " became 2 files, " in said.err
    assert {report.indexes[0].name for report in ia.list_indexes(lake)} == {"k:lookup"}
    said = say("rewrite", lake, "--no-index", "--json", "--target-file-size", "none")
    report = json.loads(said.out)
    assert (report["files_before"], report["files_after"], report["rows"]) == (2, 2, 280)
    assert report["bytes_after"] < report["bytes_before"]
    assert not any(report.indexes for report in ia.list_indexes(lake))


def test_files_with_long_pages_are_rewritten_before_they_are_indexed(say, tmp_path):
    table = pa.table({"k": range(70_000), "n": range(70_000)})
    for name, rows in (("long", 70_000), ("short", 5_000)):
        path = tmp_path / "lake" / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path, max_rows_per_page=rows, write_batch_size=rows)
    said = say("index", "add", tmp_path / "lake", "k:lookup", "--rewrite")
    assert (said.code, "a lookup of one row reads" in said.err) == (0, False)
    assert "1 file with long pages rewritten" in said.err
    for name, rows in (("long", 2_048), ("short", 5_000)):
        file = ia.ParquetFile(tmp_path / "lake" / f"{name}.parquet")
        assert max(page.num_rows or 0 for page in file.pages(0, "k")) == rows
        assert file.read() == table
    reports = ia.list_indexes(tmp_path / "lake")
    assert [entry.name for report in reports for entry in report.indexes] == ["k:lookup"] * 2
    said = say("index", "add", tmp_path / "lake", "k:lookup", "--rewrite", "--sidecar")
    assert (said.code, "stay as they are" in said.err) == (2, True)


def test_no_file_is_rewritten_for_an_index_that_no_file_can_have(say, tmp_path):
    path = tmp_path / "long.parquet"
    rows = 70_000
    pq.write_table(
        pa.table({"k": range(rows)}), path, max_rows_per_page=rows, write_batch_size=rows
    )
    before = path.read_bytes()
    said = say("index", "add", path, "k:lookup", "nix:lookup", "--rewrite")
    assert (said.code, "column 'nix' is not there" in said.err) == (2, True)
    assert path.read_bytes() == before


def test_only_small_files_are_merged(say, lake):
    ia.write_table(TABLE.take([*range(300)] * 500), lake / "day=0" / "9.parquet")
    size = (lake / "day=0" / "9.parquet").stat().st_size
    options = ("--only-small", "--target-file-size", size)
    before = (lake / "day=0" / "9.parquet").read_bytes()
    said = say("rewrite", lake, *options, "--index", "k:lookup", "--keep")
    assert said.err.startswith("280 rows: 4 files, ")
    assert (lake / "day=0" / "9.parquet").read_bytes() == before
    policy = json.loads((lake / "_intarsia" / "policy.json").read_bytes())
    assert (policy["indexes"], policy["layout"]) == (["k:lookup"], {"target_file_size": size})
    assert len(list(lake.rglob("*.parquet"))) == 3
    assert say("rewrite", lake, *options).err.startswith("0 rows: 0 files, ")
    said = say("rewrite", lake, "--only-small", "--target-file-size", "none")
    assert (said.code, "only_small needs target_file_size" in said.err) == (2, True)


def test_a_rewrite_follows_the_policy(say, lake):
    said = say("rewrite", lake, "--sort-by", "nix", "--keep")
    assert said.code == 2
    said = say("rewrite", lake, "--sort-by", '"a,b",k', "--rows-per-page", 9, "--keep")
    assert said.code == 0
    ia.add_indexes(lake, ["k:lookup"], keep=True)
    pq.write_table(TABLE.slice(280), lake / "day=0" / "new.parquet")
    assert say("rewrite", lake).code == 0
    for path in lake.rglob("*.parquet"):
        file = ia.ParquetFile(path)
        rows = file.read()
        assert rows == rows.sort_by([("a,b", "ascending"), ("k", "ascending")])
        assert max(page.num_rows or 0 for page in file.pages(0, "k")) == 9
        assert [entry.name for entry in ia.list_indexes(path)[0].indexes] == ["k:lookup"]
    assert ia.dataset(lake).count_rows() == 300


def test_options_are_those_of_the_library(say, lake, tmp_path):
    said = say(
        *("rewrite", lake, "--sort-by", 'k,"a,b"', "--partition-by", '"a,b"', "--where", "k < 100"),
        *("--output", tmp_path / "new", "--compression", "zstd", "--row-group-rows", 8),
        *("--memory-limit", "256MB", "--timeout", 60),
    )
    assert said.code == 0, said.err
    assert len(list((tmp_path / "new").glob("a,b=w*/*.parquet"))) == 7
    assert ia.dataset(tmp_path / "new").count_rows() == 100
    file = pq.ParquetFile(next((tmp_path / "new").glob("a,b=w*/*.parquet")))
    assert file.metadata.row_group(0).num_rows <= 8
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


WRONG = {
    "both": (("--index", "k:lookup", "--no-index"), 2, "exclude each other"),
    "size": (("--target-file-size", "many"), 2, "target_file_size is bytes"),
    "column": (("--sort-by", "nix"), 2, "nix"),
    "condition": (("--where", "k > 3"), 2, "only partition columns"),
    "folder": (("--output", "."), 5, "is not empty"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_changes_nothing(say, lake, monkeypatch, name):
    options, code, message = WRONG[name]
    monkeypatch.chdir(lake.parent)
    before = sorted(path.read_bytes() for path in lake.rglob("*.parquet"))
    said = say("rewrite", lake, *options)
    assert said.code == code
    assert message in said.err
    assert sorted(path.read_bytes() for path in lake.rglob("*.parquet")) == before


def test_folders_are_recovered(say, lake):
    (lake / "_temporary-x").mkdir()
    pq.write_table(TABLE, lake / "new.parquet")
    entry = CommitEntry("x", "publishing", ("new.parquet",), ("day=0/0.parquet",))
    (lake / entry.name).write_text(entry.encode())
    said = say("recover", lake)
    assert (said.code, said.lines) == (0, ["new.parquet", "_temporary-x"])
    assert ia.dataset(lake).count_rows() == 280
    assert json.loads(say("recover", lake, "--json").out) == []
    assert say("recover", lake, "--schema-from", "x").code == 2
    assert say("recover", lake / "nix").code == 5
