"""Files an attacker might make: sound except for what each name says.

``BOMBS`` maps names to functions that return the bytes of a file, a few megabytes at most.
"""

import base64
import dataclasses
import io
import json
import zlib
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from intarsia.index.directory import binding_of
from intarsia.index.section.writer import CELL_SCHEMA, STEP_SCHEMA, BuiltSection, write_section
from intarsia.io.source import BufferSource
from intarsia.parquet.compact_protocol import (
    LIST,
    STRUCT,
    Span,
    list_header,
    replace_fields,
    spans,
    varint,
)
from intarsia.parquet.footer import MAGIC, framed, read_footer, with_key_values
from intarsia.parquet.footer_cache import FOOTER_KEY
from intarsia.parquet.metadata import (
    ColumnChunk,
    ColumnMetaData,
    CompressionCodec,
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    Encoding,
    PageHeader,
    PageType,
    RowGroup,
    SchemaElement,
)
from intarsia.parquet.page_index import encode_offset_index, read_offset_index
from intarsia.parquet.thrift import amended, encode

FILE_ID = "f" * 32
ROWS = 1000
INT64, BYTE_ARRAY = 2, 6
HUGE = 2**31 - 1
BOMBS = {}


def bomb(make):
    BOMBS[make.__name__] = make
    return make


# --- parts ---------------------------------------------------------------------------------------


@cache
def sound(rows=ROWS, **options):
    out = io.BytesIO()
    table = pa.table({"a": np.arange(rows), "b": [f"x{n}" for n in range(rows)]})
    pq.write_table(table, out, **({"compression": "none"} | options))
    return out.getvalue()


def footer_of(data):
    return read_footer(BufferSource(data))


def with_footer(raw, data=None):
    data = sound() if data is None else data
    return data[: footer_of(data).offset] + framed(raw)


def with_field(number, kind, value, data=None):
    data = sound() if data is None else data
    fields = spans(footer_of(data).raw)[0]
    return with_footer(replace_fields(fields, [Span(number, kind, value)]), data)


def with_metadata(change, data=None):
    """The file with its footer's metadata amended by ``change``."""
    data = sound() if data is None else data
    metadata = footer_of(data).metadata
    return with_footer(encode(amended(metadata, **change(metadata))), data)


def with_chunks(change, data=None):
    """The file with fields of each chunk set: ``change(chunk, its number)``."""

    def groups(metadata):
        return [
            amended(
                group,
                columns=[
                    amended(chunk, **change(chunk, i)) for i, chunk in enumerate(group.columns)
                ],
            )
            for group in metadata.row_groups
        ]

    return with_metadata(lambda metadata: {"row_groups": groups(metadata)}, data)


def of_pages(pages, rows, values=None, codec=0, kind=INT64, dictionary=False, claimed=None):
    """A file of one required column ``a`` with these pages, each a header and a body."""
    body = b"".join(pages)
    template = io.BytesIO()
    type_ = pa.int64() if kind == INT64 else pa.string()
    schema = pa.schema([pa.field("a", type_, nullable=False)])
    pq.write_table(pa.table({"a": pa.array([], type_)}, schema=schema), template)
    metadata = footer_of(template.getvalue()).metadata
    first = len(pages[0]) if dictionary else 0
    chunk = ColumnMetaData(
        type=kind,
        encodings=[Encoding.PLAIN, Encoding.RLE, Encoding.RLE_DICTIONARY],
        path_in_schema=["a"],
        codec=codec,
        num_values=rows if values is None else values,
        total_uncompressed_size=len(body),
        total_compressed_size=len(body) if claimed is None else claimed,
        data_page_offset=4 + first,
        dictionary_page_offset=4 if dictionary else None,
    )
    group = RowGroup(
        columns=[ColumnChunk(file_offset=0, meta_data=chunk)],
        total_byte_size=len(body),
        num_rows=rows,
    )
    raw = encode(amended(metadata, num_rows=rows, row_groups=[group]))
    return MAGIC + body + framed(raw)


