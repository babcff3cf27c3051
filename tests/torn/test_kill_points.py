"""Killed at every call that changes something: the file is the old or the new one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("kill_points.py")
MANY = int(os.environ.get("INTARSIA_KILLS", "20")) > 100
FEW = "add_indexes", "add_indexes, a sidecar's", "drop_indexes, sidecar"


def counts_of(*options):
    command = [sys.executable, str(SCRIPT), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_process_killed_at_any_call_leaves_the_old_or_the_new():
    """Kills at every third call, or at all of them if ``INTARSIA_KILLS`` is large."""
    counts = counts_of("--stride", "1" if MANY else "3")
    assert len(counts) > 5
    for name, actual in counts.items():
        if name == "drop_indexes, sidecar":  # a single kernel call that Python does not see
            assert actual == {}
            continue
        assert actual["kills"] >= (15 if MANY else 5), name
        assert 0 < actual["new"] < actual["kills"], name


def test_a_process_killed_at_any_call_of_the_kernel_leaves_the_old_or_the_new():
    """All operations if ``INTARSIA_KILLS`` is large; skipped without strace."""
    if subprocess.run(
        [sys.executable, str(SCRIPT), "--can-trace"], capture_output=True, check=False
    ).returncode:
        pytest.skip("there is no strace here that may trace; the test above needs none")
    only = [] if MANY else [part for name in FEW for part in ("--only", name)]
    actual = counts_of("--strace", *only)
    assert len(actual) == (9 if MANY else 3)
    for name, counts in actual.items():
        assert counts["kills"] >= (1 if "drop" in name else 9), name
