"""Lack of memory is no damage: no rows are left out, and no file counts as torn."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import intarsia as ia
from intarsia.decode import page_data, splice

ROWS = 4_000


@pytest.fixture
def path(tmp_path):
    texts = pa.array([f"{i:05}" * 20 for i in range(ROWS)])
    table = pa.table({"n": range(ROWS), "s": texts, "l": [[i] for i in range(ROWS)]})
    options = {"row_group_size": 1_000, "max_rows_per_page": 100, "compression": "snappy"}
    ia.write_table(table, tmp_path / "a.parquet", **options)
    return tmp_path / "a.parquet"


@pytest.fixture
def short(monkeypatch):
    """Makes the nth decoding and all later ones raise a memory error."""

    def begin(after=0):
        left = after

        def spliced(template, groups):
            nonlocal left
            left -= 1
            if left < 0:
                raise pa.ArrowMemoryError("malloc of size 250000000 failed")
            return splice_it(template, groups)

        monkeypatch.setattr(splice, "splice", spliced)

    splice_it = splice.splice
    return begin


@pytest.mark.parametrize(
    ("on_corrupt", "after"), [(None, 0), ("raise", 0), ("skip", 0), ("skip", 1)]
)
def test_scans_end_in_an_error_of_its_own(path, short, on_corrupt, after):
    ds = ia.dataset(path, on_corrupt=on_corrupt) if on_corrupt else ia.dataset(path)
    expected = ds.to_table(filter=pc.field("n") >= 7)
    short(after)
    with pytest.raises(ia.OutOfMemoryError, match=r"a\.parquet.*cannot decode: malloc") as raised:
        ds.to_table(filter=pc.field("n") >= 7)
    assert isinstance(raised.value, MemoryError)
    assert not isinstance(raised.value, ia.FormatError)
    assert ds.corrupt == []
    short(10**6)
    assert ds.to_table(filter=pc.field("n") >= 7).equals(expected)


def test_recover_writes_nothing(path, short, tmp_path):
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(path.read_bytes()[:-100])
    whole = ia.recover(torn, tmp_path / "out.parquet", schema_from=path)
    rows = ia.ParquetFile(tmp_path / "out.parquet").num_rows
    assert (rows, whole.lost) == (ROWS, whole.lost)
    for after in (0, 5):
        short(after)
        with pytest.raises(ia.OutOfMemoryError):
            ia.recover(torn, tmp_path / "less.parquet", schema_from=path)
        assert not any(name.startswith(("less", ".less")) for name in os.listdir(tmp_path))


def test_verify_finds_nothing_wrong(path, short):
    assert ia.verify(path) == []
    short()
    with pytest.raises(ia.OutOfMemoryError):
        ia.verify(path)


def test_pages_that_cannot_be_decompressed(path, monkeypatch):
    """Pages of lists are decompressed to count their rows."""

    class Codec:
        def __init__(self, name):
            pass

        def decompress(self, *_, **__):
            raise pa.ArrowMemoryError("malloc of size 5 failed")

    ds = ia.dataset(path, on_corrupt="skip")
    monkeypatch.setattr(page_data.pa, "Codec", Codec)
    with pytest.raises(ia.OutOfMemoryError, match="cannot decompress: malloc"):
        ds.to_table(["l"], filter=pc.field("n") == 7)
    assert ds.corrupt == []
