"""The next write ends the jobs of killed processes, and lets those of live ones alone."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.commit.commit import KEEP, LOCK, TEMPORARY, running, settle
from intarsia.commit.storage import Place


@pytest.fixture
def lake(tmp_path):
    """A folder with an old file, and a job that is replacing it."""
    pq.write_table(pa.table({"n": [1]}), tmp_path / "old.parquet")
    pq.write_table(pa.table({"n": [1]}), tmp_path / "new.parquet")
    (tmp_path / f"{TEMPORARY}job").mkdir()
    pq.write_table(pa.table({"n": [1]}), tmp_path / f"{TEMPORARY}job" / "next.parquet")
    (tmp_path / "._commit-job.json.0a1b2c3d").write_text("{")
    return tmp_path


def log(lake, phase):
    entry = {
        "job": "job",
        "phase": phase,
        "publish": ["new.parquet", "next.parquet"],
        "remove": ["old.parquet"],
        "stream": None,
    }
    (lake / "_commit-job.json").write_text(json.dumps(entry))


def names(lake):
    return {path.name for path in lake.iterdir()} - {"_SUCCESS"}


@pytest.mark.parametrize(
    ("phase", "file"), [("publishing", "old.parquet"), ("published", "new.parquet")]
)
def test_a_killed_job_is_undone_or_finished(lake, phase, file):
    log(lake, phase)
    (lake / f"{LOCK}job").touch()
    settle(Place.of(lake))
    assert names(lake) == {file}
    assert ia.dataset(lake).count_rows() == 1


@pytest.mark.filterwarnings("ignore:.*another write is under way:intarsia.IntarsiaWarning")
def test_the_job_of_a_live_process_stays(lake):
    log(lake, "publishing")
    before = names(lake)
    with running(Place.of(lake), "job"):
        settle(Place.of(lake))
        assert names(lake) == {*before, f"{LOCK}job"}
    assert names(lake) == before
    settle(Place.of(lake))  # nothing says whether a job without a lock lives
    assert names(lake) == before


def test_rows_that_are_to_be_kept_stay(lake):
    log(lake, "publishing")
    (lake / f"{TEMPORARY}job" / KEEP).touch()
    (lake / f"{LOCK}job").touch()
    settle(Place.of(lake))
    assert names(lake) == {"old.parquet", f"{TEMPORARY}job"}
    files = {path.name for path in (lake / f"{TEMPORARY}job").iterdir()}
    assert files == {KEEP, "new.parquet", "next.parquet"}


def test_recover_removes_locks(lake):
    log(lake, "publishing")
    (lake / f"{LOCK}job").touch()
    ia.recover_dataset(lake)
    assert names(lake) == {"old.parquet"}
