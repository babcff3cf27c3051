import collections
import itertools
import re
import struct
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from intarsia.decode.page_data import check_size, decompress, num_rows, page_levels
from intarsia.errors import FormatError, UnsupportedError
from intarsia.file import chunk_reader
from intarsia.file.chunk_reader import Chunk
from intarsia.parquet.metadata import (
    CompressionCodec,
    DataPageHeader,
    DataPageHeaderV2,
    PageHeader,
    PageType,
    SchemaElement,
)
from intarsia.parquet.schema import read_schema
from intarsia.scan.parquet_file import open_file
from intarsia.verify.pages import ChunkValues

CODECS = {
    CompressionCodec.SNAPPY: "snappy",
    CompressionCodec.GZIP: "gzip",
    CompressionCodec.BROTLI: "brotli",
    CompressionCodec.ZSTD: "zstd",
    CompressionCodec.LZ4_RAW: "lz4_raw",
}
TEXT = b"".join(b"row %d of a page, " % i for i in range(500))
HIGHLY_COMPRESSIBLE = bytes(1 << 20)
DEFAULT_POOL = pa.default_memory_pool()
# Arrow may use a pool as long as the process lives.
POOLS = {reads: pa.proxy_memory_pool(DEFAULT_POOL) for reads in (Chunk.arrays, ChunkValues)}


def compressed(name, data):
    return pa.Codec(name).compress(data, asbytes=True)


def hadoop(blocks):
    """Frames blocks with their lengths, whole and stored."""
    stored = [compressed("lz4_raw", block) for block in blocks]
    return b"".join(
        struct.pack(">II", len(block), len(data)) + data
        for block, data in zip(blocks, stored, strict=True)
    )


# --- decompression ------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"a", TEXT, HIGHLY_COMPRESSIBLE], ids=["one", "text", "zeros"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_undone(codec, data):
    stored = compressed(CODECS[codec], data)
    actual = decompress(codec, memoryview(stored), len(data))
    assert bytes(actual) == data
    assert actual.format == "B"
    check_size(header_of(len(data), len(stored)), codec)


def test_uncompressed_data_is_returned():
    assert bytes(decompress(0, memoryview(TEXT), len(TEXT))) == TEXT


@pytest.mark.parametrize("codec", [*CODECS, CompressionCodec.LZ4])
def test_empty_data_may_be_stored_as_zero_bytes(codec):
    assert bytes(decompress(codec, memoryview(b""), 0)) == b""


@pytest.mark.parametrize(
    "stored",
    [
        hadoop([TEXT]),
        hadoop([TEXT[:1000], TEXT[1000:1001], TEXT[1001:]]),
        hadoop([TEXT[:10], b"", TEXT[10:]]),
        compressed("lz4", TEXT),
        compressed("lz4_raw", TEXT),
    ],
    ids=["one block", "blocks", "an empty block", "a frame", "raw"],
)
def test_the_deprecated_lz4_is_undone_in_all_its_framings(stored):
    assert bytes(decompress(CompressionCodec.LZ4, memoryview(stored), len(TEXT))) == TEXT


@pytest.mark.parametrize("size", [len(TEXT) - 1, len(TEXT) + 1])
@pytest.mark.parametrize("blocks", [[TEXT], [TEXT[:1000], TEXT[1000:]]])
def test_hadoop_blocks_that_hold_more_or_less_are_refused(blocks, size):
    with pytest.raises(FormatError):
        decompress(CompressionCodec.LZ4, memoryview(hadoop(blocks)), size)


