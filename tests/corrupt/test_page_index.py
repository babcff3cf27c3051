"""A page index that contradicts its pages is noticed when they are read; no row is lost.

The pages cannot reveal a run of equally shifted entries with matching row counts.
"""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.file.open_file import OpenedFile
from intarsia.io.source import BufferSource
from intarsia.parquet.compact_protocol import list_span, replace_fields, spans
from intarsia.parquet.footer import read_footer
from intarsia.parquet.metadata import ColumnIndexStruct, OffsetIndexStruct, PageLocation
from intarsia.parquet.thrift import decode, encode
from intarsia.plan import planner
from intarsia.plan.cost_model import CostModel
from intarsia.plan.plan import ScanPlan
from intarsia.plan.planner import plan_rows
from intarsia.scan import scan, small_row_groups
from intarsia.scan.request import Filter, Request
from intarsia.scan.scan import scan_file


@pytest.fixture(scope="module")
def table():
    return pa.table({"n": range(10_000), "s": [str(i) for i in range(10_000)]})


@pytest.fixture(scope="module")
def stored(table):
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        write_page_index=True,
        max_rows_per_page=1000,
        write_batch_size=100,
        use_dictionary=False,
    )
    return sink.getvalue().to_pybytes()


def with_pages(stored, column, change):
    """The file with ``change(page locations)`` for one column's OffsetIndex, of the same length."""
    chunk = read_footer(BufferSource(stored)).metadata.row_groups[0].columns[column]
    start, length = chunk.offset_index_offset, chunk.offset_index_length
    pages = decode(OffsetIndexStruct, stored[start : start + length])[0].page_locations
    fields, _ = spans(stored[start : start + length])
    data = replace_fields(fields, [list_span(1, [encode(page) for page in change(pages)])])
    assert len(data) <= length, "choose rows that take no more bytes"
    return stored[:start] + data + bytes(length - len(data)) + stored[start + length :]


def with_first_rows(stored, column, change):
    """The file with ``change(first_row_index list)`` applied to one column's OffsetIndex."""

    def moved(pages):
        rows = change([page.first_row_index for page in pages])
        return [
            PageLocation(
                offset=page.offset,
                compressed_page_size=page.compressed_page_size,
                first_row_index=row,
            )
            for page, row in zip(pages, rows, strict=True)
        ]

    return with_pages(stored, column, moved)


def with_columns_index(stored, column, **changed):
    """The file with other lists in one column's ColumnIndex, which take no more bytes."""
    chunk = read_footer(BufferSource(stored)).metadata.row_groups[0].columns[column]
    start, length = chunk.column_index_offset, chunk.column_index_length
    index = decode(ColumnIndexStruct, stored[start : start + length])[0]
    data = encode(replace(index, **changed))
    assert len(data) <= length
    return stored[:start] + data + bytes(length - len(data)) + stored[start + length :]


@pytest.mark.parametrize("counts", [None, [0, 0, 0, 1, *[0] * 6], [0, 0, 0, 60, *[0] * 6]])
def test_a_page_wrongly_marked_as_null_loses_no_row(stored, table, counts):
    lies = [at == 3 for at in range(10)]
    data = with_columns_index(stored, 0, null_pages=lies, null_counts=counts)
    file = ia.ParquetFile(BufferSource(data))
    for value in (2999, 3000, 3500):
        filter_ = pc.field("n") == value
        assert file.read(filter=filter_).equals(table.filter(filter_))
    assert file.read(filter=pc.field("n").is_valid()).num_rows == 10_000
    assert file.read(filter=pc.field("n").is_null()).num_rows == 0


@pytest.mark.parametrize("count", [0, 1, 9])
def test_a_column_index_of_other_pages_than_the_offset_index_has_is_not_used(stored, table, count):
    chunk = read_footer(BufferSource(stored)).metadata.row_groups[0].columns[0]
    start, length = chunk.column_index_offset, chunk.column_index_length
    index = decode(ColumnIndexStruct, stored[start : start + length])[0]
    lists = ("null_pages", "min_values", "max_values", "null_counts")
    data = with_columns_index(stored, 0, **{name: getattr(index, name)[:count] for name in lists})
    file = ia.ParquetFile(BufferSource(data))
    for value in (0, 1500, 9999):
        filter_ = pc.field("n") == value
        assert file.read(filter=filter_).equals(table.filter(filter_))


