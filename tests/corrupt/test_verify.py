"""Each test falsifies one claim of a file that pyarrow wrote; ``verify`` names that claim only."""

import dataclasses
import datetime as dt
import functools
import itertools
import json
import struct
import zlib
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

import intarsia as ia
import intarsia.pruning.term as term_module
from intarsia.errors import Where
from intarsia.file.open_file import OpenedFile
from intarsia.index.directory import Directory, binding_of, encode_directory
from intarsia.index.section import writer as writer_module
from intarsia.index.section.writer import (
    CELL_SCHEMA,
    STEP_SCHEMA,
    BuiltSection,
    entry_table,
    packed,
    write_section,
)
from intarsia.indexing.build import Built, Due, check_index, due_indexes, gather, granule_starts
from intarsia.indexing.parquet_index_build import groups_of
from intarsia.io.external_sort import Workspace
from intarsia.io.source import BufferSource
from intarsia.parquet.bloom_filter import BloomFilter
from intarsia.parquet.compact_protocol import Span, list_elements, list_span, replace_fields, spans
from intarsia.parquet.footer import framed, read_footer, with_chunks, with_key_values
from intarsia.parquet.footer_cache import FOOTER_KEY
from intarsia.parquet.metadata import (
    BloomFilterHeader,
    ColumnIndexStruct,
    ColumnOrder,
    CompressionCodec,
    Encoding,
    OffsetIndexStruct,
    PageHeader,
    PageType,
    Statistics,
)
from intarsia.parquet.thrift import amended, decode, encode
from intarsia.verify import file as verify_file
from intarsia.verify.finding import worst
from intarsia.verify.indexes import _differing_entries

ERROR, WARNING = ia.Severity.ERROR, ia.Severity.WARNING
ROWS, GROUP_ROWS, PAGE_ROWS = 600, 300, 100
UNORDERED, ASCENDING, DESCENDING = 0, 1, 2

# --- files, and editing them ----------------------------------------------------------------------


