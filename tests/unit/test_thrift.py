import dataclasses
import time
from array import array
from types import SimpleNamespace

import pytest
from thrift.Thrift import TType

from intarsia.errors import FormatError
from intarsia.parquet import compact_protocol, metadata, thrift
from intarsia.parquet.compact_protocol import (
    Decoder,
    Span,
    list_elements,
    list_header,
    list_span,
    replace_fields,
    spans,
    varint,
    zigzag,
)
from intarsia.parquet.metadata import (
    ColumnChunk,
    ColumnCryptoMetaData,
    ColumnIndexStruct,
    ColumnMetaData,
    CountedChunk,
    Empty,
    FileMetaData,
    KeyValue,
    OutlinedChunk,
    PageHeader,
    RowGroup,
    SchemaElement,
    Statistics,
)
from intarsia.parquet.thrift import I32, Structs, amended, decode, encode, field, list_of, struct

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


def test_a_struct_is_decoded_as_it_was_encoded():
    data = encode(CHUNK)
    assert decode(ColumnMetaData, data) == (CHUNK, len(data))


def test_bytes_after_the_struct_are_not_consumed():
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


def test_strings_that_are_not_utf8_are_decoded():
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


def test_every_kind_of_value_is_skipped():
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


def test_lists_of_structs_are_split_and_joined():
    elements = [encode(KeyValue(key=str(i))) for i in range(20)]
    span = list_span(5, elements)
    assert list_elements(span.value) == elements
    assert list_elements(list_span(5, []).value) == []


