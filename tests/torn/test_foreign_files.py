"""Parquet files stored as values, and index sections, are not taken for parts of the file."""

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from cutting import recovered, rows_after, template

import intarsia as ia
from intarsia.io.source import BufferSource
from intarsia.recovery.byte_scan import walk_tiles
from intarsia.recovery.salvage import salvage

PLAIN = {"compression": "none", "use_dictionary": False, "write_statistics": False}


def as_bytes(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, **PLAIN, **options)
    return sink.getvalue()


def magics(data):
    at = data.find(b"PAR1")
    while at >= 0:
        yield at + 4
        at = data.find(b"PAR1", at + 1)


def test_a_file_stored_as_a_value_is_never_taken_for_this_one(tmp_path):
    schema = pa.schema([("n", pa.int64()), ("file", pa.binary())])
    inner = as_bytes(pa.table({"n": [91, 92], "file": [b"a", b"b"]}, schema=schema))
    table = pa.table({"n": range(6), "file": [inner, inner * 2, b"", inner, b"x", inner]}, schema)
    path = tmp_path / "t.parquet"
    with ia.ParquetWriter(path, schema, checkpoint_row_groups=1, **PLAIN) as writer:
        writer.write_table(table, 2)
    data = path.read_bytes()
    cuts = sorted({cut + d for cut in magics(data) for d in (-8, -4, -1, 0, 1, 4)})
    assert len(cuts) > 60
    footers = walk_tiles(BufferSource(data)).footers
    assert (len(footers), data.count(b"PAR1")) == (5, 16)
    for cut in cuts:
        safe = max((f.metadata.num_rows for f in footers if f.stop <= cut), default=0)
        assert (rows_after(data, min(cut, len(data)), table) or 0) >= safe
    plain = as_bytes(table, row_group_size=2)
    for cut in sorted({cut + d for cut in magics(plain) for d in (-1, 0, 1)})[2:]:
        rows_after(plain, min(cut, len(plain)), table)
        rows_after(plain, min(cut, len(plain)), table, template(plain))


def test_a_value_equal_to_the_files_own_beginning_is_not_taken_for_it(tmp_path):
    schema = pa.schema([("n", pa.int64()), ("file", pa.binary())])
    first = pa.table({"n": [1], "file": [b"first"]}, schema=schema)
    path = tmp_path / "t.parquet"
    with ia.ParquetWriter(path, schema, checkpoint_row_groups=1, **PLAIN) as writer:
        writer.write_table(first)
    copy = path.read_bytes()  # footers with offsets that are valid in the final file
    second = pa.table({"n": [2], "file": [copy]}, schema=schema)
    with ia.ParquetWriter(path, schema, checkpoint_row_groups=1, **PLAIN) as writer:
        writer.write_table(first)
        writer.write_table(second)
    data = path.read_bytes()
    whole = pa.concat_tables([first, second])
    for cut in range(len(copy) - 20, len(data) + 1):
        assert rows_after(data, cut, whole) == (2 if _has(data, cut) else 1)


def _has(data, cut):
    """True if the second row group, up to its last page, is before the cut."""
    last = ia.ParquetFile(BufferSource(data)).metadata.row_groups[1].columns[1].meta_data
    return last.data_page_offset + last.total_compressed_size <= cut


def test_a_crafted_footer_is_refused_if_it_omits_bytes():
    table = pa.table({"n": range(4), "file": [b"0", b"1", b"2", b"3"]})
    part = as_bytes(table.select(["n"]))
    crafted = pa.table({"n": range(4), "file": [part, b"1", b"2", b"3"]})
    data = as_bytes(crafted)
    assert data[:40] == part[:40]  # the first chunk has the same bytes and position
    cut = data.index(b"PAR1", 4)
    for end in [cut + len(part), cut + len(part) + 1]:
        assert recovered(data[:end])[0] is None


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    path = tmp_path_factory.mktemp("indexed") / "t.parquet"
    table = pa.table({"k": [f"k{n}" for n in range(300)], "n": range(300)})
    pq.write_table(table, path, row_group_size=100)
    base = path.read_bytes()
    ia.add_indexes(path, [ia.Lookup("k"), ia.Bloom("n"), ia.PageIndex()])
    ia.add_indexes(path, [ia.Lookup("n")])
    return table, base, path.read_bytes()


def test_a_file_cut_within_its_indexes_loses_no_row(indexed):
    table, base, data = indexed
    assert len(data) > len(base) + 1000
    for cut in range(len(base), len(data), 31):
        actual = salvage(BufferSource(data[:cut]))
        assert actual.document(BufferSource(data[:cut])) in (base, data[: actual.length])
        assert rows_after(data, cut, table) == 300


def test_a_complete_file_keeps_its_indexes(indexed, tmp_path):
    _, _, data = indexed
    torn, out = tmp_path / "torn.parquet", tmp_path / "out.parquet"
    torn.write_bytes(data)
    report = ia.recover(torn, out)
    assert report.is_whole
    assert out.read_bytes() == data
    assert ia.ParquetFile(out).read(filter=pc.field("k") == "k7").num_rows == 1


def test_pages_after_a_section_do_not_belong_to_the_file(indexed):
    table, base, data = indexed
    assert rows_after(base + data, len(base + data), table) == 300
