"""``explain(analyze=True)`` counts what a scan reads, for every shape of data set."""

import contextlib
import contextvars
import re

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia import process_state
from intarsia.io.storage import FileSource

ROWS = 4000
PAGES = {"row_group_size": 1000, "max_rows_per_page": 100, "write_batch_size": 50}


def rows_of(number, count=ROWS):
    """Rows of which ``id`` ascends, ``k`` does not, and ``point`` is nested."""
    ids = np.arange(number * count, (number + 1) * count)
    return pa.table(
        {
            "id": ids,
            "k": ids * 7919 % 1009,
            "s": [f"s{i * 31 % 5003:05}" for i in ids.tolist()],
            "point": [{"x": i % 13, "tags": [f"t{i % 3}"] * (i % 4)} for i in ids.tolist()],
        }
    )


def one_file(folder):
    ia.write_table(rows_of(0), folder / "a.parquet", indexes=[ia.Lookup("s")], **PAGES)


def small_files(folder, count=40):
    for number in range(count):
        pq.write_table(rows_of(number, 50), folder / f"{number:04}.parquet")


def many_small_files(folder):
    small_files(folder, 100)


def indexed_files(folder):
    """Large enough that each is planned by its own indexes."""
    for number in range(6):
        path = folder / f"{number}.parquet"
        ia.write_table(rows_of(number, 40_000), path, indexes=[ia.Lookup("s")])


def partitions(folder):
    for number in range(12):
        below = folder / f"day={number % 3}"
        below.mkdir(exist_ok=True)
        pq.write_table(rows_of(number, 500), below / f"{number}.parquet", write_page_index=True)


def with_catalog(folder):
    small_files(folder)
    ia.build_catalog(folder)


def with_sidecars(folder):
    for number in range(5):
        pq.write_table(rows_of(number), folder / f"{number}.parquet", **PAGES)
    ia.add_indexes(folder, [ia.Lookup("s")], sidecar=True)


def without_page_indexes(folder):
    pq.write_table(rows_of(0, 200_000), folder / "a.parquet", row_group_size=200_000)


SHAPES = (
    *(one_file, small_files, many_small_files, indexed_files, partitions, with_catalog),
    *(with_sidecars, without_page_indexes),
)
FILTERS = (
    "id = 1234",
    "id BETWEEN 100 AND 900",
    "k = 7",
    "k < 900",
    "s = 's00031'",
    "s LIKE '%31' AND k > 500",
    "point.x = 3 AND id < 1500",
    "id < 0",
)


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: shape.__name__)
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param.__name__)
    request.param(folder)
    return folder


class Requests:
    """The requests that are made while ``during`` runs, for it.

    Threads that work for the block run in its context. Others are not counted.
    """

    def __init__(self):
        self.ranges = []
        self._is_counted = contextvars.ContextVar("is_counted", default=False)

    @contextlib.contextmanager
    def during(self):
        self.ranges.clear()
        token = self._is_counted.set(True)
        try:
            yield
        finally:
            self._is_counted.reset(token)

    def count(self, source, offset, length):
        if self._is_counted.get():
            self.ranges.append((source.path, offset, length))

    @property
    def num_bytes(self):
        return sum(length for _, _, length in self.ranges)


@pytest.fixture
def requests(monkeypatch):
    """Counts the requests of all sources."""
    requests, read_at = Requests(), FileSource._read_at

    def counting(source, offset, length):
        requests.count(source, offset, length)
        return read_at(source, offset, length)

    monkeypatch.setattr(FileSource, "_read_at", counting)
    return requests


def local(folder):
    return ia.dataset(folder)


def remote(folder):
    """The same files through fsspec, which is taken for remote storage."""
    wrapped = pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem("file")))
    return ia.dataset(str(folder), filesystem=wrapped)


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize("opened", [local, remote])
def test_requests_and_bytes_are_those_of_the_scan(folder, opened, where, requests):
    data = opened(folder)
    process_state.clear()
    pa.set_cpu_count(1)  # with threads, reading ahead may fetch more
    try:
        with requests.during():
            matching = data.to_table(filter=where)
        process_state.clear()
        explained = data.explain(filter=where, analyze=True)
    finally:
        pa.set_cpu_count(2)
    assert explained.read.rows.selected == matching.num_rows
    assert explained.read.requests.selected == len(requests.ranges), requests.ranges
    assert explained.read.bytes.selected == requests.num_bytes
    assert matching.num_rows <= explained.planned.rows.selected
    assert str(explained).startswith("verdict")