@pytest.mark.parametrize(
    "stored",
    [
        hadoop([TEXT]) + b"more",
        hadoop([TEXT])[:-1],
        struct.pack(">II", 2**32 - 1, 5) + bytes(5),
        struct.pack(">II", 5, 2**32 - 1) + bytes(5),
        bytes(1000),
        b"",
        b"abc",
    ],
)
def test_invalid_lz4_is_refused(stored):
    with pytest.raises(FormatError):
        decompress(CompressionCodec.LZ4, memoryview(stored), len(TEXT))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("damage", "size"),
    [
        (lambda data: b"", len(TEXT)),
        (lambda data: b"\xff", len(TEXT)),
        (lambda data: data[: len(data) // 2], len(TEXT)),
        (lambda data: data, len(TEXT) + 9),
        (lambda data: data, len(TEXT) - 1),
    ],
    ids=["nothing", "garbage", "half", "less than claimed", "more than claimed"],
)
def test_data_that_does_not_decompress_to_the_claimed_size_is_refused(codec, damage, size):
    stored = memoryview(damage(compressed(CODECS[codec], TEXT)))
    with pytest.raises(FormatError):
        decompress(codec, stored, size)


@pytest.mark.parametrize("codec", [CompressionCodec.LZO, 8, 99, -1])
def test_unknown_codecs_are_unsupported(codec):
    with pytest.raises(UnsupportedError, match=f"codec {int(codec)}"):
        decompress(codec, memoryview(b"abc"), 3)


def header_of(claimed, stored):
    return PageHeader(type=0, uncompressed_page_size=claimed, compressed_page_size=stored)


@pytest.mark.parametrize("codec", sorted(set(CompressionCodec) - {CompressionCodec.LZO}))
@pytest.mark.parametrize("stored", [0, 5, 1000])
def test_a_page_that_claims_an_impossible_ratio_is_a_bomb(codec, stored):
    with pytest.raises(FormatError, match="claims to hold"):
        check_size(header_of(2**31 - 1, stored if codec not in (4, 6) else stored // 5), codec)


def test_pages_that_are_not_compressed_claim_no_more_than_they_are():
    check_size(header_of(5000, 5000), CompressionCodec.UNCOMPRESSED)
    with pytest.raises(FormatError, match="claims to hold"):
        check_size(header_of(50_000, 5000), CompressionCodec.UNCOMPRESSED)


@pytest.mark.parametrize(("codec", "name"), [(3, "3 (LZO)"), (99, "99"), (-1, "-1")])
def test_pages_with_an_unknown_codec_may_claim_any_size(codec, name):
    check_size(header_of(5000, 5000), codec)  # they may not be compressed at all
    for claimed in (4000, 50_000, 2**31 - 1):
        with pytest.raises(UnsupportedError, match=re.escape(f"codec {name} is not supported")):
            check_size(header_of(claimed, 5000), codec)


def test_a_bomb_is_refused_before_it_is_decompressed():
    (leaf,) = leaves([("x", 1)])
    v1 = DataPageHeader(
        num_values=1, encoding=0, definition_level_encoding=3, repetition_level_encoding=3
    )
    header = PageHeader(
        type=0,
        uncompressed_page_size=2**31 - 1,
        compressed_page_size=30,
        data_page_header=v1,
    )
    before = time.process_time()
    with pytest.raises(FormatError, match="claims to hold"):
        page_levels(header, memoryview(bytes(30)), leaf, CompressionCodec.SNAPPY)
    assert time.process_time() - before < 0.5


# --- levels, by hand ----------------------------------------------------------------------------


def leaves(columns):
    """Leaves of top-level INT32 columns, each REQUIRED (0), OPTIONAL (1) or REPEATED (2)."""
    elements = [SchemaElement(name="root", num_children=len(columns))]
    elements += [SchemaElement(name=n, type=1, repetition_type=r) for n, r in columns]
    return read_schema(elements).leaves


def v2_header(body, repetition, definition, values=4):
    v2 = DataPageHeaderV2(
        num_values=values,
        num_nulls=0,
        num_rows=values,
        encoding=0,
        definition_levels_byte_length=definition,
        repetition_levels_byte_length=repetition,
    )
    return PageHeader(
        type=PageType.DATA_PAGE_V2,
        uncompressed_page_size=len(body),
        compressed_page_size=len(body),
        data_page_header_v2=v2,
    )


def test_the_levels_of_a_v2_page_are_its_first_bytes_whatever_the_codec():
    (leaf,) = leaves([("x", 2)])
    body = b"\x03\x0a" + b"\x08\x01" + b"\xde\xad\xbe\xef"
    actual = page_levels(v2_header(body, 2, 2), memoryview(body), leaf, CompressionCodec.ZSTD)
    assert actual.repetition.tolist() == [0, 1, 0, 1]
    assert actual.definition.tolist() == [1, 1, 1, 1]
    assert (actual.num_rows(), actual.num_present(1)) == (2, 4)


@pytest.mark.parametrize(("first", "second"), [(-1, 2), (2, -1), (2, 3), (5, 0), (2**31 - 1, 1)])
def test_levels_outside_a_v2_page_are_refused(first, second):
    (leaf,) = leaves([("x", 2)])
    body = b"\x03\x0a\x08\x01"
    with pytest.raises(FormatError, match="levels claim"):
        page_levels(v2_header(body, first, second), memoryview(body), leaf, 0)


def test_a_required_column_has_no_levels():
    (leaf,) = leaves([("x", 0)])
    body = b"not even compressed"
    for header in (v2_header(body, 0, 0), v1_header(body)):
        actual = page_levels(header, memoryview(body), leaf, CompressionCodec.GZIP)
        assert (actual.num_values, actual.repetition, actual.definition) == (4, None, None)


def v1_header(body, repetition=3, definition=3, values=4):
    v1 = DataPageHeader(
        num_values=values,
        encoding=0,
        definition_level_encoding=definition,
        repetition_level_encoding=repetition,
    )
    return PageHeader(
        type=PageType.DATA_PAGE,
        uncompressed_page_size=len(body),
        compressed_page_size=len(body),
        data_page_header=v1,
    )


@pytest.mark.parametrize(
    ("body", "repetition", "definition"),
    [
        (b"\x02\0\0\0\x03\x0a" + b"\x02\0\0\0\x08\x01", 3, 3),
        (b"\x50" + b"\xf0", 4, 4),
        (b"\x50" + b"\x02\0\0\0\x08\x01", 4, 3),
        (b"\x02\0\0\0\x03\x0a" + b"\xf0", 3, 4),
    ],
    ids=["RLE", "BIT_PACKED", "packed repetition", "packed definition"],
)
def test_each_kind_of_level_of_a_v1_page_has_its_own_encoding(body, repetition, definition):
    (leaf,) = leaves([("x", 2)])
    header = v1_header(body + b"values", repetition, definition)
    actual = page_levels(header, memoryview(body + b"values"), leaf, 0)
    assert actual.repetition.tolist() == [0, 1, 0, 1]
    assert actual.definition.tolist() == [1, 1, 1, 1]
    with pytest.raises(FormatError):
        page_levels(header, memoryview(body[:-1]), leaf, 0)


def test_the_rows_of_a_page_are_the_levels_that_begin_one():
    (leaf,) = leaves([("x", 2)])
    v1, v2 = b"\x02\0\0\0\x03\x0a" + b"\x02\0\0\0\x08\x01", b"\x03\x0a" + b"\x08\x01"
    assert num_rows(v1_header(v1), memoryview(v1), leaf, 0) == 2
    assert num_rows(v2_header(v2, 2, 2), memoryview(v2), leaf, 0) == 2  # its header claims four


def test_a_page_that_begins_within_a_row_has_no_rows_to_count():
    (leaf,) = leaves([("x", 2)])
    v1, v2 = b"\x02\0\0\0\x03\x05" + b"\x02\0\0\0\x08\x01", b"\x03\x05" + b"\x08\x01"
    for header, body in ((v1_header(v1), v1), (v2_header(v2, 2, 2), v2)):
        with pytest.raises(FormatError, match="begins within a row"):
            num_rows(header, memoryview(body), leaf, 0)


@pytest.mark.parametrize("kind", [PageType.DATA_PAGE, PageType.DATA_PAGE_V2])
def test_a_data_page_without_its_own_header_is_refused(kind):
    (leaf,) = leaves([("x", 1)])
    header = PageHeader(type=kind, uncompressed_page_size=0, compressed_page_size=0)
    with pytest.raises(FormatError, match="without its header"):
        page_levels(header, memoryview(b""), leaf, 0)


# --- levels and values of real pages ------------------------------------------------------------

ROWS = 600


def cycled(kind, cells):
    return pa.array(list(itertools.islice(itertools.cycle(cells), ROWS)), kind)


INT_LIST = pa.list_(pa.int32())
PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])
TABLE = pa.table(
    {
        "flat": cycled(pa.int32(), [1, None, 3, None, None]),
        "text": cycled(pa.string(), ["a", "", None, "ä" * 30]),
        "nulls": cycled(pa.float64(), [None]),
        "list": cycled(INT_LIST, [[1, None], [], None, [2, 3, 4]]),
        "deep": cycled(pa.list_(INT_LIST), [[[1, None], None, []], None, [], [[2], [3, 4]]]),
        "structs": cycled(
            pa.list_(PAIR), [[{"a": 1, "b": "x"}, None], None, [], [{"a": None, "b": None}]]
        ),
        "map": cycled(
            pa.map_(pa.string(), pa.int32()), [[("k", 1), ("l", None)], None, [], [("m", 2)]]
        ),
        "pair": cycled(PAIR, [{"a": 1, "b": None}, None, {"a": None, "b": "y"}]),
        "inner": cycled(
            pa.struct([("p", PAIR), ("l", INT_LIST)]),
            [None, {"p": None, "l": [1]}, {"p": {"a": 5, "b": "z"}, "l": None}],
        ),
        "long": pa.array([[i] * (i % 40) for i in range(ROWS)], INT_LIST),
        "required": pa.array(range(ROWS), pa.int64()),
    },
    schema=pa.schema(
        [
            pa.field("flat", pa.int32()),
            pa.field("text", pa.string()),
            pa.field("nulls", pa.float64()),
            pa.field("list", INT_LIST),
            pa.field("deep", pa.list_(INT_LIST)),
            pa.field("structs", pa.list_(PAIR)),
            pa.field("map", pa.map_(pa.string(), pa.int32())),
            pa.field("pair", PAIR),
            pa.field("inner", pa.struct([("p", PAIR), ("l", INT_LIST)])),
            pa.field("long", INT_LIST),
            pa.field("required", pa.int64(), nullable=False),
        ]
    ),
)
LEAVES = {
    "flat": [()],
    "text": [()],
    "nulls": [()],
    "list": [("[]",)],
    "deep": [("[]", "[]")],
    "structs": [("[]", "a"), ("[]", "b")],
    "map": [("[]", 0), ("[]", 1)],
    "pair": [("a",), ("b",)],
    "inner": [("p", "a"), ("p", "b"), ("l", "[]")],
    "long": [("[]",)],
    "required": [()],
}


def leaf_slots(cell, steps):
    """The values of a leaf in one row, with None for each NULL or empty level above it."""
    if cell is None or not steps:
        return [cell]
    if steps[0] != "[]":
        return leaf_slots(cell[steps[0]], steps[1:])
    return [slot for item in cell for slot in leaf_slots(item, steps[1:])] or [None]


@pytest.fixture(scope="module")
def slots():
    """The slots of each row of each leaf, by the leaf's position."""
    paths = [(name, steps) for name, all_ in LEAVES.items() for steps in all_]
    cells = {name: TABLE[name].to_pylist() for name in LEAVES}
    return [[leaf_slots(cell, steps) for cell in cells[name]] for name, steps in paths]


def stored_as(value):
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_levels_and_values_of_every_page_equal_those_written(
    tmp_path, slots, compression, version, dictionary
):
    path = tmp_path / "t.parquet"
    pq.write_table(
        TABLE,
        path,
        compression=compression,
        data_page_version=version,
        use_dictionary=dictionary,
        row_group_size=450,
        max_rows_per_page=77,
        write_batch_size=7,
    )
    file = open_file(path)
    assert len(file.schema.leaves) == len(slots)
    pages = 0
    for group, first in enumerate((0, 450)):
        for leaf in range(len(slots)):
            rows = slots[leaf][first : first + file.num_rows_in(group)]
            pages += check_chunk(Chunk(file, group, leaf), rows)
    assert pages > 100


def check_chunk(chunk, rows):
    walked = list(chunk.pages())
    assert walked[-1].offset + walked[-1].size == (
        chunk.metadata.start + chunk.metadata.total_compressed_size
    )
    data = [page for page in walked if page.is_data]
    highest = chunk.leaf.max_definition_level
    at = 0
    for page in data:
        levels = chunk.levels(page)
        page_rows = rows[at : at + levels.num_rows()]
        actual = [slot for row in page_rows for slot in row]
        assert levels.begins_a_row
        assert levels.num_values == page.num_values == len(actual)
        assert levels.num_present(highest) == sum(slot is not None for slot in actual)
        if levels.repetition is not None:
            starts = [i for i, level in enumerate(levels.repetition) if level == 0]
            assert starts == list(itertools.accumulate(map(len, page_rows), initial=0))[:-1]
        if levels.definition is not None:
            assert [level == highest for level in levels.definition] == [
                slot is not None for slot in actual
            ]
        if page.header.data_page_header_v2:
            v2 = page.header.data_page_header_v2
            assert (v2.num_rows, v2.num_nulls) == (len(page_rows), actual.count(None))
        at += len(page_rows)
    assert at == len(rows)
    expected = [stored_as(slot) for row in rows for slot in row if slot is not None]
    parts = [part.drop_null().to_pylist() for part in chunk.arrays(walked)]
    assert list(itertools.chain.from_iterable(parts)) == expected
    return len(data)


@pytest.mark.parametrize("reads", [Chunk.arrays, ChunkValues])
def test_values_are_freed_before_the_next_ones_are_decoded(reads, tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    table = pa.table({"x": [letter * 1_000_000 for letter in "abcd"]})
    pq.write_table(
        table, path, compression="none", use_dictionary=False, data_page_size=1, write_batch_size=1
    )
    monkeypatch.setattr(chunk_reader, "RUN_BYTES", 1_000_000)
    chunk = Chunk(open_file(path), 0, 0)
    pages = list(chunk.pages())
    levels = [chunk.row_levels(page) for page in pages]
    pool = POOLS[reads]
    pa.set_memory_pool(pool)
    try:
        sizes = []
        for part in reads(chunk, pages, levels):
            sizes.append(part.nbytes)
            del part
    finally:
        pa.set_memory_pool(DEFAULT_POOL)
    assert sizes == [1_000_008] * 4
    assert pool.max_memory() < 2_500_000  # a page, and its values


def test_levels_that_cannot_be_decoded_name_their_page(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"x": [1, None, 2] * 9}), path, compression="none", use_dictionary=False
    )
    chunk = Chunk(open_file(path), 0, 0)
    (page,) = chunk.pages()
    data = bytearray(path.read_bytes())
    data[page.body_offset : page.body_offset + 4] = b"\xff\xff\xff\x7f"
    path.write_bytes(data)
    broken = Chunk(open_file(path), 0, 0)
    with pytest.raises(FormatError) as caught:
        broken.levels(page)
    where = caught.value.where
    assert (where.file, where.row_group, where.column) == (str(path), 0, "x")
    assert (where.page, where.offset) == (0, page.offset)


def test_definition_levels_tell_null_from_empty(tmp_path):
    path = tmp_path / "t.parquet"
    cells = [None, [], [None], [7], [7, None]]
    pq.write_table(pa.table({"x": pa.array(cells, INT_LIST)}), path)
    chunk = Chunk(open_file(path), 0, 0)
    (page,) = [page for page in chunk.pages() if page.is_data]
    levels = chunk.levels(page)
    assert levels.repetition.tolist() == [0, 0, 0, 0, 0, 1]
    assert levels.definition.tolist() == [0, 1, 2, 3, 3, 2]
    assert collections.Counter(levels.definition.tolist()) == {0: 1, 1: 1, 2: 2, 3: 2}
