"""A call stops soon after its time limit or Ctrl-C, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest
from commands import Said
from fsspec.implementations.memory import MemoryFileSystem
from stopwatch import Stopwatch, let_run, seconds_to_end

import intarsia as ia
from intarsia import deadline, threads
from intarsia.errors import IntarsiaError

FILES, ROWS = 40, 500
LIMIT, SLACK = 0.4, 1.0
"""Seconds: a time limit, and the maximum delay of a call beyond it, on a core of its own."""


class SlowFileSystem(MemoryFileSystem):
    """Files in memory, each read of which takes ``delay`` seconds."""

    protocol = "slowmem"
    cachable = False
    delay = 0.0
    begun = 0
    under_way = 0

    def _wait(self):
        kind = type(self)
        kind.begun += 1
        kind.under_way += 1
        time.sleep(kind.delay)
        kind.under_way -= 1

    def cat_file(self, *args, **kwargs):
        self._wait()
        return super().cat_file(*args, **kwargs)

    def cat_ranges(self, *args, **kwargs):
        self._wait()
        return super().cat_ranges(*args, **kwargs)

    def _open(self, *args, **kwargs):
        self._wait()
        return super()._open(*args, **kwargs)


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """The bytes of many files."""
    path, actual = tmp_path_factory.mktemp("contents") / "one.parquet", []
    for number in range(FILES):
        rows = range(number * ROWS, (number + 1) * ROWS)
        ia.write_table(pa.table({"k": rows, "s": [f"value {i % 97}" for i in range(ROWS)]}), path)
        actual.append(path.read_bytes())
    return actual


@pytest.fixture
def slow(tmp_path, monkeypatch, contents):
    """A data set of many files on slow storage; it is fast until ``delay`` is set."""
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spool))
    SlowFileSystem.store, SlowFileSystem.pseudo_dirs = {}, [""]
    SlowFileSystem.delay = 0.0
    fs = SlowFileSystem()
    fs.makedirs("/d")
    for number, content in enumerate(contents):
        fs.pipe_file(f"/d/{number:03}.parquet", content)
    yield fs
    SlowFileSystem.delay = 0.0
    assert os.listdir(spool) == []


def opened(fs):
    return ia.dataset("/d", filesystem=fs)


CALLS = {
    "to_table": lambda data, fs, **limit: data.to_table(**limit),
    "filtered": lambda data, fs, **limit: data.to_table(filter=pc.field("s") != "x", **limit),
    "to_batches": lambda data, fs, **limit: list(data.to_batches(**limit)),
    "count_rows": lambda data, fs, **limit: data.count_rows("s <> 'x'", **limit),
    "head": lambda data, fs, **limit: data.head(FILES * ROWS, **limit),
    "take": lambda data, fs, **limit: data.take(range(0, FILES * ROWS, ROWS), **limit),
    "scanner": lambda data, fs, **limit: data.scanner(**limit).to_table(),
    "batches of a scanner": lambda data, fs, **limit: list(
        data.scanner(["s"], "s <> 'x'", **limit).to_batches()
    ),
    "sql": lambda data, fs, **limit: ia.sql("SELECT count(s) FROM t", t=data, **limit),
    "sql with a filter": lambda data, fs, **limit: ia.sql(
        "SELECT max(k) FROM t WHERE s LIKE '%9%'", t=data, **limit
    ),
    "add_indexes": lambda data, fs, **limit: ia.add_indexes(
        "/d", ["k:lookup"], filesystem=fs, **limit
    ),
    "sidecars": lambda data, fs, **limit: ia.add_indexes(
        "/d", ["k:lookup"], filesystem=fs, sidecar=True, **limit
    ),
    "verify": lambda data, fs, **limit: ia.verify("/d", filesystem=fs, **limit),
    "build_catalog": lambda data, fs, **limit: ia.build_catalog("/d", filesystem=fs, **limit),
    "recover": lambda data, fs, **limit: ia.recover(
        "/d/000.parquet", "/out.parquet", filesystem=fs, **limit
    ),
    "advise": lambda data, fs, **limit: ia.advise("/d", ["k = 7"], filesystem=fs, **limit),
}


def settle():
    """Waits until no request is under way, and checks that no new one begins."""
    until = time.monotonic() + 15
    while SlowFileSystem.under_way and time.monotonic() < until:
        time.sleep(0.02)
    begun = SlowFileSystem.begun
    time.sleep(0.1)
    assert (SlowFileSystem.under_way, SlowFileSystem.begun) == (0, begun)


def others():
    """Threads that are neither of the pools, which stay, nor Arrow's own."""
    stay = ("intarsia-", "Dummy-")
    return {one for one in threading.enumerate() if not one.name.startswith(stay)}


