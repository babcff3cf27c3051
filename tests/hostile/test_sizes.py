"""Files that hold or claim very many of one thing: time is in proportion to their bytes."""

import importlib
import json
import struct
import time
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from crafted import MAGIC, data_page, document_of, footer_of, sound, with_directory
from sizes import SIZES

import intarsia as ia
import intarsia.indexing.column_values
import intarsia.recovery.row_group_rebuild
import intarsia.scan.column_reader
from intarsia.catalog.catalog import read_pointer
from intarsia.catalog.manifest import POINTER
from intarsia.dataset.commit_log import ENTRY_PREFIX
from intarsia.decode.synthetic_footer import RootTemplate
from intarsia.index.sidecar import MAGIC as SIDECAR_MAGIC
from intarsia.limits import (
    MAX_CATALOG_POINTER_BYTES,
    MAX_COMMIT_LOG_BYTES,
    MAX_DIRECTORY_BYTES,
    MAX_FOOTER_BYTES,
    MAX_POINTER_BYTES,
    MAX_SECTION_METADATA_BYTES,
)
from intarsia.parquet.compact_protocol import Decoder
from intarsia.parquet.footer import framed, with_key_values
from intarsia.parquet.footer_cache import FOOTER_KEY
from intarsia.recovery.row_group_rebuild import Rebuilder
from intarsia.recovery.torn_pages import TornPages
from intarsia.scan.parquet_file import open_file

sorting = importlib.import_module("intarsia.verify.sort_order")  # ``intarsia.verify`` is a function


def sparse(path, size, end, begin=b""):
    """A file of ``size`` bytes that takes a few blocks on the disk."""
    with path.open("wb") as file:
        file.write(begin)
        file.seek(size - len(end))
        file.write(end)
    return path


# --- claimed lengths ------------------------------------------------------------------------------


def pointer_to(offset, length):
    return json.dumps({"version": 1, "offset": offset, "length": length, "crc32": 0})


def test_a_long_directory_is_refused_before_it_is_read(tmp_path):
    data, size = sound(), MAX_DIRECTORY_BYTES + 1
    raw = with_key_values(footer_of(data).raw, {FOOTER_KEY: pointer_to(len(data), size)})
    end = framed(raw)
    path = sparse(tmp_path / "t.parquet", len(data) + size + len(end), end, data)
    with pytest.warns(ia.IntarsiaWarning, match="the directory claims 33,554,433 bytes; the limit"):
        assert ia.ParquetFile(path).read(filter=pc.field("a") == 7).num_rows == 1
    assert any("the limit is 33,554,432" in str(finding) for finding in ia.verify(path))


def test_a_directory_of_exactly_the_limit_is_read(tmp_path):
    document = document_of([])
    document += b" " * (MAX_DIRECTORY_BYTES - len(document))
    path = tmp_path / "t.parquet"
    path.write_bytes(with_directory(document))
    assert ia.ParquetFile(path).indexes == ()
    assert ia.verify(path) == []


def test_no_directory_is_written_that_would_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    path.write_bytes(sound())
    monkeypatch.setattr("intarsia.index.directory.MAX_DIRECTORY_BYTES", 100)
    for sidecar in (False, True):
        with pytest.raises(ia.IndexSpecError, match="the limit is 100 bytes"):
            ia.add_indexes(path, ["a:lookup"], sidecar=sidecar)
    assert path.read_bytes() == sound()
    assert [*tmp_path.rglob("*.intarsia")] == []


@pytest.mark.parametrize("length", [MAX_POINTER_BYTES + 1, 2**32 - 1])
def test_a_long_pointer_of_a_sidecar_is_refused_before_it_is_read(tmp_path, length):
    path = tmp_path / "t.parquet"
    path.write_bytes(sound())
    ia.add_indexes(path, ["a:lookup"], sidecar=True)
    (beside,) = (tmp_path / "_intarsia").iterdir()
    end = struct.pack("<I8s", length, SIDECAR_MAGIC)
    sparse(beside, 5 << 30, end, SIDECAR_MAGIC)
    with pytest.warns(ia.IntarsiaWarning, match="the sidecar's pointer claims .* the limit is"):
        assert ia.ParquetFile(path).read(filter=pc.field("a") == 7).num_rows == 1


def test_a_long_directory_of_a_sidecar_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(sound())
    ia.add_indexes(path, ["a:lookup"], sidecar=True)
    (beside,) = (tmp_path / "_intarsia").iterdir()
    whole = beside.read_bytes()
    (length,) = struct.unpack("<I", whole[-12:-8])
    pointer = json.loads(whole[-12 - length : -12])
    size = 2 << 30
    pointer = json.dumps(pointer | {"offset": 8, "length": size}).encode()
    end = pointer + struct.pack("<I8s", len(pointer), SIDECAR_MAGIC)
    sparse(beside, 8 + size + len(end), end, SIDECAR_MAGIC)
    with pytest.warns(ia.IntarsiaWarning, match="the directory claims 2,147,483,648 bytes"):
        assert ia.ParquetFile(path).read(filter=pc.field("a") == 7).num_rows == 1


