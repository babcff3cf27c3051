"""Real writers, killed. ``INTARSIA_KILLS`` is the number of kills; the benchmark runs longer."""

import json
import os
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "torn.py"


def test_exactly_the_safe_rows_of_killed_writers_are_recovered():
    kills = int(os.environ.get("INTARSIA_KILLS", "20"))
    command = [sys.executable, str(BENCHMARK), "--kills", str(kills), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert sum(actual["kills"] for actual in counts.values()) == kills
    assert all(actual["rows recovered"] >= actual["rows safe"] for actual in counts.values())
    assert counts["checkpoints 1"]["rows safe"] > 0
