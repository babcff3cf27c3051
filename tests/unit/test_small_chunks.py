"""Small chunks decoded together, compared with the same chunks decoded one by one."""

import datetime
import decimal
import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.decode.synthetic_footer import RootTemplate
from intarsia.file.chunk_reader import Chunk
from intarsia.scan import small_chunks
from intarsia.scan.parquet_file import open_file
from intarsia.scan.small_chunks import chunks_of

COLUMNS = {
    "i32": pa.array(range(60), pa.int32()),
    "i64": pa.array(range(60), pa.int64()),
    "other": pa.array([None, *range(59)], pa.int64()),
    "u16": pa.array(range(60), pa.uint16()),
    "f32": pa.array([n / 7 for n in range(60)], pa.float32()),
    "f64": pa.array([None if n % 3 else float("nan") for n in range(60)], pa.float64()),
    "flag": pa.array([n % 2 == 0 for n in range(60)]),
    "text": pa.array([f"x{n % 5}" for n in range(60)]),
    "bytes": pa.array([None if n % 4 else b"y" * n for n in range(60)], pa.binary()),
    "fixed": pa.array([bytes([n] * 16) for n in range(60)], pa.binary(16)),
    "decimal": pa.array([decimal.Decimal(n) for n in range(60)], pa.decimal128(30, 2)),
    "day": pa.array([datetime.date(2020, 1, 1 + n % 28) for n in range(60)]),
    "none": pa.nulls(60, pa.string()),
    "list": pa.array([[n] * (n % 3) if n % 5 else None for n in range(60)], pa.list_(pa.int64())),
    "struct": pa.array([{"a": n, "b": None if n % 2 else f"{n}"} for n in range(60)]),
    "structs": pa.array([[{"a": n, "b": [str(n)]}] * (n % 4) for n in range(60)]),
    "map": pa.array([[(str(n), n)] for n in range(60)], pa.map_(pa.string(), pa.int32())),
}
TABLE = pa.table(COLUMNS)
OPTIONS = [
    {"row_group_size": 60},
    {"row_group_size": 7},
    {"row_group_size": 7, "use_dictionary": False, "data_page_version": "2.0"},
    {"row_group_size": 20, "compression": "zstd", "max_rows_per_page": 3, "write_batch_size": 1},
    {"row_group_size": 20, "use_dictionary": False, "compression": "none"},
]


def values(chunk):
    return [value for part in chunk.arrays(list(chunk.pages())) for value in part.to_pylist()]


def all_ids(file):
    groups, leaves = range(len(file.metadata.row_groups)), range(len(file.schema.leaves))
    return list(itertools.product(groups, leaves))


@pytest.fixture
def opened(monkeypatch):
    """Counts the spliced files that pyarrow opens."""
    actual = []
    real = RootTemplate.opened
    monkeypatch.setattr(RootTemplate, "opened", lambda *a, **k: actual.append(a) or real(*a, **k))
    return actual


@pytest.mark.parametrize("options", OPTIONS)
def test_values_are_those_of_each_chunk_by_itself(tmp_path, options, opened):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path, **options)
    file = open_file(path)
    ids = all_ids(file)
    _ = file.schema_arrow
    opened.clear()
    actual = [values(chunk) for chunk in chunks_of(file, ((id_, True) for id_ in ids))]
    assert len(opened) < len(ids)
    expected = [values(Chunk(file, *id_)) for id_ in ids]
    assert list(map(repr, actual)) == list(map(repr, expected))


def test_large_chunks_and_others_that_are_not_asked_for_are_not_decoded_ahead(tmp_path, opened):
    path = tmp_path / "t.parquet"
    many = pa.table({"a": np.arange(100_000), "b": np.arange(100_000) % 2, "c": ["x"] * 100_000})
    pq.write_table(many, path)
    file = open_file(path)
    _ = file.schema_arrow
    opened.clear()
    for chunk in chunks_of(file, (((0, leaf), leaf < 2) for leaf in range(3))):
        assert opened == []
        assert len(values(chunk)) == 100_000
        opened.clear()


@pytest.mark.parametrize("damaged", range(0, 12, 5))
def test_one_damaged_chunk_is_named_and_the_others_are_read(tmp_path, damaged):
    path = tmp_path / "t.parquet"
    table = pa.table({f"c{n}": [f"{n} {row}" for row in range(20)] for n in range(6)})
    pq.write_table(table, path, row_group_size=10, use_dictionary=False, compression="snappy")
    ids = all_ids(open_file(path))
    group, leaf = ids[damaged]
    chunk = Chunk(open_file(path), group, leaf).metadata
    whole = bytearray(path.read_bytes())
    at = chunk.start + chunk.total_compressed_size - 30
    whole[at : at + 30] = b"\xff" * 30
    path.write_bytes(whole)
    file = open_file(path)
    chunks = list(chunks_of(file, ((id_, True) for id_ in ids)))
    for id_, one in zip(ids, chunks, strict=True):
        if id_ == (group, leaf):
            with pytest.raises(ia.FormatError, match=f"row group {group}, column c{leaf}"):
                values(one)
        else:
            assert values(one) == [b"%d %d" % (id_[1], 10 * id_[0] + row) for row in range(10)]
    with pytest.raises(ia.FormatError, match=f"row group {group}, column c{leaf}"):
        ia.add_indexes(path, ["page_index"])


def test_findings_of_damaged_files_are_those_of_each_chunk_by_itself(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    table = TABLE.select(["i64", "other", "text", "bytes", "list", "f64"])
    pq.write_table(table, path, row_group_size=20, write_page_index=True, compression="zstd")
    ia.add_indexes(path, ["text:bloom", "i64:bloom"])
    whole = path.read_bytes()
    stop = open_file(path).directory.base_length
    findings = []
    for limit in (small_chunks._MAX_STORED_BYTES, -1):
        monkeypatch.setattr(small_chunks, "_MAX_STORED_BYTES", limit)
        actual = []
        for at in range(4, stop, 61):
            changed = bytearray(whole)
            changed[at] ^= 0x41
            path.write_bytes(changed)
            actual.append(list(map(str, ia.verify(path))))
        findings.append(actual)
    assert sum(map(bool, findings[0])) > len(findings[0]) // 4
    assert findings[0] == findings[1]


def test_page_indexes_are_those_of_each_chunk_by_itself(tmp_path, monkeypatch, opened):
    written = []
    for limit in (small_chunks._MAX_STORED_BYTES, -1):
        monkeypatch.setattr(small_chunks, "_MAX_STORED_BYTES", limit)
        path = tmp_path / f"{limit}.parquet"
        pq.write_table(TABLE, path, row_group_size=7)
        ia.add_indexes(path, ["page_index", "text:bloom"])
        file = ia.ParquetFile(path)
        assert ia.verify(path) == []
        written.append(
            [
                (repr(actual.column_index), repr(actual.offset_index))
                for id_ in all_ids(open_file(path))
                for actual in (file.page_index(*id_),)
            ]
        )
    assert written[0] == written[1]
