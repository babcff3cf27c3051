"""Files without page indexes: where few rows are wanted, headers tell which pages hold them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.read import walked
from intarsia.source import BufferSource, ByteRange

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


class Counted(BufferSource):
    """Counts the bytes that are read."""

    bytes = 0

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        self.bytes += sum(length for _, length in ranges)
        return super().read(ranges)


@pytest.fixture(scope="module", params=["1.0", "2.0"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("walked") / "a.parquet"
    options = {"data_page_size": 64 * 1024, "use_dictionary": ["s"]}
    pq.write_table(TABLE, path, data_page_version=request.param, **options)
    ia.add_indexes(path, ["id:lookup"])
    return path


def test_a_point_query_reads_headers_and_the_pages_of_its_rows(path):
    source = Counted(path.read_bytes())
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


def test_a_scan_of_all_rows_walks_through_nothing(path, monkeypatch):
    monkeypatch.setattr(walked, "walk_pages", None)
    file = ia.ParquetFile(BufferSource(path.read_bytes()))
    assert file.read(filter=pc.field("x") > 2).num_rows == 0
    assert file.read(["id"]).num_rows == ROWS


def test_what_headers_do_not_tell_is_read_whole(path, monkeypatch):
    monkeypatch.setattr(walked, "_MOST_PAGES", 3)
    file = ia.ParquetFile(BufferSource(path.read_bytes()))
    assert file.read(filter=pc.field("id") == 123_456).equals(TABLE.slice(123_456, 1))
    data = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(0).column(1)
    at = chunk.data_page_offset + chunk.total_compressed_size // 2
    data[at : at + 40_000] = b"\xff" * 40_000  # a header somewhere among the pages of x
    monkeypatch.undo()
    file = ia.ParquetFile(BufferSource(bytes(data)))
    assert file.read(["id", "s"], filter=pc.field("id") == 9).num_rows == 1
