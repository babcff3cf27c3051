"""A run of the tests ends, and runs all of them, when its processes crash."""

import shutil
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"
FILES = 8
FIRST = """
import os
from pathlib import Path

import pytest

@pytest.mark.parametrize("number", range(20))
def test_first(number):
    crashed = Path(__file__).with_suffix(".crashed")
    if number == 12 and not crashed.exists():
        crashed.touch()
        os._exit(9)
"""


def test_other_processes_run_the_tests_of_crashed_ones(tmp_path):
    shutil.copy(CONFTEST, tmp_path)
    for number in range(FILES):
        (tmp_path / f"test_{number}.py").write_text("def test_one():\n    pass\n")
    for name in ("test_a.py", "test_b.py"):  # two crash at about the same time
        (tmp_path / name).write_text(FIRST)

    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--numprocesses", "2"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert f"2 failed, {2 * 20 + FILES} passed" in run.stdout, run.stdout + run.stderr  # run again
