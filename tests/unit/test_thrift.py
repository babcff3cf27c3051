import time

import pytest

from intarsia.errors import FormatError
from intarsia.format.metadata import (
    ColumnMetaData,
    KeyValue,
    PageHeader,
    SchemaElement,
    Statistics,
)
from intarsia.format.thrift import (
    I32,
    Span,
    decode,
    encode,
    field,
    list_elements,
    list_header,
    list_of,
    list_span,
    replace_fields,
    spans,
    struct,
    varint,
    zigzag,
)

STRUCT, LIST, MAP, BINARY, I64 = 12, 9, 11, 8, 6

CHUNK = ColumnMetaData(
    type=2,
    encodings=[0, 3],
    path_in_schema=["a", "ü"],
    codec=6,
    num_values=2**40,
    total_uncompressed_size=1,
    total_compressed_size=-1,
    data_page_offset=4,
    statistics=Statistics(null_count=0, min_value=b"\x00\xff", max_value=b"", nan_count=3),
)


def nested(depth, kind=STRUCT):
    """Field 200, ``depth`` structs or lists deep, which no structure here declares."""
    opening = bytes([kind]) + zigzag(200)
    inner = b"\x1c" if kind == STRUCT else b"\x19"
    return opening + inner * depth + b"\x00" * (depth + 2)


def test_a_struct_comes_back():
    data = encode(CHUNK)
    assert decode(ColumnMetaData, data) == (CHUNK, len(data))


def test_bytes_after_the_struct_are_left_over():
    data = encode(CHUNK)
    assert decode(ColumnMetaData, data + b"rest")[1] == len(data)
    assert spans(data + b"rest")[1] == len(data)


def test_absent_optional_fields_are_none():
    value, _ = decode(KeyValue, encode(KeyValue(key="k")))
    assert value.value is None


def test_structs_are_frozen():
    with pytest.raises(AttributeError):
        KeyValue(key="k").key = "other"


def test_unknown_fields_are_skipped():
    data = replace_fields(spans(encode(CHUNK))[0], [Span(32767, BINARY, b"\x03abc")])
    assert decode(ColumnMetaData, data) == (CHUNK, len(data))


def test_a_missing_required_field_is_refused():
    with pytest.raises(FormatError, match="KeyValue"):
        decode(KeyValue, b"\x00")


def test_text_that_is_not_utf8_is_read_all_the_same():
    assert decode(KeyValue, b"\x18\x03a\xffb\x00")[0].key == "a\N{REPLACEMENT CHARACTER}b"


def test_spans_name_every_field_known_or_not():
    data = replace_fields(spans(encode(KeyValue(key="k")))[0], [Span(999, BINARY, b"\x01x")])
    assert spans(data) == (
        [Span(1, BINARY, b"\x01k"), Span(999, BINARY, b"\x01x")],
        len(data),
    )


@pytest.mark.parametrize("value", [CHUNK, KeyValue(key="k", value="v"), SchemaElement(name="x")])
def test_replacing_nothing_gives_the_same_bytes(value):
    data = encode(value)
    assert replace_fields(spans(data)[0], []) == data


def test_replacing_a_field_leaves_the_others():
    data = encode(CHUNK)
    fields, _ = spans(data)
    edited = replace_fields(fields, [Span(5, I64, zigzag(7))])
    assert [s for s in spans(edited)[0] if s.number != 5] == [s for s in fields if s.number != 5]
    assert decode(ColumnMetaData, edited)[0].num_values == 7


def test_a_field_far_from_the_last_one_gets_a_long_header():
    edited = replace_fields([], [Span(1, BINARY, b"\x00"), Span(40, BINARY, b"\x00")])
    assert [span.number for span in spans(edited)[0]] == [1, 40]


def test_booleans_take_no_value_bytes():
    data = encode(Statistics(is_max_value_exact=True, is_min_value_exact=False))
    assert spans(data)[0] == [Span(7, 1, b""), Span(8, 2, b"")]
    assert replace_fields(spans(data)[0], []) == data