def test_null_pages_are_skipped_if_the_counts_agree():
    sink, values = pa.BufferOutputStream(), [None if at // 1000 == 3 else at for at in range(5000)]
    table = pa.table({"n": values})
    options = {"max_rows_per_page": 1000, "write_batch_size": 100, "use_dictionary": False}
    pq.write_table(table, sink, write_page_index=True, **options)
    file = OpenedFile(BufferSource(sink.getvalue().to_pybytes()), "sound")
    bounds = file.page_indexes.bounds(0, 0)
    assert bounds.all_null.tolist() == [False, False, False, True, False]


def shifted(entry, by):
    def change(rows):
        rows[entry] += by
        return rows

    return change


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("entry", range(1, 10))
@pytest.mark.parametrize("by", [-5, 5])
def test_a_shifted_entry_is_noticed_and_loses_no_row(stored, table, column, entry, by):
    data = with_first_rows(stored, column, shifted(entry, by))
    for value in (entry * 1000 - 5, entry * 1000 - 1, entry * 1000, entry * 1000 + 4):
        for filter_ in (pc.field("n") == value, pc.field("s") == str(value)):
            with pytest.warns(ia.IntarsiaWarning, match="page index is ignored"):
                actual = ia.ParquetFile(BufferSource(data)).read(filter=filter_)
            assert actual.equals(table.filter(filter_))


@pytest.mark.parametrize("by", [-5, 5])
def test_a_plan_made_by_a_shifted_index_loses_no_row_when_carried_out(stored, table, by):
    data = with_first_rows(stored, 0, shifted(3, by))
    for value in (2995, 2999, 3000, 3004):
        filter_ = pc.field("n") == value
        request = Request(table.schema, ("n", "s"), Filter.of(filter_, table.schema))
        other = OpenedFile(BufferSource(data), "planned")
        planned = ScanPlan(plan_rows(other, request.pruning, {}, table.schema).rows)
        file = OpenedFile(BufferSource(data), "carried out")
        with pytest.warns(ia.IntarsiaWarning, match="page index is ignored"):
            tables = list(scan_file(file, request, {}, planned=planned))
        assert pa.concat_tables(tables).equals(table.filter(filter_))


@pytest.fixture
def all_are_small(monkeypatch):
    """Chunks of any size are read whole, after pages were chosen by their index."""
    limits = dict.fromkeys(("chunk_bytes", "skippable_bytes", "file_bytes_per_chunk"), 1 << 40)
    monkeypatch.setattr(small_row_groups, "COSTS", CostModel(many_chunks=1, **limits))
    monkeypatch.setattr(planner, "reads_whole_chunks", lambda *_: False)


@pytest.mark.usefixtures("all_are_small")
@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize("by", [-5, 5])
def test_chunks_that_are_read_whole_lose_no_row_by_a_shifted_index(stored, table, by, is_planned):
    data = with_first_rows(stored, 0, shifted(3, by))
    for value in (2995, 2999, 3000, 3004):
        filter_ = pc.field("n") == value
        request = Request(table.schema, ("n", "s"), Filter.of(filter_, table.schema))
        other = OpenedFile(BufferSource(data), "planned")
        planned = ScanPlan(plan_rows(other, request.pruning, {}, table.schema).rows)
        assert planned.rows.num_rows < table.num_rows
        file = OpenedFile(BufferSource(data), "carried out")
        with pytest.warns(ia.IntarsiaWarning, match="page index is ignored"):
            tables = list(scan_file(file, request, {}, planned=planned if is_planned else None))
        assert pa.concat_tables(tables).equals(table.filter(filter_))
        assert "pyarrow_metadata" in vars(file)  # forces whole reads


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [1, *rows[1:]],
        lambda rows: rows[::-1],
        lambda rows: [*rows[:3], rows[2], *rows[4:]],
        lambda rows: [*rows[:-1], 10_000],
    ],
    ids=["not from row 0", "descending", "twice the same", "beyond the end"],
)
def test_an_inconsistent_index_is_not_used(stored, table, change):
    data = with_first_rows(stored, 0, change)
    filter_ = (pc.field("n") > 4321) & (pc.field("n") < 4330)
    with pytest.warns(ia.IntarsiaWarning, match="page index is ignored"):
        actual = ia.ParquetFile(BufferSource(data)).read(filter=filter_)
    assert actual.equals(table.filter(filter_))


def without_the_first(pages):
    first, second, *rest = pages
    kept = PageLocation(
        offset=second.offset,
        compressed_page_size=second.compressed_page_size,
        first_row_index=first.first_row_index,
    )
    return [kept, *rest]


def test_a_missing_first_entry_does_not_turn_the_first_page_into_a_dictionary(stored, table):
    data = with_pages(stored, 1, without_the_first)
    filter_ = pc.field("n") == 5600
    with pytest.warns(ia.IntarsiaWarning, match="page index is ignored"):
        actual = ia.ParquetFile(BufferSource(data)).read(filter=filter_)
    assert actual.equals(table.filter(filter_))


def test_a_column_read_whole_is_checked_as_well(stored, table):
    data = with_first_rows(stored, 0, shifted(1, 5))
    filter_ = pc.field("n") >= 1000  # nine of ten pages
    with pytest.warns(ia.IntarsiaWarning, match="page index is ignored"):
        actual = ia.ParquetFile(BufferSource(data)).read(filter=filter_)
    assert actual.equals(table.filter(filter_))


def test_a_scan_plans_again_if_another_scan_found_the_index_wrong(stored, table, monkeypatch):
    data = with_first_rows(stored, 0, shifted(3, 5))
    file = OpenedFile(BufferSource(data), "shared")
    filter_ = pc.field("n") == 3000
    request = Request(table.schema, ("n", "s"), Filter.of(filter_, table.schema))
    plan_group_of = scan.plan_group

    def plan_and_lose_the_race(*arguments, **options):
        actual = plan_group_of(*arguments, **options)
        monkeypatch.setattr(scan, "plan_group", plan_group_of)
        list(scan_file(file, request, {}))  # the other scan discovers the wrong index
        return actual

    monkeypatch.setattr(scan, "plan_group", plan_and_lose_the_race)
    with pytest.warns(ia.IntarsiaWarning, match="page index is ignored"):
        actual = list(scan_file(file, request, {}))
    assert pa.concat_tables(actual).equals(table.filter(filter_))
