"""A process that is forked while a thread holds a lock: what it has from its parent never waits."""

import subprocess
import sys
import textwrap

import pyarrow as pa

import intarsia as ia

FORK = """
import os, signal, sys, threading

import pyarrow.compute as pc

import intarsia as ia
from intarsia.data import cache, catalog
from intarsia.index.held_pages import HELD_PAGES
from intarsia import parallel
from intarsia.engines import session


def rows():
    data = ia.dataset(sys.argv[1])
    found = ia.sql("SELECT k FROM t WHERE k + 0 < 77", t=data)
    return data.count_rows(filter=pc.field("k") == 77) + found.num_rows - 77


assert rows() == 1
locks = (HELD_PAGES._lock, catalog._KEPT._lock, cache._open_files._lock, parallel._lock)
for lock in (*locks, session._lock):
    with lock:  # the child has a copy of it that nobody lets go of
        child = os.fork()
        if not child:
            signal.alarm(60)
            os._exit(0 if rows() == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0, lock
"""


def test_a_forked_process_waits_for_no_lock_of_another(tmp_path):
    table = pa.table({"k": range(1000)})
    for part in range(2):
        ia.write_table(
            table.slice(part * 500, 500), tmp_path / f"{part}.parquet", indexes=["k:lookup"]
        )
    ia.build_catalog(tmp_path)
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORK), str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
