"""Files without page indexes: for few rows, page headers tell which pages hold them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.file import page_walk
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import framed
from intarsia.parquet.metadata import PageHeader
from intarsia.parquet.thrift import amended, encode
from intarsia.testing import CountingSource

ROWS = 400_000
DRAW = np.random.default_rng(7)
TABLE = pa.table(
    {
        "id": range(ROWS),
        "x": DRAW.random(ROWS),
        "s": pa.array([f"user-{number:06}" for number in DRAW.integers(0, 5000, ROWS)]),
        "t": pa.array([f"message {row} of {row * 7919 % 100_003}" for row in range(ROWS)]),
    }
)


@pytest.fixture(scope="module", params=["1.0", "2.0"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("walked") / "a.parquet"
    options = {"data_page_size": 64 * 1024, "use_dictionary": ["s"]}
    pq.write_table(TABLE, path, data_page_version=request.param, **options)
    ia.add_indexes(path, ["id:lookup"], page_index=False)
    return path


def test_a_point_query_reads_headers_and_the_pages_of_its_rows(path):
    source = CountingSource(path.read_bytes())
    file = ia.ParquetFile(source)
    opened = source.bytes
    assert file.read(filter=pc.field("id") == 123_456).equals(TABLE.slice(123_456, 1))
    assert source.bytes - opened < 0.3 * source.size, "headers are read with what is behind them"
    before = source.bytes
    assert file.read(filter=pc.field("id") == 300_000).equals(TABLE.slice(300_000, 1))
    assert source.bytes - before < 0.06 * source.size, "the pages are known by now"


def test_a_head_reads_headers_and_the_first_pages(path):
    data, filter_ = ia.dataset(path), pc.field("x") > 0.5
    assert data.head(10).equals(TABLE.slice(0, 10))
    assert data.head(10, filter=filter_).equals(TABLE.filter(filter_).slice(0, 10))
    explained = data.explain(filter=pc.field("id") == 7, analyze=True)
    assert explained.read.rows.selected <= 8192


def test_a_scan_of_all_rows_reads_no_headers_ahead(path, monkeypatch):
    monkeypatch.setattr(page_walk, "Chunk", None)
    file = ia.ParquetFile(BufferSource(path.read_bytes()))
    assert file.read(filter=pc.field("x") > 2).num_rows == 0
    assert file.read(["id"]).num_rows == ROWS


def test_chunks_whose_headers_do_not_count_rows_are_read_whole(path, monkeypatch):
    monkeypatch.setattr(page_walk, "_MAX_PAGES", 3)
    monkeypatch.setattr(page_walk, "_SAMPLED", 1)
    file = ia.ParquetFile(BufferSource(path.read_bytes()))
    assert file.read(filter=pc.field("id") == 123_456).equals(TABLE.slice(123_456, 1))


@pytest.mark.filterwarnings("ignore:.*a page index made from page headers is ignored")
@pytest.mark.parametrize("at", [0.001, 0.5])
def test_damage_raises_an_error_without_endless_retries(tmp_path, at):
    """Reading a struct again must not loop if its pages differ from what the headers say."""
    struct = pa.StructArray.from_arrays([TABLE["id"].chunk(0), TABLE["t"].chunk(0)], ["x", "s"])
    table, path = pa.table({"id": TABLE["id"], "st": struct}), tmp_path / "a.parquet"
    options = {"data_page_size": 64 * 1024, "compression": "snappy", "use_dictionary": False}
    pq.write_table(table, path, **options)
    ia.add_indexes(path, ["id:lookup"], page_index=False)
    chunk = pq.read_metadata(path).row_group(0).column(2)
    data, begin = bytearray(path.read_bytes()), chunk.data_page_offset + 200
    begin += int(at * chunk.total_compressed_size)
    data[begin : begin + 2000] = b"\xff" * 2000
    path.write_bytes(data)
    row = 5 if at < 0.1 else ROWS // 2
    for ask, expected in (
        (lambda: ia.ParquetFile(path).read(filter=pc.field("id") == row), table.slice(row, 1)),
        (lambda: ia.dataset(path).take([row]), table.slice(row, 1)),
        (lambda: ia.dataset(path).head(5), table.slice(0, 5)),
    ):
        try:
            actual = ask()
        except ia.FormatError as error:
            told = str(error)
            assert "st.s" in told or "column st" in told, told
        else:
            assert actual.equals(expected)


def test_an_unknown_page_type_causes_no_endless_loop(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"id": pa.array(np.arange(ROWS) % 1000)})
    pq.write_table(table, path, data_page_size=64 * 1024, compression="none")
    data, metadata = path.read_bytes(), ia.ParquetFile(path).metadata
    (chunk,) = metadata.row_groups[0].columns
    inner = chunk.meta_data
    header = PageHeader(type=1, uncompressed_page_size=9, compressed_page_size=9)
    more = encode(header) + bytes(9)
    at = inner.data_page_offset
    sizes = ("total_compressed_size", "total_uncompressed_size")
    changes = {name: getattr(inner, name) + len(more) for name in sizes}
    columns = [amended(chunk, meta_data=changes)]
    groups = [amended(metadata.row_groups[0], columns=columns)]
    end = inner.dictionary_page_offset + inner.total_compressed_size
    raw = framed(encode(amended(metadata, row_groups=groups)))
    path.write_bytes(data[:at] + more + data[at:end] + raw)
    assert pq.read_table(path).equals(table)
    assert ia.dataset(path).take([7, 8]).equals(table.slice(7, 2))
    assert ia.dataset(path).head(5).equals(table.slice(0, 5))
