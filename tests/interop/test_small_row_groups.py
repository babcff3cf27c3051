"""Files of many small row groups, which are read whole: pyarrow's answers without extra bytes.

::

    200 row groups of 40 rows     at ▒▒▒▒ ▒▒▒▒ ▒▒▒▒ …     pages of 20 rows
                                  x  ▒▒▒▒ ▒▒▒▒ ▒▒▒▒ …     of any type, with NULLs
"""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.scan import small_row_groups

ROWS, GROUP, PAGE = 8000, 40, 20
DAY = datetime.datetime(2026, 1, 1)
TEXTS = pa.dictionary(pa.int32(), pa.string())
PAIR = pa.struct({"a": pa.int64(), "b": pa.struct({"c": pa.string()})})
COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "int": (pa.int32(), lambda i: i * 7 % 1000),
    "text": (pa.string(), lambda i: f"text {i % 97}"),
    "large_text": (pa.large_string(), lambda i: f"{i}"),
    "bytes": (pa.binary(3), lambda i: b"%03d" % (i % 1000)),
    "decimal": (pa.decimal128(9, 2), lambda i: decimal.Decimal(i) / 100),
    "moment": (pa.timestamp("us", "UTC"), lambda i: DAY + datetime.timedelta(hours=i)),
    "nanoseconds": (pa.timestamp("ns"), lambda i: DAY + datetime.timedelta(seconds=i)),
    "half": (pa.float16(), lambda i: np.float16(i % 50)),
    "dictionary": (TEXTS, lambda i: f"{i % 7}"),
    "struct": (PAIR, lambda i: {"a": i, "b": {"c": f"{i}"} if i % 5 else None}),
    "list": (pa.list_(pa.int64()), lambda i: [i] * (i % 4)),
    "list_of_struct": (pa.list_(PAIR), lambda i: [{"a": i, "b": {"c": "x"}}] * (i % 3)),
    "struct_of_dictionary": (pa.struct({"d": TEXTS}), lambda i: {"d": f"{i % 7}"}),
    "map": (pa.map_(pa.string(), pa.int64()), lambda i: [("k", i)] * (i % 2)),
    "uuid": (pa.uuid(), lambda i: i.to_bytes(16, "big")),
}


def table_of(name: str) -> pa.Table:
    kind, value = COLUMNS[name]
    values = [None if i % 11 == 0 else value(i) for i in range(ROWS)]
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    else:
        column = pa.array(values, kind)
    keys = np.random.default_rng(5).permutation(ROWS)
    return pa.table({"at": range(ROWS), "x": column, "key": keys})


