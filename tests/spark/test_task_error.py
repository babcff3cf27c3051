"""The stderr output of Spark's Python processes when a query stops early."""

from __future__ import annotations

import importlib
import io
import os
import sys
import time
import traceback

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia.spark as ias
from intarsia.spark import task_error
from intarsia.spark.data_source.source import IntarsiaSource

pytestmark = pytest.mark.spark

ROWS = 1_000_000
read = importlib.import_module("intarsia.spark.read.read")


def redirected(act, log):
    """Runs ``act`` in a process whose stderr goes to the file ``log``."""

    def run(batches):
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 2)
        os.write(out, f"{os.getpid()}\n".encode())
        yield from act(batches)

    return run


def printed(log):
    """Returns the output of the processes in ``log``, once they have ended."""
    text = log.read_text()
    latest = time.monotonic() + 30
    while time.monotonic() < latest and os.path.exists(f"/proc/{text.splitlines()[0]}"):
        time.sleep(0.05)
    return "\n".join(log.read_text().splitlines()[1:])


def test_a_query_that_stops_early_prints_nothing(spark, tmp_path, monkeypatch):
    """Spark's own mapInArrow often prints a traceback here, unless Spark kills it first."""
    pq.write_table(pa.table({"id": range(ROWS)}), tmp_path / "a.parquet", row_group_size=100_000)
    log, runner = tmp_path / "log", read._runner
    monkeypatch.setattr(read, "_runner", lambda *given: redirected(runner(*given), str(log)))
    frame = ias.read(spark, tmp_path / "a.parquet", reader="intarsia")
    assert len(frame.limit(1).collect()) == 1
    assert printed(log) == ""


def test_failed_planning_prints_no_broken_pipes(monkeypatch):
    """Spark closes the planning process's connection as soon as it has read the error."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    IntarsiaSource({"path": "nowhere"})
    try:
        raise fails_in("/lib/pyspark/daemon.py", BrokenPipeError(32, "Broken pipe"))
    except OSError:
        traceback.print_exc()
    assert out.getvalue() == ""


def fails_in(path, error):
    """An error raised by code in the file ``path``."""
    try:
        exec(compile("def fail():\n    raise error\nfail()", path, "exec"), {"error": error})
    except (OSError, ValueError) as raised:
        return raised


@pytest.mark.parametrize(
    ("path", "error", "is_silent"),
    [
        ("/lib/pyspark.zip/pyspark/daemon.py", BrokenPipeError(32, "Broken pipe"), True),
        ("/lib/pyspark/daemon.py", ConnectionResetError(104, "reset"), True),
        ("/lib/pyspark/daemon.py", ValueError("other"), False),
        ("/home/user/job.py", BrokenPipeError(32, "Broken pipe"), False),
    ],
)
def test_only_sparks_own_broken_pipes_are_suppressed(path, error, is_silent, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    task_error.silence_broken_pipes()
    task_error.silence_broken_pipes()
    try:
        raise fails_in(path, error)
    except (OSError, ValueError) as raised:
        raised.__traceback__ = error.__traceback__
        traceback.print_exc()
    assert (out.getvalue() == "") is is_silent
    sys.stderr.write("and more")
    assert out.getvalue().endswith("and more")
