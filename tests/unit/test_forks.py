"""Forked children of a process whose other threads run queries: no child waits for them."""

import gc
import subprocess
import sys
import textwrap
import threading
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import intarsia as ia
import intarsia.duckdb_session as connection
from intarsia import process_state
from intarsia.catalog.catalog import _CATALOG_CACHE
from intarsia.index.section.reader import PAGE_CACHE
from intarsia.io import storage

FORK = """
import faulthandler, os, signal, sys, threading, time

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

import intarsia as ia
from intarsia import process_state

faulthandler.register(signal.SIGALRM, chain=True)  # a child that hangs says where
folder, kind, forks = sys.argv[1], sys.argv[2], int(sys.argv[3])
where = {}
if kind != "local":
    store = fsspec.filesystem("memory")
    for below, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(below, name)
            store.pipe("/lake" + path.removeprefix(folder), open(path, "rb").read())
    if kind == "async":  # as s3fs and others: each call is done by a thread of fsspec's
        store = AsyncFileSystemWrapper(store)
    folder, where = "/lake", {"filesystem": store}
rows = 1000


def opened():
    return ia.dataset(folder, **where)


data, one = opened(), ia.ParquetFile(folder + "/0.parquet", **where)
LAZY = ia.dataset(folder, **where)  # which no query was made of before the fork


def ask(data, k):
    some = pc.field("k") == k
    assert data.to_table(filter=some)["k"].to_pylist() == [k]
    assert data.count_rows(filter=pc.field("k") >= k) == rows - k
    assert data.head(3, filter=pc.field("k") >= k).num_rows == min(3, rows - k)
    assert sum(b.num_rows for b in data.to_batches(filter=pc.field("k") < k)) == k
    assert data.take([k, 3])["k"].to_pylist() == [k, 3]
    assert data.to_table(columns=["k"]).num_rows == data.count_rows() == rows
    assert "k" in str(data.explain(filter=some))
    assert ia.sql("SELECT sum(k) AS s FROM t WHERE k <= %d" % k, t=data)["s"].to_pylist() == [
        k * (k + 1) // 2
    ]
    assert one.read(filter=pc.field("k") == k).num_rows == (k < rows // 5)


def child(number):
    for data_ in (data, LAZY, opened()):
        ask(data_, number % rows)
    assert sum(f.count_rows() for f in data.get_fragments()) == rows
    if kind == "local":
        for part in range(5):
            ia.add_indexes(f"{folder}/{part}.parquet", ["v:minmax"], sidecar=True)
        ia.build_catalog(folder, refresh=True)
"""

UNDER_LOAD = (
    FORK
    + """
stopping, errors = threading.Event(), []


def load(seed):
    k = seed
    while not stopping.is_set():
        k = (k * 31 + 7) % rows
        try:
            ask(data if k % 2 else opened(), k)
        except BaseException as error:
            errors.append(error)
            raise


threads = [threading.Thread(target=load, args=[seed]) for seed in range(3)]
for thread in threads:
    thread.start()
failed = []
for number in range(forks):
    time.sleep(0.01 * (number % 5))
    pid = os.fork()
    if not pid:
        status = 1
        try:
            signal.alarm(100)
            ask((data, LAZY, opened())[number % 3], number)
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitpid(pid, 0)[1]
    if status:
        failed.append((number, status))
stopping.set()
for thread in threads:
    thread.join()
print(failed, errors)
sys.exit(bool(failed or errors))
"""
)

