"""The soak test with changing files, run for some seconds."""

import subprocess
import sys
from pathlib import Path

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"


def test_a_short_soak_finds_nothing_wrong():
    options = ["0.2", "--files", "30", "--threads", "3", "--processes", "2", "--child-seconds", "4"]
    command = [sys.executable, str(SOAK), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert "answers: " in done.stdout
    assert "failed 0; errors 0" in done.stdout, done.stdout + done.stderr
    assert "left over: []; writer ended with 0" in done.stdout
