"""Page indexes of nested leaves that their pages belie: noticed, and the answer is the same."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.format.compact import list_span, replace_fields, spans
from intarsia.format.footer import read_footer
from intarsia.format.metadata import OffsetIndexStruct, PageLocation
from intarsia.format.thrift import decode, encode
from intarsia.ranges import RowRanges
from intarsia.source import BufferSource

ROWS = 10_000
A, B, C = 1, 2, 3  # positions of the leaves of ``s``, after ``n``


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
    """The file with ``change(first_row_index list)`` in one leaf's OffsetIndex, of one length."""
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
        found = ia.ParquetFile(BufferSource(data)).read(["s"], rows)
    assert found.equals(table.select(["s"]).slice(page * 1000 - 2, 5))


def test_a_filter_planned_by_such_an_index_is_planned_again(stored, table):
    data = with_first_rows(stored, A, shifted(3, 5))
    filter_ = pc.field("s", "a") == 3000
    with pytest.warns(ia.IntarsiaWarning, match="page index is ignored"):
        found = ia.ParquetFile(BufferSource(data)).read(filter=filter_)
    assert found.equals(table.filter(filter_))


def test_leaves_shifted_alike_are_noticed_by_their_lists(stored, table):
    """All entries but the first shifted: the pages read hold as many rows as the index says."""
    data = with_first_rows(stored, C, lambda rows: [0, *(row + 1 for row in rows[1:])])
    rows = RowRanges.of((4501, 4504))
    with pytest.warns(ia.IntarsiaWarning, match="leaves of one group differ"):
        found = ia.ParquetFile(BufferSource(data)).read(["s"], rows)
    assert found.equals(table.select(["s"]).slice(4501, 3))


def test_pages_that_begin_within_a_row_are_not_taken(table):
    """A page index that says so of pages that a writer cut within a row."""
    values = pa.array([list(range(100))] * 300, pa.list_(pa.int32()))
    sink = pa.BufferOutputStream()
    options = {"data_page_size": 1000, "write_batch_size": 150, "use_dictionary": False}
    pq.write_table(pa.table({"l": values}), sink, data_page_version="1.0", **options)
    file = ia.ParquetFile(BufferSource(sink.getvalue().to_pybytes()))
    rows = RowRanges.of((7, 8))
    assert file.read(rows=rows).column("l").to_pylist() == [list(range(100))]
