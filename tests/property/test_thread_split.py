"""The pages of a single column, decoded by several cores, give the same values."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.decode.splice import ChunkBytes, RowGroupBytes
from intarsia.decode.thread_split import shares
from intarsia.parquet.metadata import ColumnMetaData
from intarsia.scan import column_reader

groups_of_pages = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=8), max_size=6)


def group_of(number, page_rows):
    metadata = ColumnMetaData(
        type=1,
        encodings=[],
        path_in_schema=["a"],
        codec=0,
        num_values=sum(page_rows),
        total_uncompressed_size=0,
        total_compressed_size=0,
        data_page_offset=4,
    )
    pages = [memoryview(f"{number}.{page}".encode()) for page in range(len(page_rows))]
    return RowGroupBytes(sum(page_rows), [ChunkBytes(metadata, None, pages, sum(page_rows))])


def pages_of(groups):
    return [bytes(page) for group in groups for page in group.chunks[0].pages]


@given(groups_of_pages, st.integers(1, 5), st.booleans())
def test_parts_have_all_pages_in_order_and_about_equal_rows(page_rows, count, are_known):
    groups = [group_of(number, counts) for number, counts in enumerate(page_rows)]
    actual = shares(groups, page_rows if are_known else [()] * len(groups), count)
    assert 1 <= len(actual) <= count
    assert [page for share in actual for page in pages_of(share)] == pages_of(groups)
    total, longest = sum(map(sum, page_rows)), max([0, *(n for own in page_rows for n in own)])
    for share in actual:
        assert share or not groups
        for group in share:
            (chunk,) = group.chunks
            assert group.num_rows == chunk.num_values
        if are_known:
            assert sum(group.num_rows for group in share) <= total / count + longest
            metadata = [id(group.chunks[0].metadata) for group in share]
            assert len(set(metadata)) == len(metadata), "a row group is one"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A column that begins with dictionary pages, in six row groups."""
    random = np.random.default_rng(0)
    numbers = random.integers(0, 1 << 20, 6000)
    texts = [None if n % 11 == 0 else f"{n % 1000 if at % 1000 < 300 else n}" for at, n in
             enumerate(numbers.tolist())]  # fmt: skip
    actual = tmp_path_factory.mktemp("shares") / "a.parquet"
    options = {"dictionary_pagesize_limit": 1500, "write_batch_size": 10, "data_page_size": 300}
    table = pa.table({"s": texts, "n": range(6000)})
    pq.write_table(table, actual, row_group_size=1000, write_page_index=True, **options)
    return actual


@settings(max_examples=60, deadline=None)
@given(edges=st.lists(st.integers(0, 6000), min_size=2, max_size=8), verified=st.booleans())
def test_a_single_column_has_the_same_rows(path, edges, verified):
    edges = sorted({*edges})
    ranges = ia.RowRanges.of(*zip(edges[::2], edges[1::2], strict=False))
    expected = pq.read_table(path, columns=["s"]).take(pa.array(ranges.rows()))
    file = ia.ParquetFile(path, page_checksum_verification=verified)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_reader, "_DIVIDED_BYTES", 0)
        assert file.read(["s"], rows=ranges) == expected


def test_only_a_single_column_is_divided_among_cores(path, monkeypatch):
    threads, original = [], column_reader.decode_root

    def decoded(*args, **options):
        threads.append(threading.current_thread().name)
        return original(*args, **options)

    monkeypatch.setattr(column_reader, "decode_root", decoded)
    monkeypatch.setattr(column_reader, "_DIVIDED_BYTES", 1)
    data, expected = ia.dataset(path), pads.dataset(path)
    wanted = pc.starts_with(pc.field("s"), "77")
    assert data.to_table(["s"], filter=wanted) == expected.to_table(["s"], filter=wanted)
    assert len(threads) == pa.cpu_count()
    assert threading.current_thread().name not in threads or pa.cpu_count() == 1
    threads.clear()
    actual = data.to_table(["s"], filter=wanted, use_threads=False)
    assert actual == expected.to_table(["s"], filter=wanted)
    assert threads == [threading.current_thread().name]