@pytest.mark.parametrize("delay", [0.15, 2.0], ids=["many slow requests", "one that hangs"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_ends_at_its_limit_and_leaves_nothing(slow, name, delay):
    call = CALLS[name]
    data, before, files = opened(slow), others(), set(slow.find("/"))
    SlowFileSystem.delay = delay
    watch, started = Stopwatch(), time.monotonic()
    with pytest.raises(ia.QueryTimeoutError, match=r"time limit of 0\.4 s while \w+") as caught:
        call(data, slow, timeout=LIMIT)
    assert time.monotonic() - started > LIMIT * 0.9
    assert watch.seconds() < LIMIT + SLACK
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, IntarsiaError)
    settle()
    SlowFileSystem.delay = 0.0
    assert others() <= before
    assert set(slow.find("/")) == files
    assert opened(slow).count_rows("s <> 'x'") == FILES * ROWS
    assert data.to_table().num_rows == FILES * ROWS
    call(data, slow, timeout=60)  # within its limit, it does what it does without
    assert deadline.current() is None


def test_answers_are_the_same_with_a_limit(slow):
    data = opened(slow)
    for name in ("to_table", "filtered", "to_batches", "count_rows", "head", "take", "scanner"):
        assert CALLS[name](data, slow, timeout=60) == CALLS[name](data, slow), name
    for name in ("sql", "sql with a filter", "verify", "advise"):
        assert CALLS[name](data, slow, timeout=60) == CALLS[name](data, slow), name


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_limit_is_above_zero(slow, timeout):
    with pytest.raises(ValueError, match="above 0"):
        opened(slow).to_table(timeout=timeout)
    with pytest.raises(ValueError, match="above 0"):
        ia.sql("SELECT 1", timeout=timeout)


@pytest.mark.parametrize("timeout", ["1", True, [1]])
def test_a_limit_is_a_number(slow, timeout):
    for call in ("to_table", "to_batches", "scanner", "verify"):
        with pytest.raises(TypeError, match="number of seconds"):
            CALLS[call](opened(slow), slow, timeout=timeout)


def test_a_table_may_be_called_timeout():
    table = pa.table({"k": [1, 2]})
    assert ia.sql("SELECT sum(k) AS s FROM timeout", timeout=table).to_pydict() == {"s": [3]}


def test_a_query_of_duckdb_alone_ends_at_its_limit():
    query = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE (a.range*b.range)%7=3"
    before, watch = others(), Stopwatch()
    with pytest.raises(ia.QueryTimeoutError, match="SELECT count"):
        ia.sql(query, timeout=LIMIT)
    assert watch.seconds() < LIMIT + SLACK
    assert others() <= before
    assert ia.sql("SELECT 42 AS a").to_pydict() == {"a": [42]}


def test_batches_count_the_time_of_their_consumer(slow):
    limit = 5 * LIMIT  # the first batch comes in time on a busy machine, too
    batches = opened(slow).to_batches(["k"], "s <> 'x'", timeout=limit)
    assert next(batches).num_rows
    assert deadline.current() is None
    time.sleep(limit)
    with pytest.raises(ia.QueryTimeoutError):
        next(batches)


def test_an_outer_limit_ends_an_inner_call(slow):
    data = opened(slow)
    SlowFileSystem.delay = 0.15
    watch = Stopwatch()
    with (
        pytest.raises(ia.QueryTimeoutError, match="while the outer"),
        deadline.time_limit(LIMIT, "the outer"),
    ):
        data.to_table(timeout=60)
    assert watch.seconds() < LIMIT + SLACK


def test_tasks_whose_results_are_not_needed_stop(slow):
    data = opened(slow)
    SlowFileSystem.delay = 0.15
    batches = data.to_batches(filter="s <> 'x'")
    next(batches)
    batches.close()
    settle()


def test_work_on_a_large_local_file_is_stopped(tmp_path, monkeypatch):
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spool))
    rows = 400_000
    table = pa.table({"s": [f"message {i * 7919 % rows:x} of {i:x} texts" for i in range(rows)]})
    path = tmp_path / "a.parquet"
    ia.write_table(table, path)
    data, left = path.read_bytes(), sorted(os.listdir(tmp_path))
    calls = {
        "index": lambda: ia.add_indexes(path, ["s:ngram", "s:words"], timeout=0.1),
        "advise": lambda: ia.advise(path, ["s LIKE '%7919%'"], timeout=0.02),
    }
    for name, call in calls.items():
        watch = Stopwatch()
        with pytest.raises(ia.QueryTimeoutError):
            call()
        assert watch.seconds() < 2 * SLACK, name
        assert os.listdir(spool) == [], name
        assert sorted(os.listdir(tmp_path)) == left, name
    assert path.read_bytes() == data


# --- Ctrl-C --------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys, tempfile, threading, time

sys.path.insert(0, sys.argv[1])
import test_timeout as slow
import pyarrow as pa
import intarsia as ia

spool, delay, names = sys.argv[2], float(sys.argv[3]), sys.argv[4:]
tempfile.tempdir = spool
path = os.path.join(spool, "one.parquet")
contents, sent = [], []
for number in range(slow.FILES):
    ia.write_table(pa.table({"k": range(500), "s": [f"v {i % 97}" for i in range(500)]}), path)
    with open(path, "rb") as made:
        contents.append(made.read())
os.unlink(path)


