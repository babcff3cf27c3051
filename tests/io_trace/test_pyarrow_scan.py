"""When pyarrow's scan reads whole row groups for a filter, and when our reader reads pages."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.dataset import footer_freshness, pyarrow_scan
from intarsia.dataset.pyarrow_scan import whole_scan
from intarsia.dataset.request_builder import request_of
from intarsia.errors import FormatError
from intarsia.scan.files import file_cache

ROWS, FILES = 40_000, 6
KIND = pc.field("kind") == 3
EXPECTED = ROWS * FILES // 5


def table_of(number):
    rng = np.random.default_rng(number)
    return pa.table(
        {
            "at": np.arange(number * ROWS, (number + 1) * ROWS),
            "key": rng.integers(0, 1 << 40, ROWS),
            "kind": pa.array(np.arange(ROWS) % 5, pa.int32()),
            "text": pa.array(np.arange(ROWS) % 5).cast(pa.string()),
            "value": np.where(np.arange(ROWS) % 7 == 0, np.nan, rng.random(ROWS)),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    for number in range(FILES):
        pq.write_table(table_of(number), folder / f"{number}.parquet", row_group_size=10_000)
    return folder


@pytest.fixture
def counts(monkeypatch):
    """The row counts that pyarrow's own scans returned."""
    actual, original = [], pyarrow_scan.count_by_pyarrow

    def counting(*args):
        actual.append(original(*args))
        return actual[-1]

    monkeypatch.setattr(pyarrow_scan, "count_by_pyarrow", counting)
    return actual


def opened(folder, **options):
    """A data set whose footers are all cached, so that small files are not decoded twice."""
    data = ia.dataset(folder, **options)
    assert data.count_rows(pc.field("at") >= 0) == ROWS * len(data.files)
    return data


def test_pyarrow_counts_where_nothing_can_be_skipped(folder, counts):
    data = opened(folder)
    counts.clear()
    for filter_ in (KIND, ~(pc.field("value") < 0.5), pc.field("key") == 1):
        expected = sum(table_of(n).filter(filter_).num_rows for n in range(FILES))
        assert data.count_rows(filter_) == expected
        assert counts.pop() == expected, "NaN included"
    assert not any(data.scan_source.cache.get(path).pages_read for path in data.files)


def test_pyarrow_counts_in_row_groups_that_footers_leave(folder):
    data = opened(folder)
    filter_ = (pc.field("at") >= 25_000) & (pc.field("at") < 75_000)
    request = request_of(data.schema, [], filter_)
    planned = whole_scan(data.scan_source, request)
    assert planned.proven == 40_000
    left = [(part.groups, part.num_rows) for part in planned.parts]
    assert left == [([2], 10_000), ([3], 10_000)]
    assert data.count_rows(filter_) == 50_000


@pytest.mark.parametrize("way", ["reader", "threads", "own filter", "checksums", "strings"])
def test_our_reader_counts_where_pages_can_be_skipped(folder, counts, way):
    data, options, filter_ = opened(folder), {}, KIND
    counts.clear()
    match way:
        case "reader":
            data = data.with_options(reader="pages")
        case "threads":
            options = {"use_threads": False}
        case "own filter":
            data, filter_ = data.filter(pc.field("at") >= 0), KIND
        case "checksums":
            data = data.with_options(page_checksum_verification=True)
        case "strings":
            filter_ = KIND & (pc.field("text") != "z")
    assert data.count_rows(filter_, **options) == EXPECTED
    assert way == "own filter" or not counts


def test_small_files_are_not_opened_twice(folder, counts):
    data = ia.dataset(folder)
    assert data.count_rows(KIND) == EXPECTED
    assert not counts
    assert data.count_rows(KIND) == EXPECTED
    assert counts == [EXPECTED]


@pytest.mark.parametrize("index", [ia.Lookup, ia.Bloom])
def test_a_selective_index_is_used(tmp_path, counts, index):
    for number in range(FILES):
        ia.write_table(table_of(number), tmp_path / f"{number}.parquet", indexes=[index("key")])
    data, key = opened(tmp_path), table_of(2).column("key")[77]
    counts.clear()
    assert data.count_rows(pc.field("key") == key) == 1
    assert not counts
    assert data.count_rows(KIND) == EXPECTED
    assert counts == [EXPECTED]