def test_long_metadata_of_a_section_is_refused_before_it_is_read(tmp_path):
    data, size = sound(), MAX_SECTION_METADATA_BYTES + 1
    entry = {
        "kind": "lookup",
        "kind_version": 1,
        "on": "a",
        "params": {},
        "offset": len(data),
        "length": size,
        "meta_length": size,
        "meta_crc32": 0,
    }
    document = document_of([entry])
    whole = with_directory(document, pointer="{}")
    raw = footer_of(whole).raw
    crc32 = zlib.crc32(document)
    at = len(data) + size
    pointer = {"version": 1, "offset": at, "length": len(document), "crc32": crc32}
    end = document + framed(with_key_values(raw, {FOOTER_KEY: json.dumps(pointer)}))
    path = sparse(tmp_path / "t.parquet", at + len(end), end, data)
    with pytest.warns(ia.IntarsiaWarning, match="the section's metadata claims 268,435,457 bytes"):
        assert ia.ParquetFile(path).read(filter=pc.field("a") == 7).num_rows == 1


def test_a_long_footer_is_refused_before_it_is_read(tmp_path):
    end = struct.pack("<I4s", MAX_FOOTER_BYTES + 1, MAGIC)
    path = sparse(tmp_path / "t.parquet", 2 << 30, end, MAGIC)
    with pytest.raises(ia.FormatError, match="the footer claims 536,870,913 bytes; the limit is"):
        ia.ParquetFile(path)


