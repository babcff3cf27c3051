"""Measures in its own process, since the coverage tool would be measured as well."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "footer.py"


@pytest.fixture(scope="module")
def ordinary_and_wide():
    """The fastest run for each footer in milliseconds: pyarrow, Intarsia."""
    command = [sys.executable, str(BENCHMARK), "--quickest"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [tuple(map(float, line.split())) for line in done.stdout.splitlines()]


def test_a_wide_footer_takes_at_most_three_times_as_long_as_pyarrow(ordinary_and_wide):
    theirs, ours = ordinary_and_wide[1]
    assert ours <= 3 * theirs


def test_an_ordinary_footer_takes_at_most_two_milliseconds(ordinary_and_wide):
    theirs, ours = ordinary_and_wide[0]
    # The limit is for a machine where pyarrow takes 0.33 ms; it grows with pyarrow's time.
    assert ours <= max(2, 6 * theirs)
