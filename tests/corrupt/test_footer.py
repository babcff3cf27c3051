"""A damaged footer without a checksum: no row is wrong, and fields that pages prove are repaired.

::

    PAR1 │ a │ b │ w │ l │ a │ b │ w │ l │ footer      every page has a checksum, the footer none
                                           ^ one flipped bit, or one wrong field of a chunk
"""

import io
import os
import random
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import framed, read_footer
from intarsia.parquet.metadata import CompressionCodec, Encoding, PageEncodingStats, PageType
from intarsia.parquet.thrift import amended, encode

ROWS, GROUP_ROWS, PAGE_ROWS = 240, 80, 20
COLUMNS = ("a", "b", "w", "l")
BITS = int(os.environ.get("INTARSIA_FOOTER_BITS", "240"))


def table():
    mixed = np.random.default_rng(1).permutation(ROWS)
    return pa.table(
        {
            "a": np.arange(ROWS),
            "b": pa.array(mixed * 7919),
            "w": pa.array([None if i % 11 == 0 else f"word {i % 7}" for i in mixed]),
            "l": pa.array([[int(i)] * (i % 4) for i in mixed], pa.list_(pa.int64())),
        }
    )


INDEXED = {"write_page_index": True, "compression": "zstd"}
BARE = {"write_page_index": False}
PLAIN = {"compression": "none", "use_dictionary": False, "data_page_version": "2.0"}
ONE_PAGE = {"max_rows_per_page": GROUP_ROWS, "write_batch_size": GROUP_ROWS}
SHAPES = {"indexed": INDEXED, "bare": BARE, "plain V2": PLAIN, "one page": ONE_PAGE}


def written(**options):
    out = io.BytesIO()
    rows = {"max_rows_per_page": PAGE_ROWS, "write_batch_size": PAGE_ROWS}
    dictionary = {"use_dictionary": ["w"], "write_page_checksum": True}
    pq.write_table(table(), out, row_group_size=GROUP_ROWS, **{**rows, **dictionary, **options})
    return out.getvalue()


def footer_of(data):
    return read_footer(BufferSource(data))


def chunk_of(data, row_group, leaf):
    return footer_of(data).metadata.row_groups[row_group].columns[leaf].meta_data


def with_chunk(data, row_group, leaf, **changes):
    """The file with changed fields of one chunk in its footer."""
    footer = footer_of(data)
    groups = list(footer.metadata.row_groups)
    columns = list(groups[row_group].columns)
    columns[leaf] = amended(columns[leaf], meta_data=changes)
    groups[row_group] = amended(groups[row_group], columns=columns)
    return data[: footer.offset] + framed(encode(amended(footer.metadata, row_groups=groups)))


