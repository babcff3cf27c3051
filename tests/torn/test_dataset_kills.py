"""``write_dataset`` is killed: readers see the old or the new rows, before and after recovery.

``python tests/torn/test_dataset_kills.py BEHAVIOR STRIDE`` kills at every call of Python that
changes files, or at every third with the stride 3.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import intarsia as ia

KILLS = int(os.environ.get("INTARSIA_KILLS", "20"))
OLD = pa.table({"day": [0, 0, 1, 1], "id": [0, 1, 2, 3]})
NEW = pa.table({"day": [1, 1, 2, None], "id": [10, 11, 12, 13]})
ROWS_AFTER = {
    "append": [0, 1, 2, 3, 10, 11, 12, 13],
    "overwrite": [10, 11, 12, 13],
    "delete_matching": [0, 1, 10, 11, 12, 13],
    "overwrite_or_ignore": [0, 1, 10, 11, 12, 13],
}


def prepared(root):
    lake = Path(tempfile.mkdtemp(dir=root)) / "lake"
    ia.write_dataset(OLD, lake, partition_by=["day"], indexes=["id:lookup"])
    return lake


def write(lake, behavior):
    ia.write_dataset(
        NEW,
        lake,
        partition_by=["day"],
        indexes=["id:lookup"],
        existing_data_behavior=behavior,
    )


def ids(lake):
    return sorted(ia.dataset(lake).to_table(["id"])["id"].to_pylist())


def checked(lake, behavior):
    """Checks the folder of a killed write; returns True if its rows are there."""
    before = ids(lake)
    assert before in (OLD["id"].to_pylist(), ROWS_AFTER[behavior]), before
    ia.recover_dataset(lake)
    assert ids(lake) == before
    names = [name for _, folders, files in os.walk(lake) for name in (*folders, *files)]
    debris = [name for name in names if name.startswith(("_temporary", "_commit", "."))]
    assert debris == []
    files = ia.dataset(lake).files
    assert len(files) == sum(name.endswith(".parquet") for name in names)
    is_new = before == ROWS_AFTER[behavior]
    if not is_new:
        write(lake, behavior)
        assert ids(lake) == ROWS_AFTER[behavior]
    return is_new


def in_fork(act):
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException:  # noqa: BLE001 # the process ends here in any case
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    return child


def kill_at_every_call(behavior, stride, root):
    from kill_points import Countdown, watch

    counts, at = Counter(), 1 - stride
    while True:
        at += stride
        lake = prepared(root)

        def act(at=at, lake=lake):
            watch(Countdown(at))
            write(lake, behavior)
            os._exit(0)

        status = os.waitpid(in_fork(act), 0)[1]
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            assert ids(lake) == ROWS_AFTER[behavior]
            return counts
        counts += Counter(kills=1, new=int(checked(lake, behavior)))
        shutil.rmtree(lake.parent)


def kill_at_random(behavior, kills, root):
    lake = prepared(root)
    start = time.monotonic()
    write(lake, behavior)
    duration = time.monotonic() - start
    counts = Counter()
    for _ in range(kills):
        lake = prepared(root)

        def act(lake=lake):
            write(lake, behavior)
            os._exit(0)

        child = in_fork(act)
        time.sleep(random.uniform(0, duration))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        counts += Counter(kills=1, new=int(checked(lake, behavior)))
        shutil.rmtree(lake.parent)
    return counts


def counts_of(*arguments):
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("behavior", [*ROWS_AFTER])
def test_a_write_killed_at_any_call_leaves_the_old_or_the_new_rows(behavior):
    """Kills at every third call, or at all of them if ``INTARSIA_KILLS`` is large."""
    counts = counts_of(behavior, "1" if KILLS > 100 else "3")
    assert counts["kills"] >= 20
    assert 0 < counts["new"] < counts["kills"]


def test_a_write_killed_at_random_moments_leaves_the_old_or_the_new_rows():
    counts = [counts_of(behavior, "random", str(KILLS // 4)) for behavior in ROWS_AFTER]
    assert sum(actual["kills"] for actual in counts) == KILLS // 4 * 4


if __name__ == "__main__":
    behavior, how, *kills = sys.argv[1:]
    with tempfile.TemporaryDirectory() as root:
        if how == "random":
            actual = kill_at_random(behavior, int(kills[0]), root)
        else:
            actual = kill_at_every_call(behavior, int(how), root)
    print(json.dumps(actual))