def test_pages_and_row_groups_are_those_that_were_decoded(tmp_path):
    one_file(tmp_path)
    read = ia.dataset(tmp_path).explain(["id"], "id BETWEEN 950 AND 1250", analyze=True).read
    assert (read.row_groups.selected, read.row_groups.total) == (2, 4)
    assert (read.pages.selected, read.pages.total) == (4, 40)
    assert read.rows.selected == 301


def test_small_files_are_read_together(tmp_path):
    small_files(tmp_path)
    explained = ia.dataset(tmp_path).explain(["id"], "k < 900", analyze=True)
    planned = ia.dataset(tmp_path).explain(["id"], "k < 900")
    assert {group.reader for group in explained.groups} == {"row groups"}
    assert [group.reader for group in planned.groups] == ["row groups"]
    assert "small files, decoded together without their indexes" in str(planned)


def test_files_that_keys_exclude_have_the_steps_before(tmp_path):
    indexed_files(tmp_path)
    explained = ia.dataset(tmp_path).explain(filter="s = 's00031 '", analyze=True)
    steps = [(step.source, step.rows) for step in explained.files[0].plan.steps]
    assert steps == [("row-group statistics", 40_000), ("index s:lookup", 0)]
    assert [str(group) for group in explained.groups] == ["6 files: excluded by index s:lookup"]


@pytest.mark.parametrize("has_page_index", [False, True])
@pytest.mark.parametrize("analyze", [False, True])
def test_small_files_that_have_a_page_index_are_not_said_to_lack_it(
    tmp_path, has_page_index, analyze
):
    for number in range(40):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(rows_of(number, 50), path, write_page_index=has_page_index)
    explained = ia.dataset(tmp_path).explain(["id"], "k < 900", analyze=analyze)
    assert {group.reader for group in explained.groups} == {"row groups"}
    assert ("no page index" in str(explained)) == (not has_page_index)


def test_an_unfiltered_scan_is_the_engines(tmp_path):
    one_file(tmp_path)
    explained = ia.dataset(tmp_path).explain(["id"], analyze=True)
    assert [group.reader for group in explained.groups] == ["engine"]
    assert explained.verdict == "reads everything: there is no filter"
    assert explained.read.rows.selected == ROWS


def test_damaged_pages_are_counted_as_they_are_skipped(tmp_path, requests):
    path = tmp_path / "a.parquet"
    pq.write_table(rows_of(0), path, write_page_checksum=True, **PAGES)
    page = ia.ParquetFile(path).pages(1, "k")[1]
    stored = bytearray(path.read_bytes())
    stored[page.offset + page.header_size + page.compressed_size - 1] ^= 0xFF
    path.write_bytes(stored)
    data = ia.dataset(path, on_corrupt="skip")
    process_state.clear()
    with pytest.warns(ia.CorruptDataWarning), requests.during():
        matching = data.to_table(filter="k >= 0")
    process_state.clear()
    with pytest.warns(ia.CorruptDataWarning):
        read = ia.dataset(path, on_corrupt="skip").explain(filter="k >= 0", analyze=True).read
    assert 0 < read.rows.selected == matching.num_rows < ROWS
    assert (read.requests.selected, read.bytes.selected) == (
        len(requests.ranges),
        requests.num_bytes,
    )


VERDICTS = {
    "s = 's00031'": r"reads [\d.]+ % of the bytes; index .* decided",
    "id < 0": "reads no rows; row-group statistics decided",
    "id >= 0": r"reads everything: no index excludes rows; pages of 100 rows",
}


@pytest.mark.parametrize("where", VERDICTS)
def test_the_verdict_names_what_decided(tmp_path, where):
    one_file(tmp_path)
    explained = ia.dataset(tmp_path).explain(filter=where, analyze=True)
    assert re.fullmatch(VERDICTS[where], explained.verdict)


def test_the_verdict_names_the_columns_without_an_index(tmp_path):
    pq.write_table(rows_of(0), tmp_path / "a.parquet")
    explained = ia.dataset(tmp_path).explain(filter="k = 7 AND s <> 'x'", analyze=True)
    assert explained.verdict == "reads everything: no index on k, s; pages of 4,000 rows"


@pytest.mark.parametrize("where", ["k >= 0", "id >= 500"])
def test_a_plan_counts_the_rows_of_small_files_in_which_all_rows_match(tmp_path, where):
    small_files(tmp_path)
    data = ia.dataset(tmp_path)
    planned = data.explain(filter=where).planned
    assert planned.rows.selected == data.count_rows(where)
    assert planned.rows.total == 40 * 50
