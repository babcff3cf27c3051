import json
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.decode import splice as room
from intarsia.decode.splice import ChunkBytes, RowGroupBytes, splice
from intarsia.decode.synthetic_footer import RootTemplate, SchemaTemplates
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import read_footer
from intarsia.parquet.metadata import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    RowGroup,
    SchemaElement,
)
from intarsia.parquet.schema import read_schema
from intarsia.parquet.thrift import decode, encode


def test_spliced_bytes_are_in_arrows_memory():
    """Arrow threads that free Python memory at exit would crash the process."""
    elements = [
        SchemaElement(name="root", num_children=1),
        SchemaElement(name="n", type=1, repetition_type=0),
    ]
    footer = FileMetaData(version=1, schema=elements, num_rows=0, row_groups=[])
    template = SchemaTemplates(footer, encode(footer)).logical(read_schema(elements).roots[0])
    before = pa.total_allocated_bytes()
    spliced = splice(template, [])
    assert pa.total_allocated_bytes() - before >= spliced.size > 0


ROWS = 5000
TEXTS = [None if n % 7 == 0 else f"{n}é" for n in range(ROWS)]
TEXT = pa.array(TEXTS)
BYTES = pa.array([text and text.encode() for text in TEXTS], pa.binary())


@pytest.fixture
def opened(monkeypatch):
    """The types of each spliced file that pyarrow opens."""
    actual = []
    plain = RootTemplate.opened

    def noted(self, *given):
        file = plain(self, *given)
        actual.append([str(kind) for kind in file.schema_arrow.types])
        return file

    monkeypatch.setattr(RootTemplate, "opened", noted)
    return actual


def read(tmp_path, opened, table, *, read_dictionary=(), **options):
    """Asserts that a table is read as by pyarrow; returns the types it was decoded as."""
    pq.write_table(table, tmp_path / "a.parquet", **options)
    theirs = pq.read_table(tmp_path / "a.parquet", read_dictionary=list(read_dictionary))
    ours = ia.ParquetFile(tmp_path / "a.parquet", read_dictionary=read_dictionary).read()
    assert ours.schema.equals(theirs.schema)
    assert ours.equals(theirs)
    return opened[-1]


@pytest.mark.parametrize("store_schema", [True, False])
@pytest.mark.parametrize(
    ("columns", "decoded"),
    [
        ({"a": TEXT}, ["large_string"]),
        ({"a": BYTES}, ["large_binary"]),
        ({"a": TEXT, "b": BYTES}, ["large_string", "large_binary"]),
        ({"a": pa.array(range(ROWS)), "b": TEXT}, ["int64", "large_string"]),
        ({"a": pa.array(range(ROWS))}, ["int64"]),
    ],
    ids=["texts", "bytes", "both", "beside numbers", "numbers"],
)
def test_many_strings_are_decoded_as_large_strings(
    tmp_path, opened, columns, decoded, store_schema
):
    assert read(tmp_path, opened, pa.table(columns), store_schema=store_schema) == decoded


def test_few_strings_are_not_decoded_as_large_strings(tmp_path, opened):
    assert read(tmp_path, opened, pa.table({"a": TEXT[:100]})) == ["string"]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (pa.large_string(), {}),
        (pa.string_view(), {}),
        (pa.dictionary(pa.int32(), pa.string()), {}),
        (pa.string(), {"read_dictionary": ["a"]}),
        (pa.string(), {"read_dictionary": ["a"], "store_schema": False}),
        (pa.json_(), {}),
        (pa.json_(), {"store_schema": False}),
    ],
)
def test_texts_of_other_types_are_as_they_were(tmp_path, opened, kind, options):
    texts = pa.array([text and json.dumps(text) for text in TEXTS])
    read(tmp_path, opened, pa.table({"a": texts.cast(kind), "b": TEXT}), **options)


def test_texts_in_lists_beside_them_are_as_they_were(tmp_path, opened):
    lists = pa.array([[text] for text in TEXTS])
    read(tmp_path, opened, pa.table({"a": lists, "b": TEXT}), store_schema=False)


def test_more_bytes_than_offsets_can_tell_are_several_arrays(tmp_path, opened):
    with patch.object(room, "narrowed", side_effect=pa.ArrowInvalid("too large")):
        assert read(tmp_path, opened, pa.table({"a": TEXT})) == ["string"]


@pytest.mark.parametrize("partial", [False, True])
def test_footers_of_spliced_files_state_what_was_spliced(partial):
    """The footer's bytes are joined by hand; the oracle encodes the same facts by thrift."""
    elements = [
        SchemaElement(name="root", num_children=1),
        SchemaElement(name="s", num_children=2, repetition_type=1),
        SchemaElement(name="a", type=1, repetition_type=1),
        SchemaElement(name="b", type=6, repetition_type=1),
    ]
    footer = FileMetaData(version=1, schema=elements, num_rows=0, row_groups=[])
    template = SchemaTemplates(footer, encode(footer)).logical(read_schema(elements).roots[0])
    template = template.only([1]) if partial else template
    sizes = ((3, 20), (70_000, 1 << 40))
    groups, expected, at = [], [], 4
    for rows, uncompressed in sizes:
        chunks, stated = [], [chunk_of(0, [], [], 0, rows, 0, 0, 4)] * 2
        for leaf in (1,) if partial else (0, 1):
            facts = (1, [0, 8], ["s", "b"], 6) if leaf else (6, list(range(20)), ["s", "a"], 0)
            metadata = chunk_of(*facts, 0, uncompressed, 1, 9).meta_data
            dictionary = memoryview(bytes(7 * leaf)) if leaf else None
            chunks.append(
                ChunkBytes(metadata, dictionary, [memoryview(bytes(90))] * 2, rows + leaf)
            )
            size = 180 + 7 * leaf
            stated[leaf] = chunk_of(
                *facts, rows + leaf, max(uncompressed, size), size, at + 7 * leaf, at * leaf or None
            )
            at += size
        groups.append(RowGroupBytes(rows, chunks))
        expected.append(RowGroup(columns=stated, total_byte_size=0, num_rows=rows))
    spliced = splice(template, groups).to_pybytes()
    metadata, _ = decode(FileMetaData, read_footer(BufferSource(spliced)).raw)
    assert metadata.num_rows == sum(rows for rows, _ in sizes)
    assert [encode(group) for group in metadata.row_groups] == [encode(g) for g in expected]


def chunk_of(kind, encodings, path, codec, values, uncompressed, size, at, dictionary=None):
    """Returns the entry of a chunk in a footer."""
    metadata = ColumnMetaData(
        type=kind,
        encodings=encodings,
        path_in_schema=path,
        codec=codec,
        num_values=values,
        total_uncompressed_size=uncompressed,
        total_compressed_size=size,
        data_page_offset=at,
        dictionary_page_offset=dictionary,
    )
    return ColumnChunk(file_offset=0, meta_data=metadata)
