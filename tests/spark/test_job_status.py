"""Jobs have descriptions in Spark's UI, entries in the log, and call back with their progress."""

from __future__ import annotations

import logging
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
import intarsia.spark as ias
from intarsia.spark.job_status import TAG, described
from intarsia.spark.tasks import results_of

pytestmark = pytest.mark.spark
FILES = 6


@pytest.fixture
def lake(tmp_path):
    folder = tmp_path / "lake"
    folder.mkdir()
    for number in range(FILES):
        pq.write_table(pa.table({"k": [number, number + 10]}), folder / f"{number}.parquet")
    return folder


def test_a_job_of_indexes_is_described_logged_and_counted(spark, lake, jobs, caplog):
    calls = []
    with caplog.at_level(logging.INFO, "intarsia"):
        ias.add_indexes(spark, lake, ["k:lookup"], progress=lambda *call: calls.append(call))
    text = f"add k:lookup, {FILES} files"
    assert jobs() == [f"intarsia: {text}"]
    assert [call[0] for call in calls] == [text] * len(calls)
    assert [call[1] for call in calls] == sorted({call[1] for call in calls})
    assert calls[-1] == (text, FILES, FILES)
    started, done = caplog.messages
    assert started == f"{text}: started"
    assert done.startswith(f"{text}: done in ")


def test_maintain_calls_back_for_each_step(spark, lake):
    ia.add_indexes(lake / "0.parquet", ["k:lookup"])
    ia.add_indexes(lake, ["k:lookup"], keep=True, replace=False)
    pq.write_table(pa.table({"k": [1, 2]}), lake / "new.parquet")
    calls = []
    ias.maintain(spark, lake, progress=lambda *call: calls.append(call))
    ends = [call for call in calls if call[1] == call[2]]
    assert ends == [("maintain, 7 files", 7, 7), ("maintain, 1 file", 1, 1)]


def test_the_callers_description_and_tags_come_back(spark, lake, jobs):
    context = spark.sparkContext
    context.setJobDescription("mine")
    try:
        with described(spark, "ours"):
            spark.range(1).collect()
            assert TAG in context.getJobTags()
        spark.range(1).collect()
        assert jobs() == ["intarsia: ours", "mine"]
        assert TAG not in context.getJobTags()
    finally:
        context.setLocalProperty("spark.job.description", None)


def test_show_progress_fills_a_bar_on_one_line(capsys):
    for done in (0, 500, 2_000):
        ias.show_progress("add k:lookup, 2,000 files", done, 2_000)
    assert capsys.readouterr().err == (
        "\radd k:lookup, 2,000 files: [....................] 0 of 2,000"
        "\radd k:lookup, 2,000 files: [#####...............] 500 of 2,000"
        "\radd k:lookup, 2,000 files: [####################] 2,000 of 2,000\n"
    )


@pytest.mark.parametrize("by", ["group", "tag"])
def test_the_callers_group_and_our_tag_cancel_a_job(spark, tmp_path, by):
    """Tasks wait for a file that nobody makes, so the job ends only if it is cancelled."""
    context, gate, group = spark.sparkContext, str(tmp_path / "gate"), f"mine, by {by}"
    raised = []

    def wait_for_gate(_):
        import os  # executors cannot import this module
        import time

        deadline = time.monotonic() + 120
        while not os.path.exists(gate) and time.monotonic() < deadline:
            time.sleep(0.1)

    def job():
        context.setJobGroup(group, "by the caller", interruptOnCancel=False)
        try:
            results_of(spark, [[1]], wait_for_gate, "wait, 1 file")
        except Exception as error:  # noqa: BLE001 # is compared below
            raised.append(str(error))

    thread = threading.Thread(target=job)
    thread.start()
    while not context.statusTracker().getJobIdsForGroup(group):
        time.sleep(0.05)
    if by == "group":
        context.cancelJobGroup(group)
    else:
        context.cancelJobsWithTag(TAG)
    thread.join()
    (text,) = raised
    assert "cancelled" in text
