"""An index only ever saves work: damaged, foreign or stale ones do not change the answer."""

import contextlib
import json
import warnings
import zlib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import framed, read_footer, with_key_values
from intarsia.parquet.footer_cache import FOOTER_KEY

KEY = "k00123"
STEP = 5  # prime to the sizes of structures, so that every part of them is hit
FILTER = pc.field("k") == KEY


@pytest.fixture(scope="module")
def table():
    return pa.table({"k": [f"k{i * 7919 % 500:05}" for i in range(1500)], "n": range(1500)})


@pytest.fixture(scope="module")
def stored(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("corrupt") / "t.parquet"
    ia.write_table(
        table,
        path,
        indexes=[ia.Lookup("k", granule_rows=50)],
        row_group_size=600,
        max_rows_per_page=100,
        write_batch_size=10,
    )
    return path.read_bytes()


def read(data):
    return ia.ParquetFile(BufferSource(data)).read(filter=FILTER)


def entry_of(stored):
    return ia.ParquetFile(BufferSource(stored)).indexes[0]


def flipped(data, at):
    changed = bytearray(data)
    changed[at] ^= 0x41
    return bytes(changed)


def test_the_index_is_used_where_it_is_sound(stored, table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(stored).equals(table.filter(FILTER))


def test_a_flipped_byte_of_a_section_leaves_the_answer_as_it_was(stored, table):
    entry = entry_of(stored)
    expected = table.filter(FILTER)
    ignored = 0
    for at in range(entry.offset, entry.offset + entry.length, STEP):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert read(flipped(stored, at)).equals(expected), f"byte {at}"
        # Only the pages this key is looked up in are checked, and all metadata.
        is_told = any(w.category is ia.IntarsiaWarning for w in caught)
        assert is_told or at < entry.offset + entry.length - entry.meta_length, f"byte {at}"
        ignored += is_told
    assert ignored > entry.meta_length // STEP


def test_any_flipped_byte_of_the_directory_leaves_the_answer_as_it_was(stored, table):
    pointer = json.loads(ia.ParquetFile(BufferSource(stored)).metadata.key_value(FOOTER_KEY))
    for at in range(pointer["offset"], pointer["offset"] + pointer["length"]):
        with pytest.warns(ia.IntarsiaWarning, match="embedded indexes are ignored"):
            assert read(flipped(stored, at)).equals(table.filter(FILTER)), f"byte {at}"


def test_a_flipped_byte_of_the_footer_gives_the_answer_or_an_error(stored, table):
    footer = read_footer(BufferSource(stored))
    expected = table.filter(FILTER)
    for at in range(footer.offset, len(stored), STEP):
        with warnings.catch_warnings(), contextlib.suppress(ia.IntarsiaError):
            warnings.simplefilter("ignore")
            actual = read(flipped(stored, at))
            # Names and types are in the footer too. A change there changes the question itself.
            if actual.schema.equals(expected.schema):
                assert actual.num_rows <= len(table)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        "[" * 100_000,
        '{"version": 2, "offset": 4, "length": 1, "crc32": 0}',
        '{"version": 1, "offset": -1, "length": 1, "crc32": 0}',
        '{"version": 1, "offset": 4, "length": 99999999999999, "crc32": 0}',
        '{"version": 1, "offset": true, "length": 1, "crc32": 0}',
        '{"version": 1, "offset": 4, "length": 0, "crc32": 0}',
    ],
)
def test_a_senseless_pointer_is_ignored_and_reported(stored, table, value):
    footer = read_footer(BufferSource(stored))
    data = stored[: footer.offset] + framed(with_key_values(footer.raw, {FOOTER_KEY: value}))
    with pytest.warns(ia.IntarsiaWarning):
        assert read(data).equals(table.filter(FILTER))


def test_a_pointer_carried_into_a_file_without_a_directory_is_ignored(stored, table, tmp_path):
    path = tmp_path / "rewritten.parquet"
    kept = ia.ParquetFile(BufferSource(stored)).metadata.key_value(FOOTER_KEY)
    pq.write_table(table.replace_schema_metadata({FOOTER_KEY: kept}), path)
    with pytest.warns(ia.IntarsiaWarning, match="embedded indexes are ignored"):
        assert ia.ParquetFile(path).read(filter=FILTER).num_rows == table.filter(FILTER).num_rows


def test_a_directory_copied_into_a_rewritten_file_is_ignored(stored, table):
    # pyarrow copies key/value metadata into the files it writes.
    schema = pq.read_schema(pa.BufferReader(stored)).with_metadata(
        {FOOTER_KEY: ia.ParquetFile(BufferSource(stored)).metadata.key_value(FOOTER_KEY)}
    )
    sink = pa.BufferOutputStream()
    changed = pa.table({"k": table["k"].take(list(range(1499, -1, -1))), "n": table["n"]})
    told = changed.cast(schema).replace_schema_metadata(schema.metadata)
    pq.write_table(told, sink, compression="zstd", use_dictionary=False)  # shorter than before
    # Pads the file so that the old directory is where the pointer says, before a valid footer.
    footer = read_footer(BufferSource(sink.getvalue()))
    body = sink.getvalue().to_pybytes()[: footer.offset]
    assert len(body) < read_footer(BufferSource(stored)).offset
    data = body + stored[len(body) : read_footer(BufferSource(stored)).offset] + framed(footer.raw)
    with pytest.warns(ia.IntarsiaWarning, match="rewritten"):
        assert read(data).equals(changed.filter(FILTER))


def test_a_section_of_another_file_is_ignored(stored, table, tmp_path):
    other = tmp_path / "other.parquet"
    ia.write_table(
        table.slice(0, 1500),
        other,
        indexes=[ia.Lookup("k", granule_rows=50)],
        row_group_size=600,
        max_rows_per_page=100,
        write_batch_size=10,
    )
    entry, foreign = entry_of(stored), entry_of(other.read_bytes())
    assert (entry.offset, entry.length) == (foreign.offset, foreign.length)
    stop = entry.offset + entry.length
    data = stored[: entry.offset] + other.read_bytes()[entry.offset : stop] + stored[stop:]
    with pytest.warns(ia.IntarsiaWarning):
        assert read(data).equals(table.filter(FILTER))


def test_an_index_of_an_unknown_kind_or_version_is_carried_and_ignored(stored, table):
    def with_entry(**changes):
        footer = read_footer(BufferSource(stored))
        pointer = json.loads(footer.metadata.key_value(FOOTER_KEY))
        start, stop = pointer["offset"], pointer["offset"] + pointer["length"]
        document = json.loads(stored[start:stop])
        document["indexes"][0] |= changes
        text = json.dumps(document).encode()
        pointer |= {"length": len(text), "crc32": zlib.crc32(text)}
        raw = with_key_values(footer.raw, {FOOTER_KEY: json.dumps(pointer)})
        return stored[:start] + text + framed(raw)

    for changes in ({"kind": "soundex"}, {"kind_version": 99}):
        data = with_entry(**changes)
        assert read(data).equals(table.filter(FILTER))
        assert len(ia.ParquetFile(BufferSource(data)).indexes) == 1
