"""``page_size_limit``: pages that decode to far more than their stored size are refused in time."""

import json
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from crafted import BOMBS, LARGE, data_page, of_pages

import intarsia as ia
from intarsia.cli.command_line import cli

WORKER = Path(__file__).with_name("worker.py")
LIMIT = 64 << 20
MEGABYTES = 150
"""Allowance in megabytes for Python and pyarrow. Nothing of 2 GiB or 256 MiB is allocated."""
ROWS = 1000


def limited(path):
    """The result of every way to read a file, with a limit."""
    actual = subprocess.run(
        [sys.executable, str(WORKER), str(1 << 30)],
        input=f"limited\t{path}\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"},
    )
    return json.loads(actual.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
@pytest.mark.parametrize("name", [*LARGE, "zstd_of_two_gigabytes", "brotli_of_two_gigabytes"])
def test_a_page_above_the_limit_is_refused_by_every_way_to_read(name, tmp_path):
    path = tmp_path / "t.parquet"
    make = LARGE.get(name) or BOMBS[name]
    path.write_bytes(make())
    assert path.stat().st_size < 2_000_000
    actual = limited(path)
    assert actual["outcome"] == "ok", actual["value"]
    assert actual["megabytes"] < MEGABYTES
    for way, said in json.loads(actual["value"]).items():
        assert "page_size_limit is 67,108,864" in said, (way, said)
        assert f"{path}, row group 0, column a, page " in said, (way, said)
        assert ", offset " in said, (way, said)


def written(path):
    """A file of pages of 800 bytes, and one of 80,000."""
    page = data_page(np.arange(100).tobytes(), 100)
    large = data_page(np.arange(100, 10_100).tobytes(), 10_000)
    path.write_bytes(of_pages([page, large, page], 10_200, codec=0))
    return path


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_page_of_exactly_the_limit_is_read(tmp_path, codec, version):
    path = tmp_path / "t.parquet"
    table = pa.table({"a": np.arange(ROWS), "b": [f"x{n}" for n in range(ROWS)]})
    options = {"compression": codec, "data_page_version": version, "use_dictionary": ["b"]}
    pq.write_table(table, path, max_rows_per_page=100, write_batch_size=100, **options)
    file = ia.ParquetFile(path)
    pages = [page for c in range(2) for page in file.pages(0, c)]
    held = {"a": 8 + 2, "b": 4 + 2}  # a number or an offset, and a definition level
    largest = max(max(p.uncompressed_size, p.num_values * held[p.column]) for p in pages)
    for where in (None, pc.field("a") == 7, pc.field("b") == "x7"):
        expected = table if where is None else table.filter(where)
        for asked in (largest, 1 << 40, None):
            assert ia.dataset(path, page_size_limit=asked).to_table(filter=where) == expected
            assert ia.ParquetFile(path, page_size_limit=asked).read(filter=where) == expected
        for asked in (largest - 1, 1):
            with pytest.raises(ia.FormatError, match=f"page_size_limit is {asked:,}"):
                ia.dataset(path, page_size_limit=asked).to_table(filter=where)


def test_other_pages_are_read_and_the_large_page_is_named(tmp_path):
    """Only pages that are read are checked; the footer does not reveal their size."""
    path = tmp_path / "t.parquet"
    values = ["x"] * 500 + ["y" * 1_000_000] + ["z"] * 499
    table = pa.table({"k": np.arange(1000), "t": values})
    pq.write_table(
        table,
        path,
        compression="zstd",
        use_dictionary=False,
        write_page_index=True,
        max_rows_per_page=50,
        write_batch_size=50,
    )
    data = ia.dataset(path, page_size_limit=100_000)
    assert data.to_table(filter=pc.field("k") == 3) == table.slice(3, 1)
    assert data.to_table(["k"]) == table.select(["k"])
    assert data.take([3, 999]) == table.take([3, 999])
    number, page = next(
        (p.number, p) for p in ia.ParquetFile(path).pages(0, "t") if p.uncompressed_size > 1_000_000
    )
    place = rf"row group 0, column t, page {number}, offset {page.offset}: a page that holds "
    for read in (
        lambda: data.to_table(filter=pc.field("k") == 501),
        lambda: data.to_table(filter=pc.match_substring(pc.field("t"), "zz")),
        lambda: data.take([501]),
        data.to_table,
        lambda: data.filter(pc.field("k") < 600).to_table(),
        lambda: list(data.to_batches()),
        lambda: data.scanner().to_table(),
        lambda: [f.to_table() for f in data.get_fragments()],
        lambda: pickle.loads(pickle.dumps(data)).to_table(),
        lambda: data.replace_schema(data.schema).to_table(),
        lambda: data.sort_by("k").to_table(),
        lambda: ia.ParquetFile(path, page_size_limit=100_000).read(),
    ):
        with pytest.raises(ia.FormatError, match=place):
            read()
    assert data.count_rows() == 1000
    with pytest.raises(ia.PredicateError, match="page_size_limit does not go with"):
        data.to_table(["k", "__fragment_index"])


def test_on_corrupt_skip_leaves_out_the_rows_of_a_large_page(tmp_path):
    path = written(tmp_path / "t.parquet")
    data = ia.dataset(path, page_size_limit=10_000, on_corrupt="skip")
    with pytest.warns(ia.CorruptDataWarning, match="page_size_limit is 10,000; 10,000 rows lost"):
        assert data.to_table()["a"].to_pylist() == [*range(100), *range(100)]
    (place,) = data.corrupt
    assert (place.where.page, place.num_rows) == (1, 10_000)
    with pytest.raises(ia.FormatError, match=r"page 1, .* page_size_limit is 10,000"):
        ia.dataset(path, page_size_limit=10_000, on_corrupt="raise").to_table()


def test_a_page_index_that_is_wrong_is_not_taken_for_a_large_page(tmp_path):
    """Bytes from the middle of a page may look like the header of a huge page."""
    path = tmp_path / "t.parquet"
    header = data_page(b"", 100, size=(1 << 31) - 1)
    values = [random.Random(n).randbytes(80) for n in range(ROWS)]  # zstd stores them uncompressed
    values[550] = header + values[550][len(header) :]
    table = pa.table({"a": values})
    options = {"max_rows_per_page": 100, "write_batch_size": 100, "use_dictionary": False}
    pq.write_table(table, path, compression="zstd", write_page_index=True, **options)
    file = ia.ParquetFile(path, page_size_limit=1 << 20)
    index = file._opened.page_indexes.offsets(0, 0)
    index.offset[5] = path.read_bytes().index(header)
    with pytest.warns(ia.IntarsiaWarning, match="no page begins at"):
        rows = file.read(rows=ia.RowRanges.of((510, 520)))
    assert rows == table.slice(510, 10)


def test_the_limit_counts_decoded_bytes_of_runs(tmp_path):
    """A run of one value a billion times takes four bytes."""
    path = tmp_path / "t.parquet"
    path.write_bytes(LARGE["a_run_of_one_value"]())
    with pytest.raises(ia.FormatError, match=r"holds 2,147,483,640 bytes.* page_size_limit"):
        ia.ParquetFile(path, page_size_limit=LIMIT).read(rows=ia.RowRanges.of((0, 1)))


def test_the_command_line_takes_the_limit(tmp_path):
    path = written(tmp_path / "t.parquet")
    done = CliRunner().invoke(cli, ["scan", str(path), "--page-size-limit", "10000"])
    assert "page_size_limit is 10,000" in str(done.exception)
    done = CliRunner().invoke(
        cli, ["scan", str(path), "--page-size-limit", "80000", "--limit", "1"]
    )
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), ("1", TypeError)]
)
def test_an_invalid_limit_is_refused(tmp_path, limit, error):
    path = written(tmp_path / "t.parquet")
    for opening in (ia.dataset, ia.ParquetFile):
        with pytest.raises(error, match="page_size_limit"):
            opening(path, page_size_limit=limit)