HELD = (
    FORK
    + """
ask(data, 77)
locks = list(process_state._locks)
assert len(locks) > 10
for lock in locks:
    lock.__enter__()
pid = os.fork()
if not pid:
    signal.alarm(100)
    child(3)
    os._exit(0)
sys.exit(os.waitpid(pid, 0)[1] != 0)
"""
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake")
    for part in range(5):
        rows = range(part * 200, (part + 1) * 200)
        table = pa.table({"k": rows, "v": [f"text {row}" for row in rows]})
        ia.write_table(table, folder / f"{part}.parquet", indexes=["k:lookup"], row_group_size=100)
        ia.add_indexes(folder / f"{part}.parquet", ["v:lookup"], sidecar=True)
    ia.build_catalog(folder)
    return folder


def run(program, *arguments):
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.parametrize("kind", ["local", "async"])
def test_a_child_answers_although_all_locks_were_locked(lake, kind):
    said = run(HELD, str(lake), kind, "1")
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize(("kind", "forks"), [("local", "50"), ("async", "20")])
def test_children_of_a_process_under_load_answer(lake, kind, forks):
    said = run(UNDER_LOAD, str(lake), kind, forks)
    assert (said.returncode, said.stderr) == (0, ""), said.stdout


BEGUN = (
    FORK
    + """
from intarsia.plan.cost_model import CostModel
from intarsia.scan import units

units.COSTS = CostModel(unit_rows=10)
batches = data.to_batches(filter=pc.field("k") >= 0)
first = next(batches).num_rows
pid = os.fork()
if not pid:
    signal.alarm(100)
    try:
        list(batches)
    except ia.IntarsiaError as error:
        assert "Begin it again in the child" in str(error)
    else:
        os._exit(1)
    del batches
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert sum(batch.num_rows for batch in batches) + first == rows
"""
)


def test_a_scan_begun_by_the_parent_is_a_clear_error_in_the_child(lake):
    said = run(BEGUN, str(lake), "local", "1")
    assert (said.returncode, said.stderr) == (0, "")


NATIVE = """
import os, signal, sys

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

import intarsia as ia

system = pafs._MockFileSystem()  # to pyarrow, not on the local disk
with system.open_output_stream("a.parquet") as out:
    pq.write_table(pa.table({"k": [1, 2]}), out)
used = ia.dataset("a.parquet", filesystem=system)
asks = [
    lambda: used.to_table(),
    lambda: used.count_rows(),
    lambda: used.to_table(filter="k = 1"),
    lambda: used.scanner().to_table(),
    lambda: ia.dataset("a.parquet", filesystem=system),
    lambda: ia.dataset("s3://bucket/a.parquet"),
    lambda: ia.ParquetFile("a.parquet", filesystem=system),
]
pid = os.fork()
if not pid:
    signal.alarm(100)
    for ask in asks:
        try:
            ask()
        except ia.PathError as error:
            assert "'spawn'" in str(error)
        else:
            os._exit(1)
    os._exit(0)
sys.exit(os.waitpid(pid, 0)[1] != 0)
"""


def test_pyarrows_remote_file_systems_are_an_error_in_a_child():
    said = run(NATIVE)
    assert (said.returncode, said.stderr) == (0, "")


def test_clear_drops_shared_state_and_changes_no_answer(lake):
    data = ia.dataset(lake)

    def answers():
        some = pc.field("k") == 77
        actual = ia.sql("SELECT k FROM t WHERE k = 77", t=data).num_rows
        return data.to_table(filter=some).num_rows + data.count_rows(filter=some) + actual

    assert answers() == 3
    assert data.scan_source.cache._files
    assert connection._shared._database is not None
    process_state.clear()
    assert not data.scan_source.cache._files
    assert not data.scan_source.cache._num_bytes
    assert not storage.open_sources._opened
    assert not _CATALOG_CACHE._catalogs
    assert not PAGE_CACHE._pages
    assert connection._shared._database is None
    assert answers() == 3


def test_clear_while_threads_query_changes_no_answer(lake):
    data, wrong = ia.dataset(lake), []

    def ask():
        try:
            for k in range(0, 1000, 50):
                assert data.to_table(filter=pc.field("k") == k)["k"].to_pylist() == [k]
        except BaseException as error:
            wrong.append(error)
            raise

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        process_state.clear()
        time.sleep(0.001)
    assert not wrong


def test_locks_and_states_are_forgotten_with_their_owners(lake):
    ia.dataset(lake).to_table(filter=pc.field("k") == 77)
    process_state.clear()
    before = len(process_state._locks), len(process_state._states)
    for _ in range(3):
        ia.dataset(lake).to_table(filter=pc.field("k") == 77)
        process_state.clear()
    assert (len(process_state._locks), len(process_state._states)) <= before


def test_the_garbage_collector_runs_again_after_the_last_pause():
    pause = process_state.without_collection
    assert gc.isenabled()
    with pause:
        with pause:
            assert not gc.isenabled()
        assert not gc.isenabled()
        pause.after_fork()
        assert gc.isenabled()
        pause.__enter__()
    assert gc.isenabled()
    gc.disable()
    try:
        with pause:
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
