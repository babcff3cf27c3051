import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.errors import FormatError, UnsupportedError
from intarsia.io.source import BufferSource
from intarsia.parquet.compact_protocol import Span, list_elements, list_span, replace_fields, spans
from intarsia.parquet.footer import check_editable, framed, read_footer, with_key_values
from intarsia.parquet.footer_cache import decode_footer
from intarsia.parquet.metadata import ColumnMetaData, FileMetaData, KeyValue
from intarsia.parquet.page_header import read_page_header
from intarsia.parquet.thrift import amended, decode, encode
from intarsia.testing import CountingSource

BINARY, LIST, STRUCT = 8, 9, 12
SCHEMA, ROW_GROUPS, KEY_VALUES, ENCRYPTION = 2, 4, 5, 8
UNKNOWN = [
    Span(99, BINARY, b"\x05later"),
    Span(1234, STRUCT, b"\x16\x08\x1c\x15\x02\x00\x00"),
    Span(32767, BINARY, b"\x04\x00\xff\x00\xff"),
]
TABLE = pa.table({"n": list(range(20)), "s": ["a", "b"] * 10})


@pytest.fixture(scope="module")
def data():
    sink = pa.BufferOutputStream()
    metadata = {b"key": b"value"}
    pq.write_table(TABLE.replace_schema_metadata(metadata), sink, row_group_size=8)
    return sink.getvalue().to_pybytes()


@pytest.fixture(scope="module")
def raw(data):
    return footer_of(data)


def footer_of(data):
    return read_footer(BufferSource(data)).raw


def with_footer(data, raw):
    return data[: read_footer(BufferSource(data)).offset] + framed(raw)


def values_of(raw):
    return {span.number: span.value for span in spans(raw)[0]}


def with_unknown_fields(struct_bytes):
    return replace_fields(spans(struct_bytes)[0], UNKNOWN)


def edited_list(raw, number, edit):
    elements = [edit(element) for element in list_elements(values_of(raw)[number])]
    return replace_fields(spans(raw)[0], [list_span(number, elements)])


def with_unknown_fields_everywhere(raw):
    raw = edited_list(raw, SCHEMA, with_unknown_fields)
    in_chunks = lambda group: edited_list(group, 1, with_unknown_fields)  # noqa: E731
    raw = edited_list(raw, ROW_GROUPS, lambda group: with_unknown_fields(in_chunks(group)))
    return with_unknown_fields(raw)


def key_values(raw):
    entries = decode(FileMetaData, raw)[0].key_value_metadata or []
    return {entry.key: entry.value for entry in entries}


def test_a_footer_is_read(data):
    footer = read_footer(BufferSource(data))
    assert footer.metadata.num_rows == 20
    assert [group.num_rows for group in footer.metadata.row_groups] == [8, 8, 4]
    assert [element.name for element in footer.metadata.schema] == ["schema", "n", "s"]
    assert data[footer.offset :] == framed(footer.raw)


def test_a_footer_within_the_tail_takes_one_request_and_a_longer_one_two(data, raw):
    whole, short = CountingSource(data), CountingSource(data)
    assert read_footer(whole).raw == raw
    assert len(whole.ranges) == 1
    assert read_footer(short, tail_bytes=8).raw == raw
    assert len(short.ranges) == 2


def test_the_tail_that_was_read_is_not_read_again(data):
    source = CountingSource(data)
    footer = read_footer(source)
    footer.source.read([(footer.offset, 10)])
    assert len(source.ranges) == 1


@pytest.mark.parametrize("tail_bytes", [8, 9, 100, 10**9])
def test_the_size_of_the_first_request_does_not_matter(data, raw, tail_bytes):
    footer = read_footer(BufferSource(data), tail_bytes)
    assert footer.raw == raw
    assert footer.source.read([(0, 4), (len(data) - 4, 4)]) == [b"PAR1", b"PAR1"]


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1PAR1", b"PAR1" + bytes(3) + b"PAR1"])
def test_a_file_of_too_few_bytes_is_refused(data):
    with pytest.raises(FormatError, match="too few"):
        read_footer(BufferSource(data))


def test_another_magic_is_refused(data):
    with pytest.raises(FormatError, match="not a Parquet file"):
        read_footer(BufferSource(data[:-4] + b"ORC\x00"))


@pytest.mark.parametrize(("magic", "said"), [(b"PARE", "encrypted"), (b"RED1", "first draft")])
def test_magics_of_unsupported_files_are_refused(data, magic, said):
    with pytest.raises(UnsupportedError, match=said):
        read_footer(BufferSource(data[:-4] + magic))


@pytest.mark.parametrize("length", [0xFFFFFFFF, 2**31, 10**6])
def test_a_length_beyond_the_file(data, length):
    with pytest.raises(FormatError, match="claims"):
        read_footer(BufferSource(data[:-8] + struct.pack("<I4s", length, b"PAR1")))