def data_page(body, values, size=None, stored=None, encoding=Encoding.PLAIN):
    header = PageHeader(
        type=PageType.DATA_PAGE,
        uncompressed_page_size=len(body) if size is None else size,
        compressed_page_size=len(body) if stored is None else stored,
        data_page_header=DataPageHeader(
            num_values=values,
            encoding=encoding,
            definition_level_encoding=Encoding.RLE,
            repetition_level_encoding=Encoding.RLE,
        ),
    )
    return encode(header) + body


def data_page_v2(body, values, size=None, levels=(0, 0), rows=None):
    header = PageHeader(
        type=PageType.DATA_PAGE_V2,
        uncompressed_page_size=len(body) if size is None else size,
        compressed_page_size=len(body),
        data_page_header_v2=DataPageHeaderV2(
            num_values=values,
            num_nulls=0,
            num_rows=values if rows is None else rows,
            encoding=Encoding.PLAIN,
            repetition_levels_byte_length=levels[0],
            definition_levels_byte_length=levels[1],
            is_compressed=True,
        ),
    )
    return encode(header) + body


def dictionary_page(body, entries, size=None):
    header = PageHeader(
        type=PageType.DICTIONARY_PAGE,
        uncompressed_page_size=len(body) if size is None else size,
        compressed_page_size=len(body),
        dictionary_page_header=DictionaryPageHeader(num_values=entries, encoding=Encoding.PLAIN),
    )
    return encode(header) + body


def with_directory(document, data=None, sections=b"", pointer=None):
    """The file with a directory of these bytes and a valid checksum."""
    data = sound() if data is None else data
    base = data + sections
    actual = {
        "version": 1,
        "offset": len(base),
        "length": len(document),
        "crc32": zlib.crc32(document),
    }
    text = json.dumps(actual) if pointer is None else pointer
    return base + document + framed(with_key_values(footer_of(data).raw, {FOOTER_KEY: text}))


def document_of(entries, data=None, **changes):
    data = sound() if data is None else data
    document = {
        "file_id": FILE_ID,
        "binding": binding_of(footer_of(data).metadata),
        "base_length": len(data),
        "indexes": entries,
    }
    return json.dumps(document | changes).encode()


def entry_of(offset=0, length=0, **changes):
    return {
        "kind": "lookup",
        "kind_version": 1,
        "on": "a",
        "params": {},
        "offset": offset,
        "length": length,
        "meta_length": 0,
        "meta_crc32": 0,
    } | changes


def with_section(whole, **changes):
    """The file with a lookup section of these bytes and valid checksums.

    ``whole`` is the section as a Parquet file.
    """
    built = BuiltSection.of(memoryview(whole))
    data = sound()
    entry = entry_of(
        len(data), len(built.data), meta_length=built.meta_length, meta_crc32=built.meta_crc32
    )
    return with_directory(document_of([entry | changes]), sections=bytes(built.data))


