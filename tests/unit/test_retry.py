"""Requests to remote storage that fail temporarily are repeated, if that is safe."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem

import intarsia as ia
from intarsia import deadline
from intarsia.errors import PathError
from intarsia.io import retry
from intarsia.io.fsspec_listing import wrapped
from intarsia.io.retry import TRIES, is_transient, retried

PATH = "/faulty/t.parquet"
TABLE = pa.table({"id": range(3000), "name": [f"n{i % 100}" for i in range(3000)]})


class StatusError(Exception):
    def __init__(self, status):
        super().__init__(f"answered {status}")
        self.status = status


class AnswerError(Exception):
    """An error like botocore's ClientError."""

    def __init__(self, status):
        super().__init__("An error occurred when calling the GetObject operation")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


FOR_A_MOMENT = [
    OSError("503 Slow Down"),
    OSError("AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate."),
    OSError("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 56, Recv failure"),
    OSError("AWS Error INTERNAL_FAILURE during HeadObject operation"),
    OSError("HTTP error 429"),
    ConnectionResetError(104, "Connection reset by peer"),
    TimeoutError("timed out"),
    StatusError(503),
    StatusError(429),
    AnswerError(503),
    Exception("Response payload is not completed"),
    Exception("Server disconnected"),
]
FOR_GOOD = [
    FileNotFoundError("no such file, though it took a timeout to see that"),
    PermissionError(13, "Permission denied"),
    OSError("AWS Error ACCESS_DENIED during HeadObject operation: No response body."),
    OSError("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation"),
    ConnectionRefusedError(111, "Connection refused"),
    OSError("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 7, no connection"),
    OSError("of 503 bytes requested 504 came"),
    StatusError(403),
    AnswerError(404),
    Exception("Unable to locate credentials"),
]


@pytest.fixture
def slept(monkeypatch):
    """Records the pauses between tries, in seconds, instead of sleeping.

    Only the clock of ``deadline`` is replaced. Threads of other packages keep ``time.sleep``.
    """
    seconds = []
    clock = SimpleNamespace(sleep=seconds.append, monotonic=time.monotonic)
    monkeypatch.setattr(deadline, "time", clock)
    return seconds


@pytest.mark.parametrize("error", FOR_A_MOMENT, ids=repr)
def test_temporary_failures_are_retried(error):
    assert is_transient(error)
    wrapped_error = OSError("it failed")
    wrapped_error.__cause__ = error
    assert is_transient(wrapped_error)


@pytest.mark.parametrize("error", FOR_GOOD, ids=repr)
def test_permanent_failures_are_not_retried(error):
    assert not is_transient(error)