def test_a_length_that_includes_the_opening_magic_is_refused(data):
    with pytest.raises(FormatError):
        read_footer(BufferSource(data[:-8] + struct.pack("<I4s", len(data) - 8, b"PAR1")))


def test_a_length_of_zero(data):
    with pytest.raises(FormatError):
        read_footer(BufferSource(data[:-8] + struct.pack("<I4s", 0, b"PAR1")))


def test_a_file_cut_at_any_byte(data):
    for stop in range(len(data)):
        with pytest.raises(FormatError):
            read_footer(BufferSource(data[:stop]))


def test_a_footer_cut_at_any_byte(data, raw):
    for stop in range(len(raw)):
        with pytest.raises(FormatError):
            read_footer(BufferSource(with_footer(data, raw[:stop])))


def test_any_byte_of_a_footer_changed_gives_a_footer_or_a_format_error(data, raw):
    for i in range(len(raw)):
        for changed in (0x00, 0xFF, raw[i] ^ 0x10):
            broken = raw[:i] + bytes([changed]) + raw[i + 1 :]
            try:
                read_footer(BufferSource(with_footer(data, broken)))
            except FormatError:
                continue


def test_a_row_group_with_a_negative_number_of_rows(data, raw):
    fewer = lambda group: replace_fields(spans(group)[0], [Span(3, 6, b"\x01")])  # noqa: E731
    broken = edited_list(raw, ROW_GROUPS, fewer)
    with pytest.raises(FormatError, match="negative"):
        read_footer(BufferSource(with_footer(data, broken)))


def test_errors_name_the_position_of_the_footer(data, raw):
    with pytest.raises(FormatError) as caught:
        read_footer(BufferSource(with_footer(data, b"\x00")))
    assert caught.value.where.offset == len(data) - 8 - len(raw)


def test_a_key_is_added(raw):
    assert key_values(with_key_values(raw, {"mine": "1"})) == {**key_values(raw), "mine": "1"}


def test_a_key_is_added_to_a_footer_without_any(raw):
    bare = replace_fields([span for span in spans(raw)[0] if span.number != KEY_VALUES], [])
    assert key_values(with_key_values(bare, {"mine": "1"})) == {"mine": "1"}


def test_a_key_is_replaced_and_removed(raw):
    added = with_key_values(raw, {"mine": "1"})
    assert key_values(with_key_values(added, {"mine": "2"}))["mine"] == "2"
    assert with_key_values(added, {"mine": None}) == raw


def test_all_keys_can_be_removed(raw):
    bare = with_key_values(raw, dict.fromkeys(key_values(raw)))
    assert KEY_VALUES not in values_of(bare)
    assert with_key_values(bare, {"absent": None}) == bare


def test_changing_nothing_gives_the_same_bytes(raw):
    assert with_key_values(raw, {}) == raw


def test_every_other_field_and_entry_keeps_its_bytes(raw):
    before, after = values_of(raw), values_of(with_key_values(raw, {"mine": "1"}))
    old, new = list_elements(before.pop(KEY_VALUES)), list_elements(after.pop(KEY_VALUES))
    assert before == after
    assert new[:-1] == old


def test_a_string_of_any_characters_is_kept(raw):
    assert key_values(with_key_values(raw, {"ключ": "знач\x00ение"}))["ключ"] == "знач\x00ение"


def test_unknown_fields_do_not_stop_reading(data, raw):
    edited = with_unknown_fields_everywhere(raw)
    assert len(edited) > len(raw) + 100
    metadata = read_footer(BufferSource(with_footer(data, edited))).metadata
    assert metadata == read_footer(BufferSource(data)).metadata


def test_unknown_fields_survive_an_added_key_bit_for_bit(raw):
    edited = with_unknown_fields_everywhere(raw)
    after = with_key_values(edited, {"mine": "1"})
    fields = {span.number: span for span in spans(after)[0]}
    assert [fields[span.number] for span in UNKNOWN] == UNKNOWN
    assert {n: v for n, v in values_of(after).items() if n != KEY_VALUES} == {
        n: v for n, v in values_of(edited).items() if n != KEY_VALUES
    }
    assert with_key_values(after, {"mine": None}) == edited


def test_pyarrow_reads_a_file_with_unknown_fields_and_an_added_key(data, raw):
    edited = with_key_values(with_unknown_fields_everywhere(raw), {"mine": "1"})
    file = pq.ParquetFile(pa.BufferReader(with_footer(data, edited)))
    assert file.read().equals(TABLE)
    assert file.metadata.metadata[b"mine"] == b"1"


def test_entries_with_unknown_fields_and_repeated_keys_are_kept(raw):
    odd = with_unknown_fields(b"\x18\x03odd\x18\x01x\x00")
    elements = [*list_elements(values_of(raw)[KEY_VALUES]), odd, odd]
    edited = replace_fields(spans(raw)[0], [list_span(KEY_VALUES, elements)])
    after = list_elements(values_of(with_key_values(edited, {"mine": "1"}))[KEY_VALUES])
    assert after[:-1] == elements


