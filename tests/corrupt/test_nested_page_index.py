"""Nested page indexes that contradict their pages are noticed, and the answer does not change."""

import struct
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.decode.splice import ChunkBytes, RowGroupBytes, splice
from intarsia.decode.synthetic_footer import SchemaTemplates
from intarsia.io.source import BufferSource
from intarsia.parquet.compact_protocol import list_span, replace_fields, spans
from intarsia.parquet.footer import read_footer
from intarsia.parquet.metadata import (
    ColumnMetaData,
    DataPageHeader,
    Encoding,
    FileMetaData,
    OffsetIndexStruct,
    PageHeader,
    PageLocation,
    SchemaElement,
)
from intarsia.parquet.page_index import OffsetIndex
from intarsia.parquet.schema import read_schema
from intarsia.parquet.thrift import decode, encode
from intarsia.row_ranges import RowRanges

ROWS = 10_000
A, B, C = 1, 2, 3  # positions of the leaves of ``s``, which follow ``n``


@pytest.fixture(scope="module")
def table():
    kind = pa.struct(
        [("a", pa.int64()), ("b", pa.list_(pa.string())), ("c", pa.list_(pa.list_(pa.int32())))]
    )
    values = [
        {"a": i, "b": [f"{i:020d}"] * (i % 4), "c": [[i], [], [i, i]][: i % 5]} if i % 7 else None
        for i in range(ROWS)
    ]
    return pa.table({"n": range(ROWS), "s": pa.array(values, kind)})


@pytest.fixture(scope="module", params=["1.0", "2.0"])
def stored(table, request):
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        write_page_index=True,
        data_page_version=request.param,
        max_rows_per_page=1000,
        write_batch_size=100,
        use_dictionary=False,
    )
    return sink.getvalue().to_pybytes()


def with_first_rows(stored, leaf, change):
    """Applies ``change(first_row_index list)`` to one leaf's OffsetIndex; keeps its length."""
    chunk = read_footer(BufferSource(stored)).metadata.row_groups[0].columns[leaf]
    start, length = chunk.offset_index_offset, chunk.offset_index_length
    pages = decode(OffsetIndexStruct, stored[start : start + length])[0].page_locations
    rows = change([page.first_row_index for page in pages])
    moved = [
        encode(
            PageLocation(
                offset=page.offset,
                compressed_page_size=page.compressed_page_size,
                first_row_index=row,
            )
        )
        for page, row in zip(pages, rows, strict=True)
    ]
    fields, _ = spans(stored[start : start + length])
    data = replace_fields(fields, [list_span(1, moved)])
    assert len(data) <= length, "choose rows that take no more bytes"
    return stored[:start] + data + bytes(length - len(data)) + stored[start + length :]


def shifted(page, by):
    return lambda rows: [row + by if i == page else row for i, row in enumerate(rows)]


@pytest.mark.parametrize("leaf", [A, B, C])
@pytest.mark.parametrize("by", [-1, 1, 5])
@pytest.mark.parametrize("page", [1, 3, 9])
def test_a_shifted_entry_costs_the_index_not_the_answer(stored, table, leaf, by, page):
    data = with_first_rows(stored, leaf, shifted(page, by))
    rows = RowRanges.of((page * 1000 - 2, page * 1000 + 3))
    with pytest.warns(ia.IntarsiaWarning, match="page index is ignored"):
        actual = ia.ParquetFile(BufferSource(data)).read(["s"], rows)
    assert actual.equals(table.select(["s"]).slice(page * 1000 - 2, 5))


def test_a_filter_planned_by_such_an_index_is_planned_again(stored, table):
    data = with_first_rows(stored, A, shifted(3, 5))
    filter_ = pc.field("s", "a") == 3000
    with pytest.warns(ia.IntarsiaWarning, match="page index is ignored"):
        actual = ia.ParquetFile(BufferSource(data)).read(filter=filter_)
    assert actual.equals(table.filter(filter_))


