import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from intarsia.errors import FormatError
from intarsia.io.source import BufferSource
from intarsia.parquet.compact_protocol import Span, list_span, replace_fields, spans, varint
from intarsia.parquet.footer import read_footer
from intarsia.parquet.metadata import ColumnIndexStruct, OffsetIndexStruct, PageLocation
from intarsia.parquet.page_index import (
    OffsetIndex,
    _regular_offset_index,
    _short_offset_index,
    _thrift_offset_index,
    read_column_index,
    read_offset_index,
)
from intarsia.parquet.thrift import encode

SIZES = [0, 1, 14, 15, 16, 127, 128, 2442]


def locations(pages, start=4, size=1000, rows=100):
    return [
        PageLocation(offset=start + i * size, compressed_page_size=size, first_row_index=i * rows)
        for i in range(pages)
    ]


def encoded(pages):
    return memoryview(encode(OffsetIndexStruct(page_locations=pages)))


def lists(index):
    return (
        index.offset.tolist(),
        index.compressed_page_size.tolist(),
        index.first_row_index.tolist(),
    )


def column_index(pages, **other):
    given = {
        "null_pages": [False] * pages,
        "min_values": [b"a"] * pages,
        "max_values": [b"b"] * pages,
        "boundary_order": 1,
        **other,
    }
    return memoryview(encode(ColumnIndexStruct(**given)))


@pytest.mark.parametrize("pages", SIZES)
@pytest.mark.parametrize(("start", "size"), [(4, 1), (4, 1000), (2**40, 2**20), (2**61, 2**30)])
def test_both_ways_of_decoding_agree(pages, start, size):
    data = encoded(locations(pages, start, size))
    plain = _thrift_offset_index(data)
    assert len(plain) == pages
    assert lists(read_offset_index(data)) == lists(plain)
    short = _short_offset_index(data)
    assert (short is None) == (not 0 < pages < 15)
    assert short is None or lists(short) == lists(plain)
    fast = _regular_offset_index(data)
    assert (fast is None) == (pages == 0)
    if fast is not None:
        assert lists(fast) == lists(plain)
        assert {a.dtype for a in (fast.offset, fast.first_row_index)} == {np.dtype(np.int64)}


def test_the_index_of_a_file_is_decoded():
    sink = pa.BufferOutputStream()
    table = pa.table({"n": range(10_000)})
    pq.write_table(table, sink, write_page_index=True, data_page_size=512, use_dictionary=False)
    footer = read_footer(BufferSource(sink.getvalue().to_pybytes()))
    chunk = footer.metadata.row_groups[0].columns[0]
    (data,) = footer.source.read([(chunk.offset_index_offset, chunk.offset_index_length)])
    index = _regular_offset_index(data)
    assert lists(index) == lists(_thrift_offset_index(data))
    start = chunk.meta_data.start
    stop = start + chunk.meta_data.total_compressed_size
    assert len(index) > 5
    assert index.problem(10_000, start, stop) is None


def irregular_entries():
    location = encode(locations(1)[0])
    fields, _ = spans(location)
    long_headers = b"".join(bytes([s.kind]) + varint(s.number * 2) + s.value for s in fields)
    return {
        "a further field": replace_fields(fields, [Span(4, 6, b"\x02")]),
        "an unknown field of bytes": replace_fields(fields, [Span(32767, 8, b"\x02\x16\x15")]),
        "field headers with the number written out": long_headers + b"\x00",
        "another order of fields": (
            bytes([0x36])
            + fields[2].value
            + b"\x06\x02"
            + fields[0].value
            + b"\x15"
            + fields[1].value
            + b"\x00"
        ),
    }


@pytest.mark.parametrize("kind", irregular_entries())
@pytest.mark.parametrize(("place", "count"), [(0, 20), (1, 20), (19, 20), (0, 14), (13, 14)])
def test_irregular_entries_are_decoded_the_plain_way(kind, place, count):
    elements = [encode(page) for page in locations(count)]
    elements[place] = irregular_entries()[kind]
    data = memoryview(replace_fields([], [list_span(1, elements)]))
    assert _regular_offset_index(data) is None
    assert _short_offset_index(data) is None
    expected = locations(count)
    expected[place] = locations(1)[0]
    assert lists(read_offset_index(data)) == lists(_thrift_offset_index(encoded(expected)))


def test_fields_after_the_page_locations_are_skipped():
    fields, _ = spans(encoded(locations(20)))
    sizes = Span(2, 9, b"\x26\x02\x04")
    data = memoryview(replace_fields(fields, [sizes]))
    assert lists(read_offset_index(data)) == lists(_thrift_offset_index(encoded(locations(20))))


@pytest.mark.parametrize("pages", [1, 15, 200])
def test_an_index_cut_at_any_byte_is_refused(pages):
    data = encoded(locations(pages))
    for stop in range(len(data) - 1):
        with pytest.raises(FormatError):
            read_offset_index(data[:stop])