class Faulty(MemoryFileSystem):
    """Fails at random, in all the ways that storage fails."""

    protocol = "faulty"
    cachable = False

    def __init__(self, rate, errors=FOR_A_MOMENT, seed=1):
        super().__init__()
        self.rate, self.errors, self.dice, self.failed = rate, errors, random.Random(seed), 0

    def _asked(self):
        if self.dice.random() < self.rate:
            self.failed += 1
            raise self.dice.choice(self.errors)

    def info(self, path, **options):
        self._asked()
        return super().info(path, **options)

    def ls(self, path, *args, **options):
        self._asked()
        return super().ls(path, *args, **options)

    def cat_file(self, path, start=None, end=None, **options):
        self._asked()
        data = super().cat_file(path, start, end, **options)
        if self.dice.random() < self.rate / 3 and len(data) > 1:
            self.failed += 1
            return data[: len(data) // 2]  # the connection was cut
        return data


@pytest.fixture
def lake(tmp_path):
    ia.write_table(TABLE, tmp_path / "t.parquet", row_group_size=500, indexes=["id:lookup"])
    data = (tmp_path / "t.parquet").read_bytes()
    memory = fsspec.filesystem("memory")
    for day in range(4):
        memory.pipe(f"/faulty/day={day}/t.parquet", data)
    yield "/faulty"
    memory.rm("/faulty", recursive=True)


def test_no_read_fails_at_a_fault_rate_of_30_percent(lake, slept):
    for seed in range(12):
        storage = Faulty(0.3, seed=seed)
        data = ia.dataset(lake, filesystem=storage)
        actual = data.to_table(["id"], filter=pc.field("id") == 1234)
        assert actual.to_pydict() == {"id": [1234] * 4}
        assert data.to_table(["name"], filter=pc.field("name") == "n7").num_rows == 120
        assert storage.failed
    assert slept
    assert max(slept) <= retry.LONGEST_SECONDS


class ByFolder(Faulty):
    """Storage such as SFTP, where each folder is listed by a request of its own."""

    find = AbstractFileSystem.find


@pytest.mark.parametrize("pattern", ["/faulty", "/faulty/**/*.parquet"])
def test_each_folder_is_asked_for_again_by_itself(lake, slept, pattern):
    for day in range(4, 30):
        fsspec.filesystem("memory").copy("/faulty/day=0/t.parquet", f"/faulty/day={day}/t.parquet")
    for seed in range(12):
        storage = ByFolder(0.3, seed=seed)
        assert len(ia.dataset(pattern, filesystem=storage).files) == 30
        assert storage.failed


def test_retries_are_bounded_and_the_error_is_raised(lake, slept):
    storage = Faulty(0.0, [OSError("503 Slow Down")])
    data = ia.dataset(lake, filesystem=storage)
    storage.rate = 1.0
    with pytest.raises(PathError, match="503 Slow Down"):
        ia.ParquetFile(f"{lake}/day=1/t.parquet", filesystem=storage)
    # The folder of sidecars is listed at the same time, in another thread.
    assert TRIES <= storage.failed <= 2 * TRIES
    assert TRIES - 1 <= len(slept) <= 2 * (TRIES - 1)
    storage.rate = 0.0
    assert data.count_rows() == 12_000


def test_refused_requests_are_made_once(lake, slept):
    storage = Faulty(1.0, [PermissionError(13, "Permission denied")])
    with pytest.raises(PathError, match="denied"):
        ia.ParquetFile(f"{lake}/day=1/t.parquet", filesystem=storage)
    # Once each for the file and, in another thread, for the folder of sidecars.
    assert storage.failed in (1, 2)
    assert slept == []


def test_pauses_grow_and_are_random(slept):
    calls = []

    def fails():
        calls.append(1)
        raise ConnectionResetError("cut")

    for _ in range(20):
        with pytest.raises(ConnectionResetError):
            retried(wrapped(Faulty(0.0)), fails)
    assert len(calls) == 20 * TRIES
    firsts, lasts = slept[:: TRIES - 1], slept[TRIES - 2 :: TRIES - 1]
    assert max(firsts) <= retry.FIRST_PAUSE_SECONDS < max(lasts) <= retry.LONGEST_SECONDS
    assert len(set(slept)) == len(slept)


def test_time_is_bounded(monkeypatch, slept):
    seconds = iter(range(0, 10_000, 20))
    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: next(seconds)))

    def fails():
        raise TimeoutError("timed out")

    with pytest.raises(TimeoutError):
        retried(wrapped(Faulty(0.0)), fails)
    assert len(slept) == 1


def test_reads_of_a_local_disk_are_not_retried(slept):
    from pyarrow.fs import LocalFileSystem

    def fails():
        raise ConnectionResetError("cut")

    for storage in (LocalFileSystem(), wrapped(fsspec.filesystem("file"))):
        with pytest.raises(ConnectionResetError):
            retried(storage, fails)
    assert slept == []


class FaultyWrites(Faulty):
    """Fails before or after it writes, copies, deletes or creates folders."""

    protocol = "faulty-writes"

    def _open(self, path, mode="rb", **options):
        if "w" not in mode:
            return super()._open(path, mode, **options)
        self._asked()
        file = super()._open(path, mode, **options)
        write, close = file.write, file.close

        def faulty_write(data):
            self._asked()
            return write(data)

        first = iter([True])

        def faulty_close():
            close()
            if next(first, False):  # the garbage collector closes files again
                self._asked()

        file.write, file.close = faulty_write, faulty_close
        return file

    def _around(self, method, *args, **options):
        self._asked()
        method(*args, **options)
        self._asked()

    def cp_file(self, *args, **options):
        self._around(super().cp_file, *args, **options)

    def rm(self, *args, **options):
        self._around(super().rm, *args, **options)

    def makedirs(self, *args, **options):
        self._around(super().makedirs, *args, **options)