def test_the_last_of_repeated_keys_counts(raw):
    twice = [b"\x18\x01k\x18\x01a\x00", b"\x18\x01k\x18\x01b\x00"]
    edited = replace_fields(spans(raw)[0], [list_span(KEY_VALUES, twice)])
    assert decode(FileMetaData, edited)[0].key_value("k") == "b"
    assert decode(FileMetaData, edited)[0].key_value("absent") is None
    assert KeyValue(key="k", value="b") in decode(FileMetaData, edited)[0].key_value_metadata


def test_a_signed_footer_is_not_edited(raw):
    signed = replace_fields(spans(raw)[0], [Span(ENCRYPTION, STRUCT, b"\x1c\x00\x00")])
    with pytest.raises(UnsupportedError, match="signed"):
        with_key_values(signed, {"mine": "1"})
    with pytest.raises(UnsupportedError, match="signed"):
        check_editable(signed)
    check_editable(raw)


def footers_with(raw, *values):
    return [with_key_values(raw, {"intarsia": value}) for value in values]


@pytest.mark.parametrize("value", ["{}", "", "x" * 127, "x" * 128, "x" * 70_000, "ä" * 90, "18"])
def test_footers_that_differ_only_in_the_key_intarsia_have_the_same_layout(raw, value):
    first, other = footers_with(raw, '{"offset": 1}', value)
    _, shape = decode_footer(first)
    actual, of = decode_footer(other)
    assert actual == decode(FileMetaData, other)[0]
    assert actual.key_value("intarsia") == value
    assert (of is shape) == (len(value) < 65_536)
    assert decode_footer(raw)[1] is not shape


def test_footers_that_differ_in_another_key_have_different_layouts(raw):
    (first,) = footers_with(raw, "1")
    _, shape = decode_footer(first)
    for other in (
        with_key_values(first, {"key": "other value"}),
        with_key_values(first, {"one more": None, "intarsia": "1", "key": "value"}),
    ):
        actual, of = decode_footer(other)
        assert actual == decode(FileMetaData, other)[0]
        assert of is not shape


def test_a_value_of_the_key_intarsia_is_one_only_where_it_ends_with_its_entry(raw):
    (first,) = footers_with(raw, "abc")
    decode_footer(first)
    at = first.index(b"\x03abc")
    for length in (0, 2, 4, 127):
        torn = first[:at] + bytes([length]) + first[at + 1 :]
        try:
            expected = decode(FileMetaData, torn)[0]
        except FormatError:
            with pytest.raises(FormatError):
                decode_footer(torn)
        else:
            assert decode_footer(torn)[0] == expected


def test_two_entries_of_the_key_intarsia_are_no_shape_of_values(raw):
    fields = spans(raw)[0]
    entries = list_elements(values_of(raw)[KEY_VALUES])
    twice = [encode(KeyValue(key="intarsia", value=value)) for value in ("1", "2", "2", "1")]
    footers = [
        replace_fields(fields, [list_span(KEY_VALUES, entries + pair)])
        for pair in (twice[:2], twice[2:])
    ]
    assert [decode_footer(footer)[0].key_value("intarsia") for footer in footers] == ["2", "1"]


@pytest.mark.parametrize(("dictionary", "start"), [(None, 50), (0, 50), (4, 4), (50, 50), (60, 50)])
def test_a_chunk_begins_with_the_first_of_its_pages(dictionary, start):
    chunk = ColumnMetaData(
        type=1,
        encodings=[],
        path_in_schema=["x"],
        codec=0,
        num_values=1,
        total_uncompressed_size=0,
        total_compressed_size=0,
        dictionary_page_offset=dictionary,
        data_page_offset=50,
    )
    assert chunk.start == start


@pytest.mark.parametrize(
    ("writer", "is_known"),
    [
        ("parquet-mr", True),
        ("parquet-mr version 1.2.5", True),
        ("parquet-mr version 1.2.8 (build x)", True),
        ("parquet-mr version 1.2.9", False),
        ("parquet-cpp version 1.2.5", False),
    ],
)
def test_old_writers_leave_the_header_of_a_dictionary_out_of_a_chunks_size(writer, is_known):
    sink, table = pa.BufferOutputStream(), pa.table({"s": [f"text {n}" for n in range(500)] * 3})
    pq.write_table(table, sink, compression="none")
    data = sink.getvalue().to_pybytes()
    metadata = read_footer(BufferSource(data)).metadata
    (chunk,) = metadata.row_groups[0].columns
    _, missing = read_page_header(memoryview(data)[chunk.meta_data.start :])
    size = chunk.meta_data.total_compressed_size - missing
    changed = amended(chunk, meta_data={"total_compressed_size": size})
    group = amended(metadata.row_groups[0], columns=[changed])
    raw = encode(amended(metadata, created_by=writer, row_groups=[group]))
    file = ia.ParquetFile(BufferSource(with_footer(data, raw)))
    if is_known:
        assert file.read().equals(table)
    else:
        with pytest.raises(FormatError, match="column s"):
            file.read()