@pytest.mark.parametrize("size", [0, 1, 2**31 - 1, 2**31, 2**62, 2**63, 2**64 - 1, 2**64 - 7])
@pytest.mark.parametrize("tail", [0, 1, 7, 14, 1000])
def test_a_hostile_number_of_pages_is_refused_or_decoded(size, tail):
    data = memoryview(b"\x19\xfc" + varint(size) + bytes(tail))
    if size == 0 and tail:
        assert len(read_offset_index(data)) == 0
        return
    with pytest.raises(FormatError):
        read_offset_index(data)


@pytest.mark.parametrize("pages", [3, 16])
def test_any_byte_changed_gives_an_index_or_a_format_error(pages):
    data = bytes(encoded(locations(pages)))
    for i in range(len(data)):
        for changed in (0x00, 0x7F, 0x80, 0xFF, data[i] ^ 0x10):
            try:
                read_offset_index(memoryview(data[:i] + bytes([changed]) + data[i + 1 :]))
            except FormatError:
                continue


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x19", b"\x19\x0c", b"\x19\xfc", b"\xff" * 30])
def test_an_invalid_offset_index_is_refused(data):
    with pytest.raises(FormatError):
        read_offset_index(memoryview(data))


def test_decoding_is_fast():
    data = encoded(locations(2442))
    seconds = []
    for _ in range(10):
        before = time.process_time()
        read_offset_index(data)
        seconds.append(time.process_time() - before)
    assert min(seconds) < 0.005


def index(offsets=(10, 20, 30), sizes=(10, 10, 10), rows=(0, 5, 10)):
    return OffsetIndex(*(np.array(values, dtype=np.int64) for values in (offsets, sizes, rows)))


def test_a_consistent_index_has_no_problem():
    assert index().problem(15, 10, 40) is None
    assert index(offsets=(10, 25, 40)).problem(15, 4, 100) is None


def test_row_bounds():
    starts, stops = index().row_bounds(15)
    assert starts.tolist() == [0, 5, 10]
    assert stops.tolist() == [5, 10, 15]


@pytest.mark.parametrize(
    ("given", "num_rows", "said"),
    [
        (index(rows=(1, 5, 10)), 15, "first page starts at row 1"),
        (index(rows=(0, 5, 5)), 15, "ascend"),
        (index(rows=(0, 10, 5)), 15, "ascend"),
        (index(rows=(0, 2**63 - 1, -(2**63))), 15, "ascend"),
        (index(), 10, "ascend"),
        (index(), 7, "ascend"),
        (index(rows=(-5, 5, 10)), 15, "first page"),
        (index(sizes=(10, 11, 10)), 15, "overlap"),
        (index(offsets=(20, 10, 30)), 15, "overlap"),
        (index(offsets=(10, 10, 30)), 15, "overlap"),
        (index(sizes=(10, 0, 10)), 15, "empty"),
        (index(sizes=(10, -5, 10)), 15, "empty"),
        (index(offsets=(9, 20, 30)), 15, "outside"),
        (index(sizes=(10, 10, 11)), 15, "outside"),
        (index(offsets=(10, 20, 2**63 - 5)), 15, "outside"),
        (index(offsets=(10, 2**63 - 5, -(2**63) + 20)), 15, "pages"),
        (index((), (), ()), 15, "no pages"),
    ],
)
def test_every_inconsistency_is_named(given, num_rows, said):
    assert said in given.problem(num_rows, 10, 40)


def test_no_pages_are_right_for_no_rows():
    assert index((), (), ()).problem(0, 4, 4) is None


def test_a_column_index_is_decoded():
    data = column_index(3, null_pages=[False, True, False], null_counts=[1, 5, 0])
    decoded = read_column_index(data)
    assert len(decoded) == 3
    assert decoded.null_pages.tolist() == [False, True, False]
    assert decoded.min_values == [b"a"] * 3
    assert decoded.max_values == [b"b"] * 3
    assert decoded.null_counts.tolist() == [1, 5, 0]
    assert decoded.nan_counts is None
    assert decoded.boundary_order == 1


def test_missing_counts_are_none_and_not_zero():
    assert read_column_index(column_index(2)).null_counts is None


def test_nan_counts_and_histograms_are_read():
    data = column_index(2, nan_counts=[0, 4], repetition_level_histograms=[1, 2, 3, 4])
    assert read_column_index(data).nan_counts.tolist() == [0, 4]


def test_an_empty_column_index_is_decoded():
    assert len(read_column_index(column_index(0))) == 0


@pytest.mark.parametrize(
    "other",
    [
        {"null_pages": [False] * 2},
        {"min_values": [b"a"] * 2},
        {"max_values": [b"a"] * 4},
        {"null_counts": [0] * 2},
        {"null_counts": []},
        {"nan_counts": [0] * 4},
    ],
)
def test_lists_of_different_lengths_are_refused(other):
    with pytest.raises(FormatError, match="differ in length"):
        read_column_index(column_index(3, **other))


def test_a_column_index_cut_at_any_byte_is_refused():
    data = column_index(20, null_counts=[0] * 20)
    for stop in range(len(data)):
        with pytest.raises(FormatError):
            read_column_index(data[:stop])
