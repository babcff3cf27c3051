"""A data set of two thousand files: opens, requests and bytes of each, in first and later reads."""

import os
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from dataclasses import replace

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.errors import Where
from intarsia.file import column_chunks
from intarsia.file.embedded_indexes import Sections
from intarsia.io import storage
from intarsia.scan import column_reader, count
from intarsia.scan.files import batch_decode, file_pruning
from intarsia.scan.files.file_cache import FileCache

FILES, ROWS = 2000, 20


def table_of(number, count=ROWS):
    start = number * count
    values = np.random.default_rng(number).integers(0, 1 << 40, count)
    numbers = pa.array(range(start, start + count), pa.int64())
    return pa.table({"n": numbers, "id": values, "text": [f"row {i}" for i in range(count)]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("many")
    for part in range(4):
        (path / f"part={part}").mkdir()
    for number in range(FILES):
        name = path / f"part={number * 4 // FILES}" / f"{number:04}.parquet"
        pq.write_table(table_of(number), name, write_page_index=True)
    return path


class Asked:
    """Counts of opens, requests and bytes, by file."""

    def __init__(self):
        self.opens, self.requests, self.bytes = Counter(), Counter(), Counter()

    def clear(self):
        for counts in (self.opens, self.requests, self.bytes):
            counts.clear()


@pytest.fixture
def asked(monkeypatch):
    log, original = Asked(), storage.open_handle

    class Logged:
        def __init__(self, handle, path):
            self._handle, self._path = handle, path
            self.size, self.version, self.close = handle.size, handle.version, handle.close
            self.was_changed = handle.was_changed

        def read_at(self, length, offset):
            log.requests[self._path] += 1
            log.bytes[self._path] += length
            return self._handle.read_at(length, offset)

    def opened(filesystem, path):
        log.opens[path] += 1
        return Logged(original(filesystem, path), path)

    monkeypatch.setattr(storage, "open_handle", opened)
    return log


FILTERS = {
    "one file": pc.field("n") == 31_234,
    "two files of two folders": pc.field("n").isin([5, 39_999]),
    "either column": (pc.field("n") < 3) | (pc.field("text") > "s"),
    "both columns": (pc.field("n") > 39_000) & (pc.field("id") < 1 << 34),
    "a folder": (pc.field("part") == 2) & (pc.field("n") < 20_010),
    "a folder or a row": (pc.field("part") == 7) | (pc.field("n") == 17),
    "no row": pc.field("n") < 0,
    "a value": pc.field("id") == table_of(777).column("id")[11],
    "a value in a folder": (pc.field("id") < 1 << 32) & (pc.field("part") != 1),
    "a value or a row of a folder": (pc.field("id") < 1 << 28)
    | ((pc.field("part") == 3) & (pc.field("n") < 30_050)),
    "no value": pc.field("id") == 1,
    "every other row": pc.bit_wise_and(pc.field("n"), 1) == 0,
    "not understood": pc.bit_wise_and(pc.field("id"), 8191) == 77,
}


@pytest.mark.parametrize("name", FILTERS)
def test_answers_are_pyarrows(folder, name):
    peer, data = pads.dataset(folder, partitioning="hive"), ia.dataset(folder)
    expected = peer.to_table(filter=FILTERS[name])
    for _ in range(2):
        assert data.to_table(filter=FILTERS[name]) == expected
        assert data.count_rows(FILTERS[name]) == expected.num_rows
    assert data.head(3, filter=FILTERS[name]) == expected.slice(0, 3)


def test_each_file_is_opened_once_and_its_footer_read_once(folder, asked):
    data = ia.dataset(folder)
    asked.clear()  # pyarrow has read the schema
    assert data.to_table(filter=FILTERS["one file"]).num_rows == 1
    assert len(asked.opens) == FILES - 1, "the first was opened with the data set"
    again = {path for path, count in asked.opens.items() if count > 1}
    assert {os.path.basename(path) for path in again} <= {"1561.parquet"}, "it had been let go of"
    assert {asked.requests[path] for path in asked.opens.keys() - again} == {1}
    assert sum(asked.bytes.values()) < 1.01 * sum(os.path.getsize(path) for path in asked.opens)
    asked.clear()
    assert data.to_table(filter=FILTERS["one file"]).num_rows == 1
    assert data.count_rows(filter=FILTERS["two files of two folders"]) == 2
    assert sum(asked.opens.values()) <= 3
    assert sum(asked.requests.values()) <= 9


def test_small_files_are_decoded_together(folder, monkeypatch):
    calls, original = [], batch_decode.decode_roots
    monkeypatch.setattr(
        batch_decode, "decode_roots", lambda *args: calls.append(len(args[1])) or original(*args)
    )
    monkeypatch.setattr(
        column_reader, "decode_root", lambda *_, **__: pytest.fail("decoded by itself")
    )
    monkeypatch.setattr(
        column_reader, "decode_roots", lambda *_, **__: pytest.fail("decoded by itself")
    )
    data = ia.dataset(folder, reader="pages")
    for _ in range(2):
        calls.clear()
        assert data.to_table(filter=FILTERS["no value"]).num_rows == 0
        assert len(calls) <= 10
        assert sum(calls) <= FILES
    assert data.count_rows(pc.field("n") >= 0) == FILES * ROWS
    assert len(calls) <= 10, "statistics tell that all rows match"
    calls.clear()
    assert len(data.plan_of_left(["n"], pc.field("n") >= 0).files) == FILES
    assert not calls, "nothing is read to plan"
    some = pc.field("id") < 1 << 39
    expected = pads.dataset(folder).count_rows(filter=some)
    assert data.count_rows(some) == expected > 0, "what was sifted is counted"
    all_of_many = pc.field("n") >= ROWS * (FILES // 2)
    for some in (pc.field("id") < 1 << 39, all_of_many, FILTERS["every other row"]):
        calls.clear()
        actual = data.to_table(filter=some)
        assert actual == pads.dataset(folder, partitioning="hive").to_table(filter=some)
        assert len(calls) <= 120, "once for the filter's columns, once for those of all matches"
        assert sum(calls) <= 2 * FILES
    calls.clear()
    assert data.head(3, filter=some).num_rows == 3
    assert sum(calls) <= 32, "what nobody takes is not decoded"


def test_a_file_overwritten_after_the_small_file_filter_is_read_in_its_new_version(
    tmp_path, monkeypatch
):
    def write(number, kind, keys):
        texts = [kind + np.random.default_rng(i).bytes(40_000).hex() for i in range(len(keys))]
        pq.write_table(pa.table({"s": texts, "k": keys}), tmp_path / f"{number}.parquet")

    def sifted(*arguments):
        actual = original(*arguments)
        write(3, "new", [7, 8, 7])
        return actual

    for number in range(8):
        write(number, "old", list(range(10)))
    data, original = ia.dataset(tmp_path), file_pruning.matching_rows
    monkeypatch.setattr(file_pruning, "matching_rows", sifted)
    actual = data.to_table(["s"], filter=pc.field("k") == 7)["s"]
    assert sorted(text[:3] for text in actual.to_pylist()) == ["new"] * 2 + ["old"] * 7


def test_small_files_are_decoded_together_instead_of_using_their_indexes(tmp_path, monkeypatch):
    for number in range(40):
        path = tmp_path / f"{number:02}.parquet"
        ia.write_table(table_of(number), path, indexes=[ia.Lookup("id"), ia.Lookup("text")])
    opened, original = [], Sections._open
    monkeypatch.setattr(Sections, "_open", lambda *args: opened.append(args) or original(*args))
    peer, data = pads.dataset(tmp_path), ia.dataset(tmp_path)
    value = table_of(17).column("id")[3]
    for expression in (pc.field("id") == value, pc.field("id") == 1, pc.field("text") == "row 7"):
        expected = peer.to_table(filter=expression)
        opened.clear()
        assert data.to_table(filter=expression) == expected
        assert data.count_rows(expression) == expected.num_rows
        assert len(opened) <= expected.num_rows, "of files that hold a match, at most"


def test_the_small_file_filter_handles_files_with_different_columns(tmp_path):
    floats = pa.array([1.5, None, float("nan"), -0.0], pa.float64())
    kinds = {
        "double": pa.table({"x": floats, "s": ["a", None, "b", ""]}),
        "float": pa.table({"x": floats.cast(pa.float32()), "s": ["c", "a", None, "d"]}),
        "whole": pa.table({"x": pa.array([0, 1, None, 2], pa.int32()), "s": ["a"] * 4}),
        "without": pa.table({"s": ["a", "b", "c", None]}),
        "only nulls": pa.table({"x": pa.nulls(4, pa.float64()), "s": pa.nulls(4, pa.string())}),
        "empty": pa.table({"x": floats, "s": pa.nulls(4, pa.string())}).slice(0, 0),
    }
    for number in range(60):
        kind = list(kinds)[number % len(kinds)]
        at = tmp_path / f"k={number % 4 if number % 7 else '__HIVE_DEFAULT_PARTITION__'}"
        at.mkdir(exist_ok=True)
        options = {"write_statistics": number % 5 > 0, "row_group_size": 1 + number % 4}
        pq.write_table(kinds[kind], at / f"{number}.parquet", **options)
    data = ia.dataset(
        tmp_path, schema=pa.schema([("x", pa.float64()), ("s", pa.string()), ("k", pa.int32())])
    )
    everything = data.to_table()
    x, s, k = (pc.field(name) for name in "xsk")
    filters = [
        x == 1.5, x == 0, x != 1.5, x > 0, ~(x > 0), x.is_null(), x.is_valid(), pc.is_nan(x),
        x.is_null(nan_is_null=True), x.isin([2.0, 1.5]), s == "a", s.isin(["c", "d"]), s.is_null(),
        (s == "a") | (x > 1), (s == "a") & (k == 2), (x < 1) | k.is_null(), ~((x < 1) | (k == 1)),
        pc.starts_with(s, "b"), pc.utf8_length(s) == 0, (k == 3) & s.is_valid(), x + k > 2,
    ]  # fmt: skip
    for expression in filters:
        expected = everything.filter(expression)
        for options in ({}, {"use_threads": False}):
            actual = data.to_table(filter=expression, **options)
            assert actual.equals(expected) or str(actual.to_pylist()) == str(expected.to_pylist())
            assert data.count_rows(expression, **options) == expected.num_rows, expression


def odd_table(number):
    """Columns of many types, some with NULLs and lists; 5 rows, ``k`` from 0 to 4."""
    texts = [None if i % 3 == 0 else f"{number} {i}" for i in range(10)]
    return pa.table(
        {
            "k": pa.array([i % 5 for i in range(10)], pa.int16()),
            "when": pa.array([number * 10**6 + i for i in range(10)], pa.timestamp("us", "UTC")),
            "price": pa.array([number + i for i in range(10)]).cast(pa.decimal128(21, 2)),
            "kind": pa.array(texts).dictionary_encode(),
            "point": [None if i == 4 else {"x": i, "of": {"y": texts[i]}} for i in range(10)],
            "tags": [None if i == 2 else texts[:i] for i in range(10)],
            "kinds": pa.array([[t] for t in texts], pa.list_(pa.dictionary(pa.int32(), "string"))),
            "attributes": pa.array([[("a", i)] for i in range(10)], pa.map_("string", "int64")),
            "text": pa.array(texts, pa.large_string()),
            "half": pa.array([i / 2 for i in range(10)], pa.float16()),
        }
    )


COLUMNS = {
    "all": None,
    "simple": ["text", "when", "price", "half", "d"],
    "nested": ["attributes", "tags", "point"],
    "of the filter": ["k"],
    "of folders": ["d"],
    "twice": ["text", "k", "text"],
    "a part": ["point.of.y", "when"],
    "a number": ["__row_number", "text"],
    "computed": {
        "later": pc.add(pc.field("when"), pa.scalar(1, pa.duration("us"))),
        "d": pc.field("d"),
    },
    "dictionaries": ["kind", "k"],
    "dictionaries in lists": ["kinds"],
}


@pytest.mark.parametrize("wanted", COLUMNS)
def test_all_columns_of_matches_equal_those_of_single_files(tmp_path, wanted, monkeypatch):
    for number in range(24):
        (tmp_path / f"d={number % 3}").mkdir(exist_ok=True)
        at = tmp_path / f"d={number % 3}" / f"{number:02}.parquet"
        pq.write_table(odd_table(number), at, row_group_size=4 + number % 9)
    filters = [pc.field("k") == 3, (pc.field("k") > 1) & (pc.field("d") != 1), pc.field("k") < 9]
    data = ia.dataset(tmp_path)
    for expression in filters:
        with monkeypatch.context() as patched:
            patched.setattr(file_pruning, "COSTS", replace(file_pruning.COSTS, least_files=100))
            expected = data.to_table(COLUMNS[wanted], filter=expression)
        assert expected.num_rows > 20
        for options in ({}, {"use_threads": False}):
            actual = data.to_table(COLUMNS[wanted], filter=expression, **options)
            actual.validate(full=True)
            assert actual.schema == expected.schema
            assert actual.equals(expected)


def test_the_damaged_one_of_files_decoded_together_is_named(tmp_path):
    for number in range(12):
        path = tmp_path / f"{number:02}.parquet"
        pq.write_table(table_of(number), path, write_page_checksum=True, use_dictionary=False)
    chunk = pq.read_metadata(tmp_path / "07.parquet").row_group(0).column(2)
    content = bytearray((tmp_path / "07.parquet").read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 1
    (tmp_path / "07.parquet").write_bytes(content)
    data = ia.dataset(tmp_path, page_checksum_verification=True)
    some = FILTERS["every other row"]
    assert data.to_table(["n"], filter=some).num_rows == 6 * ROWS
    with pytest.raises(ia.FormatError, match=r"07\.parquet.*text"):
        data.to_table(filter=some)


def test_head_opens_few_files(folder, asked):
    data = ia.dataset(folder)
    assert data.head(5, filter=pc.field("n") >= 0).num_rows == 5
    assert len(asked.opens) < 32
    asked.clear()
    assert data.head(5, columns=["n", "__row_number"]).num_rows == 5
    assert len(asked.opens) < 8


def test_take_opens_no_file_after_the_last_row(folder, asked):
    data = ia.dataset(folder)
    actual = data.take([7, 801, 7], ["n"])
    assert actual.column("n").to_pylist() == [7, 801, 7]
    assert len(asked.opens) == 41
    with pytest.raises(IndexError, match="row 40,000 of 40,000"):
        data.take([FILES * ROWS])


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts open files as Linux does")
def test_few_files_stay_open(folder):
    expected = pads.dataset(folder, partitioning="hive").count_rows(filter=FILTERS["both columns"])
    before = open_files()
    data = ia.dataset(folder)
    assert data.count_rows(filter=FILTERS["both columns"]) == expected
    assert open_files() - before <= 130


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts open files as Linux does")
def test_few_files_stay_open_when_many_data_sets_are_queried_again(tmp_path):
    for number in range(300):  # longer than the tail that is read
        texts = [np.random.default_rng(number + i).bytes(100).hex() for i in range(100)]
        pq.write_table(
            table_of(number, 100).append_column("s", [texts]), tmp_path / f"{number:03}.parquet"
        )
    data_sets, some = [ia.dataset(tmp_path) for _ in range(3)], FILTERS["every other row"]
    before = open_files()
    for data in data_sets * 2:
        assert data.to_table(filter=some).num_rows == data.count_rows(some) == 15_000
        assert open_files() - before <= 130


def test_small_files_of_long_strings_are_decoded_few_at_a_time(tmp_path, monkeypatch):
    """Each file has 200 rows of one 20 KB string: 4 MB in memory, 21 KB on disk."""
    sizes, original = [], batch_decode.decode_roots

    def decoded(*arguments):
        table = original(*arguments)
        sizes.append(table.nbytes)
        return table

    monkeypatch.setattr(batch_decode, "decode_roots", decoded)
    for number in range(40):
        text = np.random.default_rng(number).bytes(10_000).hex()
        table = pa.table({"n": range(200), "s": [text] * 200})
        pq.write_table(table, tmp_path / f"{number:02}.parquet")
        with pq.ParquetFile(tmp_path / f"{number:02}.parquet") as written:
            assert written.metadata.row_group(0).column(1).total_compressed_size < 64 * 1024
    text = pc.field("s")
    for without_sizes in (False, True):
        data = ia.dataset(tmp_path)
        if without_sizes:
            monkeypatch.setattr(column_chunks, "decoded_bytes", lambda *_: 30_000)
        assert data.count_rows(pc.ends_with(text, "a")) % 200 == 0
        actual = data.to_table(filter=pc.bit_wise_and(pc.field("n"), 1) == 0)
        assert actual.num_rows == 40 * 100
        assert max(sizes, default=0) <= 3 * batch_decode.COSTS.portion_bytes


@pytest.mark.parametrize(("rows", "in_threads"), [(5000, True), (50, False)])
def test_large_enough_files_are_decoded_in_threads(rows, in_threads, tmp_path, monkeypatch):
    threads, original = [], batch_decode.decode_roots

    def decoded(*arguments):
        threads.append(threading.current_thread().name)
        return original(*arguments)

    monkeypatch.setattr(batch_decode, "decode_roots", decoded)
    for number in range(80):
        columns = np.random.default_rng(number).integers(0, 1 << 40, (6, rows))
        pq.write_table(
            pa.table({f"c{i}": c for i, c in enumerate(columns)}), tmp_path / f"{number}"
        )
    data, some = ia.dataset(tmp_path), pc.bit_wise_and(pc.field("c0"), 1) == 0
    expected = pads.dataset(tmp_path).to_table(filter=some)
    assert data.to_table(filter=some) == data.to_table(filter=some, use_threads=False) == expected
    ours = threading.current_thread().name
    assert any(name != ours for name in threads) == in_threads
    threads.clear()
    assert data.to_table(filter=some, use_threads=False) == expected
    assert set(threads) == {ours}


def test_a_damaged_file_does_not_affect_those_before_it(tmp_path, monkeypatch):
    for number in range(12):
        pq.write_table(table_of(number), tmp_path / f"{number:02}.parquet")
    original = column_chunks.ColumnChunks.chunk

    def chunk(self, row_group, leaf):
        name = self._footer.name
        if name.endswith("07.parquet") and leaf == 2:
            raise ia.FormatError("the chunk has no metadata", Where(name))
        return original(self, row_group, leaf)

    def outlines(self, row_group, leaves):
        return [self.chunk(row_group, leaf) for leaf in leaves]

    monkeypatch.setattr(column_chunks.ColumnChunks, "chunk", chunk)
    monkeypatch.setattr(column_chunks.ColumnChunks, "outlines", outlines)
    data, some = ia.dataset(tmp_path), FILTERS["every other row"]
    assert data.head(3, filter=some).num_rows == 3
    actual = data.to_batches(filter=some)
    assert [next(actual).num_rows for _ in range(7)] == [ROWS // 2] * 7
    with pytest.raises(ia.FormatError, match=r"07\.parquet"):
        next(actual)


def test_memory_of_a_cache_is_bounded(folder):
    paths = sorted(str(path) for path in folder.rglob("*.parquet"))[:300]
    cache = FileCache(pafs.LocalFileSystem(), kept_bytes=200_000)
    for path in [*paths, *paths[:50]]:
        assert cache.get(path).num_rows == ROWS
    held = [kept.file.held_bytes for kept in cache._files.values()]
    assert 1 < len(held) < 50
    assert sum(held) <= 200_000
    assert cache._num_bytes == sum(held)


def test_a_file_replaced_while_its_handle_is_cached_is_read_in_its_new_version(tmp_path):
    for number in range(200):
        pq.write_table(table_of(number), tmp_path / f"{number:03}.parquet")
    data = ia.dataset(tmp_path)
    asked_for = pc.field("id") >= 0
    assert data.count_rows(filter=asked_for) == 200 * ROWS
    pq.write_table(table_of(0, 50), tmp_path / "000.parquet")
    assert data.to_table(filter=asked_for).num_rows == 199 * ROWS + 50
    opened = data.scan_source.cache.get(str(tmp_path / "001.parquet"))
    opened.source._inner._inner.suspend()
    opened.release_tail()
    pq.write_table(table_of(7, 50), tmp_path / "001.parquet")
    with pytest.raises(storage.FileReplaced, match=r"001.parquet: the file was replaced"):
        opened.source.read([(4, 10)])


# --- file systems, and files that change in between ----------------------------------------------


def memory_system():
    return fsspec.filesystem("memory"), "/few"


def local_system(tmp_path):
    return fsspec.filesystem("file"), str(tmp_path)


@pytest.fixture(params=["memory", "local fsspec", "pyarrow"])
def lake(request, tmp_path):
    """An empty folder ``(filesystem, path, put, remove)``."""
    if request.param == "pyarrow":
        system, path = None, str(tmp_path)
        raw = fsspec.filesystem("file")
    else:
        raw, path = memory_system() if request.param == "memory" else local_system(tmp_path)
        system = raw
    raw.makedirs(path, exist_ok=True)

    def put(name, table, **options):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        raw.makedirs(os.path.dirname(f"{path}/{name}"), exist_ok=True)
        raw.pipe_file(f"{path}/{name}", sink.getvalue().to_pybytes())

    yield system, path, put, lambda name: raw.rm_file(f"{path}/{name}")
    if request.param == "memory":
        raw.rm(path, recursive=True)


def test_every_file_system_gives_the_same(lake):
    system, path, put, _ = lake
    for number in range(40):
        put(f"part={number % 3}/{number:02}.parquet", table_of(number), write_page_index=True)
    data = ia.dataset(path, filesystem=system)
    peer = pads.dataset(path, filesystem=system, partitioning="hive")
    asked_for = pc.field("n").isin([3, 333, 777]) | (pc.field("id") < 1 << 35)
    for _ in range(2):
        assert data.to_table(filter=asked_for) == peer.to_table(filter=asked_for)
        assert data.count_rows(asked_for) == peer.count_rows(filter=asked_for)
        assert data.take([0, 799], ["n"]) == peer.take([0, 799], columns=["n"])


def test_files_without_rows_are_read_like_others(lake):
    system, path, put, _ = lake
    put("a.parquet", table_of(0).slice(0, 0))
    put("b.parquet", table_of(1))
    put("c.parquet", table_of(2).slice(0, 0), row_group_size=1)
    data = ia.dataset(path, filesystem=system)
    assert data.to_table(filter=pc.field("n") >= 0) == table_of(1)
    assert data.count_rows(pc.field("n") >= 0) == ROWS
    assert data.take([3]).column("n").to_pylist() == [ROWS + 3]


def test_a_folder_without_files_is_an_error(lake):
    system, path, _, _ = lake
    with pytest.raises(ia.PathError, match="there is no data file in this folder"):
        ia.dataset(path, filesystem=system)


def test_the_error_about_an_empty_file_names_it(lake):
    system, path, put, _ = lake
    put("a.parquet", table_of(0))
    put("b.parquet", table_of(1))
    name = f"{path}/b.parquet"
    (system or fsspec.filesystem("file")).pipe_file(name, b"")
    data = ia.dataset(path, filesystem=system)
    with pytest.raises(ia.FormatError, match=r"b\.parquet.*0 bytes are too few"):
        data.to_table(filter=pc.field("n") >= 0)
    assert data.head(5, filter=pc.field("n") >= 0).num_rows == 5, "its turn did not come"


def test_new_files_are_not_seen_and_deleted_files_are_an_error(lake):
    system, path, put, remove = lake
    for number in range(12):
        put(f"{number:02}.parquet", table_of(number))
    data = ia.dataset(path, filesystem=system)
    asked_for = pc.field("id") >= 0
    put("99.parquet", table_of(99))
    assert data.count_rows(asked_for) == 12 * ROWS
    remove("05.parquet")
    queries = {
        "to_table": lambda: data.to_table(filter=asked_for),
        "to_table, pruned": lambda: data.to_table(filter=pc.field("n") == 5 * ROWS),
        "to_table, other files": lambda: data.to_table(filter=pc.field("n") == 7),
        "count_rows": lambda: data.count_rows(asked_for),
        "take": lambda: data.take([11 * ROWS]),
    }
    for name, query in queries.items():
        with pytest.raises(ia.PathError, match=r"05\.parquet: there is no such file"):
            pytest.fail(f"{name} gave {query()}")
    put("05.parquet", table_of(50))
    assert data.count_rows(asked_for) == 12 * ROWS
    assert data.count_rows(pc.field("n") == 50 * ROWS) == 1


# --- one thread -----------------------------------------------------------------------------------

ONE_THREAD = """
    import os, sys
    import pyarrow.compute as pc
    import intarsia as ia

    def threads():
        return len(os.listdir("/proc/self/task"))

    data, wide = ia.dataset(sys.argv[1]), ia.dataset(sys.argv[2])
    before = threads()
    asked = pc.field("id") >= 0
    for source in (data, wide):
        assert source.to_table(filter=asked, use_threads=False).num_rows
        assert source.count_rows(pc.field("id") < 1 << 39, use_threads=False)
    print(threads() - before)
    wide.to_table(filter=asked)
    print(threads() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="counts threads as Linux does")
def test_use_threads_false_means_one_thread(tmp_path, folder):
    rows = 200_000
    values = np.random.default_rng(0).integers(0, 1 << 40, (6, rows))
    wide = pa.table({"id": values[0]} | {f"c{i}": values[i] for i in range(1, 6)})
    pq.write_table(wide, tmp_path / "wide.parquet", row_group_size=50_000)
    command = [sys.executable, "-c", textwrap.dedent(ONE_THREAD), folder / "part=0", tmp_path]
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}  # pyarrow's threads, even on one core
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    alone, together = map(int, done.stdout.split())
    assert alone == 0
    assert together > 0


def test_rows_of_folders_are_counted_by_their_footers_alone(folder, monkeypatch):
    data, half = ia.dataset(folder), FILES // 2 * ROWS

    def plans(*arguments, **options):
        raise AssertionError("the folder tells of all rows")

    monkeypatch.setattr(count, "plan_group", plans)
    part = pc.field("part")
    for filter_ in (part >= 2, part.isin([0, 3]), part < 2, (part == 1) | (part == 2)):
        assert data.count_rows(filter=filter_) == half
    assert data.count_rows(filter=part > 3) == 0


_FEW_HANDLES = """
import os, resource, sys
import pyarrow.compute as pc, pyarrow.parquet as pq
import intarsia as ia

resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
folder = sys.argv[1]
opened = [ia.dataset(folder), ia.dataset(folder, on_corrupt="skip")]
found = [ds.to_table(filter=pc.field("n") >= 3).num_rows for ds in opened * 2]

def is_open(number):
    try:
        return bool(os.fstat(number))
    except OSError:
        return False

held = sum(map(is_open, range(100)))
print(found, held < 60, pq.read_table(f"{folder}/0.parquet").num_rows, ia.verify(folder))
"""


def test_few_handles_are_enough(tmp_path):
    """The limit is the lowest of common systems; a file with a sidecar needs two handles."""
    for number in range(60):
        table = pa.table({"n": range(10), "k": [f"{number}-{n}" for n in range(10)]})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    ia.add_indexes(tmp_path, ["k:lookup", "n:minmax"], sidecar=True)
    command = [sys.executable, "-W", "error", "-c", _FEW_HANDLES, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (ran.stdout.strip(), ran.stderr) == ("[420, 420, 420, 420] True 10 []", "")
