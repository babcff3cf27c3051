"""Files of fsspec file systems, and of ``pyarrow.fs`` file systems written in Python."""

import os
import sys
import threading

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem

import intarsia as ia
from intarsia.io.file_handle import open_handle, version_of
from intarsia.io.storage import FileSource
from intarsia.plan.cost_model import CostModel

COUNT = 1 << 16


@pytest.fixture
def memory():
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe("/t/numbers", b"".join(i.to_bytes(4, "little") for i in range(COUNT)))
    yield filesystem
    filesystem.rm("/t", recursive=True)


class PlainHandler(pafs.FSSpecHandler):
    """A handler of an unknown kind: pyarrow reads its files through Python objects."""


def written(table):
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return out.getvalue().to_pybytes()


def wrapped(filesystem, handler=pafs.FSSpecHandler):
    return pafs.PyFileSystem(handler(filesystem))


@pytest.mark.parametrize("handler", [pafs.FSSpecHandler, PlainHandler])
def test_reads_in_threads_do_not_mix_up_their_positions(memory, handler):
    source = FileSource(wrapped(memory, handler), "/t/numbers", gap=0)
    wrong = []

    def work(seed):
        for step in range(300):
            places = [(seed * 7919 * (step + k)) % COUNT for k in range(3)]
            actual = source.read([(place * 4, 4) for place in places])
            if [int.from_bytes(data, "little") for data in actual] != places:
                wrong.append(places)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_no_more_is_read_than_asked_for(memory):
    lengths = []

    class Logging:
        def __getattr__(self, name):
            return getattr(memory, name)

        def cat_file(self, path, start, end):
            lengths.append((start, end))
            return memory.cat_file(path, start, end)

    source = FileSource(wrapped(Logging()), "/t/numbers", gap=0)
    assert source.read([(8, 4), (40, 4)]) == [b"\x02\0\0\0", b"\x0a\0\0\0"]
    assert sorted(lengths) == [(8, 12), (40, 44)]


@pytest.mark.parametrize("handler", [pafs.FSSpecHandler, PlainHandler])
def test_what_is_not_there_and_folders_are_errors(memory, handler):
    with pytest.raises(ia.PathError):
        open_handle(wrapped(memory, handler), "/t/none")
    with pytest.raises(ia.PathError):
        open_handle(wrapped(memory, handler), "/t")
    assert version_of("/t/none", wrapped(memory, handler)) is None


def test_a_version_changes_with_the_file(memory):
    filesystem = wrapped(memory)
    before = version_of("/t/numbers", filesystem)
    assert before is not None
    assert version_of("/t/numbers", filesystem) == before
    memory.pipe("/t/numbers", memory.cat("/t/numbers"))
    assert version_of("/t/numbers", filesystem) != before


def test_a_replaced_file_is_noticed(memory, tmp_path):
    for name, value in (("a", 1), ("b", 2)):
        ia.write_table(pa.table({"k": range(1000), "v": [value] * 1000}), tmp_path / name)
    memory.pipe("/t/x.parquet", (tmp_path / "a").read_bytes())
    data = ia.dataset("/t/x.parquet", filesystem=memory)
    condition = pc.field("k") == 700
    assert data.to_table(filter=condition).column("v").to_pylist() == [1]
    assert data.to_table(filter=condition).column("v").to_pylist() == [1]
    memory.pipe("/t/x.parquet", (tmp_path / "b").read_bytes())
    assert data.to_table(filter=condition).column("v").to_pylist() == [2]


def test_a_scan_that_finds_another_file_midway_says_so(memory, tmp_path, monkeypatch):
    costs = CostModel(unit_rows=100, first_unit_rows=100)
    monkeypatch.setattr("intarsia.scan.units.COSTS", costs)
    noise = [os.urandom(100) for _ in range(5000)]  # more than the tail, which is in memory
    for name, value in (("a", 1), ("b", 2)):
        table = pa.table({"k": range(5000), "noise": noise, "v": [value] * 5000})
        ia.write_table(table, tmp_path / name, max_rows_per_page=100, write_batch_size=100)
    memory.pipe("/t/x.parquet", (tmp_path / "a").read_bytes())
    data = ia.dataset("/t/x.parquet", filesystem=memory)
    scan = data.to_batches(filter=pc.field("k") >= 0)
    assert next(scan).column("v")[0].as_py() == 1
    memory.pipe("/t/x.parquet", (tmp_path / "b").read_bytes())
    assert data.to_table(filter=pc.field("k") >= 0).column("v").unique().to_pylist() == [2]
    with pytest.raises(ia.PathError, match="replaced while it was read"):
        list(scan)