def test_every_kind_of_value_is_stepped_over():
    values = [
        Span(1, 3, b"\x7f"),
        Span(2, 4, zigzag(-5)),
        Span(3, 5, zigzag(2**31 - 1)),
        Span(4, I64, zigzag(-(2**63))),
        Span(5, 7, bytes(8)),
        Span(6, BINARY, b"\x02hi"),
        Span(7, LIST, b"\x21\x01\x02"),
        Span(8, 10, b"\x15\x02"),
        Span(9, MAP, b"\x00"),
        Span(10, MAP, b"\x01\x88\x01k\x01v"),
        Span(11, STRUCT, b"\x00"),
        Span(12, 13, bytes(16)),
    ]
    data = replace_fields([], values)
    assert spans(data) == (values, len(data))


def test_lists_of_structs_come_apart_and_together():
    elements = [encode(KeyValue(key=str(i))) for i in range(20)]
    span = list_span(5, elements)
    assert list_elements(span.value) == elements
    assert list_elements(list_span(5, []).value) == []


def test_a_list_of_something_else_is_refused_as_structs():
    with pytest.raises(FormatError, match="list of structs"):
        list_elements(b"\x15\x02")


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**63 - 1])
def test_varints_and_zigzag_are_what_the_library_reads(value):
    @struct
    class Number:
        n: int = field(1, list_of((10, None)))

    data = b"\x19" + list_header(2, I64) + zigzag(value) + zigzag(-value - 1) + b"\x00"
    assert decode(Number, data)[0].n == [value, -value - 1]
    assert varint(value) == zigzag(value // 2 if value % 2 == 0 else -(value // 2) - 1)


@pytest.mark.parametrize("size", [0, 14, 15, 16, 200])
def test_list_headers_are_what_the_library_reads(size):
    @struct
    class Numbers:
        n: list[int] = field(1, list_of(I32))

    data = b"\x19" + list_header(size, 5) + zigzag(-3) * size + b"\x00"
    assert decode(Numbers, data)[0].n == [-3] * size
    assert encode(Numbers(n=[-3] * size)) == data


@pytest.mark.parametrize("read", [lambda data: decode(ColumnMetaData, data), spans])
def test_data_cut_at_any_byte_is_refused(read):
    data = encode(CHUNK)
    for stop in range(len(data)):
        with pytest.raises(FormatError):
            read(data[:stop])


@pytest.mark.parametrize("kind", [STRUCT, LIST])
@pytest.mark.parametrize("depth", [65, 1_000, 100_000, 3_000_000])
def test_deep_nesting_is_refused_at_once(kind, depth):
    data = nested(depth, kind)
    before = time.perf_counter()
    with pytest.raises(FormatError, match="deep"):
        spans(data)
    with pytest.raises(FormatError):
        decode(PageHeader, data)
    assert time.perf_counter() - before < 2


def test_nesting_within_the_limit_is_stepped_over():
    data = nested(40)
    assert spans(data)[0][0].number == 200


HUGE = varint(2**31 - 1)


@pytest.mark.parametrize(
    "data",
    [
        b"\x18" + HUGE,  # a string
        b"\x19\xf8" + HUGE,  # a list of strings
        b"\x19\xf1" + HUGE,  # a list of booleans
        b"\x19\xfc" + HUGE,  # a list of structs
        b"\x1a\xfc" + HUGE,  # a set of structs
        b"\x1b" + HUGE + b"\x88",  # a map
        b"\x1b" + HUGE + b"\x11",  # a map of booleans
        b"\x18" + varint(2**63),
        b"\x19\xfc" + b"\xff" * 9 + b"\x01",
        b"\x18" + b"\xff" * 40,  # a varint without end
    ],
)
@pytest.mark.parametrize("tail", [b"", bytes(1000)])
def test_huge_counts_are_refused_at_once(data, tail):
    before = time.perf_counter()
    with pytest.raises(FormatError):
        spans(data + tail)
    with pytest.raises(FormatError):
        decode(KeyValue, data + tail)
    assert time.perf_counter() - before < 1


@pytest.mark.parametrize("kind", [14, 15])
def test_unknown_compact_types_are_refused(kind):
    with pytest.raises(FormatError, match="unknown compact thrift type"):
        spans(bytes([0x10 | kind]) + bytes(4))


def test_errors_tell_the_offset():
    with pytest.raises(FormatError) as caught:
        spans(b"\x18\x01")
    assert caught.value.where.offset is not None