@pytest.fixture
def memory():
    memory = fsspec.filesystem("memory")
    yield memory
    if memory.exists("/faulty"):
        memory.rm("/faulty", recursive=True)


def test_no_write_fails_at_a_fault_rate_of_10_percent_a_step(memory, slept):
    """An upload and a move have several steps, each of which may fail."""
    for seed in range(12):
        storage = FaultyWrites(0.1, seed=seed)
        ia.write_table(TABLE, PATH, filesystem=storage, row_group_size=500)
        ia.add_indexes(PATH, ["id:lookup"], filesystem=storage)
        ia.add_indexes(PATH, ["name:distinct"], filesystem=storage, sidecar=True)
        ia.build_catalog("/faulty", filesystem=storage)
        (report,) = ia.list_indexes(PATH, filesystem=storage)
        assert [entry.name for entry in report.indexes] == ["id:lookup"]
        assert [entry.name for entry in report.sidecar] == ["name:distinct"]
        data = ia.dataset("/faulty", filesystem=storage)
        assert data.to_table(filter=pc.field("id") == 1234).to_pydict() == {
            "id": [1234],
            "name": ["n34"],
        }
        ia.drop_indexes(PATH, all=True, filesystem=storage)
        ia.drop_indexes(PATH, all=True, sidecar=True, filesystem=storage)
        ia.drop_catalog("/faulty", filesystem=storage)
        assert storage.failed
        assert memory.find("/faulty") == [PATH]
        assert ia.dataset(PATH, filesystem=memory).to_table().equals(TABLE)
    assert slept


class MoveFails(MemoryFileSystem):
    """The first move does some of its steps, then its answer is lost."""

    protocol = "move-fails"
    cachable = False
    does = ("copy", "remove")
    moves = 0

    def mv(self, path1, path2, **options):
        self.moves += 1
        if self.moves > 1:
            return super().mv(path1, path2, **options)
        if "copy" in self.does:
            self.cp_file(path1, path2)
        if "remove" in self.does:
            self.rm_file(path1)
        self.meanwhile()
        raise StatusError(503)

    def meanwhile(self):
        pass


@pytest.mark.parametrize("does", [(), ("copy",), ("copy", "remove")], ids="+".join)
@pytest.mark.parametrize("call", ["write_table", "add_indexes"])
def test_a_move_with_a_lost_answer_is_checked(memory, slept, call, does):
    ia.write_table(TABLE.slice(9), PATH, filesystem=memory)
    storage = MoveFails()
    storage.does = does
    if call == "write_table":
        ia.write_table(TABLE, PATH, filesystem=storage)
    else:
        ia.add_indexes(PATH, ["id:lookup"], filesystem=storage)
    assert len(slept) == 1
    assert memory.find("/faulty") == [PATH]
    data = ia.dataset(PATH, filesystem=memory)
    assert data.to_table().equals(TABLE if call == "write_table" else TABLE.slice(9))
    (report,) = ia.list_indexes(PATH, filesystem=memory)
    assert len(report.indexes) == (call == "add_indexes")


@pytest.mark.parametrize("does", [(), ("copy",)], ids="+".join)
def test_another_writers_file_stays_when_a_move_is_repeated(memory, slept, does):
    ia.write_table(TABLE, PATH, filesystem=memory)
    storage = MoveFails()
    storage.does = does
    storage.meanwhile = lambda: memory.pipe(PATH, b"theirs")
    with pytest.raises(PathError, match="another writer changed the file"):
        ia.add_indexes(PATH, ["id:lookup"], filesystem=storage)
    assert memory.cat_file(PATH) == b"theirs"
    assert memory.find("/faulty") == [PATH]


def test_refused_writes_are_made_once(memory, slept):
    storage = FaultyWrites(0.0, [PermissionError(13, "Permission denied")])
    ia.write_table(TABLE, PATH, filesystem=storage)
    storage.rate = 1.0
    storage.info = memory.info
    with pytest.raises(PathError, match=r"cannot be written: .*denied"):
        ia.write_table(TABLE.slice(1), PATH, filesystem=storage)
    assert slept == []
    assert ia.dataset(PATH, filesystem=memory).to_table().equals(TABLE)
