"""The main job, as ``make demo`` runs it, and its other data set in the session of the tests."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import intarsia as ia

pytestmark = pytest.mark.spark
DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def check(folder, said, num_rows, where, share):
    """Asserts what the demo printed, and how little a query for one row reads."""
    assert said.count("yes") == 4
    assert f"{num_rows:,} rows" in said
    explanation = ia.dataset(folder / "lake").explain(filter=where, analyze=True)
    assert explanation.read.rows.selected == 1
    assert explanation.read.rows.total == num_rows
    assert explanation.read.bytes.selected < share * explanation.read.bytes.total


def test_every_answer_for_flights_equals_brute_force(tmp_path):
    command = [sys.executable, str(DEMO), "--data", "flights", "--folder", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stderr[-2000:]
    where = "flight_id = 'UA1545-EWR-2013-01-01T10Z'"
    check(tmp_path / "flights", ran.stdout, 336_776, where, 0.06)


def test_every_answer_for_line_items_equals_brute_force(spark, tmp_path, monkeypatch, capsys):
    options = ["--data", "lineitem", "--scale", "0.1", "--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [str(DEMO), *options])
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    try:
        runpy.run_path(str(DEMO), run_name="__main__")
    finally:
        spark.sparkContext.setLogLevel("OFF")
    check(tmp_path / "lineitem", capsys.readouterr().out, 600_572, "line_id = 9", 0.05)