def test_equally_shifted_leaves_are_noticed_by_their_lists(stored, table):
    """All entries but the first are shifted, so pages hold as many rows as the index says."""
    data = with_first_rows(stored, C, lambda rows: [0, *(row + 1 for row in rows[1:])])
    rows = RowRanges.of((4501, 4504))
    with pytest.warns(ia.IntarsiaWarning, match="leaves of one group disagree"):
        actual = ia.ParquetFile(BufferSource(data)).read(["s"], rows)
    assert actual.equals(table.select(["s"]).slice(4501, 3))


def page_of(repetition, values):
    """A V1 page of a REPEATED INT32 column."""
    packed = np.packbits(repetition, bitorder="little").tobytes()
    levels = bytes([len(packed) << 1 | 1]) + packed, bytes([len(values) << 1, 1])
    body = b"".join(struct.pack("<I", len(part)) + part for part in levels)
    body += np.array(values, "<i4").tobytes()
    v1 = DataPageHeader(
        num_values=len(values),
        encoding=Encoding.PLAIN,
        definition_level_encoding=Encoding.RLE,
        repetition_level_encoding=Encoding.RLE,
    )
    size = len(body)
    header = PageHeader(
        type=0, uncompressed_page_size=size, compressed_page_size=size, data_page_header=v1
    )
    return encode(header) + body


def with_split_rows():
    """Twelve rows of three numbers each, in pages of eight numbers, and an index of these pages."""
    elements = [
        SchemaElement(name="root", num_children=1),
        SchemaElement(name="l", type=1, repetition_type=2),
    ]
    footer = FileMetaData(version=1, schema=elements, num_rows=12, row_groups=[])
    templates = SchemaTemplates(footer, encode(footer))
    levels, values = [0, 1, 1] * 12, list(range(36))
    pages = [page_of(levels[at : at + 8], values[at : at + 8]) for at in range(0, 36, 8)]
    size = sum(map(len, pages))
    metadata = ColumnMetaData(
        type=1,
        encodings=[0, 3],
        path_in_schema=["l"],
        codec=0,
        num_values=36,
        total_uncompressed_size=size,
        total_compressed_size=size,
        data_page_offset=4,
    )
    chunk = ChunkBytes(metadata, None, [memoryview(page) for page in pages], 36)
    template = templates.logical(read_schema(elements).roots[0])
    file = ia.ParquetFile(BufferSource(memoryview(splice(template, [RowGroupBytes(12, [chunk])]))))
    sizes = np.array([len(page) for page in pages])
    rows = np.cumsum([0, *(levels[at : at + 8].count(0) for at in range(0, 32, 8))])
    index = OffsetIndex(4 + np.cumsum(sizes) - sizes, sizes, rows)
    file._opened.page_indexes.take(0, 0, index)
    return file


@pytest.mark.parametrize("row", range(12))
def test_rows_that_continue_in_the_next_page_are_complete(row):
    file = with_split_rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ia.IntarsiaWarning)
        actual = file.read(rows=RowRanges.of((row, row + 1)))
    assert actual.column("l").to_pylist() == [[3 * row, 3 * row + 1, 3 * row + 2]]


def test_pages_with_split_rows_are_given_no_index(tmp_path):
    source = with_split_rows()._opened.source
    path = tmp_path / "t.parquet"
    path.write_bytes(source.read([(0, source.size)])[0])
    ia.add_indexes(path, ["page_index"])
    file = ia.ParquetFile(path)
    chunk = file.metadata.row_groups[0].columns[0]
    assert chunk.offset_index_offset is chunk.column_index_offset is None
    assert file.read().column("l").to_pylist() == [[n, n + 1, n + 2] for n in range(0, 36, 3)]


def test_an_index_of_pages_with_split_rows_is_ignored_once_they_are_read():
    file = with_split_rows()
    with pytest.warns(ia.IntarsiaWarning, match="page index is ignored"):
        file.read(rows=RowRanges.of((2, 3)))