def interrupt():
    time.sleep(0.4)
    sent.append(slow.Stopwatch())
    os.kill(os.getpid(), signal.SIGINT)


for name in names:
    slow.SlowFileSystem.store, slow.SlowFileSystem.pseudo_dirs = {}, [""]
    fs = slow.SlowFileSystem()
    fs.makedirs("/d")
    for number, content in enumerate(contents):
        fs.pipe_file(f"/d/{number:03}.parquet", content)
    data, files = slow.opened(fs), set(fs.find("/"))
    slow.SlowFileSystem.delay = delay
    threading.Thread(target=interrupt).start()
    try:
        slow.CALLS[name](data, fs)
    except KeyboardInterrupt:
        took = sent.pop().seconds()
        assert took < 1, (name, took)
    else:
        raise AssertionError(f"{name} was not interrupted")
    slow.settle()
    slow.SlowFileSystem.delay = 0.0
    assert os.listdir(spool) == [], (name, os.listdir(spool))
    assert set(fs.find("/")) == files, name
    assert slow.opened(fs).count_rows("s <> 'x'") == slow.FILES * 500, name
    assert data.to_table().num_rows == slow.FILES * 500, name
    print(name)
"""


@pytest.mark.parametrize("delay", [0.15, 2.0], ids=["many slow requests", "one that hangs"])
def test_ctrl_c_ends_a_call_and_leaves_nothing(tmp_path, delay):
    here, code = os.path.dirname(__file__), textwrap.dedent(INTERRUPTED)
    names = ["advise"]  # first: it reads little if footers are cached
    names += ["filtered", "to_table", "count_rows", "add_indexes", "verify", "build_catalog"]
    command = [sys.executable, "-W", "ignore", "-c", code, here, str(tmp_path), str(delay), *names]
    said = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (said.stdout.splitlines(), said.stderr) == (names, "")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A folder for which every command takes more than two seconds, alone in its parent."""
    folder = tmp_path_factory.mktemp("large") / "lake"
    folder.mkdir()
    rows = 1_000_000
    table = pa.table({"s": [f"message {i * 7919 % rows:x} of {i:x} texts" for i in range(rows)]})
    ia.write_table(table, folder / "0.parquet", row_group_size=250_000)
    for part in range(1, 8):
        shutil.copy(folder / "0.parquet", folder / f"{part}.parquet")
    return folder


COMMANDS = {
    "scan": ["scan", "--format", "json", "{}"],
    "count": ["scan", "--count", "--where", "s LIKE '%7a%b%'", "{}"],
    "verify": ["verify", "{}"],
    "index": ["index", "add", "{}", "s:ngram"],
    "sidecar": ["index", "add", "{}", "s:ngram", "--sidecar"],
    "write": ["write", "{}", "{}/../out.parquet", "--index", "s:ngram"],
}


def listing(folder):
    return sorted((path, os.path.getsize(os.path.join(folder, path))) for path in tree(folder))


def tree(folder):
    for base, _, names in os.walk(folder):
        yield from (os.path.relpath(os.path.join(base, name), folder) for name in names)


def started(arguments, folder, spool):
    command = [arg.replace("{}", str(folder)) for arg in arguments]
    return subprocess.Popen(
        [sys.executable, "-m", "intarsia", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(spool)},
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_ends_a_command(large, tmp_path, name):
    before = listing(large.parent)
    process = started(COMMANDS[name], large, tmp_path)
    let_run(process, 1.2)
    process.send_signal(signal.SIGINT)
    assert seconds_to_end(process) < SLACK + 0.5
    _, err = process.communicate()
    assert Said("", err, process.returncode) == ("", "\nintarsia: interrupted\n", 130)
    assert os.listdir(tmp_path) == []
    assert listing(large.parent) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_at_its_limit(large, tmp_path, name):
    before = listing(large.parent)
    process = started([*COMMANDS[name], "--timeout", "1"], large, tmp_path)
    assert seconds_to_end(process) < 1 + SLACK + 4  # the interpreter's start
    _, err = process.communicate()
    assert process.returncode == 124
    assert "stopped at the time limit of 1 s while running" in err
    assert "Traceback" not in err
    assert os.listdir(tmp_path) == []
    assert listing(large.parent) == before


def test_a_limit_of_a_command_is_above_zero(tmp_path):
    process = started(["scan", "{}", "--timeout", "0"], tmp_path, tmp_path)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 2
    assert "--timeout" in err


# --- what waits in threads -----------------------------------------------------------------------


def test_a_request_of_the_main_thread_can_be_interrupted():
    begun, interrupted, sent = threading.Event(), threading.Event(), []

    def request():
        begun.set()
        interrupted.wait(60)
        return 1

    def interrupt():
        begun.wait()
        sent.append(Stopwatch())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        threads.awaited(request)
    assert sent[0].seconds() < 1
    interrupted.set()
    assert threads.awaited(lambda: 2) == 2


def test_a_scanner_without_a_limit_returns_all_rows(slow):
    data = opened(slow)
    assert isinstance(data, pads.Dataset)
    assert data.scanner().to_table().num_rows == FILES * ROWS
