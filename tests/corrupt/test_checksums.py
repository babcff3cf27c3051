import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia

ROWS, PAGE_ROWS = 4000, 1000
DAMAGED_PAGE = 2


@pytest.fixture
def damaged(tmp_path):
    """A file with one flipped byte in a page of column ``b``, and the position of that page."""
    path = tmp_path / "damaged.parquet"
    table = pa.table({"a": np.arange(ROWS), "b": np.random.default_rng(1).random(ROWS)})
    pq.write_table(
        table,
        path,
        row_group_size=ROWS,
        max_rows_per_page=PAGE_ROWS,
        write_batch_size=PAGE_ROWS,
        use_dictionary=False,
        compression=None,
        write_page_index=True,
        write_page_checksum=True,
    )
    page = ia.ParquetFile(path).pages(0, "b")[DAMAGED_PAGE]
    data = bytearray(path.read_bytes())
    data[page.offset + page.header_size + 100] ^= 1
    path.write_bytes(data)
    return path, page


def test_a_damaged_page_is_read_as_it_is_unless_checksums_are_asked_for(damaged):
    path, _ = damaged
    assert ia.ParquetFile(path).read().num_rows == ROWS
    assert ia.dataset(path).to_table(filter=pc.field("a") >= 0).num_rows == ROWS


@pytest.mark.parametrize("rows", [None, (2500, 2501), (2100, 3100)])
def test_a_damaged_page_is_named(damaged, rows):
    path, page = damaged
    file = ia.ParquetFile(path, page_checksum_verification=True)
    expected = None if rows is None else ia.RowRanges.of(rows)
    with pytest.raises(ia.FormatError, match="checksum") as caught:
        file.read(rows=expected)
    where = caught.value.where
    assert (where.row_group, where.column) == (0, "b")
    assert (where.page, where.offset) == (DAMAGED_PAGE, page.offset)


def test_rows_whose_pages_are_whole_are_read(damaged):
    path, _ = damaged
    file = ia.ParquetFile(path, page_checksum_verification=True)
    assert file.read(rows=ia.RowRanges.of((0, 2000), (3000, ROWS))).num_rows == ROWS - PAGE_ROWS
    assert file.read(["a"]).num_rows == ROWS


def test_a_data_set_verifies_checksums_when_asked(damaged):
    path, _ = damaged
    checked = ia.dataset(path, page_checksum_verification=True)
    assert checked.to_table(filter=pc.field("a") < 1000).num_rows == PAGE_ROWS
    with pytest.raises(ia.FormatError, match="checksum"):
        checked.to_table(filter=pc.field("a") == 2500)
    with pytest.raises(ia.FormatError, match=r"page 2, offset .*: checksum"):
        checked.to_table()
