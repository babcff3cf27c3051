"""``ia.rewrite`` and ``ia.maintain``, killed at random moments, and read while they work.

``INTARSIA_KILLS=100`` kills each of them 100 times.
"""

from __future__ import annotations

import os
import random
import shutil
import time

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from forked import running

import intarsia as ia
from intarsia.indexing.policy import Policy, write_policy

KILLS = int(os.environ.get("INTARSIA_KILLS", "6"))
ROWS = 20_000
CHANGES = {
    "merged": "ia.rewrite(path, indexes=['id:lookup'])",
    "file by file": "ia.rewrite(path, indexes=['id:lookup'], target_file_size=None)",
    "sorted": "ia.rewrite(path, sort_by='v', target_file_size='50 KB')",
    "other folders": "ia.rewrite(path, partition_by='v', sort_by='id')",
    "maintain": "ia.maintain(path)",
}
POLICY = Policy(("id:lookup",), layout={"target_file_size": 10_000_000, "rows_per_page": 512})


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake")
    for number in range(6):
        ids = range(number * ROWS, (number + 1) * ROWS)
        table = pa.table({"id": ids, "v": [n * 7 % 5 for n in ids]})
        path = folder / f"day={number % 2}" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path, row_group_size=3000)
    return folder


def rows(data):
    table = data.to_table(columns=["id", "v", "day"])
    table = table.cast(pa.schema([("id", pa.int64()), ("v", pa.int64()), ("day", pa.int64())]))
    return table.sort_by("id")


def copied(lake, path, change):
    """Copies the data set. ``maintain`` needs a policy, by which it merges and shortens pages."""
    shutil.copytree(lake, path)
    if change == "maintain":
        write_policy(pafs.LocalFileSystem(), str(path), POLICY)
        long = pa.table({"id": range(-50_000, 0), "v": [n % 5 for n in range(50_000)]})
        (path / "day=2").mkdir()
        pq.write_table(long, path / "day=2" / "long.parquet")


def remains(path):
    """Returns what only a process that works there, or one that was killed, has in the folder."""
    prefixes, suffixes = ("_temporary-", "_commit-", "_lock-", "._"), "-tmp"
    names = [one.name for one in path.rglob("*")]
    names = [name for name in names if not name.startswith("._SUCCESS.")]  # only recover can tell
    return [name for name in names if name.startswith(prefixes) or name.endswith(suffixes)]


@pytest.mark.parametrize("change", CHANGES)
def test_no_row_is_lost_or_doubled_when_it_is_killed(lake, tmp_path, change):
    """The same call, made again, finishes or undoes what was under way."""
    copied(lake, tmp_path / "whole", change)
    expected = rows(pads.dataset(tmp_path / "whole", partitioning="hive"))
    with running(CHANGES[change], tmp_path / "whole") as process:
        began = time.monotonic()
        process.wait()
        seconds = time.monotonic() - began
    assert remains(tmp_path / "whole") == []
    for number in range(KILLS):
        path = tmp_path / str(number)
        copied(lake, path, change)
        with running(CHANGES[change], path) as process:
            time.sleep(random.random() * seconds)
            process.kill()
        assert rows(ia.dataset(path)).equals(expected)
        if number % 2:
            ia.recover_dataset(path)
            assert remains(path) == []
            assert rows(pads.dataset(path, partitioning="hive")).equals(expected)
        report = eval(CHANGES[change], {"ia": ia, "path": path})
        assert getattr(report, "failed", ()) == ()
        assert remains(path) == []
        assert rows(ia.dataset(path)).equals(expected)
        assert rows(pads.dataset(path, partitioning="hive")).equals(expected)
        shutil.rmtree(path)


@pytest.mark.parametrize("change", ["merged", "file by file"])
def test_readers_see_the_same_rows_while_it_works(lake, tmp_path, change):
    expected = rows(pads.dataset(lake, partitioning="hive"))
    path, answers = tmp_path / "lake", 0
    shutil.copytree(lake, path)
    opened = ia.dataset(path)
    with running(CHANGES[change], path) as process:
        while process.is_running():
            try:
                table = rows(ia.dataset(path))
            except ia.PathError:  # a merged file was removed after it was listed
                continue
            assert table.equals(expected)
            answers += 1
        process.wait()
    assert answers
    assert rows(ia.dataset(path)).equals(expected)
    if change == "file by file":
        assert rows(opened).equals(expected)
