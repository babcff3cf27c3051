"""The main job, as ``make demo`` runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

import intarsia as ia

pytestmark = pytest.mark.spark
DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
RUNS = [
    (["--data", "flights"], 336_776, "flight_id = 'UA1545-EWR-2013-01-01T10Z'", 0.06),
    (["--data", "lineitem", "--scale", "0.1"], 600_572, "line_id = 9", 0.05),
]


@pytest.mark.parametrize(("options", "rows", "where", "share"), RUNS, ids=["flights", "lineitem"])
def test_every_answer_equals_brute_force(tmp_path, options, rows, where, share):
    command = [sys.executable, str(DEMO), *options, "--folder", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.count("yes") == 4
    assert f"{rows:,} rows" in ran.stdout
    explanation = ia.dataset(tmp_path / options[1] / "lake").explain(filter=where, analyze=True)
    assert explanation.read.rows.selected == 1
    assert explanation.read.rows.total == rows
    assert explanation.read.bytes.selected < share * explanation.read.bytes.total