class Odd:
    """A file system with its own answers to the calls in ``answers``."""

    def __init__(self, inner, **answers):
        self._inner, self._answers = inner, answers

    def __getattr__(self, name):
        return self._answers.get(name) or getattr(self._inner, name)


class BackendError(Exception):
    """An error that is no ``OSError``, like those of aiohttp or of Google's client."""


@pytest.mark.parametrize("kind", [TimeoutError, BackendError])
def test_reads_that_fail_name_the_file(kind, memory):
    def fails(path, start, end):
        raise kind("no answer")

    source = FileSource(wrapped(Odd(memory, cat_file=fails)), "/t/numbers")
    with pytest.raises(ia.PathError, match=r"^/t/numbers: cannot be read: no answer"):
        source.read([(0, 4)])


def test_ranges_are_passed_by_name(memory):
    """The second argument of s3fs is a version, so the range is passed by name."""

    def cat_file(path, version_id=None, start=None, end=None):
        assert version_id is None
        return memory.cat_file(path, start, end)

    source = FileSource(wrapped(Odd(memory, cat_file=cat_file)), "/t/numbers")
    assert source.read([(8, 4)]) == [b"\x02\0\0\0"]


def test_the_error_names_a_server_without_ranges(memory):
    odd = Odd(memory, cat_file=lambda path, start, end: memory.cat_file(path))
    with pytest.raises(ia.PathError, match=r"numbers: .* of 4 bytes .* 262,144 came: .* ranges"):
        FileSource(wrapped(odd), "/t/numbers").read([(8, 4)])


def test_an_unknown_length_is_an_error(memory):
    odd = Odd(memory, info=lambda path: {**memory.info(path), "size": None})
    with pytest.raises(
        ia.PathError, match=r"/t/numbers: cannot be opened: .* not report its length"
    ):
        FileSource(wrapped(odd), "/t/numbers").read([(0, 4)])


def test_a_read_that_fails_is_a_finding_and_the_other_files_are_verified(memory, tmp_path):
    ia.write_table(pa.table({"noise": [os.urandom(100) for _ in range(5000)]}), tmp_path / "a")
    for name in "xyz":
        memory.pipe(f"/v/{name}.parquet", (tmp_path / "a").read_bytes())
    memory.pipe("/v/z.parquet", b"PAR1")

    def fails(path, start, end):
        if start == 0 and "y.parquet" in path:
            raise BackendError("no answer")
        return memory.cat_file(path, start=start, end=end)

    of_y, of_z = ia.verify("/v", filesystem=wrapped(Odd(memory, cat_file=fails)))
    assert str(of_y) == "error: /v/y.parquet: cannot be read: no answer"
    assert of_z.where.file == "/v/z.parquet"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "a.parquet")
    with pytest.raises(ia.PathError, match=r"a\.parquet: cannot be opened: it is a pipe"):
        ia.ParquetFile(tmp_path / "a.parquet")


@pytest.mark.parametrize("path", ["t", "/t", "memory://t"])
def test_names_are_those_of_the_file_system(memory, path):
    table = pa.table({"n": range(10)})
    memory.pipe("/t/a.parquet", written(table))
    memory.rm("/t/numbers")
    assert ia.build_catalog(path, filesystem=memory).files == 1
    assert ia.dataset(path, filesystem=memory, catalog=True).to_table() == table
    assert ia.verify(path, filesystem=memory) == []


def test_a_uri_on_a_file_system_of_pyarrows_is_refused():
    filesystem = pafs.S3FileSystem(anonymous=True, region="us-east-1")
    with pytest.raises(ia.PathError, match="s3://lake/t: with a file system, a path on it"):
        ia.dataset("s3://lake/t", filesystem=filesystem)


