import dataclasses
import zlib

import pytest

from intarsia.errors import FormatError
from intarsia.io.source import BufferSource
from intarsia.parquet.compact_protocol import Span, replace_fields, spans, varint
from intarsia.parquet.metadata import (
    ColumnMetaData,
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    Empty,
    PageHeader,
    PageType,
    Statistics,
)
from intarsia.parquet.page_header import checksum_problem, read_page_header, walk_pages
from intarsia.parquet.thrift import encode
from intarsia.testing import CountingSource

UNKNOWN_TYPE, BINARY = 17, 8


def data_page(values, body, statistics=None, **more):
    v1 = DataPageHeader(
        num_values=values,
        encoding=0,
        definition_level_encoding=3,
        repetition_level_encoding=3,
        statistics=statistics,
    )
    return page(PageType.DATA_PAGE, body, data_page_header=v1, **more)


def data_page_v2(values, body):
    v2 = DataPageHeaderV2(
        num_values=values,
        num_nulls=0,
        num_rows=values,
        encoding=0,
        definition_levels_byte_length=0,
        repetition_levels_byte_length=0,
    )
    return page(PageType.DATA_PAGE_V2, body, data_page_header_v2=v2)


def dictionary_page(values, body):
    header = DictionaryPageHeader(num_values=values, encoding=0)
    return page(PageType.DICTIONARY_PAGE, body, dictionary_page_header=header)


def page(kind, body, **fields):
    sizes = {"uncompressed_page_size": len(body), "compressed_page_size": len(body)}
    return encode(PageHeader(type=kind, **(sizes | fields))) + body


def chunk_of(pages, values, *, dictionary=False, before=b"PAR1", after=b"footer"):
    """A source with the pages as one chunk, and the chunk's metadata."""
    body = b"".join(pages)
    start = len(before)
    metadata = ColumnMetaData(
        type=1,
        encodings=[0],
        path_in_schema=["x"],
        codec=0,
        num_values=values,
        total_uncompressed_size=len(body),
        total_compressed_size=len(body),
        data_page_offset=start + (len(pages[0]) if dictionary else 0),
        dictionary_page_offset=start if dictionary else None,
    )
    return CountingSource(before + body + after), metadata


def check_places(pages, walked):
    at = 4
    for number, (whole, actual) in enumerate(zip(pages, walked, strict=True)):
        assert (actual.number, actual.offset, actual.size) == (number, at, len(whole))
        assert actual.body_offset == at + actual.header_size
        at += len(whole)


def test_dictionary_and_data_pages_of_both_versions_are_walked():
    pages = [
        dictionary_page(3, bytes(12)),
        data_page(5, bytes(20)),
        data_page_v2(7, b""),
        data_page(1, bytes(5000)),
    ]
    source, metadata = chunk_of(pages, 13, dictionary=True)
    walked = list(walk_pages(source, metadata))
    check_places(pages, walked)
    assert [p.num_values for p in walked] == [None, 5, 7, 1]
    assert [p.is_dictionary for p in walked] == [True, False, False, False]
    assert [p.is_data for p in walked] == [False, True, True, True]


@pytest.mark.parametrize(
    "stranger",
    [
        page(PageType.INDEX_PAGE, b"x" * 33, index_page_header=Empty()),
        page(PageType.INDEX_PAGE, b"x" * 9000),
        page(UNKNOWN_TYPE, b"y" * 9000),
        page(UNKNOWN_TYPE, b""),
        page(-1, b"y"),
    ],
)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_pages_of_other_types_are_skipped_by_their_size(stranger, position):
    pages = [data_page(5, bytes(20)), data_page(6, bytes(24))]
    pages.insert(position, stranger)
    source, metadata = chunk_of(pages, 11)
    walked = list(walk_pages(source, metadata))[: len(pages)]
    check_places(pages[: len(walked)], walked)
    assert [p.num_values for p in walked if p.is_data] == [5, 6]
    assert not any(p.is_data or p.is_dictionary for p in walked if p.number == position)


