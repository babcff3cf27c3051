"""An error about an undecodable page names row group, column, page and offset, for every reader."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.errors import Where

ROWS = 4000
READS = {
    "table": lambda data: data.to_table(),
    "columns": lambda data: data.to_table(["b"]),
    "batches": lambda data: list(data.to_batches()),
    "filtered": lambda data: data.to_table(filter=pc.field("a") >= 0),
    "head": lambda data: data.head(ROWS),
    "take": lambda data: data.take([ROWS - 1]),
    "counted": lambda data: data.count_rows(filter=pc.field("b") > 0.5),
    "sql": lambda data: ia.sql("SELECT max(b) FROM t WHERE sqrt(b) < 2", t=data),
    "sql of whole columns": lambda data: ia.sql("SELECT sum(b) FROM t", t=data),
}


@pytest.fixture(params=[True, False], ids=["page index", "none"])
def damaged(request, tmp_path):
    """A file in which one page begins with other bytes, and the position of that page.

    Row groups have 2,000 rows, pages 500.
    """
    path = tmp_path / "damaged.parquet"
    pq.write_table(
        pa.table({"a": np.arange(ROWS), "b": np.random.default_rng(1).random(ROWS)}),
        path,
        row_group_size=2000,
        max_rows_per_page=500,
        write_batch_size=500,
        use_dictionary=False,
        compression="zstd",
        write_page_index=request.param,
    )
    page = ia.ParquetFile(path).pages(1, "b")[3]
    with open(path, "r+b") as file:
        file.seek(page.offset + page.header_size)
        file.write(b"none")
    return Where(str(path), 1, "b", 3, page.offset)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_page_that_cannot_be_decoded_is_named(damaged, read):
    with pytest.raises(ia.FormatError, match="cannot decode") as caught:
        read(ia.dataset(damaged.file))
    assert caught.value.where == damaged


def test_other_errors_of_queries_are_duckdbs(damaged):
    duckdb = pytest.importorskip("duckdb")
    with pytest.raises(duckdb.ConversionException):
        ia.sql("SELECT CAST(a || 'x' AS INTEGER) FROM t", t=ia.dataset(damaged.file))