def parquet(values):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"v": values}), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("name", ["what?.parquet", "a*.parquet", "part[1].parquet"])
def test_names_that_fsspec_takes_for_patterns_are_read_and_not_written_to(name, memory):
    memory.pipe({f"/t/lake/{name}": parquet([1, 2]), "/t/lake/part1.parquet": parquet([3])})
    before = sorted(memory.find("/t"))
    for sidecar in (False, True):
        with pytest.raises(ia.PathError, match="a pattern, so it is not written to"):
            ia.add_indexes(f"/t/lake/{name}", ["v:lookup"], filesystem=memory, sidecar=sidecar)
    assert sorted(memory.find("/t")) == before
    actual = ia.dataset("/t/lake", filesystem=memory).to_table()
    assert sorted(actual["v"].to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize("below", ["", "fsspec", "pyarrow"])
def test_a_catalog_below_a_folder_whose_name_is_a_pattern(below, memory):
    memory.pipe({"/t/lake[1]/s/a.parquet": parquet([1]), "/t/lake1/s/a.parquet": parquet([2])})
    ia.build_catalog("/t/lake1/s", filesystem=memory)
    before = sorted(memory.find("/t"))
    path, where = "/t/lake[1]/s", memory
    if below == "fsspec":
        path, where = "s", DirFileSystem("/t/lake[1]", memory)
    elif below == "pyarrow":
        path, where = "s", pafs.SubTreeFileSystem("/t/lake[1]", wrapped(memory))
    for change in (ia.build_catalog, ia.drop_catalog):
        with pytest.raises(ia.PathError, match="a pattern, so it is not written to"):
            change(path, filesystem=where)
    with pytest.raises(ia.PathError, match="a pattern, so it is not written to"):
        ia.add_indexes(f"{path}/a.parquet", ["v:lookup"], filesystem=where)
    assert sorted(memory.find("/t")) == before


@pytest.mark.parametrize("is_below", [False, True])
@pytest.mark.parametrize("kind", ["simplecache", "filecache"])
def test_a_file_system_that_reads_copies_replaces_nothing(kind, is_below, memory, tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet([1, 2, 3]))
    below = fsspec.filesystem("file")
    cached = fsspec.filesystem(kind, fs=below, cache_storage=str(tmp_path / "copies"))
    at = "a.parquet" if is_below else str(path)
    cached = DirFileSystem(str(tmp_path), cached) if is_below else cached
    assert ia.dataset(at, filesystem=cached).to_table()["v"].to_pylist() == [1, 2, 3]
    path.write_bytes(parquet([4, 5, 6]))  # of the same length
    with pytest.raises(ia.PathError, match="reads its own copies of files"):
        ia.add_indexes(at, ["v:lookup"], filesystem=cached)
    assert path.read_bytes() == parquet([4, 5, 6])
    ia.add_indexes(str(path), ["v:lookup"], filesystem=below)
    assert pq.read_table(path)["v"].to_pylist() == [4, 5, 6]


def test_handles_are_closed_after_modules_are_gone(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"PAR1")
    source = FileSource(pafs.LocalFileSystem(), str(path))
    assert source.read([(0, 4)]) == [b"PAR1"]
    number = source._handle._descriptor.number
    os.fstat(number)
    monkeypatch.setattr(
        "intarsia.io.file_handle.os", None
    )  # like at exit, when modules are already gone
    del source
    monkeypatch.undo()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_a_handle_that_is_being_closed_is_not_used_by_another_thread(tmp_path):
    """The last reference to the handle may go while other threads ask for it."""
    path = tmp_path / "a"
    path.write_bytes(bytes(range(10)))
    source, errors, end = FileSource(pafs.LocalFileSystem(), str(path)), [], threading.Event()

    def repeat(action):
        try:
            while not end.is_set():
                action()
        except (ia.IntarsiaError, OSError, AssertionError) as error:
            errors.append(error)
            end.set()

    def read():
        assert bytes(source.read([(3, 4)])[0]) == b"\3\4\5\6"

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=repeat, args=[a]) for a in (source.suspend, *[read] * 3)]
    for thread in threads:
        thread.start()
    end.wait(2)
    end.set()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert errors == []