def test_a_list_of_other_values_is_refused_as_structs():
    with pytest.raises(FormatError, match="list of structs"):
        list_elements(b"\x15\x02")


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**63 - 1])
def test_varints_and_zigzag_are_read_as_by_the_library(value):
    @struct
    class Number:
        n: int = field(1, list_of((10, None)))

    data = b"\x19" + list_header(2, I64) + zigzag(value) + zigzag(-value - 1) + b"\x00"
    assert decode(Number, data)[0].n == [value, -value - 1]
    assert varint(value) == zigzag(value // 2 if value % 2 == 0 else -(value // 2) - 1)


@pytest.mark.parametrize("size", [0, 14, 15, 16, 200])
def test_list_headers_are_read_as_by_the_library(size):
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
    before = time.process_time()
    with pytest.raises(FormatError, match=r"deep|depth"):
        spans(data)
    with pytest.raises(FormatError):
        decode(PageHeader, data)
    assert time.process_time() - before < 2


def test_nesting_within_the_limit_is_skipped():
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
    before = time.process_time()
    with pytest.raises(FormatError):
        spans(data + tail)
    with pytest.raises(FormatError):
        decode(KeyValue, data + tail)
    assert time.process_time() - before < 1


@pytest.mark.parametrize("kind", [14, 15])
def test_unknown_compact_types_are_refused(kind):
    with pytest.raises(FormatError, match="unknown compact thrift type"):
        spans(bytes([0x10 | kind]) + bytes(4))


@pytest.mark.parametrize("at", [11, 5_000, 1 << 40])
@pytest.mark.parametrize(
    "call",
    [
        lambda decoder, at: decoder.read(SimpleNamespace, (), at),
        lambda decoder, at: decoder.count_fields(at, 1),
        lambda decoder, at: decoder.bounds_of_structs(at, 1),
    ],
)
def test_offsets_beyond_the_data_are_refused(call, at):
    """The C extension would read other memory, or crash."""
    with pytest.raises(FormatError, match="ends early"):
        call(Decoder(bytes(10)), at)


def test_errors_name_the_offset():
    with pytest.raises(FormatError) as caught:
        spans(b"\x18\x01")
    assert caught.value.where.offset is not None


# --- every structure ----------------------------------------------------------------------------

STRUCTS = [
    cls
    for cls in vars(metadata).values()
    if dataclasses.is_dataclass(cls) and isinstance(cls, type)
]
SAMPLES = {
    TType.BOOL: [True, False],
    TType.BYTE: [7, -128],
    TType.I16: [300, -(2**15)],
    TType.I32: [70_000, -(2**31)],
    TType.I64: [2**40, -(2**63)],
    TType.DOUBLE: [1.5, -0.0],
}
UNKNOWN = [
    Span(900, BINARY, b"\x03new"),
    Span(901, 1, b""),
    Span(902, LIST, b"\x31\x01\x02\x01"),
    Span(903, STRUCT, b"\x15\x02\x00"),
    Span(904, MAP, b"\x01\x88\x01k\x01v"),
]


def sample(kind, which):
    """A value of a declared kind; ``which`` of its samples."""
    if isinstance(kind, type):
        return full(kind, which)
    if hasattr(kind, "element"):
        return [full(kind.element, which), full(kind.element, 1 - which)]
    number, arguments = kind
    if number == TType.LIST:
        inner, inner_arguments, _ = arguments
        element = inner_arguments[0] if inner == TType.STRUCT else (inner, inner_arguments)
        return [sample(element, (which + i) % 2) for i in range(20)]
    if number == TType.STRING:
        return ("ü", "")[which] if arguments == "UTF8" else (b"\xff\x00", b"")[which]
    return SAMPLES[number][which]


def full(cls, which=0):
    """An instance with all fields set."""
    declared = [f for f in dataclasses.fields(cls) if f.metadata]
    return cls(**{f.name: sample(f.metadata["kind"], which) for f in declared})


def strangers_everywhere(cls, data):
    """The struct with unknown fields added, and the same in every struct inside it."""
    fields, _ = spans(data)
    kinds = {f.metadata["number"]: f.metadata["kind"] for f in declared_fields(cls)}
    new = []
    for span in fields:
        inner = struct_inside(kinds[span.number])
        if inner is None:
            new.append(span)
        elif span.kind == STRUCT:
            new.append(Span(span.number, STRUCT, strangers_everywhere(inner, span.value)))
        else:
            elements = [strangers_everywhere(inner, e) for e in list_elements(span.value)]
            new.append(list_span(span.number, elements))
    return replace_fields(new, UNKNOWN)


def declared_fields(cls):
    return [f for f in dataclasses.fields(cls) if f.metadata]


def struct_inside(kind):
    """The class of a struct field, or of a list's elements; None for anything else."""
    if isinstance(kind, type):
        return kind
    if hasattr(kind, "element"):
        return kind.element
    if kind[0] == TType.LIST and kind[1][0] == TType.STRUCT:
        return kind[1][1][0]
    return None


def count_strangers(cls, data):
    """How many structs there are in the data, and how many of them hold all unknown fields."""
    fields, length = spans(data)
    assert length == len(data)
    kinds = {f.metadata["number"]: f.metadata["kind"] for f in declared_fields(cls)}
    structs, whole = 1, int([span for span in fields if span.number >= 900] == UNKNOWN)
    for span in fields:
        inner = struct_inside(kinds[span.number]) if span.number in kinds else None
        if inner is None:
            continue
        values = [span.value] if span.kind == STRUCT else list_elements(span.value)
        for value in values:
            more, of_them = count_strangers(inner, value)
            structs, whole = structs + more, whole + of_them
    return structs, whole


def without_bytes(value):
    """The struct as it would be if it had never been decoded."""
    if isinstance(value, list | tuple | Structs):
        return [without_bytes(v) for v in value]
    if not dataclasses.is_dataclass(value):
        return value
    fields = {f.name: without_bytes(getattr(value, f.name)) for f in declared_fields(type(value))}
    return type(value)(**fields)


@pytest.fixture
def no_extension(monkeypatch):
    """The library without its C extension."""
    monkeypatch.setattr(thrift, "fast_encode", None)
    monkeypatch.setattr(compact_protocol, "_IN_C", SimpleNamespace(_fast_decode=None))


def test_there_are_structures_to_try():
    assert len(STRUCTS) > 35
    assert {FileMetaData, RowGroup, ColumnChunk, PageHeader} <= set(STRUCTS)


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("which", [0, 1])
def test_every_structure_is_decoded_with_all_its_fields(cls, which):
    value = full(cls, which)
    data = encode(value)
    actual, length = decode(cls, data + b"rest")
    assert length == len(data)
    assert actual == value
    assert without_bytes(actual) == value
    assert encode(actual) == encode(without_bytes(actual)) == data
    assert [s.number for s in spans(data)[0]] == sorted(cls.thrift_numbers.values())


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_a_decoded_struct_is_encoded_to_the_same_bytes(cls):
    data = strangers_everywhere(cls, encode(full(cls)))
    structs, whole = count_strangers(cls, data)
    assert structs == whole
    actual, length = decode(cls, data)
    assert length == len(data)
    assert encode(actual) == data
    assert without_bytes(actual) == full(cls)


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("which", [0, 1])
def test_without_the_c_extension_objects_and_bytes_are_the_same(cls, which, request):
    value = full(cls, which)
    data = encode(value)
    with_strangers = strangers_everywhere(cls, data)
    actual = decode(cls, data)
    request.getfixturevalue("no_extension")
    assert encode(value) == data
    slow, length = decode(cls, data)
    assert (slow, length) == actual
    assert encode(slow) == encode(without_bytes(slow)) == data
    odd, length = decode(cls, with_strangers)
    assert length == len(with_strangers)
    assert without_bytes(odd) == value
    assert encode(odd) == with_strangers


@pytest.mark.usefixtures("no_extension")
@pytest.mark.parametrize("data", [b"", b"\x18", b"\x19\xfc\xff\xff\xff\xff\x07", nested(3_000)])
def test_without_the_c_extension_bad_bytes_are_refused(data):
    for cls in (FileMetaData, ColumnMetaData, PageHeader):
        with pytest.raises(FormatError):
            decode(cls, data)


@pytest.mark.usefixtures("no_extension")
def test_without_the_c_extension_cut_data_is_refused():
    data = encode(CHUNK)
    for stop in range(len(data)):
        with pytest.raises(FormatError):
            decode(ColumnMetaData, data[:stop])


# --- laziness -----------------------------------------------------------------------------------

FOOTER = full(FileMetaData)


def footer_with(groups):
    """A footer whose row groups are these bytes."""
    return replace_fields(spans(encode(FOOTER))[0], [list_span(4, groups)])


def group_with(columns):
    return replace_fields(spans(encode(full(RowGroup)))[0], [list_span(1, columns)])


def test_lists_of_row_groups_and_columns_are_lazy():
    footer, _ = decode(FileMetaData, encode(FOOTER))
    assert isinstance(footer.row_groups, Structs)
    assert isinstance(footer.row_groups[0].columns, Structs)
    assert footer.row_groups == FOOTER.row_groups
    assert isinstance(footer.schema, list)


@pytest.mark.parametrize("again", [b"\x09\x02", b"\x09\x82\x00"])
def test_the_last_of_two_lists_of_one_field_counts(again):
    one, other = full(ColumnChunk), ColumnChunk(file_offset=5)
    first, last = (list_span(1, [encode(chunk)]).value for chunk in (one, other))
    rest = replace_fields(spans(encode(full(RowGroup)))[0][1:], [])
    data = b"\x19" + first + again + last + rest[:1].replace(b"\x26", b"\x16") + rest[1:]
    group, stop = decode(FileMetaData, footer_with([data]))[0].row_groups[0], len(data)
    assert list(group.columns) == [other]
    assert len(encode(group)) == stop


def test_a_column_is_decoded_on_first_use_and_once():
    good = encode(full(ColumnChunk))
    # A column chunk whose metadata is no text, and so nothing the library can make an object of.
    bad = replace_fields([], [Span(3, STRUCT, b"\x00")])
    group = decode(RowGroup, group_with([good, bad, good]))[0]
    assert len(group.columns) == 3
    assert group.columns[0] == group.columns[2] == full(ColumnChunk)
    assert group.columns[0] is group.columns[0]
    assert group.columns[-1] == group.columns[2]
    assert group.columns[0:3:2] == [full(ColumnChunk)] * 2
    with pytest.raises(FormatError, match="element 1"):
        group.columns[1]
    with pytest.raises(IndexError):
        group.columns[3]
    assert group.columns.encoded(1) == bad


def test_columns_that_nobody_uses_are_not_decoded(monkeypatch):
    data = footer_with([group_with([encode(full(ColumnChunk))] * 50)] * 4)
    footer, _ = decode(FileMetaData, data)
    decoded = []

    def counting(cls, raw):
        decoded.append(cls)
        return decode(cls, raw)

    monkeypatch.setattr(thrift, "decode", counting)
    assert len(footer.row_groups) == 4
    assert [len(group.columns) for group in footer.row_groups] == [50] * 4
    assert decoded.count(ColumnChunk) == 0
    assert footer.row_groups[2].columns[7].file_offset == full(ColumnChunk).file_offset
    assert decoded.count(ColumnChunk) == 1


def test_lazy_lists_compare_as_lists_do():
    lists = [decode(RowGroup, encode(full(RowGroup, which)))[0].columns for which in (0, 0, 1)]
    assert lists[0] == lists[1]
    assert lists[0] == list(lists[1])
    assert lists[0] != lists[2]
    assert lists[0] != lists[0][:1]
    assert lists[0] != "text"
    assert repr(lists[0]) == repr(list(lists[0]))


def test_an_empty_or_absent_lazy_list():
    empty = decode(RowGroup, group_with([]))[0]
    assert len(empty.columns) == 0
    assert list(empty.columns) == []
    absent = replace_fields([s for s in spans(encode(full(RowGroup)))[0] if s.number != 1], [])
    with pytest.raises(FormatError, match="RowGroup"):
        decode(RowGroup, absent)


# --- amended ------------------------------------------------------------------------------------


def odd_chunk():
    return decode(ColumnChunk, strangers_everywhere(ColumnChunk, encode(full(ColumnChunk))))[0]


@pytest.mark.parametrize("value", [0, 1, -1, 63, -64, 64, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_amended_integers_have_the_bytes_of_thrift(value):
    before = ColumnChunk(file_offset=7, file_path="f")
    expected = dataclasses.replace(before, offset_index_offset=value)
    assert encode(amended(before, offset_index_offset=value)) == encode(expected)
    if abs(value) < 2**31:
        expected = dataclasses.replace(before, offset_index_length=value)
        assert encode(amended(before, offset_index_length=value)) == encode(expected)


def test_amending_a_field_keeps_unknown_fields_at_every_depth():
    before = odd_chunk()
    after = amended(before, file_offset=12345)
    assert after == dataclasses.replace(before, file_offset=12345)
    structs, whole = count_strangers(ColumnChunk, encode(after))
    assert structs == whole > 20
    changed = [s for s in spans(encode(after))[0] if s not in spans(encode(before))[0]]
    assert changed == [Span(2, I64, zigzag(12345))]


def test_a_mapping_amends_a_nested_struct():
    before = odd_chunk()
    after = amended(before, meta_data={"bloom_filter_offset": 99, "bloom_filter_length": None})
    inner = dataclasses.replace(before.meta_data, bloom_filter_offset=99, bloom_filter_length=None)
    assert after == dataclasses.replace(before, meta_data=inner)
    structs, whole = count_strangers(ColumnChunk, encode(after))
    assert structs == whole > 20


def test_nested_mappings_amend_deeper_structs():
    before = odd_chunk()
    after = amended(before, meta_data={"statistics": {"null_count": 3, "min": None}}, file_path="f")
    statistics = dataclasses.replace(before.meta_data.statistics, null_count=3, min=None)
    inner = dataclasses.replace(before.meta_data, statistics=statistics)
    assert after == dataclasses.replace(before, meta_data=inner, file_path="f")
    structs, whole = count_strangers(ColumnChunk, encode(after))
    assert structs == whole > 20


def test_none_removes_a_field_and_nothing_else():
    before = odd_chunk()
    for name in ("file_path", "crypto_metadata", "offset_index_offset"):
        after = amended(before, **{name: None})
        assert getattr(after, name) is None
        number = ColumnChunk.thrift_numbers[name]
        assert spans(encode(after))[0] == [
            s for s in spans(encode(before))[0] if s.number != number
        ]
        assert amended(after, **{name: None}) == after


def test_a_required_field_cannot_be_removed():
    with pytest.raises(FormatError):
        amended(KeyValue(key="k"), key=None)


def test_an_absent_field_is_added_in_its_place():
    before = decode(KeyValue, replace_fields(spans(encode(KeyValue(key="k")))[0], UNKNOWN))[0]
    after = amended(before, value="v")
    assert [s.number for s in spans(encode(after))[0]] == [1, 2, *(s.number for s in UNKNOWN)]
    assert after == KeyValue(key="k", value="v")


def test_a_mapping_makes_an_absent_struct():
    after = amended(ColumnChunk(), crypto_metadata={"ENCRYPTION_WITH_FOOTER_KEY": Empty()})
    expected = ColumnCryptoMetaData(ENCRYPTION_WITH_FOOTER_KEY=Empty())
    assert after == ColumnChunk(crypto_metadata=expected)


def test_structs_that_are_given_keep_their_own_unknown_fields():
    chunk = odd_chunk()
    after = amended(full(ColumnChunk), meta_data=chunk.meta_data)
    assert encode(after.meta_data) == encode(chunk.meta_data)


@pytest.mark.parametrize("which", ["lazy", "listed"])
def test_a_list_of_structs_is_replaced_by_the_bytes_of_its_elements(which):
    data = strangers_everywhere(FileMetaData, encode(FOOTER))
    footer, _ = decode(FileMetaData, data)
    group = amended(footer.row_groups[0], num_rows=7)
    groups = [group, *footer.row_groups[1:]]
    after = amended(footer, row_groups=groups if which == "listed" else tuple(groups))
    assert after.row_groups[0].num_rows == 7
    assert after == dataclasses.replace(footer, row_groups=groups)
    structs, whole = count_strangers(FileMetaData, encode(after))
    assert structs == whole > 100


def test_a_list_of_plain_structs_is_replaced_by_the_bytes_of_its_elements():
    data = strangers_everywhere(FileMetaData, encode(FOOTER))
    footer, _ = decode(FileMetaData, data)
    entries = [*footer.key_value_metadata, KeyValue(key="mine")]
    after = amended(footer, key_value_metadata=entries, column_orders=[])
    assert after.key_value_metadata == entries
    assert after.column_orders == []
    assert [encode(e) for e in after.key_value_metadata[:-1]] == [
        encode(e) for e in footer.key_value_metadata
    ]


def test_lists_of_plain_values_and_booleans_are_amended():
    before = odd_chunk().meta_data
    after = amended(before, encodings=[1, 2], path_in_schema=["ü", ""])
    assert (after.encodings, after.path_in_schema) == ([1, 2], ["ü", ""])
    statistics = amended(before.statistics, is_max_value_exact=False, is_min_value_exact=None)
    assert statistics.is_max_value_exact is False
    assert statistics.is_min_value_exact is None
    index = amended(full(ColumnIndexStruct), null_pages=[True, False, True])
    assert index.null_pages == [True, False, True]


def test_amending_nothing_gives_the_same_bytes():
    before = odd_chunk()
    assert encode(amended(before)) == encode(before)
    assert encode(amended(before, meta_data={})) == encode(before)


# --- booleans -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 14, 15, 200])
@pytest.mark.parametrize("kind", [1, 2])
def test_boolean_elements_take_a_byte_each(size, kind):
    elements = bytes([1 + i % 2 for i in range(size)])
    after = Span(2, I64, zigzag(5))
    flags = Span(1, LIST, list_header(size, kind) + elements)
    inner = Span(3, STRUCT, replace_fields([], [flags, Span(2, 1, b""), Span(9, 2, b"")]))
    data = replace_fields([], [flags, after, inner])
    assert spans(data + b"rest") == ([flags, after, inner], len(data))


def test_boolean_fields_between_others_take_no_byte():
    values = [Span(1, 1, b""), Span(2, I64, zigzag(-1)), Span(3, 2, b""), Span(90, 1, b"")]
    data = replace_fields([], values)
    assert spans(data) == (values, len(data))
    nested_ = replace_fields([], [Span(1, STRUCT, data), Span(2, 1, b"")])
    assert spans(nested_)[0] == [Span(1, STRUCT, data), Span(2, 1, b"")]


def test_lists_of_booleans_end_where_the_library_ends_them():
    flags = [True, False] * 10
    index = dataclasses.replace(full(ColumnIndexStruct), null_pages=flags)
    data = encode(index)
    fields, length = spans(data)
    assert length == len(data)
    (span,) = [s for s in fields if s.number == 1]
    assert len(span.value) == 2 + len(flags)
    assert decode(ColumnIndexStruct, data)[0].null_pages == flags


# --- bytes that are no text, without the extension ----------------------------------------------


@pytest.mark.parametrize("cls", [KeyValue, RowGroup, FileMetaData])
@pytest.mark.usefixtures("no_extension")
def test_without_the_c_extension_unknown_bytes_that_are_no_string_are_skipped(cls):
    data = replace_fields(spans(encode(full(cls)))[0], [Span(900, BINARY, b"\x02\xff\x00")])
    actual, length = decode(cls, data)
    assert length == len(data)
    assert encode(actual) == data


@pytest.mark.usefixtures("no_extension")
def test_without_the_c_extension_strings_that_are_not_utf8_are_decoded():
    assert decode(KeyValue, b"\x18\x03a\xffb\x00")[0].key == "a\N{REPLACEMENT CHARACTER}b"


def test_all_elements_are_decoded_at_once_to_the_requested_fields():
    chunks = [
        ColumnChunk(
            file_offset=0,
            meta_data=dataclasses.replace(CHUNK, data_page_offset=400 + i, num_values=i),
        )
        for i in range(20)
    ]
    group, _ = decode(RowGroup, encode(RowGroup(columns=chunks, total_byte_size=1, num_rows=2)))
    assert isinstance(group.columns, Structs)
    actual = group.columns.all_as(OutlinedChunk)
    assert [chunk.meta_data.num_values for chunk in actual] == list(range(20))
    starts = [chunk.meta_data.start for chunk in actual]
    assert starts == [group.columns[i].meta_data.start for i in range(20)]
    assert group.columns.all_as(CountedChunk)[7].meta_data.num_values == 7


def test_elements_that_lack_a_requested_field_are_reported():
    chunk = ColumnChunk(file_offset=0)
    group, _ = decode(RowGroup, encode(RowGroup(columns=[chunk], total_byte_size=1, num_rows=2)))
    assert group.columns.all_as(OutlinedChunk)[0].meta_data is None
    damaged = Structs(ColumnChunk, b"\x3c\x00\x00", array("q", [0, 3]), 1)
    with pytest.raises(FormatError, match="not a valid list of OutlinedChunk"):
        damaged.all_as(OutlinedChunk)