def section_of(keys, steps, starts=None, schema=STEP_SCHEMA, **options):
    """A lookup section as a whole Parquet file."""
    out = pa.BufferOutputStream()
    starts = np.array([0, ROWS // 2, ROWS]) if starts is None else starts
    table = pa.table([pa.array(keys, pa.uint32()), pa.array(steps, pa.uint32())], schema=schema)
    write_section(out, schema, [table], starts, FILE_ID, **options)
    return bytes(out.getvalue())


# --- the footer's thrift -------------------------------------------------------------------------


@bomb
def list_of_two_billion():
    return with_field(4, LIST, b"\xfc" + varint(HUGE))


@bomb
def list_of_schema_of_two_billion():
    return with_field(2, LIST, b"\xfc" + varint(2**62))


@bomb
def text_of_two_to_the_62():
    return with_field(6, 8, varint(2**62) + b"x")


@bomb
def varint_without_end():
    return with_field(3, 6, b"\xff" * 100_000)


@bomb
def structs_within_structs():
    return with_field(3000, LIST, list_header(1, STRUCT) + b"\x1c" * 2_000_000 + bytes(2_000_001))


@bomb
def struct_within_structs_in_a_field():
    return with_field(3000, STRUCT, b"\x1c" * 2_000_000 + bytes(2_000_001))


@bomb
def lists_within_lists():
    return with_field(3000, LIST, b"\x19" * 2_000_000 + b"\x03\x00")


@bomb
def maps_within_maps():
    return with_field(3000, 11, b"\x01\xbb" * 1_000_000)


@bomb
def a_hundred_thousand_unknown_fields():
    raw = footer_of(sound()).raw[:-1] + b"\x11" * 100_000 + b"\0"
    return with_footer(raw)


@bomb
def twenty_thousand_key_values():
    return with_footer(
        with_key_values(footer_of(sound()).raw, {f"k{n}": "v" for n in range(20_000)})
    )


# --- the schema ----------------------------------------------------------------------------------


def with_schema(elements):
    return with_metadata(lambda _: {"schema": elements})


def group(name, children, **others):
    return SchemaElement(name=name, num_children=children, repetition_type=1, **others)


def leaf(name):
    return SchemaElement(name=name, type=INT64, repetition_type=1)


@bomb
def schema_of_two_billion_children():
    return with_schema([group("root", HUGE), leaf("a"), leaf("b")])


@bomb
def schema_of_negative_children():
    return with_schema([group("root", -5), leaf("a"), leaf("b")])


@bomb
def schema_group_that_holds_its_parent():
    return with_schema([group("root", 1), group("root", 1), group("root", 1), leaf("a")][:3])


@bomb
def schema_nested_twenty_thousand_deep():
    return with_schema([group("root", 1), *[group("g", 1)] * 20_000, leaf("a")])


@bomb
def schema_nested_as_deep_as_is_taken():
    return with_schema([group("root", 1), *[group("g", 1)] * 250, leaf("a")])


@bomb
def schema_nested_as_deep_as_is_taken_and_wide():
    return with_schema(
        [group("root", 1), *[group("g", 1)] * 200, group("w", 10_000), *[leaf("a")] * 10_000]
    )


@bomb
def schema_of_twenty_thousand_columns():
    return with_schema([group("root", 100_000), *(leaf(f"c{n}") for n in range(20_000))])


@bomb
def schema_of_empty_groups():
    return with_schema([group("root", 100_000), *(group(f"c{n}", 0) for n in range(20_000))])


@bomb
def schema_of_one_name():
    return with_schema([group("root", 20_000), *[leaf("a")] * 20_000])


# --- row groups and chunks -----------------------------------------------------------------------


@bomb
def rows_beyond_sixty_four_bits():
    def change(metadata):
        (one,) = metadata.row_groups
        return {"row_groups": [amended(one, num_rows=2**62)] * 4}

    return with_metadata(change)


@bomb
def rows_of_two_to_the_forty():
    def change(metadata):
        (one,) = metadata.row_groups
        columns = [amended(c, meta_data={"num_values": 2**40}) for c in one.columns]
        return {"row_groups": [amended(one, num_rows=2**40, columns=columns)]}

    return with_metadata(change)


@bomb
def three_hundred_row_groups_of_one_chunk():
    def change(metadata):
        return {"row_groups": [metadata.row_groups[0]] * 300}

    return with_metadata(change)


@bomb
def row_groups_without_columns():
    def change(metadata):
        return {"row_groups": [amended(metadata.row_groups[0], columns=[])] * 3}

    return with_metadata(change)


@bomb
def chunks_at_negative_offsets():
    return with_chunks(lambda chunk, i: {"meta_data": {"data_page_offset": -100}})


@bomb
def chunks_outside_the_file():
    return with_chunks(lambda chunk, i: {"meta_data": {"data_page_offset": 2**60}})


@bomb
def chunks_longer_than_the_file():
    return with_chunks(lambda chunk, i: {"meta_data": {"total_compressed_size": 2**62}})


@bomb
def chunks_of_negative_length():
    return with_chunks(lambda chunk, i: {"meta_data": {"total_compressed_size": -1}})


@bomb
def chunks_that_overlap():
    return with_chunks(lambda chunk, i: {"meta_data": {"data_page_offset": 4}})


@bomb
def chunks_within_the_footer():
    at = footer_of(sound()).offset
    return with_chunks(lambda chunk, i: {"meta_data": {"data_page_offset": at}})


@bomb
def a_codec_that_nobody_knows():
    return with_chunks(lambda chunk, i: {"meta_data": {"codec": 99}})


@bomb
def page_indexes_outside_the_file():
    return with_chunks(
        lambda chunk, i: {
            "offset_index_offset": 2**62,
            "offset_index_length": HUGE,
            "column_index_offset": -(2**62),
            "column_index_length": HUGE,
        }
    )


@bomb
def page_indexes_that_are_the_file():
    return with_chunks(
        lambda chunk, i: {
            "offset_index_offset": 0,
            "offset_index_length": len(sound()),
            "column_index_offset": 0,
            "column_index_length": len(sound()),
        }
    )


def paged():
    return sound(write_page_index=True, max_rows_per_page=250, write_batch_size=250)


@bomb
def page_indexes_of_rows_that_wrap_around():
    data = paged()
    footer = footer_of(data)
    body, places = data[: footer.offset], []
    for chunk in footer.metadata.row_groups[0].columns:
        at = chunk.offset_index_offset
        index = read_offset_index(memoryview(data)[at : at + chunk.offset_index_length])
        rows = np.array([0, 2**63 - 1, -(2**63), -1])
        raw = encode_offset_index(dataclasses.replace(index, first_row_index=rows))
        places.append({"offset_index_offset": len(body), "offset_index_length": len(raw)})
        body += raw
    return with_chunks(lambda chunk, i: places[i], body + data[footer.offset :])


@bomb
def page_indexes_of_chunks_that_are_longer_than_the_file():
    return with_chunks(
        lambda chunk, i: {"meta_data": {"total_compressed_size": 2**63 - 1}}, paged()
    )


@bomb
def bloom_filters_outside_the_file():
    return with_chunks(
        lambda chunk, i: {"meta_data": {"bloom_filter_offset": 2**62, "bloom_filter_length": HUGE}}
    )


@bomb
def statistics_of_a_megabyte():
    stats = footer_of(sound()).metadata.row_groups[0].columns[1].meta_data.statistics
    value = b"x" * 1_000_000
    return with_chunks(
        lambda chunk, i: {
            "meta_data": {"statistics": amended(stats, min_value=value, max_value=value)}
        }
    )


# --- pages ---------------------------------------------------------------------------------------


@bomb
def page_that_claims_two_gigabytes():
    return of_pages([data_page(b"x" * 100, 100, size=HUGE)], 100, codec=CompressionCodec.ZSTD)


@bomb
def page_stored_in_two_gigabytes():
    return of_pages([data_page(b"x" * 100, 100, stored=HUGE)], 100)


@bomb
def page_of_two_billion_values():
    return of_pages([data_page(b"x" * 800, HUGE)], HUGE)


@bomb
def page_v2_of_levels_of_two_gigabytes():
    return of_pages([data_page_v2(bytes(800), 100, levels=(HUGE, HUGE))], 100)


@bomb
def dictionary_of_two_billion():
    return of_pages(
        [dictionary_page(b"x" * 100, HUGE), data_page(b"\x01\xc8\x01\x00", 100, encoding=8)],
        100,
        dictionary=True,
    )


@bomb
def page_before_bytes_that_might_each_begin_one():
    return of_pages([data_page(bytes(800), 100), b"\x15" * 100_000], 1100)


def compressed(name, size):
    return pa.compress(bytes(size), codec=name, asbytes=True)


def of_zeros(codec, name, claimed=None, size=256 << 20):
    """A page of ``size`` zero bytes, which declares that size, or claims fewer."""
    size, rows = size, size // 8 if claimed is None else claimed // 8
    body = compressed(name, size)
    return of_pages(
        [data_page(body, rows, size=size if claimed is None else claimed)], rows, codec=codec
    )


@bomb
def zstd_of_more_than_it_says():
    return of_zeros(CompressionCodec.ZSTD, "zstd", claimed=800)


@bomb
def gzip_of_more_than_it_says():
    return of_zeros(CompressionCodec.GZIP, "gzip", claimed=800)


@bomb
def brotli_of_more_than_it_says():
    return of_zeros(CompressionCodec.BROTLI, "brotli", claimed=800)


@bomb
def snappy_of_more_than_it_says():
    return of_zeros(CompressionCodec.SNAPPY, "snappy", claimed=800, size=64 << 20)


@bomb
def lz4_of_more_than_it_says():
    return of_zeros(CompressionCodec.LZ4_RAW, "lz4_raw", claimed=800, size=64 << 20)


def gigabytes(codec, name):
    """Two gigabytes of zeros in one page: four truthful values of a byte column."""
    size = 2**31 - 4096
    return of_pages([data_page(compressed(name, size), 100, size=size)], 100, codec=codec)


@bomb
def zstd_of_two_gigabytes():
    return gigabytes(CompressionCodec.ZSTD, "zstd")


@bomb
def brotli_of_two_gigabytes():
    return gigabytes(CompressionCodec.BROTLI, "brotli")


@bomb
def dictionary_entry_repeated_a_million_times():
    """A megabyte of text, a million times: a terabyte without any compression."""
    text = b"y" * 1_000_000
    entry = len(text).to_bytes(4, "little") + text
    run = b"\x01" + varint(1_000_000 << 1) + b"\x00"
    return of_pages(
        [dictionary_page(entry, 1), data_page(run, 1_000_000, encoding=8)],
        1_000_000,
        kind=BYTE_ARRAY,
        dictionary=True,
    )


# --- pages that truthfully hold a lot, which ``page_size_limit`` refuses --------------------------

LARGE = {}


def large(make):
    LARGE[make.__name__] = make
    return make


@large
def second_page_of_zeros():
    """The footer's ``total_uncompressed_size`` does not reveal it."""
    size = 256 << 20
    body, first = compressed("zstd", size), compressed("zstd", 800)
    pages = [data_page(first, 100, size=800), data_page(body, size // 8, size=size)]
    return of_pages(pages, 100 + size // 8, codec=CompressionCodec.ZSTD)


@large
def v2_page_of_zeros():
    size = 256 << 20
    page = data_page_v2(compressed("zstd", size), size // 8, size=size)
    return of_pages([page], size // 8, codec=CompressionCodec.ZSTD)


@large
def dictionary_of_zeros():
    size = 256 << 20
    body = compressed("zstd", size)
    run = pa.compress(b"\x01\xc8\x01\x00", codec="zstd", asbytes=True)
    pages = [dictionary_page(body, size // 8, size=size), data_page(run, 100, size=4, encoding=8)]
    return of_pages(pages, 100, codec=CompressionCodec.ZSTD, dictionary=True)


@large
def a_run_of_one_value():
    """Not compressed: a run of one dictionary entry."""
    count = HUGE // 8
    run = b"\x01" + varint(count << 1) + b"\x00"
    pages = [dictionary_page(bytes(8), 1), data_page(run, count, encoding=8)]
    return of_pages(pages, count, dictionary=True)


@large
def zeros_by_pyarrow():
    """Written by pyarrow, with a page index."""
    out = io.BytesIO()
    table = pa.table({"a": np.zeros(32 << 20, dtype=np.int64), "b": np.arange(32 << 20) // 1000})
    pq.write_table(
        table,
        out,
        compression="zstd",
        use_dictionary=["b"],
        data_page_size=1 << 30,
        max_rows_per_page=1 << 30,
        write_page_index=True,
        row_group_size=1 << 30,
    )
    return out.getvalue()


def listed_again(times, *, values=None):
    """A page of a million numbers that ``times`` row groups point to."""
    rows = 1 << 20
    out = io.BytesIO()
    pq.write_table(
        pa.table({"a": np.arange(rows) // 7}), out, compression="zstd", write_page_index=True
    )
    data = out.getvalue()
    (one,) = footer_of(data).metadata.row_groups
    if values is not None:
        (column,) = one.columns
        column = amended(column, meta_data={"num_values": values})
        one = amended(one, columns=[column], num_rows=values)
    return with_metadata(lambda _: {"row_groups": [one] * times}, data)


# --- Arrow's schema ------------------------------------------------------------------------------


@bomb
def arrow_schema_that_is_no_schema():
    text = base64.b64encode(b"\xff" * 100_000).decode()
    return with_footer(with_key_values(footer_of(sound()).raw, {"ARROW:schema": text}))


@bomb
def arrow_schema_nested_deep():
    kind = pa.int64()
    for _ in range(60):
        kind = pa.struct([("x", kind)])
    text = base64.b64encode(pa.schema([("a", kind)]).serialize()).decode()
    return with_footer(with_key_values(footer_of(sound()).raw, {"ARROW:schema": text}))


# --- the directory -------------------------------------------------------------------------------


@bomb
def directory_nested_deep():
    return with_directory(b"[" * 1_000_000 + b"]" * 1_000_000)


@bomb
def directory_of_spaces():
    return with_directory(b" " * 5_000_000 + document_of([]))


@bomb
def pointer_of_spaces():
    return with_directory(b"{}", pointer=" " * 5_000_000 + "{}")


@bomb
def pointer_nested_deep():
    return with_directory(b"{}", pointer='{"a":' * 500_000)


@bomb
def pointer_of_huge_numbers():
    return with_directory(
        b"{}",
        pointer=f'{{"version": 1, "offset": {"9" * 4300}, "length": {"9" * 4300}, "crc32": 1}}',
    )


@bomb
def pointer_of_longer_numbers():
    return with_directory(
        b"{}", pointer='{"version": 1, "offset": %s, "length": 1, "crc32": 1}' % ("9" * 1_000_000)
    )


@bomb
def pointer_that_is_no_number():
    return with_directory(
        b"{}", pointer='{"version": 1, "offset": NaN, "length": Infinity, "crc32": 1}'
    )


@bomb
def pointer_at_the_whole_file():
    return with_directory(
        b"{}", pointer=json.dumps({"version": 1, "offset": 0, "length": 5000, "crc32": 0})
    )


@bomb
def directory_of_huge_numbers():
    big = 10**4000
    return with_directory(document_of([entry_of(offset=big, length=big)], base_length=big))


@bomb
def parameters_of_huge_numbers():
    entries = [
        entry_of(kind=kind, params={"granule_rows": 10**4000}) for kind in ("lookup", "minmax")
    ]
    return with_directory(document_of(entries))


KINDS = ["lookup", "minmax", "ngram", "distinct", "words", "elements", "entries", "distinct_idx1"]


@bomb
def parameters_that_are_none():
    entries = [
        entry_of(kind=kind, params=params)
        for kind in KINDS
        for params in (
            {"granule_rows": float("nan")},
            {"granule_rows": "x" * 1000},
            {"on": "b"},
            {"granule_rows": {"a": []}},
            {"__class__": 1},
            {"granule_rows": -1},
        )
    ]
    return with_directory(document_of(entries))


@bomb
def parameters_nested_deep():
    deep = json.loads("[" * 900 + "]" * 900)
    return with_directory(document_of([entry_of(on="b", params={"granule_rows": deep})]))


@bomb
def directory_of_twenty_thousand():
    return with_directory(document_of([entry_of()] * 20_000))


@bomb
def functions_as_many_as_are_taken():
    entries = [entry_of(on=f"{'lower(' * 20}b{')' * 20} /*{n}*/", meaning="x") for n in range(500)]
    return with_directory(document_of(entries))


@bomb
def more_functions_than_are_taken():
    return with_directory(document_of([entry_of(on="lower(b)", meaning="x")] * 501))


@bomb
def kinds_that_are_not_installed():
    entries = [entry_of(kind=f"os.system{n}") for n in range(1000)]
    return with_directory(document_of([*entries, entry_of(kind="../../evil"), entry_of(kind="")]))


@bomb
def function_nested_deep():
    entries = [
        entry_of(on="lower(" * 100_000 + "b" + ")" * 100_000, meaning="x"),
        entry_of(on="(" * 500_000, meaning="x"),
        entry_of(on="a" + "+1" * 500_000, meaning="x"),
        entry_of(on="NOT " * 200_000 + "a", meaning="x"),
        entry_of(on="CASE WHEN " * 50_000, meaning="x"),
        entry_of(on="a" * 5_000_000, meaning="x"),
    ]
    return with_directory(document_of(entries))


@bomb
def function_that_is_none_of_ours():
    entries = [
        entry_of(on=text, meaning="x")
        for text in (
            "read_text('/etc/passwd')",
            "system('id')",
            "(SELECT 1)",
            "getenv('HOME')",
            "a; DROP TABLE a",
            "lower(b) FROM read_csv('/etc/passwd')",
            "eval(b)",
        )
    ]
    return with_directory(document_of(entries))


@bomb
def function_of_half_a_character():
    entries = [entry_of(on=on, meaning="x") for on in ("lower('\ud800')", "b = '\ud800'")]
    return with_directory(document_of(entries))


# --- sections ------------------------------------------------------------------------------------


@bomb
def sections_that_overlap():
    whole = section_of(np.arange(1000), np.zeros(1000))
    built = BuiltSection.of(memoryview(whole))
    data = sound()
    entry = entry_of(
        len(data), len(built.data), meta_length=built.meta_length, meta_crc32=built.meta_crc32
    )
    entries = [entry | {"on": f"lower(b{' ' * n})", "meaning": "x"} for n in range(1000)]
    return with_directory(document_of([entry, *entries]), sections=bytes(built.data))


@bomb
def section_of_rows_that_explode():
    whole = section_of(np.arange(1000), np.zeros(1000))

    def change(metadata):
        (one,) = metadata.row_groups
        columns = [amended(c, meta_data={"num_values": 2**33}) for c in one.columns]
        return {"row_groups": [amended(one, num_rows=2**33, columns=columns)]}

    return with_section(with_metadata(change, whole))


@bomb
def section_of_pages_that_explode():
    keys = np.zeros(5_000_000, dtype=np.uint32)
    return with_section(section_of(keys, keys))


@bomb
def section_of_one_page_that_explodes():
    keys = np.zeros(30_000_000, dtype=np.uint32)
    keys[-1] = 2**32 - 1  # so that any key might be in it
    return with_section(section_of(keys, keys, page_rows=len(keys)))


@bomb
def section_that_is_not_sorted():
    return with_section(section_of(np.arange(1000)[::-1], np.zeros(1000)))


@bomb
def section_of_granules_that_do_not_exist():
    keys = np.arange(0, 2**32, 2**20, dtype=np.uint64)
    return with_section(section_of(keys, np.full(len(keys), 2**32 - 1)))


@bomb
def section_of_cells_that_do_not_exist():
    keys = np.arange(0, 2**32, 2**20, dtype=np.uint64)
    cells, starts = np.full(len(keys), 6), np.append(np.arange(4), ROWS)
    return with_section(section_of(keys, cells, starts, CELL_SCHEMA, block_size=2))


@bomb
def section_of_blocks_that_explode():
    return with_section(blocks_of(2**62))


@bomb
def section_of_blocks_of_nothing():
    return with_section(blocks_of(0))


@bomb
def section_of_blocks_that_are_no_number():
    return with_section(blocks_of([[2]] * 1000))


def blocks_of(size):
    """A section of cells with blocks of ``size`` granules."""
    keys = np.arange(0, 2**32, 2**20, dtype=np.uint64)
    return section_of(keys, np.zeros(len(keys)), schema=CELL_SCHEMA, block_size=size)


# --- torn ----------------------------------------------------------------------------------------


@bomb
def page_indexes_one_after_the_other():
    """Recovery once tried each as every other structure, to the end of the file."""
    page = data_page(bytes(80), 10)
    index = b"\x19\x11\x01" + b"\x19\x18\x00" * 2 + b"\x15\x00\x00"
    return MAGIC + page + index * 30_000


@bomb
def chunk_metadata_one_after_the_other():
    """Recovery once tried each as the start of a footer, to the end of the file."""
    one = encode(
        ColumnMetaData(
            type=INT64,
            encodings=[Encoding.PLAIN],
            path_in_schema=["a"],
            codec=0,
            num_values=0,
            total_uncompressed_size=0,
            total_compressed_size=0,
            data_page_offset=4,
        )
    )
    return MAGIC + one * 200_000


@bomb
def footers_one_after_the_other():
    raw = footer_of(sound()).raw
    return MAGIC + framed(raw) * 2000


@bomb
def pages_of_nothing():
    return MAGIC + data_page(b"", 0) * 20_000


@bomb
def pages_that_fit_every_column():
    return MAGIC + data_page(bytes(80), 10) * 5_000
