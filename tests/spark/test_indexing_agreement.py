"""``ias.add_indexes`` writes what ``ia.add_indexes`` writes, into files of all writers."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
import intarsia.spark as ias

pytestmark = pytest.mark.spark

ROWS = 600
DIRECTORY_BYTES = 16
"""The most bytes by which checksums change the length of a directory."""


def table(first: int) -> pa.Table:
    numbers = range(first, first + ROWS)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "key": [f"k{number * 7919 % 1009}" for number in numbers],
            "ratio": [number * 31 % 100 / 4 for number in numbers],
        }
    )


def damaged(path: Path) -> None:
    """Writes a file whose column ``ratio`` has no readable page."""
    pq.write_table(table(0), path, row_group_size=150, use_dictionary=False)
    data = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(2).column(2)
    start, length = chunk.data_page_offset, chunk.total_compressed_size
    data[start : start + length] = bytes(length)
    path.write_bytes(data)


@pytest.fixture
def lakes(tmp_path):
    """Two folders with the same files."""
    here = tmp_path / "here"
    here.mkdir()
    pq.write_table(table(0), here / "plain.parquet", row_group_size=150)
    pq.write_table(table(600), here / "paged.parquet", write_page_index=True)
    pq.write_table(table(0).slice(0, 0), here / "empty.parquet")
    pq.write_table(table(1200).drop_columns(["key"]), here / "keyless.parquet")
    pq.write_table(table(1800), here / "indexed.parquet", row_group_size=150)
    ia.add_indexes(here / "indexed.parquet", ["key:lookup"], page_index=False)
    duckdb.from_arrow(table(2400)).write_parquet(str(here / "duckdb.parquet"))
    pl.from_arrow(table(3000)).write_parquet(here / "polars.parquet", row_group_size=200)
    damaged(here / "damaged.parquet")
    return here, Path(shutil.copytree(here, tmp_path / "spark"))


def described(folder: Path) -> dict[str, object]:
    """The indexes of each file, without what its random name changes, and about its length."""
    reports = {Path(report.path).name: report.to_dict() for report in ia.list_indexes(folder)}
    for report in reports.values():
        del report["path"]
        report["file_bytes"] = pytest.approx(report["file_bytes"], abs=DIRECTORY_BYTES)
        for entry in (*report["indexes"], *report["sidecar"]):
            del entry["meta_crc32"]
    return reports


@pytest.mark.filterwarnings("ignore::intarsia.IntarsiaWarning")  # of files that lack a column
@pytest.mark.parametrize("split", [None, 3000], ids=["whole", "divided"])
@pytest.mark.parametrize(
    ("indexes", "options"),
    [
        (["key:lookup", "id:minmax"], {}),
        (["key:lookup", "id:minmax"], {"page_index": False}),
        (["key:lookup"], {"sidecar": True}),
        (["key:bloom"], {}),
        (["id:minmax", "page_index(id)"], {}),
    ],
    ids=["page index", "without", "sidecars", "bloom filters", "page index of a column"],
)
def test_spark_adds_what_one_process_adds(spark, lakes, indexes, options, split):
    here, there = lakes
    fails = indexes[-1] == "page_index(id)"  # it is asked for, and not built along
    if fails:
        (here / "damaged.parquet").unlink()
        damage = (there / "damaged.parquet").read_bytes()
    options = {"replace": False, **options}
    expected = {
        Path(report.path).name: report for report in ia.add_indexes(here, indexes, **options)
    }
    rows = ias.add_indexes(spark, there, indexes, split_bytes=split, **options).collect()
    actual = {Path(row.path).name: row for row in rows}
    if fails:
        failed = actual.pop("damaged.parquet")
        assert failed.status == "failed"
        assert "row group 2, column ratio" in failed.why
        assert (there / "damaged.parquet").read_bytes() == damage
        (there / "damaged.parquet").unlink()
    assert {name: tuple(row.indexes) for name, row in actual.items()} == {
        name: report.added for name, report in expected.items()
    }
    assert described(there) == described(here)
    for folder in lakes:
        assert all(report.added == () for report in ia.add_indexes(folder, indexes, **options))
    again = ias.add_indexes(spark, there, indexes, split_bytes=split, **options).collect()
    assert {row.status for row in again} == {"skipped"}


@pytest.mark.parametrize("split", [None, 3000], ids=["whole", "divided"])
def test_a_page_index_that_cannot_be_built_prevents_no_other(spark, lakes, split):
    here, there = (folder / "damaged.parquet" for folder in lakes)
    with pytest.warns(ia.IntarsiaWarning, match="it gets no page index") as warned:
        ia.add_indexes(here, ["key:lookup"])
    (row,) = ias.add_indexes(spark, there, ["key:lookup"], split_bytes=split).collect()
    assert (row.status, row.indexes) == ("done", ["key:lookup"])
    assert row.why == str(warned[0].message).removeprefix(f"{here}: ")
    added = here.stat().st_size - row.bytes_before
    assert row.bytes_added == pytest.approx(added, abs=DIRECTORY_BYTES)
