"""``ias.maintain`` leaves a lake as ``ia.maintain`` does."""

from __future__ import annotations

import shutil

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
import intarsia.spark as ias

pytestmark = pytest.mark.spark

ROWS = 3_000
LAYOUT = {"rows_per_page": 500, "target_file_size": "20 KB"}


def rows_of(number):
    numbers = range(number * ROWS, (number + 1) * ROWS)
    return pa.table({"k": [f"k{n * 7919 % 100_003}" for n in numbers], "n": list(numbers)})


def make_lake(folder):
    """Writes small and large files of three writers, and a policy."""
    for day in ("day=1", "day=2"):
        (folder / day).mkdir(parents=True)
    ia.write_table(rows_of(0), folder / "day=1" / "0.parquet", max_rows_per_page=500)
    ia.rewrite(folder, indexes=["k:lookup"], keep=True, **LAYOUT)
    duckdb.from_arrow(rows_of(1)).write_parquet(str(folder / "day=1" / "1.parquet"))
    polars.from_arrow(rows_of(2)).write_parquet(folder / "day=2" / "2.parquet")
    for number in (3, 4, 5):
        pq.write_table(rows_of(number).slice(0, 50), folder / "day=2" / f"{number}.parquet")
    pq.write_table(rows_of(6), folder / "day=1" / "6.parquet", max_rows_per_page=500)


def rows_in(folder):
    return ia.dataset(folder).to_table().sort_by("n").to_pydict()


def without_paths(report, folder):
    """Returns a report as a dictionary, without its time; the names of new files are drawn."""
    document = report.to_dict() | {"path": "", "seconds": None}
    for key in ("changed", "failed"):
        document[key] = sorted(
            str({**file, "path": file["path"].removeprefix(str(folder))}) for file in document[key]
        )
    return document


@pytest.fixture
def lakes(tmp_path):
    """Two lakes with the same files and a catalog."""
    folders = tmp_path / "here", tmp_path / "spark"
    make_lake(folders[0])
    shutil.copytree(*folders)
    for folder in folders:
        ia.build_catalog(folder)
    return folders


def test_it_does_what_maintain_does_in_one_process(spark, lakes):
    here, there = lakes
    expected = rows_in(here)
    plan = ias.maintain(spark, there, dry_run=True)
    assert without_paths(plan, there) == without_paths(ia.maintain(here, dry_run=True), here)
    assert plan.catalog == "outdated"
    assert plan.rewritten > 2
    assert rows_in(there) == expected
    done, own = ias.maintain(spark, there), ia.maintain(here)
    assert done.failed == own.failed == ()
    assert (done.rewritten, done.catalog) == (own.rewritten, "refreshed")
    assert rows_in(there) == rows_in(here) == expected
    state = ia.status(there)
    assert {index.name: index.share for index in state.indexes}["k:lookup"] == 1.0
    assert state.files == ia.status(here).files
    again = ias.maintain(spark, there)
    assert (again.changed, again.rewritten, again.catalog) == ((), 0, "current")


def test_a_damaged_file_stops_no_other_and_sidecars_change_no_file(spark, tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    for number in range(3):
        pq.write_table(rows_of(number), lake / f"{number}.parquet")
    ia.add_indexes(lake, ["k:lookup"], sidecar=True, keep=True)
    for number in (3, 4):
        pq.write_table(rows_of(number), lake / f"{number}.parquet")
    (lake / "5.parquet").write_bytes(b"PAR1 torn")
    before = {path.name: path.read_bytes() for path in lake.glob("*.parquet")}
    report = ias.maintain(spark, lake)
    assert sorted(file.path.rpartition("/")[2] for file in report.changed) == [
        "3.parquet",
        "4.parquet",
    ]
    (failed,) = report.failed
    assert "5.parquet" in failed.error
    assert {path.name: path.read_bytes() for path in lake.glob("*.parquet")} == before


def test_a_folder_without_policy_is_an_error(spark, tmp_path):
    ia.write_table(rows_of(0), tmp_path / "a.parquet")
    with pytest.raises(ia.PathError, match="has no policy"):
        ias.maintain(spark, tmp_path)