def test_a_long_commit_log_is_refused_before_it_is_read(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    sparse(tmp_path / f"{ENTRY_PREFIX}x.json", MAX_COMMIT_LOG_BYTES + 1, b"}", b"{")
    with pytest.raises(ia.FormatError, match="the commit log claims 268,435,457 bytes; the limit"):
        ia.dataset(tmp_path)


def test_a_long_pointer_of_a_catalog_is_refused_before_it_is_read(tmp_path):
    (tmp_path / "_intarsia").mkdir()
    sparse(tmp_path / "_intarsia" / POINTER, MAX_CATALOG_POINTER_BYTES + 1, b"}", b"{")
    with pytest.raises(ia.FormatError, match="the catalog's pointer claims 268,435,457 bytes"):
        read_pointer(pafs.LocalFileSystem(), str(tmp_path))


# --- damage in many places -----------------------------------------------------------------------


@pytest.fixture
def selections(monkeypatch):
    """Counts how many times the parts of a file to read are selected."""
    actual = []
    real = intarsia.scan.column_reader.select
    monkeypatch.setattr(
        intarsia.scan.column_reader, "select", lambda *a: actual.append(a) or real(*a)
    )
    return actual


@pytest.mark.filterwarnings("ignore::intarsia.CorruptDataWarning")
@pytest.mark.parametrize("where", [None, pc.field("a") >= 0])
def test_row_groups_that_claim_one_chunk_are_left_out_at_once(tmp_path, selections, where):
    path = tmp_path / "t.parquet"
    path.write_bytes(SIZES["row_groups_of_one_chunk"](300))
    data = ia.dataset(path, on_corrupt="skip")
    assert data.to_table(filter=where).num_rows == 0
    assert len(data.corrupt) == 300
    assert len(selections) <= 4


@pytest.mark.filterwarnings("ignore::intarsia.CorruptDataWarning")
@pytest.mark.parametrize("where", [None, pc.field("a") >= 0])
@pytest.mark.parametrize("step", [1, 2, 7])
def test_damaged_row_groups_are_left_out_at_once(tmp_path, selections, where, step):
    path = tmp_path / "t.parquet"
    table = pa.table({"a": np.arange(3000)})
    options = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    pq.write_table(table, path, row_group_size=10, **options)
    whole = bytearray(path.read_bytes())
    metadata = ia.ParquetFile(path).metadata
    damaged = range(0, 300, step)
    for group in damaged:
        chunk = metadata.row_groups[group].columns[0].meta_data
        whole[chunk.start + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(whole)
    data = ia.dataset(path, on_corrupt="skip")
    expected = [n for n in range(3000) if n // 10 not in damaged]
    assert data.to_table(filter=where)["a"].to_pylist() == expected
    assert len(data.corrupt) == len(damaged)
    assert len(selections) <= 6


# --- many columns --------------------------------------------------------------------------------


def seconds(action):
    """Returns the processor time of the faster of two runs, in seconds."""
    actual = []
    for _ in range(2):
        began = time.process_time()
        action()
        actual.append(time.process_time() - began)
    return min(actual)


def test_reading_takes_time_in_proportion_to_columns(tmp_path):
    """It once took 14 times as long for four times the columns."""
    few, many = tmp_path / "few.parquet", tmp_path / "many.parquet"
    few.write_bytes(SIZES["columns"](2_000))
    many.write_bytes(SIZES["columns"](8_000))
    expected = {f"c{n}": [7] for n in range(8_000)}
    for where in (None, pc.field("c0") == 7):
        assert ia.ParquetFile(many).read(filter=where).to_pydict() == expected
        times = [
            seconds(lambda path=path, where=where: ia.ParquetFile(path).read(filter=where))
            for path in (few, many)
        ]
        assert times[1] < 9 * times[0] + 0.5


def test_columns_of_one_type_are_tried_on_a_torn_files_pages_once(tmp_path, monkeypatch):
    tried = []
    real = TornPages.is_decodable
    monkeypatch.setattr(TornPages, "is_decodable", lambda *a: tried.append(a) or real(*a))
    path = tmp_path / "t.parquet"
    whole = SIZES["columns"](300)
    path.write_bytes(whole[: footer_of(whole).offset])
    schema = pa.schema([pa.field(f"c{n}", pa.int64(), nullable=False) for n in range(300)])
    with pytest.raises(ia.FormatError, match="not one whole row group"):
        ia.recover(path, tmp_path / "out.parquet", schema_from=schema)
    assert len(tried) <= 1_000


def test_explaining_takes_time_in_proportion_to_columns(tmp_path):
    few, many = tmp_path / "few.parquet", tmp_path / "many.parquet"
    few.write_bytes(SIZES["columns"](2_000))
    many.write_bytes(SIZES["columns"](8_000))
    where = pc.field("c0") == 7
    assert ia.dataset(many).to_table(columns=["c0"], filter=where).to_pydict() == {"c0": [7]}
    times = [
        seconds(lambda path=path: ia.dataset(path).explain(filter=where)) for path in (few, many)
    ]
    assert times[1] < 9 * times[0] + 0.5


# --- many pages and row groups -------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """Counts the calls of a function, given its owner and its name."""

    def count(holder, name):
        calls = []
        real = getattr(holder, name)

        def counting(*arguments, **options):
            calls.append(arguments)
            return real(*arguments, **options)

        monkeypatch.setattr(holder, name, counting)
        return calls

    return count


def test_verifying_takes_time_in_proportion_to_pages(tmp_path):
    """The NULLs of all pages were once counted again for each page with statistics."""
    times = []
    for count in (2_000, 8_000):
        path = tmp_path / f"{count}.parquet"
        table = pa.table({"a": pa.array([None, *range(1, count)], pa.int64())})
        options = {"use_dictionary": False, "write_batch_size": 1, "max_rows_per_page": 1}
        pq.write_table(table, path, row_group_size=count, **options)
        assert len(ia.ParquetFile(path).pages(0, "a")) == count
        began = time.process_time()
        assert ia.verify(path) == []
        times.append(time.process_time() - began)
    assert times[1] < 7 * times[0] + 0.5


def test_stated_orders_are_verified_in_time_in_proportion_to_columns(tmp_path, counted):
    path = tmp_path / "t.parquet"
    names = [f"c{n}" for n in range(200)]
    table = pa.table({name: [1, 1, 2] for name in names})
    order = [pq.SortingColumn(n % 200) for n in range(2_000)]
    pq.write_table(table, path, sorting_columns=order)
    steps = counted(sorting, "_steps_of")
    assert ia.verify(path) == []
    assert len(steps) == 200
    rows = sorting.StatedOrder(open_file(path))
    rows.begin(0)
    assert [*rows._claim] == [*range(200)]


def test_row_groups_are_read_together_for_an_index(tmp_path, counted):
    path = tmp_path / "t.parquet"
    path.write_bytes(SIZES["row_groups"](2_000))
    reads = counted(intarsia.indexing.column_values, "read_rows")
    ia.add_indexes(path, ["a:lookup", "a:minmax"])
    assert len(reads) <= 2
    assert ia.verify(path) == []
    for value in (0, 1, 999, 1_999):
        assert ia.dataset(path).to_table(filter=pc.field("a") == value)["a"].to_pylist() == [value]


def test_pages_of_a_torn_file_are_tried_many_at_a_time(tmp_path, counted):
    path, out = tmp_path / "t.parquet", tmp_path / "out.parquet"
    whole = SIZES["pages_of_one_value"](5_000)
    path.write_bytes(whole[: footer_of(whole).offset])
    tried = counted(TornPages, "is_decodable")
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    assert ia.recover(path, out, schema_from=schema).rows == 5_000
    assert pq.read_table(out)["a"].to_pylist() == [*range(5_000)]
    assert len(tried) <= 50


@pytest.mark.parametrize(("first", "recovered"), [(0, 250), (1_000_000, 500)])
def test_columns_of_a_torn_files_tiny_pages_are_told_apart_in_linear_time(
    tmp_path, counted, first, recovered
):
    """``s250`` takes the bytes of an integer, so the end of the second row group is uncertain."""
    path, out = tmp_path / "t.parquet", tmp_path / "out.parquet"
    table = pa.table({"a": np.arange(500), "s": [f"s{n}" for n in range(first, first + 500)]})
    options = {"use_dictionary": False, "write_batch_size": 1, "max_rows_per_page": 1}
    pq.write_table(table, path, row_group_size=250, write_page_checksum=True, **options)
    whole = path.read_bytes()
    path.write_bytes(whole[: footer_of(whole).offset])
    visited = counted(Rebuilder, "_is_of")
    assert ia.recover(path, out, schema_from=table.schema).rows == recovered
    assert pq.read_table(out).equals(table.slice(0, recovered))
    assert len(visited) < 5 * 1_000


def test_columns_that_nothing_tells_apart_are_refused_in_linear_time(tmp_path, counted):
    path = tmp_path / "t.parquet"
    pages = [data_page(n.to_bytes(8, "little"), 1) for n in range(4_000)]
    path.write_bytes(MAGIC + b"".join(pages) + b"PAR1")  # a new tile: the row group is finished
    fields = [pa.field(name, pa.int64(), nullable=False) for name in "ab"]
    steps = counted(Rebuilder, "_step")
    with pytest.raises(ia.FormatError, match="columns cannot be told apart"):
        ia.recover(path, tmp_path / "out.parquet", schema_from=pa.schema(fields))
    assert len(steps) < 20 * 4_000


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_trying_pages_together_or_one_by_one_finds_the_same_row_groups(
    tmp_path, monkeypatch, version
):
    """Trying one page at a time is the slow way to the same row groups."""
    path = tmp_path / "t.parquet"
    table = pa.table(
        {
            "a": pa.array(range(400), pa.int64()),
            "b": [f"{n}" * (n % 5) for n in range(400)],
            "c": pa.array([None if n % 3 else n for n in range(400)], pa.int32()),
            "d": [[n] * (n % 3) for n in range(400)],
        }
    )
    options = {"use_dictionary": ["b"], "max_rows_per_page": 10, "write_batch_size": 10}
    pq.write_table(table, path, row_group_size=100, data_page_version=version, **options)
    whole = path.read_bytes()
    actual = []
    for most in (1, intarsia.recovery.row_group_rebuild._MAX_PAGES_AHEAD):
        monkeypatch.setattr(intarsia.recovery.row_group_rebuild, "_MAX_PAGES_AHEAD", most)
        for end in range(1_000, footer_of(whole).offset, 2_000):
            path.write_bytes(whole[:end])
            try:
                told = ia.recover(path, tmp_path / "out.parquet", schema_from=table.schema)
            except ia.FormatError as error:
                actual.append((most, end, str(error)))
            else:
                rows = pq.read_table(tmp_path / "out.parquet").to_pydict()
                actual.append((most, end, str(told), rows))
    half = len(actual) // 2
    assert [one[1:] for one in actual[:half]] == [one[1:] for one in actual[half:]]
    assert any(len(one) == 4 for one in actual)


# --- what is decoded -----------------------------------------------------------------------------


@pytest.fixture
def wide(tmp_path):
    """1,000 chunks of 200 columns in 5 row groups."""
    path = tmp_path / "wide.parquet"
    table = pa.table({f"c{n}": np.arange(50) + n for n in range(200)})
    pq.write_table(table, path, row_group_size=10)
    return path


def test_a_page_index_decodes_each_chunk_and_page_header_once(wide, counted):
    decoded, opened = counted(Decoder, "read"), counted(RootTemplate, "opened")
    ia.add_indexes(wide, ["page_index"])
    assert len(decoded) < 3.5 * 1_000
    assert len(opened) <= 20
    assert ia.verify(wide) == []


@pytest.mark.parametrize("index", ["c7:bloom", "c7:lookup", "c7:minmax"])
def test_an_index_of_one_column_decodes_no_others(wide, counted, index):
    decoded = counted(Decoder, "read")
    ia.add_indexes(wide, [index], page_index=False)
    assert len(decoded) < 300  # 200 of one row group, which tell how long pages are
    assert ia.ParquetFile(wide).read(["c9"], filter=pc.field("c7") == 17)["c9"].to_pylist() == [19]