def test_a_selective_index_in_sidecars_is_used(tmp_path, counts):
    for number in range(FILES):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table_of(number), path)
        ia.add_indexes(path, [ia.Lookup("key")], sidecar=True)
    data, key = opened(tmp_path), table_of(2).column("key")[77]
    counts.clear()
    assert data.count_rows(pc.field("key") == key) == 1
    assert not counts


def test_our_reader_names_what_pyarrow_cannot_read(tmp_path, folder, counts):
    for number in range(FILES):
        data = bytearray((folder / f"{number}.parquet").read_bytes())
        if number == 4:
            chunk = pq.read_metadata(folder / f"{number}.parquet").row_group(2).column(1)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            data[start : start + 40] = bytes(40)
        (tmp_path / f"{number}.parquet").write_bytes(data)
    data = opened(tmp_path)
    counts.clear()
    with pytest.raises(FormatError, match=r"4\.parquet.*key"):
        data.count_rows(pc.field("key") < 1 << 39)
    assert counts == [None]


def test_a_replaced_file_is_read_again(tmp_path, folder):
    for number in range(FILES):
        (tmp_path / f"{number}.parquet").write_bytes((folder / f"{number}.parquet").read_bytes())
    data = opened(tmp_path)
    assert data.count_rows(KIND) == EXPECTED
    pq.write_table(table_of(9).slice(0, 1000), tmp_path / "3.parquet")
    assert data.count_rows(KIND) == EXPECTED - ROWS // 5 + 200


@pytest.mark.parametrize("count", [6, 40])
def test_a_filtered_scan_by_our_reader_looks_at_each_file_once(tmp_path, monkeypatch, count):
    for number in range(count):
        pq.write_table(table_of(0).slice(number * 500, 500), tmp_path / f"{number:02}.parquet")
    data, looks = ia.dataset(tmp_path), []
    assert data.to_table(filter=pc.field("at") == 777).num_rows == 1
    version_of = file_cache.version_of
    for module in (file_cache, footer_freshness):
        monkeypatch.setattr(
            module, "version_of", lambda path, *args: looks.append(path) or version_of(path, *args)
        )
    assert data.to_table(filter=pc.field("at") == 777).num_rows == 1
    assert sorted(looks) == sorted(data.files)


def test_tables_of_many_small_files(tmp_path):
    whole = table_of(0).drop_columns(["value"])  # NaN equals nothing
    for number in range(64):
        part = whole.slice(number * 500, 500)
        pq.write_table(part, tmp_path / f"{number:02}.parquet")
    data = ia.dataset(tmp_path)
    for columns in (None, ["text", "at"]):
        expected = whole.slice(0, 32_000).filter(KIND).select(columns or whole.column_names)
        for _ in range(2):
            assert data.to_table(columns, KIND).equals(expected)
            assert data.head(7_000, columns, KIND).equals(expected)
    key = pc.field("key") == whole.column("key")[777]
    assert data.to_table(filter=key).num_rows == 1
    assert data.to_table({"n": pc.field("at") + 1}, KIND).num_rows == 6_400
    assert data.to_table(["__row_number"], KIND).num_rows == 6_400
    assert data.to_table(filter=KIND, use_threads=False).num_rows == 6_400
    assert data.with_options(reader="pages").to_table(filter=KIND).num_rows == 6_400


def test_our_reader_names_the_small_file_that_pyarrow_cannot_read(tmp_path):
    for number in range(64):
        pq.write_table(table_of(0).slice(number * 500, 500), tmp_path / f"{number:02}.parquet")
    path = tmp_path / "33.parquet"
    chunk = pq.read_metadata(path).row_group(0).column(1)
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + 40] = bytes(40)
    path.write_bytes(data)
    opened = ia.dataset(tmp_path)
    assert opened.count_rows(KIND) == 6_400
    with pytest.raises(FormatError, match=r"33\.parquet.*key"):
        opened.to_table(filter=KIND)