def test_a_header_of_another_page_type_does_not_make_a_data_page():
    v1 = DataPageHeader(num_values=5, encoding=0)
    odd = page(UNKNOWN_TYPE, b"abc", data_page_header=v1)
    header, _ = read_page_header(memoryview(odd))
    assert header.data_page_header == v1
    source, metadata = chunk_of([odd, data_page(2, b"")], 2)
    assert [p.num_values for p in walk_pages(source, metadata)] == [None, 2]


@pytest.mark.parametrize("size", [0, 100, 200, 300, 2_000, 5_000, 70_000, 300_000])
@pytest.mark.parametrize("position", [0, 1])
def test_headers_of_any_length_are_read(size, position):
    huge = Statistics(min_value=b"\x80" * size, max_value=b"\xff" * size)
    pages = [data_page(5, bytes(20)), data_page(6, bytes(24)), data_page(7, bytes(9))]
    pages[position] = data_page(5 + position, bytes(24), huge)
    source, metadata = chunk_of(pages, 18)
    walked = list(walk_pages(source, metadata))
    check_places(pages, walked)
    assert [p.num_values for p in walked] == [5, 6, 7]
    assert walked[position].header.data_page_header.statistics == huge
    assert read_page_header(memoryview(pages[position]))[1] == walked[position].header_size


def test_short_headers_are_read_without_their_bodies():
    pages = [data_page(1, bytes(1 << 20)) for _ in range(4)]
    source, metadata = chunk_of(pages, 4)
    assert len(list(walk_pages(source, metadata))) == 4
    assert sum(length for _, length in source.ranges) <= 4 * 4096


def test_the_walk_ends_with_the_last_value():
    source, metadata = chunk_of([data_page(3, b"abc"), b"\xff" * 50], 3)
    assert len(list(walk_pages(source, metadata))) == 1


def test_the_walk_ends_with_the_chunk_where_values_are_missing():
    source, metadata = chunk_of([data_page(3, b"abc")], 99)
    assert [p.num_values for p in walk_pages(source, metadata)] == [3]


def test_a_chunk_of_no_bytes_has_no_pages():
    source, metadata = chunk_of([b""], 0)
    assert list(walk_pages(source, metadata)) == []


def test_pages_without_a_value_do_not_end_the_walk():
    pages = [data_page(0, b"") for _ in range(3)] + [data_page(2, b"ab")]
    source, metadata = chunk_of(pages, 2)
    check_places(pages, list(walk_pages(source, metadata)))


def test_a_page_beyond_its_chunk_is_refused_with_page_and_offset():
    first, second = data_page(3, b"abc"), data_page(3, b"abc")
    source, metadata = chunk_of([first, second[:-1]], 6, after=bytes(100))
    walked = walk_pages(source, metadata)
    assert next(walked).num_values == 3
    with pytest.raises(FormatError, match="its chunk has") as caught:
        next(walked)
    assert (caught.value.where.page, caught.value.where.offset) == (1, 4 + len(first))


def test_a_page_beyond_its_file_is_refused_with_page_and_offset():
    first, second = data_page(3, b"abc"), data_page(3, b"abc")
    _, metadata = chunk_of([first, second], 6, after=b"")
    cut = BufferSource((b"PAR1" + first + second)[:-2])
    with pytest.raises(FormatError) as caught:
        list(walk_pages(cut, metadata))
    assert (caught.value.where.page, caught.value.where.offset) == (1, 4 + len(first))


@pytest.mark.parametrize("length", [0, 1, 5, 10])
def test_a_header_cut_by_its_chunk_is_refused_with_page_and_offset(length):
    first, second = data_page(3, b"abc"), data_page(3, b"")[:length]
    source, metadata = chunk_of([first, second], 6, after=b"")
    if not length:
        assert len(list(walk_pages(source, metadata))) == 1
        return
    with pytest.raises(FormatError) as caught:
        list(walk_pages(source, metadata))
    assert (caught.value.where.page, caught.value.where.offset) == (1, 4 + len(first))


