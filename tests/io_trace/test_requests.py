"""Asserts every read request by a log of named ranges."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.file.health import Health
from intarsia.file.open_file import OpenedFile, as_current_version
from intarsia.index.section import probe
from intarsia.index.section.reader import PageCache
from intarsia.io.source import BufferSource
from intarsia.row_ranges import RowRanges

ROWS = 40_000


class Log:
    """A source that logs every read and names the ranges requested."""

    def __init__(self, data):
        self._inner = BufferSource(data)
        self._names = names_of(data)
        self.calls = []

    @property
    def size(self):
        return self._inner.size

    def read(self, ranges):
        if ranges:
            self.calls.append([self._name(*range_) for range_ in ranges])
        return self._inner.read(ranges)

    def _name(self, offset, length):
        if offset + length == self.size:
            return "tail"
        actual = [name for start, stop, name in self._names if start <= offset < stop]
        return actual[0] if actual else f"[{offset}, {offset + length})"


def names_of(data):
    file = ia.ParquetFile(BufferSource(data))
    names = []
    for g, group in enumerate(file.metadata.row_groups):
        for leaf, column in zip(file.schema.leaves, group.columns, strict=True):
            chunk = column.meta_data
            stop = chunk.start + chunk.total_compressed_size
            names.append((chunk.start, stop, f"{leaf.name}/{g}"))
            start, length = column.column_index_offset, column.column_index_length
            names.append((start, start + length, f"column index {leaf.name}/{g}"))
            start, length = column.offset_index_offset, column.offset_index_length
            names.append((start, start + length, f"offset index {leaf.name}/{g}"))
    for entry in file.indexes:
        meta = entry.offset + entry.length - entry.meta_length
        names.append((entry.offset, meta, f"pages of {entry.name}"))
        names.append((meta, entry.offset + entry.length, f"metadata of {entry.name}"))
    return names


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "t.parquet"
    table = pa.table(
        {
            "ts": range(ROWS),
            "id": pa.array([i * 7919 % 1_000_003 for i in range(ROWS)], pa.int64()),
            "msg": [f"message {i}" for i in range(ROWS)],
        }
    )
    ia.write_table(
        table,
        path,
        indexes=[ia.Lookup("id", granule_rows=500)],
        row_group_size=20_000,
        max_rows_per_page=1000,
        write_batch_size=100,
        use_dictionary=False,
    )
    return path.read_bytes()


def opened(stored, tail_bytes):
    log = Log(stored)
    file = ia.ParquetFile(log)
    file._file = type(file._opened)(log, "t.parquet", tail_bytes)
    log.calls.clear()
    return file, log


@pytest.fixture
def watched(stored, tmp_path):
    """A data set of one file, and the log of its reads."""
    path = tmp_path / "t.parquet"
    path.write_bytes(stored)
    ds, log = ia.dataset(path), Log(stored)
    file = OpenedFile(log, "t.parquet", 2048)
    log.calls.clear()

    class Cache:
        is_local = True
        is_profiled = False
        health, table = Health(), None
        options = replace(file.options, reader="pages")

        def get(self, path):
            return file

        def lease(self, path):
            return as_current_version(file)

    ds.scan_source = ds.scan_source.with_cache(Cache())
    return ds, log


ID = 25_000 * 7919 % 1_000_003


def test_a_cold_lookup_reads_the_index_then_the_pages_of_one_granule(stored):
    file, log = opened(stored, tail_bytes=2048)
    assert file.read(filter=pc.field("id") == ID).column("ts").to_pylist() == [25_000]
    assert log.calls == [
        ["metadata of id:lookup"],
        ["pages of id:lookup", "pages of id:lookup"],
        ["offset index ts/1", "offset index id/1", "offset index msg/1"],
        ["ts/1", "id/1", "msg/1"],
    ]


def test_a_warm_lookup_reads_one_page_of_the_index_and_one_of_each_column(stored, monkeypatch):
    monkeypatch.setattr(probe, "PAGE_CACHE", PageCache(0))
    file, log = opened(stored, tail_bytes=2048)
    file.read(filter=pc.field("id") == ID)
    log.calls.clear()
    assert file.read(filter=pc.field("id") == ID).num_rows == 1
    assert log.calls == [
        ["pages of id:lookup", "pages of id:lookup"],
        ["ts/1", "id/1", "msg/1"],
    ]


def test_an_index_page_is_cached_once_read(stored):
    file, log = opened(stored, tail_bytes=2048)
    file.read(filter=pc.field("id") == ID)
    log.calls.clear()
    assert file.read(filter=pc.field("id") == ID).num_rows == 1
    assert log.calls == [["ts/1", "id/1", "msg/1"]]


def test_an_absent_value_reads_no_data_page(stored):
    file, log = opened(stored, tail_bytes=2048)
    assert file.read(filter=pc.field("id") == 999_999_999).num_rows == 0
    assert log.calls == []  # above the maximum, so the footer's statistics suffice
    assert file.read(filter=pc.field("id") == 3).num_rows == 0
    assert [name for call in log.calls for name in call if "/" in name] == []


def test_a_range_on_the_sorted_column_reads_its_page_index_and_the_pages_it_names(stored):
    file, log = opened(stored, tail_bytes=2048)
    actual = file.read(["msg"], filter=(pc.field("ts") >= 21_500) & (pc.field("ts") < 21_503))
    assert actual.num_rows == 3
    assert log.calls == [
        ["offset index ts/1", "column index ts/1"],
        ["offset index msg/1"],
        ["msg/1", "ts/1"],
    ]


def test_counting_reads_only_pages_of_which_some_rows_match_and_some_do_not(watched):
    ds, log = watched
    assert ds.count_rows(filter=pc.field("ts") < 20_000) == 20_000
    assert log.calls == []  # a row group ends there
    within = (pc.field("ts") >= 21_000) & (pc.field("ts") < 23_000)
    assert ds.count_rows(filter=within) == 2000
    assert log.calls == [["offset index ts/1", "column index ts/1"]]
    log.calls.clear()
    assert ds.count_rows(filter=pc.field("ts") < 21_500) == 21_500
    assert log.calls == [["ts/1"]]
    log.calls.clear()
    assert ds.count_rows(filter=pc.field("ts").is_valid()) == ROWS
    assert log.calls == []


def test_rows_are_taken_from_the_pages_that_hold_them(watched):
    ds, log = watched
    assert ds.take([25_000, 5, 25_000], ["ts"])["ts"].to_pylist() == [25_000, 5, 25_000]
    assert log.calls == [["offset index ts/0", "offset index ts/1"], ["ts/0", "ts/1"]]


def test_a_head_reads_the_first_pages(watched):
    ds, log = watched
    assert ds.head(3, ["ts"])["ts"].to_pylist() == [0, 1, 2]
    assert log.calls[0] == ["offset index ts/0"]
    assert set(log.calls[1]) == {"ts/0"}
    assert len(log.calls[1]) < 20  # of 20 pages


def test_a_full_read_touches_no_index(stored):
    file, log = opened(stored, tail_bytes=2048)
    assert file.read(["ts", "msg"]).num_rows == ROWS
    assert log.calls == [["ts/0", "ts/1", "msg/0", "msg/1"]]


def test_a_filter_excluded_by_metadata_reads_nothing(stored):
    file, log = opened(stored, tail_bytes=2048)
    assert file.read(filter=pc.field("ts") < 0).num_rows == 0
    assert file.read(filter=pc.field("ts").is_null()).num_rows == 0
    assert log.calls == []


def test_the_footer_takes_one_request_if_the_tail_contains_it(stored):
    log = Log(stored)
    ia.ParquetFile(log)
    assert log.calls == [["tail"]]


def test_a_footer_longer_than_the_tail_takes_two_requests(stored):
    log = Log(stored)
    type(ia.ParquetFile(log)._opened)(log, "t.parquet", 16)
    assert log.calls[1:] == [["tail"], log.calls[2]]


def test_a_lookup_reads_few_of_many_pages(stored, tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(stored)
    explanation = ia.dataset(path).explain(filter=pc.field("id") == ID, analyze=True)
    assert (explanation.read.pages.selected, explanation.read.pages.total) == (3, 120)
    assert explanation.read.rows.selected == 1
    assert explanation.planned.rows.selected == 500
    assert explanation.read.bytes.selected < len(stored) / 4


def test_pyarrow_decodes_whole_chunks_if_no_page_is_skipped(stored):
    file, _ = opened(stored, tail_bytes=65_536)
    assert file.read().equals(pq.read_table(pa.BufferReader(stored)))


@pytest.fixture(scope="module")
def nested():
    """Leaves whose pages begin at different rows: ``a`` takes 8 bytes a row, ``b`` about 100."""
    kind = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    values = [{"a": i, "b": ["x" * 50, f"{i:050d}"]} for i in range(ROWS)]
    table = pa.table({"n": range(ROWS), "s": pa.array(values, kind)})
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        write_page_index=True,
        data_page_size=20_000,
        write_batch_size=100,
        use_dictionary=False,
        compression="none",
    )
    return sink.getvalue().to_pybytes()


def test_a_nested_column_reads_the_pages_of_each_leaf_that_hold_the_rows(nested):
    file, log = opened(nested, tail_bytes=512)
    rows = RowRanges.of((10_000, 10_010))
    actual = file.read(["s"], rows)
    assert actual.column("s").to_pylist() == [
        {"a": i, "b": ["x" * 50, f"{i:050d}"]} for i in range(10_000, 10_010)
    ]
    assert log.calls == [
        ["offset index s.a/0", "offset index s.b.list.element/0"],
        ["s.a/0", "s.b.list.element/0"],
    ]
    assert file._opened.pages_read == 2


def test_a_path_reads_only_its_leaves(nested):
    file, log = opened(nested, tail_bytes=512)
    assert file.read(["s.a"], RowRanges.of((5, 6))).to_pylist() == [{"s": {"a": 5}}]
    assert log.calls == [["offset index s.a/0"], ["s.a/0"]]


def test_a_filter_on_a_field_reads_that_leaf_then_the_others_where_it_matches(nested):
    file, log = opened(nested, tail_bytes=512)
    actual = file.read(["s.b", "n"], filter=pc.field("s", "a") == 31_000)
    assert actual.column("n").to_pylist() == [31_000]
    pages = [[name for name in call if "/" in name and " " not in name] for call in log.calls]
    assert [names for names in pages if names] == [["s.a/0"], ["s.b.list.element/0", "n/0"]]


def test_a_filter_on_a_field_of_a_selected_column_takes_no_further_request(nested):
    file, log = opened(nested, tail_bytes=512)
    actual = file.read(["s", "n"], filter=pc.field("s", "a") == 31_000)
    assert actual.column("s").to_pylist() == [{"a": 31_000, "b": ["x" * 50, f"{31_000:050d}"]}]
    pages = [[name for name in call if "/" in name and " " not in name] for call in log.calls]
    expected = [["s.a/0"], ["s.a/0", "s.b.list.element/0", "n/0"]]
    assert [names for names in pages if names] == expected
