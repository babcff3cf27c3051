"""A reader written from ``docs/reference/format.md`` finds the rows that the library finds."""

import math
import re
import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from format_reader import candidate_rows, gram_keys, word_key

import intarsia as ia
from intarsia.index.kinds import gram_keys as grams
from intarsia.strings import tokenizer

ROWS = 50_000
FLOATS = [0.0, -0.0, math.nan, 1.5, None]


@pytest.fixture(params=["written", "added", "sidecar", "without statistics"])
def path(request, tmp_path):
    """A file with three lookups, made in one of four ways."""
    numbers = np.random.default_rng(7).integers(-20_000, 20_000, ROWS)
    columns = {
        "number": pa.array(numbers, pa.int64()),
        "text": pa.array([f"k{i % 3000}" if i % 11 else None for i in range(ROWS)]),
        "ratio": pa.array([FLOATS[i // 5000 % 5] for i in range(ROWS)]),
    }
    table, path = pa.table(columns), tmp_path / "a.parquet"
    indexes = [ia.Lookup(name, granule_rows=1000) for name in columns]
    if request.param == "written":
        ia.write_table(table, path, indexes=indexes, row_group_size=20_000)
    else:
        has_statistics = request.param != "without statistics"
        pq.write_table(table, path, row_group_size=20_000, write_statistics=has_statistics)
        ia.add_indexes(path, indexes, sidecar=request.param == "sidecar")
    return path


@pytest.mark.parametrize(
    ("column", "value", "plain"),
    [
        ("number", 77, struct.pack("<q", 77)),
        ("number", -1234, struct.pack("<q", -1234)),
        ("number", 99_999, struct.pack("<q", 99_999)),
        ("text", "k7", b"k7"),
        ("text", "absent", b"absent"),
        ("ratio", 0.0, struct.pack("<d", 0.0)),
        ("ratio", 1.5, struct.pack("<d", 1.5)),
    ],
)
def test_candidate_rows_are_those_of_the_library(path, column, value, plain):
    ranges = candidate_rows(path, column, plain)
    values = pq.read_table(path, columns=[column])[column]
    matching = np.flatnonzero(pc.equal(values, value).fill_null(False).to_numpy())
    assert all(any(start <= row < stop for start, stop in ranges) for row in matching)
    (file,) = ia.dataset(path, reader="pages").explain(filter=pc.field(column) == value).files
    rows = {step.source: step.rows for step in file.plan.steps}
    assert sum(stop - start for start, stop in ranges) == rows.get(f"index {column}:lookup", 0)


def test_a_copied_pointer_is_noticed(path, tmp_path):
    metadata = pq.read_metadata(path).metadata
    table = pq.read_table(path).slice(1)
    copy = tmp_path / "copy.parquet"
    pq.write_table(table.replace_schema_metadata(metadata), copy)
    with pytest.raises((AssertionError, ValueError, KeyError)):
        candidate_rows(copy, "number", struct.pack("<q", 77))


@pytest.mark.parametrize("text", ["it'S", "ab", "Disk 42 full!", "a0f3", "tin foil", "x" * 70])
def test_keys_of_strings_are_those_of_the_library(text):
    strings, positions = pa.array([text]), np.zeros(1, np.int64)
    assert gram_keys(text) == {*grams.keys_of_strings(strings, positions)[0].tolist()}
    words = re.findall("[A-Za-z0-9]+", text)
    assert {*map(word_key, words)} == {*tokenizer.keys_of_strings(strings, positions)[0].tolist()}