def flat_table():
    rows = range(ROWS)
    epoch = dt.datetime(1970, 1, 1)
    return pa.table(
        {
            "i8": pa.array([n // 5 - 60 for n in rows], pa.int8()),
            "i16": pa.array([n * 50 - 15_000 for n in rows], pa.int16()),
            "i32": pa.array([n * 7 - 2000 for n in rows], pa.int32()),
            "i64": pa.array([(n - 300) * 10**12 for n in rows], pa.int64()),
            "u8": pa.array([n // 5 + 100 for n in rows], pa.uint8()),
            "u16": pa.array([n * 50 + 20_000 for n in rows], pa.uint16()),
            "u32": pa.array([2**31 + (n - 300) * 7 for n in rows], pa.uint32()),
            "u64": pa.array([2**63 + (n - 300) * 10**12 for n in rows], pa.uint64()),
            "f16": pa.array(np.arange(ROWS, dtype=np.float16) / 4 - np.float16(50.125)),
            "f32": pa.array([n * 1.5 - 300.25 for n in rows], pa.float32()),
            "f64": [n / 3 - 100.1 for n in rows],
            "flag": [n % 2 == 1 for n in rows],
            "text": [f"né {n:05}" for n in rows],
            "raw": [bytes([n // 100 + 126, n // 10 % 10, n % 10]) for n in rows],
            "fixed": pa.array([(2**31 + n - 300).to_bytes(4, "big") for n in rows], pa.binary(4)),
            "cents": pa.array([Decimal(n - 300) / 100 for n in rows], pa.decimal128(9, 2)),
            "wide": pa.array([Decimal(n - 300) * 10**20 for n in rows], pa.decimal128(38, 2)),
            "day": pa.array([n - 300 for n in rows], pa.int32()).cast(pa.date32()),
            "time": pa.array([n * 10**8 for n in rows], pa.time64("us")),
            "ts": pa.array([epoch + dt.timedelta(n - 300) for n in rows], pa.timestamp("us")),
            "ts_utc": pa.array([n - 300 for n in rows], pa.timestamp("ns", "UTC")),
            "word": [f"w{n // 10:03}" for n in rows],
            "gaps": [None if n % 3 == 0 or 100 <= n < 200 else n for n in rows],
            "nothing": pa.nulls(ROWS, pa.int32()),
        }
    )


def nested_table():
    lists = [None if n % 7 == 0 else list(range(n, n + n % 4)) for n in range(ROWS)]
    pairs = [v and [None if i % 5 == 4 else {"a": i, "b": f"b{i}"} for i in v] for v in lists]
    return pa.table(
        {
            "id": range(ROWS),
            "list": pa.array(lists, pa.list_(pa.int32())),
            "pairs": pa.array(pairs, pa.list_(pa.struct([("a", "int64"), ("b", "string")]))),
            "map": pa.array(
                [v and [(f"k{i:04}", i) for i in v] for v in lists], pa.map_("string", "int64")
            ),
            "lists": pa.array(
                [v and [v[:2], None, [], v[2:]] for v in lists], pa.list_(pa.list_(pa.int32()))
            ),
            "struct": pa.array(
                [None if n % 7 == 1 else {"x": n, "y": lists[n]} for n in range(ROWS)],
                pa.struct([("x", "int32"), ("y", pa.list_(pa.int32()))]),
            ),
        }
    )


LIST = "list.list.element"


def written(table, **options):
    sink = pa.BufferOutputStream()
    settings = {
        "row_group_size": GROUP_ROWS,
        "max_rows_per_page": PAGE_ROWS,
        "write_batch_size": PAGE_ROWS // 2,
        "use_dictionary": ["word"],
        "compression": "none",
        "write_page_index": True,
        "write_page_checksum": True,
    }
    pq.write_table(table, sink, **settings | options)
    return sink.getvalue().to_pybytes()


FEW = ["i8", "i64", "f32", "f64", "text", "raw", "cents", "word", "gaps", "nothing"]


@pytest.fixture(scope="module")
def flat():
    return written(flat_table().select(FEW))


@functools.cache
def alone(name):
    """A file of one column only."""
    return written(flat_table().select([name]))


@pytest.fixture(scope="module")
def unchecked():
    return written(flat_table().select(["i64"]), write_page_checksum=False)


@pytest.fixture(scope="module")
def flat_v2():
    return written(flat_table().select(FEW), data_page_version="2.0", compression="snappy")


@pytest.fixture(scope="module")
def nested():
    return written(nested_table())


@pytest.fixture(scope="module")
def nested_v2():
    return written(nested_table(), data_page_version="2.0", compression="zstd")


@pytest.fixture(scope="module")
def indexed(flat, tmp_path_factory):
    path = tmp_path_factory.mktemp("indexed") / "t.parquet"
    path.write_bytes(flat)
    ia.add_indexes(path, [ia.Lookup("text", granule_rows=50), ia.Bloom("text"), ia.Bloom("i64")])
    return path.read_bytes()


@pytest.fixture
def verified(tmp_path):
    path = tmp_path / "t.parquet"

    def findings_of(data):
        path.write_bytes(data)
        actual = ia.verify(path)
        assert all(finding.where.file == str(path) for finding in actual)
        return [(f.severity, dataclasses.replace(f.where, file=None), f.message) for f in actual]

    return findings_of


def metadata_of(data):
    return read_footer(BufferSource(data)).metadata


def column_at(data, name):
    columns = metadata_of(data).row_groups[0].columns
    return next(i for i, c in enumerate(columns) if ".".join(c.meta_data.path_in_schema) == name)


def chunk_of(data, group, name):
    return metadata_of(data).row_groups[group].columns[column_at(data, name)]


def chunk_at(group, name):
    return Where(None, group, name)


def page_at(data, group, name, page):
    """The position of a data page in pyarrow's own OffsetIndex."""
    has_dictionary = chunk_of(data, group, name).meta_data.dictionary_page_offset is not None
    offset = offset_index_of(data, group, name).page_locations[page].offset
    return Where(None, group, name, page + has_dictionary, offset)


def part_of(data, offset, length):
    return data[offset : offset + length]


def offset_index_of(data, group, name):
    chunk = chunk_of(data, group, name)
    stored = part_of(data, chunk.offset_index_offset, chunk.offset_index_length)
    return decode(OffsetIndexStruct, stored)[0]


def column_index_of(data, group, name):
    chunk = chunk_of(data, group, name)
    stored = part_of(data, chunk.column_index_offset, chunk.column_index_length)
    return decode(ColumnIndexStruct, stored)[0]


def flipped(data, at, by=0x41):
    changed = bytearray(data)
    changed[at] ^= by
    return bytes(changed)


def with_footer(data, added=b"", **changes):
    """The file with ``added`` after its pages, and changed fields in its footer."""
    footer = read_footer(BufferSource(data))
    raw = encode(amended(footer.metadata, **changes))
    return data[: footer.offset] + added + framed(raw)


def with_chunk(data, group, name, added=b"", **fields):
    footer = read_footer(BufferSource(data))
    raw = with_chunks(footer.raw, {(group, column_at(data, name)): fields})
    return data[: footer.offset] + added + framed(raw)


def with_metadata(data, group, name, **fields):
    return with_chunk(data, group, name, meta_data=fields)


def with_statistics(data, group, name, **fields):
    return with_metadata(data, group, name, statistics=fields)


def with_group(data, group, **fields):
    groups = list(metadata_of(data).row_groups)
    groups[group] = amended(groups[group], **fields)
    return with_footer(data, row_groups=groups)


def with_column_index(data, group, name, **fields):
    """The file with an edited column index after its pages."""
    made = encode(amended(column_index_of(data, group, name), **fields))
    at = read_footer(BufferSource(data)).offset
    return with_chunk(
        data, group, name, made, column_index_offset=at, column_index_length=len(made)
    )


def with_locations(data, group, name, change):
    """The file with an offset index of ``change(page locations)`` after its pages."""
    index = offset_index_of(data, group, name)
    made = encode(amended(index, page_locations=change(list(index.page_locations))))
    at = read_footer(BufferSource(data)).offset
    return with_chunk(
        data, group, name, made, offset_index_offset=at, offset_index_length=len(made)
    )


def with_location(data, group, name, page, **steps):
    """Adds the given numbers to fields of one page's location."""

    def change(locations):
        old = locations[page]
        locations[page] = amended(old, **{k: getattr(old, k) + by for k, by in steps.items()})
        return locations

    return with_locations(data, group, name, change)


def pages_of(data, group, name):
    """Headers and bodies of a chunk's pages."""
    chunk = chunk_of(data, group, name).meta_data
    at, stop = chunk.start, chunk.start + chunk.total_compressed_size
    pages = []
    while at < stop:
        header, size = decode(PageHeader, data[at:stop])
        at += size
        pages.append((header, data[at : at + header.compressed_page_size]))
        at += header.compressed_page_size
    return pages


def with_pages(data, group, name, pages, rows=None):
    """The file with a chunk of other pages after the old ones; ``rows`` are their first rows."""
    chunk = chunk_of(data, group, name).meta_data
    start = read_footer(BufferSource(data)).offset
    body, locations = bytearray(), []
    index = offset_index_of(data, group, name)
    known = iter(rows or [location.first_row_index for location in index.page_locations])
    places = {}
    for header, held in pages:
        place, page = start + len(body), encode(header) + held
        if header.type == PageType.DICTIONARY_PAGE:
            places.setdefault("dictionary_page_offset", place)
        else:
            places.setdefault("data_page_offset", place)
            first = {"offset": place, "compressed_page_size": len(page)}
            first["first_row_index"] = next(known)
            locations.append(amended(index.page_locations[0], **first))
        body += page
    slack = len(body) - chunk.total_compressed_size
    offset_index = encode(amended(index, page_locations=locations))
    return with_chunk(
        data,
        group,
        name,
        bytes(body) + offset_index,
        meta_data=places
        | {
            "total_compressed_size": len(body),
            "total_uncompressed_size": chunk.total_uncompressed_size + slack,
        },
        offset_index_offset=start + len(body),
        offset_index_length=len(offset_index),
    )


def with_header(data, group, name, page, **changes):
    """The file with changed fields in one page's header. ``page`` counts the dictionary page."""
    pages = pages_of(data, group, name)
    pages[page] = (amended(pages[page][0], **changes), pages[page][1])
    return with_pages(data, group, name, pages)


def with_page_statistics(data, group, name, page, **fields):
    """A V1 data page's header with statistics, which pyarrow does not write beside an index."""
    return with_header(
        data, group, name, page, data_page_header={"statistics": Statistics(**fields)}
    )


FLOATS = {2: "<e", 4: "<f", 8: "<d"}
BIG_ENDIAN = {"fixed": False, "cents": True, "wide": True}


def stepped(name, bound, by):
    """The next value of a column's type above (1) or below (-1) an encoded one."""
    if name.startswith("f") and name[1:].isdigit():
        (value,) = struct.unpack(FLOATS[len(bound)], bound)
        kind = {2: np.float16, 4: np.float32, 8: np.float64}[len(bound)]
        return np.nextafter(kind(value), kind(by * np.inf)).tobytes()
    if name in ("text", "raw", "word"):
        return bound + b"\0" if by > 0 else bound[:-1]
    order, signed = ("big", BIG_ENDIAN[name]) if name in BIG_ENDIAN else ("little", name[0] != "u")
    value = int.from_bytes(bound, order, signed=signed) + by
    return value.to_bytes(len(bound), order, signed=signed)


BOUNDED = [name for name in flat_table().column_names if name not in ("gaps", "nothing")]

# --- sound files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip", "brotli", "lz4"])
@pytest.mark.parametrize("table", [flat_table, nested_table])
def test_nothing_is_found_in_a_sound_file(verified, table, codec, version):
    assert verified(written(table(), compression=codec, data_page_version=version)) == []


@pytest.mark.parametrize(
    "options",
    [
        {"use_dictionary": True},
        {"use_dictionary": True, "dictionary_pagesize_limit": 64},
        {"write_page_index": False},
        {"write_page_index": False, "write_statistics": False},
        {"coerce_timestamps": "ms", "allow_truncated_timestamps": True},
        {"use_byte_stream_split": ["f32", "f64"], "use_dictionary": False},
        {
            "column_encoding": {"i64": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"},
            "use_dictionary": False,
        },
        {"store_decimal_as_integer": True},
        {"use_deprecated_int96_timestamps": True},
    ],
    ids=str,
)
def test_nothing_is_found_however_pyarrow_writes_flat_columns(verified, options):
    assert verified(written(flat_table(), **options)) == []


@pytest.mark.parametrize("rows", [0, 1, 99, 601])
def test_nothing_is_found_in_files_of_few_or_unusual_rows(verified, rows):
    both = pa.concat_tables([flat_table()] * 2).slice(0, rows)
    assert verified(written(both)) == []
    both = pa.concat_tables([nested_table()] * 2).slice(0, rows)
    assert verified(written(both)) == []


def test_nothing_is_found_in_a_file_with_every_index(verified, tmp_path):
    path = tmp_path / "every.parquet"
    lookups = ["i64", "u32", "f64", "text", "raw", "fixed", "cents", "day", "ts", "word", "gaps"]
    for table, names in ((flat_table(), lookups), (nested_table(), ["id"])):
        path.write_bytes(written(table, write_page_index=False))
        indexes = [kind(name) for kind in (ia.Lookup, ia.Bloom) for name in names]
        ia.add_indexes(path, [*indexes, ia.PageIndex(truncate_length=4)])
        assert ia.verify(path) == []


def test_summaries_of_half_floats_are_compared(tmp_path):
    values = pa.array([1.0, None, float("nan"), 2.0], pa.float16())
    pq.write_table(pa.table({"f": values}), tmp_path / "a.parquet")
    ia.add_indexes(tmp_path / "a.parquet", [ia.MinMax("f")])
    assert ia.verify(tmp_path / "a.parquet") == []


def test_nothing_is_found_in_what_the_writer_writes(tmp_path):
    path = tmp_path / "t.parquet"
    indexes = [ia.Lookup("text"), ia.Bloom("word"), ia.PageIndex()]
    ia.write_table(flat_table(), path, indexes=indexes, row_group_size=GROUP_ROWS)
    assert ia.verify(path) == []


def test_nan_and_both_zeros_are_no_findings(verified):
    zeros = [float("nan"), 0.0, -0.0] * 40
    table = pa.table({"a": zeros, "b": [0.0] * 120, "c": [-0.0] * 120, "d": [float("nan")] * 120})
    assert verified(written(table, max_rows_per_page=30, write_batch_size=10)) == []


# --- pages ----------------------------------------------------------------------------------------


def checksum_message(header, body):
    return (
        f"checksum {header.crc & 0xFFFFFFFF:08x} in the header, {zlib.crc32(body):08x} of the bytes"
    )


@pytest.mark.parametrize("name", ["i64", "text", "gaps", "word"])
def test_a_flipped_byte_of_a_page_is_found_by_its_checksum(verified, flat, name):
    place = page_at(flat, 1, name, 1)
    header, size = decode(PageHeader, flat[place.offset :])
    at = place.offset + size + header.compressed_page_size - 1
    data = flipped(flat, at, 0x01)
    body = part_of(data, place.offset + size, header.compressed_page_size)
    actual = verified(data)
    assert actual[0] == (ERROR, place, checksum_message(header, body))
    assert all(where.row_group == 1 and where.column == name for _, where, _ in actual)


def test_a_wrong_checksum_alone_is_one_finding(verified, flat):
    header, body = pages_of(flat, 0, "text")[2]
    data = with_header(flat, 0, "text", 2, crc=header.crc ^ 1)
    place = page_at(data, 0, "text", 2)
    message = checksum_message(amended(header, crc=header.crc ^ 1), body)
    assert verified(data) == [(ERROR, place, message)]


def test_a_checksum_of_0_is_compared_like_any_other(verified, flat):
    data = with_header(flat, 0, "text", 2, crc=0)
    assert [(s, w) for s, w, _ in verified(data)] == [(ERROR, page_at(data, 0, "text", 2))]


def test_a_missing_checksum_is_no_finding(verified, flat):
    assert verified(with_header(flat, 0, "text", 2, crc=None)) == []


def test_a_flipped_byte_of_a_dictionary_is_found(verified, flat):
    start = chunk_of(flat, 1, "word").meta_data.start
    header, size = decode(PageHeader, flat[start:])
    at = start + size + header.compressed_page_size - 1
    data = flipped(flat, at, 0x01)  # the last entry: w059 becomes w058
    body = part_of(data, start + size, header.compressed_page_size)
    actual = verified(data)
    assert actual[0] == (ERROR, Where(None, 1, "word", 0, start), checksum_message(header, body))


def test_every_flipped_byte_of_a_page_header_is_found(verified, flat):
    place = page_at(flat, 0, "text", 1)
    _, size = decode(PageHeader, flat[place.offset :])
    unused = place.offset + size - 3  # the encoding of repetition levels, of which there are none
    for at in set(range(place.offset, place.offset + size)) - {unused}:
        actual = verified(flipped(flat, at))
        assert actual, f"byte {at - place.offset} of {size}"
        assert worst_of(actual) is ERROR
        assert {(where.row_group, where.column) for _, where, _ in actual} == {(0, "text")}


def worst_of(found):
    return max(severity for severity, _, _ in found)


def test_bytes_that_are_no_page_header_are_found(verified, flat):
    place = page_at(flat, 0, "text", 1)
    data = flat[: place.offset] + b"\xff" + flat[place.offset + 1 :]
    ((severity, where, message),) = verified(data)
    assert (severity, where) == (ERROR, place)
    assert message.startswith("not a valid PageHeader: ")


def test_a_page_longer_than_its_chunk_is_named(verified, flat):
    header, body = pages_of(flat, 0, "text")[2]
    pages = pages_of(flat, 0, "text")[:2]
    longer = amended(header, compressed_page_size=header.compressed_page_size + 5)
    data = with_pages(flat, 0, "text", [*pages, (longer, body)])
    place = page_at(data, 0, "text", 2)
    size = len(encode(longer)) + len(body)
    message = f"a page of {size + 5:,} bytes, where its chunk has {size:,} left"
    assert verified(data) == [(ERROR, place, message)]


def test_a_wrong_value_without_a_checksum_is_found_by_all_bounds(verified, unchecked):
    place = page_at(unchecked, 1, "i64", 2)
    value = struct.pack("<q", (550 - 300) * 10**12)
    assert unchecked.count(value) == 1
    above = struct.pack("<q", 10**15)
    high = struct.pack("<q", 299 * 10**12)
    data = unchecked.replace(value, above)
    assert verified(data) == [
        (ERROR, chunk_at(1, "i64"), f"statistics: max_value {high!r} is below a value, {above!r}"),
        (ERROR, chunk_at(1, "i64"), "statistics: max_value is said to be exact and is not"),
        (
            ERROR,
            chunk_at(1, "i64"),
            f"statistics: deprecated max {high!r} is below a value, {above!r}",
        ),
        (ERROR, place, f"column index: max {high!r} is below a value, {above!r}"),
    ]


def test_a_wrong_value_within_all_bounds_cannot_be_found(verified, unchecked):
    value = struct.pack("<q", (550 - 300) * 10**12)
    assert verified(unchecked.replace(value, struct.pack("<q", 251 * 10**12))) == []


@pytest.mark.parametrize("coded", [True, False])
def test_strings_that_are_not_utf_8_are_found(verified, coded):
    words = [b"\xc3\xa9"] * ROWS
    words[450], words[455], words[590] = b"\xff", b"a\xc3", b"\xed\xa0\x80"
    raw = pa.array([b"\xff"] * ROWS)
    table = pa.table({"s": pa.array(words).view(pa.string()), "raw": raw, "n": range(ROWS)})
    data = written(table, use_dictionary=coded)
    message = "3 of 300 strings are not UTF-8"
    assert verified(data) == [(ERROR, page_at(data, 1, "s", 1), message)]


def test_a_dictionary_page_behind_the_first_page_is_found(verified, flat):
    dictionary, *data_pages = pages_of(flat, 0, "word")
    empty = amended(
        dictionary[0],
        compressed_page_size=0,
        uncompressed_page_size=0,
        crc=0,
        dictionary_page_header={"num_values": 0},
    )
    data = with_pages(flat, 0, "word", [dictionary, data_pages[0], (empty, b""), *data_pages[1:]])
    actual = [f for f in verified(data) if "dictionary page" in f[2]]
    first = page_at(data, 0, "word", 0)
    place = Where(None, 0, "word", 2, first.offset + len(flat_page(flat, 0, "word", 0)))
    assert actual == [(ERROR, place, "a dictionary page that is not the first page")]


def flat_page(data, group, name, page):
    location = offset_index_of(data, group, name).page_locations[page]
    return part_of(data, location.offset, location.compressed_page_size)


def test_an_encoding_that_the_footer_does_not_list_is_a_warning(verified, flat):
    data = with_metadata(flat, 0, "i64", encodings=[Encoding.RLE, Encoding.DELTA_BINARY_PACKED])
    message = "encoding 0 is not among those the footer lists"
    assert verified(data) == [
        (WARNING, page_at(flat, 0, "i64", page), message) for page in range(3)
    ]


@pytest.mark.parametrize(
    ("field", "claim", "word"), [("num_rows", 99, "rows"), ("num_nulls", 7, "nulls")]
)
def test_a_wrong_count_in_a_v2_header_is_found(verified, flat_v2, nested_v2, field, claim, word):
    for stored, name in ((flat_v2, "i64"), (nested_v2, LIST)):
        header = pages_of(stored, 1, name)[1][0].data_page_header_v2
        data = with_header(stored, 1, name, 1, data_page_header_v2={field: claim})
        message = f"the header says {claim} {word}, levels say {getattr(header, field)}"
        assert verified(data)[0] == (ERROR, page_at(data, 1, name, 1), message)
    data = with_header(flat_v2, 1, "i64", 1, data_page_header_v2={"num_rows": 99})
    assert len(verified(data)) == 1


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def packed_levels(levels, width):
    """One bit-packed run, after its length, as a V1 page stores levels."""
    padded = [*levels, *[0] * (-len(levels) % 8)]
    bits = [level >> bit & 1 for level in padded for bit in range(width)]
    run = varint(len(padded) // 8 << 1 | 1) + np.packbits(bits, bitorder="little").tobytes()
    return struct.pack("<I", len(run)) + run


def list_page(old, levels):
    """A V1 page of an optional list of optional int32: ``(repetition, definition, value)``."""
    body = packed_levels([r for r, _, _ in levels], 1) + packed_levels([d for _, d, _ in levels], 2)
    body += b"".join(struct.pack("<i", value) for _, _, value in levels if value is not None)
    header = amended(
        old,
        crc=None,
        compressed_page_size=len(body),
        uncompressed_page_size=len(body),
        data_page_header={"num_values": len(levels)},
    )
    return header, body


def list_levels(lists):
    levels = []
    for items in lists:
        if not items:
            levels.append((0, 0 if items is None else 1, None))
        for i, item in enumerate(items or ()):
            levels.append((int(i > 0), 3, item))
    return levels


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_page_that_begins_within_a_row_is_found_where_there_is_an_offset_index(
    verified, nested, moved
):
    lists = nested_table()["list"].to_pylist()[:GROUP_ROWS]
    assert lists[99] == [99, 100, 101]
    first, second, third = pages_of(nested, 0, LIST)
    here, there = list_levels(lists[:100]), list_levels(lists[100:200])
    cut = len(here) - moved
    pages = [list_page(first[0], here[:cut]), list_page(second[0], here[cut:] + there), third]
    data = with_chunk(
        with_pages(nested, 0, LIST, pages),
        0,
        LIST,
        column_index_offset=None,
        column_index_length=None,
    )
    message = "the page begins within a row, though the chunk has an offset index"
    expected = [(ERROR, page_at(data, 0, LIST, 1), message)] if moved else []
    assert verified(data) == expected
    without = with_chunk(data, 0, LIST, offset_index_offset=None, offset_index_length=None)
    assert verified(without) == []


# --- the footer -----------------------------------------------------------------------------------


def test_a_file_that_does_not_begin_with_its_magic_is_found(verified, flat):
    message = "the file does not begin with PAR1"
    assert verified(flipped(flat, 1)) == [(ERROR, Where(offset=0), message)]


def test_a_wrong_number_of_rows_is_found(verified, flat):
    message = "the footer says 1,601 rows, its row groups 600"
    assert verified(with_footer(flat, num_rows=1601)) == [(ERROR, Where(), message)]


def test_bytes_after_the_last_field_of_the_footer_are_a_warning(verified, flat):
    footer = read_footer(BufferSource(flat))
    data = flat[: footer.offset] + framed(footer.raw + b"abc")
    message = "3 bytes follow the footer's last field"
    assert verified(data) == [(WARNING, Where(), message)]


def test_bytes_after_the_magic_make_a_file_unreadable(verified, flat):
    ((severity, where, message),) = verified(flat + b"abcd")
    assert (severity, where) == (ERROR, Where(offset=len(flat)))
    assert message.startswith("not a Parquet file, or one that was cut short")


def test_unknown_bytes_before_the_footer_are_no_finding(verified, flat):
    assert verified(with_footer(flat, b"anything at all")) == []


def test_column_orders_that_are_too_few_are_found(verified, flat):
    orders = list(metadata_of(flat).column_orders)
    message = f"{len(orders) - 1} column orders for {len(orders)} columns"
    actual = verified(with_footer(flat, column_orders=orders[:-1]))
    assert actual == [(ERROR, Where(), message)]


def test_bounds_whose_order_is_not_declared_are_not_checked(verified, flat):
    data = with_statistics(flat, 0, "i64", min_value=struct.pack("<q", 10**17))
    unknown = [ColumnOrder()] * len(metadata_of(flat).column_orders)
    assert verified(with_footer(data, column_orders=unknown)) == []
    assert verified(with_footer(data, column_orders=None)) == []
    assert len(verified(data)) == 2  # which also claims to be exact


@pytest.mark.parametrize(
    ("ordinals", "expected"),
    [
        ((0, 1), []),
        ((None, None), []),
        ((1, 0), [(0, "its ordinal is 1"), (1, "its ordinal is 0")]),
        ((0, None), [(1, "it has no ordinal")]),
        ((0, 0), [(1, "its ordinal is 0")]),
    ],
)
def test_row_groups_that_are_not_numbered_one_by_one_are_a_warning(
    verified, flat, ordinals, expected
):
    data = flat
    for group, ordinal in enumerate(ordinals):
        data = with_group(data, group, ordinal=ordinal)
    assert verified(data) == [
        (WARNING, Where(row_group=group), f"{said}; some readers refuse the file")
        for group, said in expected
    ]


def test_foreign_key_value_metadata_is_no_finding(verified, flat):
    footer = read_footer(BufferSource(flat))
    raw = with_key_values(footer.raw, {"a": "b", "ARROW:schema": None, "c": ""})
    assert verified(flat[: footer.offset] + framed(raw)) == []


@pytest.mark.parametrize(
    ("pointer", "message"),
    [
        ("nonsense", "the directory is not a JSON document"),
        ("[]", "the directory is not a JSON object"),
        ('{"version": 2}', "directory version 2 is not known here"),
        (
            '{"version": 1, "offset": 4, "length": 9, "crc32": 0}',
            "the directory does not match its checksum; the file was rewritten since",
        ),
    ],
)
def test_a_pointer_to_something_else_than_a_directory_is_found(verified, flat, pointer, message):
    footer = read_footer(BufferSource(flat))
    data = flat[: footer.offset] + framed(with_key_values(footer.raw, {FOOTER_KEY: pointer}))
    assert verified(data) == [(ERROR, Where(), f"embedded indexes are ignored: {message}")]


def test_a_chunk_of_another_column_or_type_is_found(verified, flat):
    data = with_metadata(flat, 1, "i64", path_in_schema=["i32"])
    assert verified(data) == [(ERROR, chunk_at(1, "i64"), "the chunk is of column 'i32'")]
    data = with_metadata(flat, 1, "i64", type=5)
    message = "chunk of type 5 in a column of type 2"
    assert verified(data) == [(ERROR, chunk_at(1, "i64"), message)]


@pytest.mark.parametrize(
    ("codec", "name"), [(CompressionCodec.LZO, "3 (LZO)"), (99, "99"), (-1, "-1")]
)
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_chunk_of_an_unknown_codec_is_reported_as_unchecked(verified, codec, name, compression):
    stored = written(flat_table().select(["i64", "gaps"]), compression=compression)
    data = with_metadata(stored, 1, "gaps", codec=codec)
    ((severity, where, message),) = verified(data)
    assert (severity, where.row_group, where.column) == (WARNING, 1, "gaps")
    assert message.startswith(f"not checked: compression codec {name} is not supported")
    file = ia.ParquetFile(BufferSource(data))
    with pytest.raises(ia.UnsupportedError, match=r"column gaps: .* (LZO|codec value: \d+)"):
        file.read(["gaps"])
    assert file.read(["i64"]).num_rows == ROWS


@pytest.mark.parametrize(("encoding", "name"), [(Encoding.ALP, "10 (ALP)"), (55, "55")])
def test_an_unknown_encoding_is_reported_with_its_page(flat, encoding, name):
    data = with_header(flat, 1, "i64", 1, data_page_header={"encoding": encoding})
    file, problem = ia.ParquetFile(BufferSource(data)), "which is not supported"
    with pytest.raises(ia.FormatError, match="encoding") as failed:
        file.read(["i64"])
    assert failed.value.message == f"values in encoding {name}, {problem}"
    assert failed.value.where == dataclasses.replace(page_at(data, 1, "i64", 1), file="<source>")
    assert file.read(["gaps"]).num_rows == ROWS


@pytest.mark.parametrize("by", [-1, 1])
def test_a_wrong_number_of_values_is_found(verified, flat, nested, by):
    values = chunk_of(nested, 1, LIST).meta_data.num_values
    data = with_metadata(nested, 1, LIST, num_values=values + by)
    message = f"pages hold {values} values, the footer says {values + by}"
    assert verified(data) == [(ERROR, chunk_at(1, LIST), message)]
    data = with_metadata(flat, 1, "gaps", num_values=GROUP_ROWS + by)
    message = f"{GROUP_ROWS + by} values for {GROUP_ROWS} rows"
    assert verified(data) == [(ERROR, chunk_at(1, "gaps"), message)]


def test_a_chunk_longer_than_its_pages_is_a_warning(verified, flat):
    size = chunk_of(flat, 1, FEW[-1]).meta_data.total_compressed_size
    data = with_metadata(flat, 1, FEW[-1], total_compressed_size=size + 3)
    message = f"pages take {size:,} bytes, the footer says {size + 3:,}"
    assert verified(data) == [(WARNING, chunk_at(1, FEW[-1]), message)]


def test_a_chunk_that_ends_within_the_next_is_found(verified, flat):
    size = chunk_of(flat, 1, "i64").meta_data.total_compressed_size
    data = with_metadata(flat, 1, "i64", total_compressed_size=size + 3)
    actual = [finding for finding in verified(data) if finding[0] is ERROR]
    start = chunk_of(flat, 1, "f32").meta_data.data_page_offset
    message = "it begins within the chunk of row group 1, column i64"
    assert actual == [(ERROR, dataclasses.replace(chunk_at(1, "f32"), offset=start), message)]


def test_a_chunk_outside_the_file_is_found(verified, flat):
    data = with_metadata(flat, 1, "i64", data_page_offset=len(flat) + 1000)
    assert [(s, w.row_group, w.column) for s, w, _ in verified(data)] == [(ERROR, 1, "i64")]


# --- statistics -----------------------------------------------------------------------------------


def low_and_high(data, group, name):
    stats = chunk_of(data, group, name).meta_data.statistics
    return stats.min_value, stats.max_value


@pytest.mark.parametrize("name", BOUNDED)
def test_a_wrong_bound_of_a_chunk_is_found(verified, name):
    flat = alone(name)
    low, high = low_and_high(flat, 1, name)
    above, below = stepped(name, low, 1), stepped(name, high, -1)
    data = with_statistics(flat, 1, name, min_value=above, is_min_value_exact=None)
    message = f"statistics: min_value {above!r} is above a value, {low!r}"
    assert verified(data) == [(ERROR, chunk_at(1, name), message)]
    data = with_statistics(flat, 1, name, max_value=below, is_max_value_exact=None)
    message = f"statistics: max_value {below!r} is below a value, {high!r}"
    assert verified(data) == [(ERROR, chunk_at(1, name), message)]


@pytest.mark.parametrize("name", [name for name in BOUNDED if name != "flag"])
def test_wider_bounds_are_a_finding_only_if_declared_exact(verified, name):
    flat = alone(name)
    low, high = low_and_high(flat, 1, name)
    wider = {"min_value": stepped(name, low, -1), "max_value": stepped(name, high, 1)}
    for exact in (None, False):
        inexact = {"is_min_value_exact": exact, "is_max_value_exact": exact}
        assert verified(with_statistics(flat, 1, name, **wider, **inexact)) == []
    exact = {"is_min_value_exact": True, "is_max_value_exact": True}
    assert verified(with_statistics(flat, 1, name, **wider, **exact)) == [
        (ERROR, chunk_at(1, name), "statistics: min_value is said to be exact and is not"),
        (ERROR, chunk_at(1, name), "statistics: max_value is said to be exact and is not"),
    ]


def test_a_truncated_bound_declared_exact_is_found(verified, flat):
    _, high = low_and_high(flat, 0, "text")
    raised = high[:-3] + b"3"
    data = with_statistics(flat, 0, "text", max_value=raised, is_max_value_exact=False)
    assert verified(data) == []
    data = with_statistics(flat, 0, "text", max_value=raised, is_max_value_exact=True)
    message = "statistics: max_value is said to be exact and is not"
    assert verified(data) == [(ERROR, chunk_at(0, "text"), message)]
    cut = high[:-3]
    data = with_statistics(flat, 0, "text", max_value=cut, is_max_value_exact=False)
    message = f"statistics: max_value {cut!r} is below a value, {high!r}"
    assert verified(data) == [(ERROR, chunk_at(0, "text"), message)]


def test_a_long_bound_is_shown_shortened(verified):
    data = written(pa.table({"s": ["a" * 100]}))
    data = with_statistics(data, 0, "s", max_value=b"", is_max_value_exact=None)
    shown = f"{b'a' * 40!r}…"
    message = f"statistics: max_value b'' is below a value, {shown}"
    assert verified(data) == [(ERROR, chunk_at(0, "s"), message)]


def test_a_bound_that_is_no_value_is_a_warning(verified, flat):
    no_value = "no value of the column's type"
    for name, bound, what in (
        ("i64", b"abc", no_value),
        ("f64", struct.pack("<d", np.nan), "NaN"),
        ("f64", b"abc", no_value),
        ("cents", b"12", no_value),
    ):
        data = with_statistics(flat, 0, name, min_value=bound, is_min_value_exact=None)
        message = f"statistics: min_value {bound!r} is {what}"
        assert verified(data) == [(WARNING, chunk_at(0, name), message)]


@pytest.mark.parametrize("by", [-1, 1])
def test_a_wrong_null_count_is_an_error_and_in_lists_a_warning(verified, flat, nested, by):
    for stored, name, severity in (
        (flat, "gaps", ERROR),
        (flat, "nothing", ERROR),
        (flat, "i64", ERROR),
        (nested, LIST, WARNING),
        (nested, "struct.x", ERROR),
    ):
        actual = chunk_of(stored, 0, name).meta_data.statistics.null_count
        data = with_statistics(stored, 0, name, null_count=actual + by)
        message = f"statistics: null_count is {actual + by}, there are {actual}"
        assert verified(data) == [(severity, chunk_at(0, name), message)]


def test_a_wrong_nan_count_is_found(verified):
    stored = written(pa.table({"x": [float("nan"), 1.0, 2.0, None] * 100}))
    assert verified(with_statistics(stored, 0, "x", nan_count=75)) == []
    data = with_statistics(stored, 0, "x", nan_count=74)
    message = "statistics: nan_count is 74, there are 75"
    assert verified(data) == [(ERROR, chunk_at(0, "x"), message)]


def test_deprecated_bounds_of_signed_bytes_are_a_warning(verified, flat):
    low, high = bytes([128, 0, 0]), bytes([127, 9, 9])  # 128 is -128, as some writers compare
    least, most = low_and_high(flat, 0, "raw")
    data = with_statistics(flat, 0, "raw", min=low, max=high)
    assert verified(data) == [
        (
            WARNING,
            chunk_at(0, "raw"),
            f"statistics: deprecated min {low!r} is above a value, {least!r}",
        ),
        (
            WARNING,
            chunk_at(0, "raw"),
            f"statistics: deprecated max {high!r} is below a value, {most!r}",
        ),
    ]
    assert verified(with_statistics(flat, 0, "raw", min=least, max=most)) == []


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("i64", ERROR),
        ("day", ERROR),
        ("f32", ERROR),
        ("u32", WARNING),
        ("cents", WARNING),
        ("text", WARNING),
    ],
)
def test_wrong_deprecated_bounds_are_errors_where_readers_use_them(verified, name, severity):
    flat = alone(name)
    low, _ = low_and_high(flat, 1, name)
    above = stepped(name, low, 1)
    message = f"statistics: deprecated min {above!r} is above a value, {low!r}"
    data = with_statistics(flat, 1, name, min=above)
    assert verified(data) == [(severity, chunk_at(1, name), message)]


@pytest.mark.parametrize("name", ["i64", "u64", "text", "f32", "cents", "fixed"])
def test_wrong_statistics_of_a_page_are_found_at_the_page(verified, name):
    flat = alone(name)
    index = column_index_of(flat, 1, name)
    low, high = index.min_values[1], index.max_values[1]
    right = {"min_value": low, "max_value": high, "null_count": 0}
    assert verified(with_page_statistics(flat, 1, name, 1, **right)) == []
    above, below = stepped(name, low, 1), stepped(name, high, -1)
    for wrong, message in (
        ({"min_value": above}, f"min_value {above!r} is above a value, {low!r}"),
        ({"max_value": below}, f"max_value {below!r} is below a value, {high!r}"),
        ({"null_count": 1}, "null_count is 1, there are 0"),
        (
            {"max_value": stepped(name, high, 1), "is_max_value_exact": True},
            "max_value is said to be exact and is not",
        ),
    ):
        data = with_page_statistics(flat, 1, name, 1, **right | wrong)
        place = page_at(data, 1, name, 1)
        assert verified(data) == [(ERROR, place, f"page statistics: {message}")]


def test_wrong_statistics_of_a_v2_page_are_found_at_the_page(verified, flat_v2):
    stats = Statistics(null_count=3)
    data = with_header(flat_v2, 0, "word", 2, data_page_header_v2={"statistics": stats})
    message = "page statistics: null_count is 3, there are 0"
    assert verified(data) == [(ERROR, page_at(data, 0, "word", 1), message)]


def test_wrong_size_statistics_are_a_warning(verified, flat, nested):
    sizes = chunk_of(flat, 0, "text").meta_data.size_statistics
    assert sizes.unencoded_byte_array_data_bytes == 300 * 9
    for stored, name, wrong, message in (
        (
            flat,
            "text",
            {"unencoded_byte_array_data_bytes": 2699},
            "unencoded_byte_array_data_bytes is 2,699, there are 2,700",
        ),
        (
            flat,
            "gaps",
            {"definition_level_histogram": [1, 299]},
            "definition_level_histogram is wrong",
        ),
        (
            nested,
            LIST,
            {"definition_level_histogram": [1, 2, 3, 4]},
            "definition_level_histogram is wrong",
        ),
        (
            nested,
            LIST,
            {"repetition_level_histogram": [300, 0]},
            "repetition_level_histogram is wrong",
        ),
    ):
        data = with_metadata(stored, 0, name, size_statistics=wrong)
        assert verified(data) == [(WARNING, chunk_at(0, name), f"size statistics: {message}")]


# --- offset indexes -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["i64", "word", "gaps", LIST])
@pytest.mark.parametrize("version", [1, 2])
def test_a_wrong_entry_of_an_offset_index_is_found(
    verified, flat, flat_v2, nested, nested_v2, name, version
):
    stored = {1: (flat, nested), 2: (flat_v2, nested_v2)}[version][name == LIST]
    for field, by in (
        ("first_row_index", 1),
        ("first_row_index", -1),
        ("offset", 1),
        ("compressed_page_size", -1),
        ("compressed_page_size", 1),
    ):
        old = getattr(offset_index_of(stored, 1, name).page_locations[1], field)
        data = with_location(stored, 1, name, 1, **{field: by})
        message = f"offset index: {field} is {old + by}, not {old}"
        assert verified(data) == [(ERROR, page_at(stored, 1, name, 1), message)]


def test_each_of_equally_shifted_entries_is_found(verified, flat):
    def shift(locations):
        moved = [amended(at, first_row_index=at.first_row_index + 5) for at in locations[1:]]
        return [locations[0], *moved]

    data = with_locations(flat, 0, "i64", shift)
    assert verified(data) == [
        (
            ERROR,
            page_at(flat, 0, "i64", page),
            f"offset index: first_row_index is {page * 100 + 5}, not {page * 100}",
        )
        for page in (1, 2)
    ]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_entry_of_an_offset_index_is_found(verified, flat, missing):
    data = with_locations(flat, 0, "i64", lambda pages: [*pages[:missing], *pages[missing + 1 :]])
    message = "offset index: 2 entries for 3 pages"
    assert verified(data) == [(ERROR, chunk_at(0, "i64"), message)]


def test_an_invalid_or_misplaced_offset_index_is_found(verified, flat):
    data = with_chunk(flat, 0, "i64", offset_index_offset=0)
    ((severity, where, message),) = verified(data)
    assert (severity, where) == (ERROR, chunk_at(0, "i64"))
    assert message.startswith("not a valid OffsetIndexStruct")
    data = with_chunk(flat, 0, "i64", offset_index_offset=10**7)
    ((severity, where, message),) = verified(data)
    assert (severity, where) == (ERROR, Where(None, 0, "i64", offset=10**7))
    assert "are referenced outside the" in message


@pytest.mark.parametrize("name", ["i64", "text"])
def test_an_offset_index_that_is_cut_short_is_found(verified, flat, name):
    length = chunk_of(flat, 0, name).offset_index_length
    ((severity, where, message),) = verified(
        with_chunk(flat, 0, name, offset_index_length=length - 1)
    )
    assert (severity, where) == (ERROR, chunk_at(0, name))
    assert message.startswith("not a valid OffsetIndexStruct")


# --- column indexes -------------------------------------------------------------------------------


def changed(values, at, value):
    return [*values[:at], value, *values[at + 1 :]]


@pytest.mark.parametrize("name", BOUNDED)
def test_a_wrong_bound_of_a_page_is_found(verified, name):
    flat = alone(name)
    index = column_index_of(flat, 1, name)
    low, high = index.min_values[1], index.max_values[1]
    above, below = stepped(name, low, 1), stepped(name, high, -1)
    data = with_column_index(flat, 1, name, min_values=changed(index.min_values, 1, above))
    place = page_at(flat, 1, name, 1)
    # The bounds of Booleans then have another order as well, which is a separate claim.
    unordered = (
        [(ERROR, chunk_at(1, name), "column index: boundary_order is 1, bounds say 0")]
        if name == "flag"
        else []
    )
    message = f"column index: min {above!r} is above a value, {low!r}"
    assert verified(data) == [(ERROR, place, message), *unordered]
    data = with_column_index(flat, 1, name, max_values=changed(index.max_values, 1, below))
    message = f"column index: max {below!r} is below a value, {high!r}"
    assert verified(data) == [(ERROR, place, message), *unordered]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (LIST, "i32"),
        ("pairs.list.element.b", "text"),
        ("map.key_value.key", "text"),
        ("struct.x", "i32"),
        ("struct.y.list.element", "i32"),
    ],
)
def test_a_wrong_bound_of_a_nested_page_is_found(verified, nested, nested_v2, name, kind):
    for stored in (nested, nested_v2):
        index = column_index_of(stored, 0, name)
        low = index.min_values[2]
        wrong = stepped(kind, low, 1)
        data = with_column_index(stored, 0, name, min_values=changed(index.min_values, 2, wrong))
        message = f"column index: min {wrong!r} is above a value, {low!r}"
        assert verified(data) == [(ERROR, page_at(stored, 0, name, 2), message)]


def test_wider_bounds_of_pages_are_no_finding(verified):
    for name in set(BOUNDED) - {"flag"}:
        flat = alone(name)
        index = column_index_of(flat, 1, name)
        data = with_column_index(
            flat,
            1,
            name,
            min_values=[stepped(name, bound, -1) for bound in index.min_values],
            max_values=[stepped(name, bound, 1) for bound in index.max_values],
        )
        assert verified(data) == []


def test_a_truncated_upper_bound_has_to_be_raised(verified, flat):
    index = column_index_of(flat, 0, "text")
    cut = {
        "min_values": [bound[:-2] for bound in index.min_values],
        "max_values": [bound[:-2] for bound in index.max_values],
    }
    raised = [bound[:-1] + bytes([bound[-1] + 1]) for bound in cut["max_values"]]
    assert verified(with_column_index(flat, 0, "text", **cut | {"max_values": raised})) == []
    assert verified(with_column_index(flat, 0, "text", **cut)) == [
        (
            ERROR,
            page_at(flat, 0, "text", page),
            f"column index: max {short!r} is below a value, {whole!r}",
        )
        for page, (short, whole) in enumerate(zip(cut["max_values"], index.max_values, strict=True))
    ]


def test_a_bound_of_a_page_that_is_no_value_is_a_warning(verified, flat):
    index = column_index_of(flat, 0, "i64")
    data = with_column_index(flat, 0, "i64", max_values=changed(index.max_values, 2, b"abc"))
    message = "column index: max b'abc' is no value of the column's type"
    assert verified(data) == [(WARNING, page_at(flat, 0, "i64", 2), message)]


@pytest.mark.parametrize("page", [0, 1, 2])
def test_wrong_null_pages_are_found(verified, flat, page):
    truth = [False, True, False]  # rows 100 to 199 are NULL
    index = column_index_of(flat, 0, "gaps")
    assert index.null_pages == truth
    data = with_column_index(flat, 0, "gaps", null_pages=changed(truth, page, not truth[page]))
    message = f"column index: null_pages is {not truth[page]}, not {truth[page]}"
    assert verified(data) == [(ERROR, page_at(flat, 0, "gaps", page), message)]


@pytest.mark.parametrize("name", ["gaps", "nothing", "i64", LIST, "struct.x"])
@pytest.mark.parametrize("by", [-1, 1])
def test_wrong_null_counts_are_found(verified, flat, nested, name, by):
    grade = WARNING if name == LIST else ERROR  # writers count empty lists differently
    stored = nested if "." in name else flat
    counts = column_index_of(stored, 1, name).null_counts
    data = with_column_index(stored, 1, name, null_counts=changed(counts, 2, counts[2] + by))
    message = f"column index: null_counts is {counts[2] + by}, not {counts[2]}"
    assert verified(data) == [(grade, page_at(stored, 1, name, 2), message)]


def test_a_column_index_need_not_count_nulls(verified, flat):
    assert verified(with_column_index(flat, 0, "gaps", null_counts=None)) == []


def test_wrong_nan_counts_are_found(verified, flat):
    assert verified(with_column_index(flat, 0, "f32", nan_counts=[0, 0, 0])) == []
    data = with_column_index(flat, 0, "f32", nan_counts=[0, 1, 0])
    message = "column index: nan_counts is 1, not 0"
    assert verified(data) == [(ERROR, page_at(flat, 0, "f32", 1), message)]


def test_nan_counts_of_pages_with_nan_are_checked(verified):
    table = pa.table({"x": [1.0] * 100 + [float("nan")] * 100 + [2.0, float("nan")] * 50})
    # pyarrow writes no column index for a chunk with NaN: the test takes that of another file.
    stored, other = written(table), written(pa.table({"x": [1.0] * 200 + [2.0] * 100}))
    index = column_index_of(other, 0, "x")
    made = amended(index, nan_counts=[0, 100, 50])
    assert verified(with_new_column_index(stored, "x", made)) == []
    made = amended(index, nan_counts=[0, 99, 50])
    message = "column index: nan_counts is 99, not 100"
    data = with_new_column_index(stored, "x", made)
    assert verified(data) == [(ERROR, page_at(stored, 0, "x", 1), message)]


def with_new_column_index(data, name, index):
    made, at = encode(index), read_footer(BufferSource(data)).offset
    return with_chunk(data, 0, name, made, column_index_offset=at, column_index_length=len(made))


def ordered(values):
    """A file with one column, one page for each element of ``values``."""
    table = pa.table({"x": pa.array([v for v in values for _ in range(10)])})
    return written(table, max_rows_per_page=10, write_batch_size=10)


@pytest.mark.parametrize(
    ("values", "right", "wrong"),
    [
        ([1, 2, 3], [UNORDERED, ASCENDING], [DESCENDING]),
        ([3, 2, 1], [UNORDERED, DESCENDING], [ASCENDING]),
        ([1, 1, 1], [UNORDERED, ASCENDING, DESCENDING], []),
        ([1, 1, 2], [UNORDERED, ASCENDING], [DESCENDING]),
        ([2, 1, 1], [UNORDERED, DESCENDING], [ASCENDING]),
        ([1, 3, 2], [UNORDERED], [ASCENDING, DESCENDING]),
        ([1], [UNORDERED, ASCENDING, DESCENDING], []),
        ([1, None, 2], [UNORDERED, ASCENDING], [DESCENDING]),
        ([2, None, 1], [UNORDERED, DESCENDING], [ASCENDING]),
        (["a", "b", "c"], [UNORDERED, ASCENDING], [DESCENDING]),
        ([1.5, -0.5, -1.5], [UNORDERED, DESCENDING], [ASCENDING]),
    ],
    ids=str,
)
def test_a_boundary_order_that_contradicts_the_bounds_is_found(verified, values, right, wrong):
    stored = ordered(values)
    actual = column_index_of(stored, 0, "x").boundary_order
    assert actual in right
    for order in right:
        assert verified(with_column_index(stored, 0, "x", boundary_order=order)) == []
    for order in wrong:
        data = with_column_index(stored, 0, "x", boundary_order=order)
        message = f"column index: boundary_order is {order}, bounds say {actual}"
        assert verified(data) == [(ERROR, chunk_at(0, "x"), message)], f"order {order}"


def test_wrong_histograms_of_pages_are_a_warning(verified, nested):
    index = column_index_of(nested, 0, LIST)
    for name in ("repetition", "definition"):
        field = f"{name}_level_histograms"
        counts = getattr(index, field)
        data = with_column_index(nested, 0, LIST, **{field: changed(counts, 3, counts[3] + 1)})
        message = f"column index: {name}_level_histograms are wrong"
        assert verified(data) == [(WARNING, chunk_at(0, LIST), message)]
        data = with_column_index(nested, 0, LIST, **{field: counts[:-1]})
        assert verified(data) == [(WARNING, chunk_at(0, LIST), message)]
        assert verified(with_column_index(nested, 0, LIST, **{field: None})) == []


def test_a_missing_entry_of_a_column_index_is_found(verified, flat):
    lists = ("null_pages", "min_values", "max_values", "null_counts")
    index = column_index_of(flat, 0, "i64")
    shorter = {name: getattr(index, name)[:-1] for name in lists}
    message = "column index: 2 entries for 3 pages"
    data = with_column_index(flat, 0, "i64", **shorter)
    assert verified(data) == [(ERROR, chunk_at(0, "i64"), message)]
    for name in lists[1:]:
        data = with_column_index(flat, 0, "i64", **{name: shorter[name]})
        message = "the lists of a column index of 3 pages differ in length"
        assert verified(data) == [(ERROR, chunk_at(0, "i64"), message)]


def test_an_invalid_column_index_is_found(verified, flat):
    data = with_chunk(flat, 0, "i64", column_index_offset=0)
    ((severity, where, message),) = verified(data)
    assert (severity, where) == (ERROR, chunk_at(0, "i64"))
    assert message.startswith("not a valid ColumnIndexStruct")


# --- bloom filters --------------------------------------------------------------------------------


def bloom_at(data, group, name):
    """Where the words of a filter start, and where they end."""
    chunk = chunk_of(data, group, name).meta_data
    start, stop = chunk.bloom_filter_offset, chunk.bloom_filter_offset + chunk.bloom_filter_length
    return start + decode(BloomFilterHeader, data[start:stop])[1], stop


def test_a_cleared_bit_of_a_bloom_filter_is_found(verified, indexed):
    start, stop = bloom_at(indexed, 1, "text")
    words = np.frombuffer(indexed[start:stop], dtype="<u4").reshape(-1, 8)
    values = flat_table()["text"].to_pylist()[GROUP_ROWS:]
    hashes = [xxhash.xxh64(value.encode()).intdigest() for value in values]
    block = next(iter(np.flatnonzero(words[:, 0])))
    bit = int(words[block, 0]) & -int(words[block, 0])
    cleared = words.copy()
    cleared[block, 0] &= ~np.uint32(bit)
    lost = 300 - int(BloomFilter(cleared).might_contain(np.array(hashes, np.uint64)).sum())
    assert 0 < lost < 50
    data = indexed[:start] + cleared.tobytes() + indexed[stop:]
    message = f"bloom filter: {lost} of 300 values are not in it"
    assert verified(data) == [(ERROR, chunk_at(1, "text"), message)]


def test_an_empty_bloom_filter_is_found_and_a_full_one_is_not(verified, indexed):
    start, stop = bloom_at(indexed, 0, "i64")
    data = indexed[:start] + bytes(stop - start) + indexed[stop:]
    message = "bloom filter: 300 of 300 values are not in it"
    assert verified(data) == [(ERROR, chunk_at(0, "i64"), message)]
    assert verified(indexed[:start] + b"\xff" * (stop - start) + indexed[stop:]) == []


def test_the_bloom_filter_of_another_row_group_is_found(verified, indexed):
    start, stop = bloom_at(indexed, 0, "i64")
    other, end = bloom_at(indexed, 1, "i64")
    assert stop - start == end - other
    data = indexed[:start] + indexed[other:end] + indexed[stop:]
    ((severity, where, message),) = verified(data)
    assert (severity, where) == (ERROR, chunk_at(0, "i64"))
    assert message.startswith("bloom filter: ")


def test_a_damaged_header_of_a_bloom_filter_is_found(verified, indexed):
    at = chunk_of(indexed, 0, "i64").meta_data.bloom_filter_offset
    ((severity, where, message),) = verified(indexed[:at] + b"\xff" + indexed[at + 1 :])
    assert (severity, where) == (ERROR, chunk_at(0, "i64"))
    assert message.startswith("not a valid BloomFilterHeader")
    header = decode(BloomFilterHeader, indexed[at:])[0]
    size, count = len(encode(header)), header.numBytes
    data = indexed[:at] + encode(amended(header, numBytes=count + 1)).ljust(size)
    message = f"a bloom filter of {count + 1:,} bytes"
    place = Where(None, 0, "i64", offset=at)
    assert verified(data + indexed[at + size :]) == [(ERROR, place, message)]
    length = chunk_of(indexed, 0, "i64").meta_data.bloom_filter_length
    data = with_metadata(indexed, 0, "i64", bloom_filter_length=length - 1)
    message = f"a bloom filter of {count:,} bytes in {length - 1:,}"
    footer = "the footer does not match its checksum: damaged, or changed by another tool"
    changed = (ERROR, Where(offset=read_footer(BufferSource(data)).offset), footer)
    assert verified(data) == [changed, (ERROR, place, message)]


def test_a_bloom_filter_outside_the_file_is_found(verified, flat):
    data = with_metadata(flat, 0, "i64", bloom_filter_offset=10**7, bloom_filter_length=47)
    assert [(s, w.row_group, w.column) for s, w, _ in verified(data)] == [(ERROR, 0, "i64")]


# --- embedded indexes -----------------------------------------------------------------------------

LOOKUP = ia.Lookup("text", granule_rows=50)


def entries_of(file, starts):
    """Keys and granules of the lookup index, row group by row group."""
    with Workspace() as work:
        (actual,) = gather(file, [Due(LOOKUP, check_index(file, LOOKUP), starts)], work)
        (table,) = actual.blocks()
    entries = writer_module.entries_of(table)
    keys, granules = (entries >> np.uint64(32)).astype(np.uint32), entries.astype(np.uint32)
    firsts = np.searchsorted(starts, file.row_group_starts)
    for first, stop in itertools.pairwise(firsts):
        here = (first <= granules) & (granules < stop)
        yield keys[here], granules[here]


def section_of(entries, starts, file_id):
    """A section of entries: keys and granule numbers in any order."""
    out = pa.BufferOutputStream()
    write_section(out, STEP_SCHEMA, [entry_table(packed(entries))], starts, file_id)
    return BuiltSection.of(memoryview(out.getvalue()))


def with_entries(data, change):
    """The file with a lookup index of ``change(keys, granules)``, all checksums right."""
    file = OpenedFile(BufferSource(data), "t.parquet")
    starts = granule_starts(file, file.schema.leaf("text"), LOOKUP.granule_rows)
    entries = [change(*both) for both in entries_of(file, starts)]
    built = Built(LOOKUP, section_of(entries, starts, "f" * 32))
    return with_section(data, built)


def with_section(data, built):
    footer = read_footer(BufferSource(data))
    entry = built.entry(len(data))
    directory = Directory("f" * 32, binding_of(footer.metadata), len(data), (entry,))
    document, pointer = encode_directory(directory, len(data) + entry.length)
    raw = with_key_values(footer.raw, {FOOTER_KEY: pointer})
    return data + bytes(built.section.data) + document + framed(raw)


def lookup_at(data):
    """Returns the directory's entry of the lookup index, and where it is."""
    entry = OpenedFile(BufferSource(data), "t.parquet").directory.indexes[0]
    return entry, Where(None, None, "text", offset=entry.offset)


def test_a_section_of_all_entries_is_sound(verified, flat):
    assert verified(with_entries(flat, lambda keys, granules: (keys, granules))) == []


def test_a_missing_entry_of_a_lookup_is_found_though_checksums_are_right(verified, flat):
    data = with_entries(flat, lambda keys, granules: (keys[1:], granules[1:]))
    _, place = lookup_at(data)
    message = "index text:lookup: 2 of 600 entries are missing"  # one of each row group
    assert verified(data) == [(ERROR, place, message)]


def test_a_superfluous_entry_is_a_warning(verified, flat):
    data = with_entries(
        flat, lambda keys, granules: (np.append(keys, keys[0] ^ 1), np.append(granules, 11))
    )
    _, place = lookup_at(data)
    message = "index text:lookup: 2 entries that belong to no value"
    assert verified(data) == [(WARNING, place, message)]


def test_entries_of_the_wrong_granule_are_found(verified, flat):
    data = with_entries(flat, lambda keys, granules: (keys, granules[::-1].copy()))
    _, place = lookup_at(data)
    assert [(severity, where) for severity, where, _ in verified(data)] == [
        (ERROR, place),
        (WARNING, place),
    ]


WORDS = ia.Words("text", granule_rows=200)


def with_cells(data, change):
    """The file with a words index of ``change(cells)``, in blocks of two pages."""
    file = OpenedFile(BufferSource(data), "t.parquet")
    with Workspace() as work:
        (due,) = due_indexes(file, [WORDS], groups_of(file))
        (actual,) = gather(file, [due], work)
        (table,) = actual.blocks()
    cells = change(due.blocks.cells_of(writer_module.entries_of(table)))
    rows, out = entry_table(cells, CELL_SCHEMA), pa.BufferOutputStream()
    write_section(out, CELL_SCHEMA, [rows], due.starts, "f" * 32, block_size=due.blocks.size)
    return with_section(data, Built(WORDS, BuiltSection.of(memoryview(out.getvalue()))))


def test_entries_for_blocks_of_pages_are_checked(verified):
    texts = [f"{'every' if n % 2 else 'other'} {n}" for n in range(ROWS)]
    data = written(pa.table({"text": texts}))
    assert verified(with_cells(data, lambda cells: cells)) == []
    _, place = lookup_at(with_cells(data, lambda cells: cells))
    lost = verified(with_cells(data, lambda cells: cells[1:]))
    message = "index text:words: 1 of 606 entries are missing"
    assert lost == [(ERROR, place, message)]
    moved = verified(with_cells(data, lambda cells: np.append(cells[:-1], cells[-1] - 1)))
    beyond = "index text:words: 1 entries that belong to no value"
    assert moved == [(ERROR, place, message), (WARNING, place, beyond)]


def test_a_flipped_byte_of_a_section_is_found(verified, indexed):
    entry, place = lookup_at(indexed)
    meta = entry.offset + entry.length - entry.meta_length
    for at in range(meta, entry.offset + entry.length, 101):
        message = "index text:lookup: the metadata does not match its checksum"
        assert verified(flipped(indexed, at)) == [(ERROR, place, message)]
    file = OpenedFile(BufferSource(indexed), "t")
    pages = file.sections.section(file.sections.resolved(entry)).columns["key"].pages
    for page in (pages.sum(axis=1) - 1).tolist():
        ((severity, where, message),) = verified(flipped(indexed, entry.offset + page))
        assert (severity, where) == (ERROR, place)
        assert message.startswith("index text:lookup: ")


def test_a_flipped_byte_of_the_directory_is_found(verified, indexed):
    pointer = json.loads(metadata_of(indexed).key_value(FOOTER_KEY))
    for at in range(pointer["offset"], pointer["offset"] + pointer["length"], 17):
        message = "embedded indexes are ignored: the directory does not match its checksum"
        assert verified(flipped(indexed, at)) == [(ERROR, Where(), message)]


def test_a_section_of_another_file_is_found(verified, flat, indexed):
    file = OpenedFile(BufferSource(flat), "t.parquet")
    starts = granule_starts(file, file.schema.leaf("text"), LOOKUP.granule_rows)
    section = section_of(entries_of(file, starts), starts, "e" * 32)
    data = with_section(flat, Built(LOOKUP, section))
    _, place = lookup_at(data)
    message = "index text:lookup: the section belongs to another file"
    assert verified(data) == [(ERROR, place, message)]


def test_an_index_on_a_missing_column_is_found(verified, flat):
    file = OpenedFile(BufferSource(flat), "t.parquet")
    starts = granule_starts(file, file.schema.leaf("text"), 50)
    section = section_of([], starts, "f" * 32)
    data = with_section(flat, Built(ia.Lookup("absent"), section))
    ((severity, where, message),) = verified(data)
    assert (severity, where) == (ERROR, Where(None, None, "absent", offset=len(flat)))
    assert message.startswith("index absent:lookup: ")


def test_an_index_of_an_unknown_kind_is_reported_as_unchecked(verified, flat):
    def with_kind(**changes):
        footer = read_footer(BufferSource(flat))
        section = section_of([], np.array([0, ROWS]), "f" * 32)
        entry = dataclasses.replace(Built(LOOKUP, section).entry(len(flat)), **changes)
        directory = Directory("f" * 32, binding_of(footer.metadata), len(flat), (entry,))
        document, pointer = encode_directory(directory, len(flat) + entry.length)
        raw = with_key_values(footer.raw, {FOOTER_KEY: pointer})
        return flat + bytes(section.data) + document + framed(raw)

    for kind, changes in (("soundex", {"kind": "soundex"}), ("lookup", {"kind_version": 99})):
        message = f"index text:{kind}: not checked: its kind is not known here"
        place = Where(None, None, "text", offset=len(flat))
        assert verified(with_kind(**changes)) == [(WARNING, place, message)]


def test_an_index_by_other_tables_of_case_is_reported_as_unchecked(
    verified, flat, tmp_path, monkeypatch
):
    path = tmp_path / "lower.parquet"
    path.write_bytes(flat)
    ia.add_indexes(path, ["lookup(lower(text))"])
    data = path.read_bytes()
    assert verified(data) == []
    monkeypatch.setattr(term_module, "_case_tables", lambda: "of Unicode 99")
    ((severity, where, message),) = verified(data)
    assert (severity, where.column) == (WARNING, 'lower("text")')
    assert message.startswith('index lower("text"):lookup: not checked: ')
    assert "its functions meant" in message


def test_a_directory_copied_into_another_file_is_found(verified, indexed):
    pointer = metadata_of(indexed).key_value(FOOTER_KEY)
    table = pq.read_table(pa.BufferReader(indexed))
    keys = {FOOTER_KEY: pointer}
    data = written(table.replace_schema_metadata(keys))
    assert metadata_of(data).key_value(FOOTER_KEY) == pointer
    offset, length = (json.loads(pointer)[field] for field in ("offset", "length"))
    message = f"{length} bytes are referenced outside the {len(data):,} bytes there are"
    message += "; the file was rewritten since"
    place = Where(offset=offset)
    assert verified(data) == [(ERROR, place, f"embedded indexes are ignored: {message}")]
    # Other bytes are at the old position if the new file is longer.
    longer = with_footer(data, bytes(offset + length))
    message = "the directory does not match its checksum; the file was rewritten since"
    assert verified(longer) == [(ERROR, Where(), f"embedded indexes are ignored: {message}")]
    # The same directory does not fit other rows.
    other = written(table.take(list(range(ROWS - 1, -1, -1))).replace_schema_metadata(keys))
    start = read_footer(BufferSource(other)).offset
    carried = with_footer(other, bytes(offset - start) + part_of(indexed, offset, length))
    message = "the directory belongs to another file; this one was rewritten since"
    assert verified(carried) == [(ERROR, Where(), f"embedded indexes are ignored: {message}")]


def test_a_directory_of_a_file_that_was_rewritten_is_found(verified, indexed):
    data = with_group(indexed, 0, num_rows=GROUP_ROWS)  # unchanged: the footer's bytes stay
    assert verified(data) == []
    data = with_statistics(indexed, 0, "i64", distinct_count=300)
    message = (
        "embedded indexes are ignored: "
        "the directory belongs to another file; this one was rewritten since"
    )
    assert verified(data) == [(ERROR, Where(), message)]


# --- files that are not Parquet, and several files -----------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes are too few for a Parquet file"),
        (b"PAR1", "4 bytes are too few for a Parquet file"),
        (b"a text, not a table", "not a Parquet file, or one that was cut short: "),
        (b"PAR1\xff\xff\xff\x7fPAR1", "the footer claims 2,147,483,647 bytes of a file of 12"),
        (b"PAR1\x00\x00\x00\x00\x04\x00\x00\x00PAR1", "not a valid FileMetaData: "),
    ],
    ids=["empty", "magic", "text", "footer too long", "no footer"],
)
def test_a_file_that_is_not_parquet_is_one_finding(verified, data, message):
    ((severity, _, actual),) = verified(data)
    assert severity is ERROR
    assert actual.startswith(message)


@pytest.mark.parametrize("depth", [10, *range(55, 70), 200])
@pytest.mark.parametrize("level", ["footer", "row group", "chunk"])
def test_a_footer_with_unknown_fields_nested_deep_is_sound_or_a_finding(
    verified, unchecked, level, depth
):
    actual = verified(with_nested_field(unchecked, level, depth))
    assert len(actual) <= 1
    assert all((severity, where.row_group) == (ERROR, None) for severity, where, _ in actual)


def with_nested_field(data, level, depth):
    """The file with an unknown field in its footer: structs within structs."""
    struct_kind, unknown, row_groups, columns = 12, 3000, 4, 1
    field = Span(unknown, struct_kind, b"\x1c" * depth + bytes(depth + 1))

    def added(encoded, path):
        fields = spans(encoded)[0]
        if not path:
            return replace_fields(fields, [field])
        held = next(span for span in fields if span.number == path[0])
        elements = list_elements(held.value)
        changed = [added(elements[0], path[1:]), *elements[1:]]
        return replace_fields(fields, [list_span(path[0], changed)])

    footer = read_footer(BufferSource(data))
    paths = {"footer": [], "row group": [row_groups], "chunk": [row_groups, columns]}
    return data[: footer.offset] + framed(added(footer.raw, paths[level]))


@pytest.mark.parametrize("length", [12, 1000, -1, -9, -1000])
def test_a_file_that_was_cut_short_is_one_finding(verified, flat, length):
    ((severity, _, _),) = verified(flat[:length])
    assert severity is ERROR


def test_an_encrypted_footer_is_one_warning(corpus):
    name = "apache-parquet-testing__data-encrypt_columns_and_footer.parquet.encrypted.parquet"
    (finding,) = ia.verify(corpus / "files" / name)
    assert finding.severity is WARNING
    assert finding.message.startswith("not checked: the footer is encrypted")


def test_a_file_that_cannot_be_opened_is_a_finding(tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        pq.write_table(pa.table({"k": [1]}), tmp_path / f"{name}.parquet")
    damaged = tmp_path / "c.parquet"
    damaged.write_bytes(b"PAR1" + damaged.read_bytes()[:-2])

    def open_file(path, *arguments, **options):
        if path.endswith("a.parquet"):
            raise ia.PathError(f"{path}: cannot be opened: Permission denied")
        return opened(path, *arguments, **options)

    opened = verify_file.open_file
    monkeypatch.setattr(verify_file, "open_file", open_file)
    actual = ia.verify(tmp_path)
    assert [Path(finding.where.file).name for finding in actual] == ["a.parquet", "c.parquet"]
    assert "Permission denied" in actual[0].message


def test_a_path_without_files_is_an_error(tmp_path):
    with pytest.raises(ia.PathError):
        ia.verify(tmp_path / "absent.parquet")
    with pytest.raises(ia.PathError):
        ia.verify(tmp_path)


def test_findings_of_a_folder_come_file_by_file(flat, tmp_path):
    (tmp_path / "sub").mkdir()
    sound, bad = tmp_path / "a.parquet", tmp_path / "b.parquet"
    worse, none = tmp_path / "sub" / "c.parquet", tmp_path / "d.parquet"
    sound.write_bytes(flat)
    bad.write_bytes(with_footer(flat, num_rows=1))
    worse.write_bytes(with_statistics(flat, 1, "gaps", null_count=0))
    none.write_bytes(b"")
    seen = []
    actual = ia.verify(tmp_path, progress=lambda *at: seen.append(at))
    assert [finding.where.file for finding in actual] == [str(bad), str(none), str(worse)]
    assert seen[:4] == [(str(f), i, 4) for i, f in enumerate([sound, bad, none, worse])]
    assert ia.verify([sound, bad]) == actual[:1]
    assert ia.verify(f"{tmp_path}/sub/*.parquet") == actual[2:]


def test_findings_come_in_the_order_of_the_file(verified, flat):
    data = with_entries(flat, lambda keys, granules: (keys[1:], granules[1:]))
    data = with_column_index(data, 1, "gaps", null_counts=[34, 0, 0])
    data = with_chunk(data, 1, "i8", offset_index_offset=0)
    data = with_column_index(data, 0, "word", null_counts=[0, 5, 5])
    data = with_group(with_group(data, 0, ordinal=0), 1, ordinal=7)
    data = flipped(with_footer(data, num_rows=1), 0)
    places = [(where.row_group, where.column, where.page) for _, where, _ in verified(data)]
    assert places == [
        (None, None, None),
        (None, None, None),
        (1, None, None),
        (0, "word", 2),
        (0, "word", 3),
        (1, "i8", None),
        (1, "gaps", 1),
        (1, "gaps", 2),
        (None, "text", None),
    ]


def test_a_finding_has_severity_place_and_message(flat, tmp_path):
    path = tmp_path / "t.parquet"
    index = column_index_of(flat, 0, "gaps")
    path.write_bytes(with_column_index(flat, 0, "gaps", null_counts=[9, *index.null_counts[1:]]))
    (finding,) = ia.verify(path)
    offset = page_at(flat, 0, "gaps", 0).offset
    assert str(finding) == (
        f"error: {path}, row group 0, column gaps, page 0, offset {offset}: "
        "column index: null_counts is 9, not 34"
    )
    assert isinstance(finding, ia.Finding)
    warning = ia.Finding(WARNING, Where("t.parquet"), "it is odd")
    assert str(warning) == "warning: t.parquet: it is odd"


def test_the_worst_of_findings_is_their_highest_severity():
    assert worst([]) is None
    some = [ia.Finding(WARNING, Where(), ""), ia.Finding(WARNING, Where(), "")]
    assert worst(some) is WARNING
    assert worst([*some, ia.Finding(ERROR, Where(), "")]) is ERROR
    assert ERROR > WARNING


def test_verifying_leaves_the_file_as_it_was(indexed, tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(indexed)
    ia.verify(path)
    assert path.read_bytes() == indexed
    assert [each.name for each in tmp_path.iterdir()] == ["t.parquet"]


def test_an_arrow_schema_that_pyarrow_refuses_is_found(tmp_path):
    path = tmp_path / "t.parquet"
    for stored in ("\x01", "Z2FyYmFnZQ=="):
        with pq.ParquetWriter(path, pa.schema([("n", pa.int64())]), store_schema=False) as writer:
            writer.write_table(pa.table({"n": range(10)}))
            writer.add_key_value_metadata({"ARROW:schema": stored})
        with pytest.raises(pa.ArrowInvalid):
            pq.read_table(path)
        (actual,) = ia.verify(path)
        assert (
            actual.message == "ARROW:schema cannot be decoded: readers of Arrow's refuse the file"
        )


@pytest.mark.parametrize("seed", range(200))
def test_comparing_entries_in_parts_equals_comparing_sets(seed):
    rng = np.random.default_rng(seed)
    keys = int(rng.choice([1, 4, 60]))

    def entries(count):
        given = rng.integers(0, keys, count).astype(np.uint64) << np.uint64(32)
        return np.unique(given | rng.integers(0, 50, count).astype(np.uint64))

    def parts(given):
        cuts = np.sort(rng.integers(0, len(given) + 1, int(rng.integers(0, 6))))
        return iter(np.split(given, cuts))

    due, held = entries(int(rng.integers(0, 300))), entries(int(rng.integers(0, 300)))
    both = np.intersect1d(due, held)
    expected = len(due), len(due) - len(both), len(held) - len(both)
    assert _differing_entries(parts(due), parts(held)) == expected


def test_entries_whose_keys_do_not_ascend_are_refused():
    parts = [np.array([number << 32], np.uint64) for number in (5, 9, 3)]
    with pytest.raises(ia.FormatError, match="not sorted"):
        _differing_entries(iter(parts), iter(sorted(parts)))