def read(path, columns=None, filter_=None):
    """Returns rows with their numbers, the damage found, and the warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        data = ia.dataset(path, on_corrupt="skip")
        actual = data.to_table([*(columns or COLUMNS), "__row_number"], filter_)
    return actual, data.corrupt, [str(one.message) for one in said]


def assert_all(path):
    """Asserts that all rows come back, in every way of reading, with a warning about the footer."""
    for columns, filter_ in [
        (COLUMNS, None),
        (("l", "b"), (pc.field("a") >= 70) & (pc.field("a") < 90)),
    ]:
        actual, corrupt, _ = read(path, columns, filter_)
        due = table() if filter_ is None else table().filter(filter_)
        assert actual.select(columns).equals(due.select(columns))
        assert not corrupt


@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_changed_bit_makes_no_wrong_row_and_what_is_lost_is_named(tmp_path, shape):
    data = written(**SHAPES[shape])
    start, path, whole = footer_of(data).offset, tmp_path / "t.parquet", table()
    bits = [(at, 1 << bit) for at in range(start, len(data)) for bit in range(8)]
    chosen = random.Random(len(shape)).sample(bits, min(BITS // len(SHAPES), len(bits)))
    answered = 0
    for at, bit in chosen:
        path.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
        try:
            if not ia.dataset(path, on_corrupt="skip").schema.equals(whole.schema):
                continue  # another name or type: no guarantee
            actual, corrupt, _ = read(path)
        except (ia.IntarsiaError, OSError, pa.ArrowException):
            continue  # the file is refused
        rows = actual["__row_number"].to_numpy()
        assert len(np.unique(rows)) == len(rows)
        assert actual.select(COLUMNS).equals(whole.take(pa.array(rows))), (at - start, bit)
        missing = ia.RowRanges.all(ROWS) - ia.RowRanges.from_rows(rows)
        named = ia.RowRanges.union([one.rows for one in corrupt])
        assert missing == named, (at - start, bit)
        answered += 1
    assert answered > len(chosen) / 4


def _places(data, group, leaf):
    chunk = chunk_of(data, group, leaf)
    other = chunk_of(data, group, 1 - leaf) if leaf < 2 else chunk_of(data, 0, 0)
    size, offset = chunk.total_compressed_size, chunk.data_page_offset
    yield from ({"total_compressed_size": new} for new in (size + 8, size - 8, -size, 1 << 40))
    yield from ({"data_page_offset": new} for new in (offset + 9, offset ^ 64, -offset, 1 << 40))
    yield {"data_page_offset": other.data_page_offset}
    if chunk.dictionary_page_offset:
        start = chunk.dictionary_page_offset
        yield from ({"dictionary_page_offset": new} for new in (None, start + 4, start - 4, 7))


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("leaf", range(4), ids=COLUMNS)
def test_a_chunk_at_another_offset_than_the_footer_says_is_located(tmp_path, shape, leaf):
    data, path = written(**SHAPES[shape]), tmp_path / "t.parquet"
    for group in (0, 1, 2):
        for changes in _places(data, group, leaf) if group == 1 else [{"total_compressed_size": 9}]:
            path.write_bytes(with_chunk(data, group, leaf, **changes))
            assert_all(path)


_CODECS = (CompressionCodec.UNCOMPRESSED, CompressionCodec.SNAPPY, CompressionCodec.LZO)


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("leaf", range(4), ids=COLUMNS)
def test_wrong_counts_codecs_and_encodings_are_repaired_from_pages(tmp_path, shape, leaf):
    data, path = written(**SHAPES[shape]), tmp_path / "t.parquet"
    chunk = chunk_of(data, 1, leaf)
    stats = [
        PageEncodingStats(page_type=s.page_type, count=s.count, encoding=43)
        if s.page_type in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)
        else s
        for s in chunk.encoding_stats
    ]
    codecs = [*_CODECS, 17]
    for changes in [
        {"num_values": chunk.num_values + 3},
        {"num_values": chunk.num_values - 3},
        {"encoding_stats": stats},
        {"encodings": [e for e in chunk.encodings if e != Encoding.RLE]},
        *({"codec": int(codec)} for codec in codecs if codec != chunk.codec),
    ]:
        path.write_bytes(with_chunk(data, 1, leaf, **changes))
        assert_all(path)


def test_a_wrong_footer_is_warned_about(tmp_path):
    data, path = written(**BARE), tmp_path / "t.parquet"
    path.write_bytes(with_chunk(data, 1, 0, codec=17))
    _, corrupt, said = read(path)
    assert not corrupt
    (message,) = said
    assert "the footer is wrong, as pages show: row group 1, column a: codec" in message
    with pytest.raises(ia.FormatError, match="column a"):
        ia.dataset(path, on_corrupt="raise").to_table()


def test_chunks_of_the_same_size_are_never_confused(tmp_path):
    """Pages have 20 rows and the same length, so a whole chunk could begin at any of them."""
    data, path = written(**PLAIN), tmp_path / "t.parquet"
    pages = []
    for name in ("a", "b"):
        source = tmp_path / "whole.parquet"
        source.write_bytes(data)
        pages += [page.offset for page in ia.ParquetFile(source).pages(1, name)]
    start = chunk_of(data, 1, 0).data_page_offset
    for leaf in (0, 1):
        for offset in pages:
            path.write_bytes(with_chunk(data, 1, leaf, data_page_offset=offset))
            for columns in (["a"], ["b"], ["a", "b"]):
                actual, corrupt, _ = read(path, columns)
                assert actual.select(columns).equals(table().select(columns))
                assert not corrupt
    # Without checksums nothing is proven. Both chunks are lost where one claims the other's bytes.
    data = written(**PLAIN, write_page_checksum=False)
    path.write_bytes(with_chunk(data, 1, 1, data_page_offset=start))
    for column in ("a", "b"):
        actual, corrupt, _ = read(path, [column])
        assert actual["__row_number"].to_pylist() == [*range(80), *range(160, 240)]
        assert "another chunk claims its bytes" in corrupt[0].message


@pytest.mark.parametrize("on_corrupt", [None, "raise", "skip"])
def test_a_wrong_data_page_offset_does_not_matter_to_whole_chunks(tmp_path, on_corrupt):
    path = tmp_path / "a.parquet"
    data = written(write_page_checksum=False, **INDEXED)
    path.write_bytes(with_chunk(data, 1, COLUMNS.index("w"), data_page_offset=1 << 40))
    actual = ia.dataset(path, on_corrupt=on_corrupt).to_table(filter=pc.field("a") >= 0)
    assert actual == table()


def test_a_page_header_that_contradicts_the_footer_is_damage(tmp_path):
    """A page with another encoding than the footer and the other pages say is damaged."""
    data, path = written(**BARE), tmp_path / "t.parquet"
    path.write_bytes(data)
    page = ia.ParquetFile(path).pages(1, "b")[2]
    at = data.index(b"\x15\x00\x15\x06\x15\x06", page.offset)  # PLAIN, levels in RLE
    assert at < page.offset + page.header_size
    path.write_bytes(data[: at + 1] + bytes([8]) + data[at + 2 :])
    actual, corrupt, _ = read(path)
    assert actual.select(COLUMNS).equals(pa.concat_tables([table()[:120], table()[140:]]))
    assert [one.where.page for one in corrupt] == [2]
