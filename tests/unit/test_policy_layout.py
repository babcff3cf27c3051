"""Writers follow the layout and the order of a folder's policy; arguments go before it."""

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.indexing.policy import Policy, write_policy

POLICY = Policy(
    ("id:lookup",),
    sort_by=("id", "absent", "v"),
    layout={"rows_per_page": 100, "row_group_rows": 500, "compression": "gzip"},
)
TABLE = pa.table({"id": [n * 7 % 1000 for n in range(1000)], "v": range(1000)})


@pytest.fixture
def lake(tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    write_policy(pafs.LocalFileSystem(), str(lake), POLICY)
    return lake


def layout_of(path):
    """Returns the codec, the rows of the largest page and row group, and if rows are sorted."""
    file, metadata = ia.ParquetFile(path), pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    pages = [page.num_rows or 0 for number in range(len(groups)) for page in file.pages(number, 0)]
    ids = pq.read_table(path)["id"].to_pylist()
    is_sorted = ids == sorted(ids)
    assert is_sorted == bool(groups[0].sorting_columns)
    assert ia.verify(path) == []
    return (
        groups[0].column(0).compression,
        max(pages),
        max(group.num_rows for group in groups),
        is_sorted,
    )


def test_a_file_has_the_layout_and_the_order_of_the_policy(lake):
    for rows in (TABLE, TABLE.to_reader(300)):
        ia.write_table(rows, lake / "a.parquet")
        assert layout_of(lake / "a.parquet") == ("GZIP", 100, 500, True)
        assert pq.read_table(lake / "a.parquet").equals(TABLE.sort_by("id"))


def test_arguments_go_before_the_policy(lake):
    path = lake / "a.parquet"
    options = {"compression": "zstd", "max_rows_per_page": 50, "row_group_size": 200}
    ia.write_table(TABLE, path, sort_by=[], indexes=[], **options)
    assert layout_of(path) == ("ZSTD", 50, 200, False)
    assert pq.read_table(path).equals(TABLE)
    ia.write_table(TABLE, path, sort_by=["v"])
    assert pq.read_table(path).equals(TABLE)
    with pytest.raises(ia.PredicateError, match="w"):
        ia.write_table(TABLE, path, sort_by=["w"])
    with ia.ParquetWriter(path, TABLE.schema, compression="snappy", max_rows_per_page=60) as writer:
        writer.write_table(TABLE, 300)
    assert layout_of(path) == ("SNAPPY", 60, 300, False)


def test_a_writer_keeps_the_order_of_rows(lake):
    with ia.ParquetWriter(lake / "a.parquet", TABLE.schema) as writer:
        writer.write_table(TABLE)
    assert layout_of(lake / "a.parquet") == ("GZIP", 100, 500, False)


def test_a_data_set_follows_the_policy_in_each_folder(lake):
    rows = TABLE.append_column("day", pa.array([n % 2 for n in range(1000)]))
    ia.write_dataset(rows, lake, partition_by=["day"])
    ia.write_dataset(
        rows,
        lake,
        partition_by=["day"],
        existing_data_behavior="append",
        compression="zstd",
        max_rows_per_group=400,
        sort_by=(),
    )
    layouts = sorted(layout_of(path) for path in lake.rglob("*.parquet"))
    assert layouts == [("GZIP", 100, 500, True)] * 2 + [("ZSTD", 100, 400, False)] * 2
    assert ia.dataset(lake).to_table(["v"])["v"].to_pylist().count(7) == 2
    with pytest.raises(ia.PredicateError, match="w"):
        ia.write_dataset(rows, lake, existing_data_behavior="append", sort_by="w")


def test_columns_without_an_order_end_the_order_of_the_policy(lake):
    write_policy(pafs.LocalFileSystem(), str(lake), Policy(sort_by=("id", "s", "v")))
    rows = pa.table({"id": [2, 1], "s": [{"a": 1}, {"a": 2}], "v": [1, 2]})
    ia.write_table(rows, lake / "a.parquet")
    assert pq.read_table(lake / "a.parquet")["id"].to_pylist() == [1, 2]


def test_the_command_follows_the_policy(say, lake, tmp_path):
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    say("write", tmp_path / "rows.parquet", lake / "a.parquet")
    assert layout_of(lake / "a.parquet") == ("GZIP", 100, 500, False)
    say("write", tmp_path / "rows.parquet", lake / "a.parquet", "--compression", "zstd")
    assert layout_of(lake / "a.parquet")[0] == "ZSTD"