def write(table: pa.Table, path: Path, **options: Any) -> Path:
    settings = {"row_group_size": GROUP, "max_rows_per_page": PAGE, "write_batch_size": PAGE}
    pq.write_table(table, path, write_page_index=True, **settings, **options)
    return path


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of row groups in each whole read."""
    counts: list[int] = []
    read = small_row_groups.decode_groups

    def counted(*args: Any, **options: Any) -> pa.Table:
        counts.append(len(args[3]))
        return read(*args, **options)

    monkeypatch.setattr(small_row_groups, "decode_groups", counted)
    return counts


WANTED = {
    "half": pc.field("at") >= ROWS // 2,
    "scattered": pc.field("key") < ROWS // 10,
    "run_and_rest": (pc.field("at") < 130) | (pc.field("at") > 4567),
    "most": pc.field("key") >= 5,
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("row_ranges", WANTED)
def test_any_rows_of_any_type_equal_pyarrows(name, row_ranges, tmp_path, decoded):
    path = write(table_of(name), tmp_path / "t.parquet")
    ours, peer = ia.dataset(path), pads.dataset(path)
    for columns in (None, ["x"], ["key", "x"], ["x", "at"]):
        actual = ours.to_table(columns, WANTED[row_ranges])
        expected = peer.to_table(columns, WANTED[row_ranges])
        actual.validate(full=True)
        assert actual.schema == expected.schema
        assert actual.equals(expected)
    if name != "struct_of_dictionary":  # pyarrow reads these one row group at a time only
        assert sum(decoded) >= ROWS // GROUP


def test_rows_of_one_file_are_read_by_their_numbers(tmp_path, decoded):
    table = table_of("struct")
    path = write(table, tmp_path / "t.parquet")
    with ia.ParquetFile(path) as file:
        rows = ia.RowRanges.of((3, 4), (77, 900), (5000, ROWS))
        actual = file.read(rows=rows)
        assert actual.equals(table.take(pa.array(rows.rows())))
        part = file.read(["x.b.c", "key"], rows=rows)
        expected = pq.ParquetFile(path).read(["x.b.c", "key"]).take(pa.array(rows.rows()))
        assert part.equals(expected)
    assert sum(decoded) > 100


def test_fields_of_structs_are_read_alone(tmp_path, decoded):
    path = write(table_of("struct"), tmp_path / "t.parquet")
    for columns in (["x.a"], ["x.b.c", "at"]):
        actual = ia.dataset(path).to_table(columns, pc.field("key") >= 5)
        assert actual.equals(pads.dataset(path).to_table(columns, pc.field("key") >= 5))
    assert sum(decoded) > 100


def test_columns_are_read_as_dictionaries_on_request(tmp_path, decoded):
    path = write(table_of("text"), tmp_path / "t.parquet")
    form = pads.ParquetFileFormat(dictionary_columns={"x"})
    expected = pads.dataset(path, format=form).to_table(filter=pc.field("key") >= 5)
    actual = ia.dataset(path, read_dictionary=["x"]).to_table(filter=pc.field("key") >= 5)
    assert actual.schema == expected.schema
    assert actual.column("x").to_pylist() == expected.column("x").to_pylist()
    assert sum(decoded) > 100


def test_columns_that_share_a_name_are_told_apart(tmp_path, decoded):
    table = pa.Table.from_arrays(
        [pa.array(range(ROWS)), pa.array([f"{i}" for i in range(ROWS)])], ["a", "a"]
    )
    path = write(table, tmp_path / "t.parquet")
    with ia.ParquetFile(path) as file:
        rows = ia.RowRanges.of((10, ROWS - 10))
        assert file.read(rows=rows).equals(table.slice(10, ROWS - 20))
    assert sum(decoded) > 100


def test_a_few_rows_are_read_by_page(tmp_path, decoded):
    path = write(table_of("int"), tmp_path / "t.parquet")
    actual = ia.dataset(path).to_table(filter=pc.field("at").isin([3, 400, 7000]))
    assert actual.column("at").to_pylist() == [3, 400, 7000]
    assert decoded == []


def test_large_chunks_are_read_by_page(tmp_path, decoded):
    noise = np.random.default_rng(0).bytes
    table = pa.table({"at": range(800), "x": [noise(20_000) for _ in range(800)]})
    pq.write_table(
        table, tmp_path / "t.parquet", row_group_size=8, max_rows_per_page=1, write_batch_size=1,
        write_page_index=True, use_dictionary=False,
    )  # fmt: skip
    source = ia.dataset(tmp_path / "t.parquet")
    condition = pc.bit_wise_and(pc.field("at"), 7) == 0
    analyzed = source.explain(filter=condition, analyze=True)
    assert source.to_table(filter=condition).equals(table.filter(condition))
    assert sum(decoded) == 2 * 100  # only of the small column
    assert analyzed.read.bytes.selected < (tmp_path / "t.parquet").stat().st_size / 4


def test_a_failing_whole_read_is_tried_once(tmp_path, decoded):
    path = write(table_of("struct_of_dictionary"), tmp_path / "t.parquet")
    source = ia.dataset(path)
    for _ in range(3):
        actual = source.to_table(["x"], pc.field("key") >= 5)
        assert actual.equals(pads.dataset(path).to_table(["x"], pc.field("key") >= 5))
    tried = [count for count in decoded if count < ROWS // GROUP]
    assert len(tried) <= 2  # with as many threads; the others read the key
    assert len(decoded) - len(tried) <= 6


def test_a_few_of_many_columns_are_read_by_page(tmp_path, decoded):
    table = pa.table({f"c{i}": range(800) for i in range(100)})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, row_group_size=8)
    actual = ia.dataset(path).to_table(["c1", "c7"], pc.field("c1") >= 400)
    assert actual.equals(table.select(["c1", "c7"]).slice(400))
    assert decoded == []


def test_remote_files_are_read_by_page(tmp_path, decoded):
    memory = fsspec.filesystem("memory")
    path = write(table_of("int"), tmp_path / "t.parquet")
    memory.pipe_file("/small_groups/t.parquet", path.read_bytes())
    source = ia.dataset("/small_groups/t.parquet", filesystem=memory)
    actual = source.to_table(filter=pc.field("at") >= 4000)
    assert actual.equals(pq.read_table(path).slice(4000))
    assert decoded == []


def test_only_the_bytes_of_the_chunks_are_read(tmp_path):
    path = write(table_of("text"), tmp_path / "t.parquet")
    source = ia.dataset(path)
    explained = source.explain(["x"], pc.field("at") >= ROWS // 2, analyze=True)
    assert explained.read.rows.selected == ROWS // 2
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    half = sum(
        group.column(leaf).total_compressed_size
        for group in groups[len(groups) // 2 :]
        for leaf in range(3)
    )
    data = sum(g.column(leaf).total_compressed_size for g in groups for leaf in range(3))
    assert explained.read.bytes.selected <= half + path.stat().st_size - data


@pytest.mark.parametrize(("place", "verify"), [("header", False), ("values", True)])
def test_a_damaged_page_is_named(place, verify, tmp_path):
    path = tmp_path / "t.parquet"
    write(table_of("int"), path, write_page_checksum=True, use_dictionary=False)
    chunk = pq.read_metadata(path).row_group(120).column(2)
    data = bytearray(path.read_bytes())
    end = chunk.data_page_offset + chunk.total_compressed_size
    data[chunk.data_page_offset if place == "header" else end - 3] ^= 0xFF
    path.write_bytes(data)
    source = ia.dataset(path, page_checksum_verification=verify)
    with pytest.raises(ia.FormatError, match="row group 120, column key"):
        source.to_table(filter=pc.field("at") >= 5)


def test_a_footer_that_points_outside_the_file_is_an_error(tmp_path):
    path = write(table_of("int"), tmp_path / "t.parquet")
    good = ia.dataset(path).to_table(filter=pc.field("at") >= 5)
    assert good.num_rows == ROWS - 5
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length :]
    path.write_bytes(b"PAR1" + footer)
    with pytest.raises(ia.FormatError, match=r"t\.parquet, offset"):
        ia.dataset(path).to_table(filter=pc.field("at") >= 5)


def test_all_columns_of_a_wide_file_are_read_at_once(tmp_path, decoded):
    numbers = np.arange(500)
    table = pa.table({f"c{i}": numbers * i for i in range(300)})
    ia.write_table(table, tmp_path / "t.parquet")
    actual = ia.dataset(tmp_path / "t.parquet").to_table(filter=pc.field("c1") >= 1)
    assert actual.equals(table.slice(1))
    assert decoded == [1, 1]


@pytest.mark.parametrize(("page_rows", "is_whole"), [(8192, True), (1000, False)])
def test_columns_of_long_pages_are_read_whole_for_one_row(page_rows, is_whole, tmp_path, decoded):
    """A page is read for any of its rows: here one of 61 KB is read, or the chunk of 75 KB."""
    random = np.random.default_rng(1)
    columns = {f"c{number}": random.random(10_000) for number in range(80)}
    table = pa.table({"key": random.permutation(10_000)} | columns)
    path = tmp_path / "t.parquet"
    pq.write_table(
        table, path, use_dictionary=False, max_rows_per_page=page_rows, write_page_index=True
    )
    row = ia.dataset(path).to_table(filter=pc.field("key") == table["key"][5])
    assert row == table.slice(5, 1)
    assert bool(decoded) == is_whole