@pytest.mark.parametrize("garbage", [b"\xff" * 50, b"\x00" * 50, bytes(range(200))])
def test_invalid_headers_are_refused_with_page_and_offset(garbage):
    first = data_page(3, b"abc")
    source, metadata = chunk_of([first, garbage], 6)
    with pytest.raises(FormatError) as caught:
        list(walk_pages(source, metadata))
    assert (caught.value.where.page, caught.value.where.offset) == (1, 4 + len(first))


@pytest.mark.parametrize("name", ["compressed_page_size", "uncompressed_page_size"])
@pytest.mark.parametrize("size", [-1, -(2**31)])
def test_negative_sizes_are_refused(name, size):
    bad = data_page(3, b"abc", **{name: size})
    with pytest.raises(FormatError, match="negative size"):
        read_page_header(memoryview(bad))
    source, metadata = chunk_of([data_page(1, b""), bad], 4)
    with pytest.raises(FormatError, match="negative size") as caught:
        list(walk_pages(source, metadata))
    assert caught.value.where.page == 1


def test_a_negative_number_of_values_is_refused():
    source, metadata = chunk_of([data_page(-3, b"abc"), data_page(6, b"")], 3)
    with pytest.raises(FormatError, match="negative number") as caught:
        list(walk_pages(source, metadata))
    assert caught.value.where.page == 0


@pytest.mark.parametrize("start", [-1, -(2**40), 2**40])
def test_a_chunk_outside_its_file_ends_in_an_error_or_without_pages(start):
    source, metadata = chunk_of([data_page(3, b"abc")], 3)
    moved = dataclasses.replace(metadata, data_page_offset=start)
    if start > 0:
        assert list(walk_pages(source, moved)) == []
        return
    with pytest.raises(FormatError) as caught:
        list(walk_pages(source, dataclasses.replace(moved, total_compressed_size=2**41)))
    assert caught.value.where.page == 0


def test_unknown_fields_are_skipped_and_counted():
    whole = data_page(3, b"abc")
    fields, length = spans(whole)
    longer = replace_fields(fields, [Span(32767, BINARY, varint(2000) + bytes(2000))])
    pages = [longer + whole[length:], data_page(1, b"z")]
    source, metadata = chunk_of(pages, 4)
    check_places(pages, list(walk_pages(source, metadata)))


def signed(number):
    return number - 2**32 if number >= 2**31 else number


BODY_OF_CRC_0 = bytes.fromhex("9d0ad96d")


def header_with(crc):
    return PageHeader(type=0, uncompressed_page_size=0, compressed_page_size=0, crc=crc)


def test_a_checksum_that_fits_is_no_problem():
    bodies = [b"", b"abc", b"hello", BODY_OF_CRC_0]
    bodies += [bytes([i]) for i in range(20)]
    kinds = set()
    for body in bodies:
        crc = signed(zlib.crc32(body))
        kinds.add((crc > 0) - (crc < 0))
        assert checksum_problem(header_with(crc), memoryview(body)) is None
    assert kinds == {-1, 0, 1}


def test_a_checksum_of_zero_is_compared():
    assert zlib.crc32(BODY_OF_CRC_0) == 0
    assert "00000000 in the header" in checksum_problem(header_with(0), memoryview(b"abc"))
    assert checksum_problem(header_with(0), memoryview(BODY_OF_CRC_0)) is None


def test_the_error_about_a_checksum_names_both_values():
    problem = checksum_problem(header_with(-1), memoryview(b"abc"))
    assert problem == f"checksum ffffffff in the header, {zlib.crc32(b'abc'):08x} of the bytes"


def test_no_checksum_is_no_problem():
    assert checksum_problem(header_with(None), memoryview(b"abc")) is None


def test_a_negative_checksum_survives_the_header():
    header = header_with(signed(0xDEADBEEF))
    assert read_page_header(memoryview(encode(header)))[0].crc == signed(0xDEADBEEF)
