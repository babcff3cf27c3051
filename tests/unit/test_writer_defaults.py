"""Pages have fewer rows in files with indexes, unless the caller says how many."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia

TABLE = pa.table({"k": range(20_000)})


def page_rows(path):
    (path,) = path.rglob("*.parquet") if path.is_dir() else (path,)
    return max(page.num_rows or 0 for page in ia.ParquetFile(path).pages(0, "k"))


def by_write_table(path, **options):
    ia.write_table(TABLE, path, **options)


def by_writer(path, **options):
    with ia.ParquetWriter(path, TABLE.schema, **options) as writer:
        writer.write_table(TABLE)


def by_write_dataset(path, **options):
    ia.write_dataset(TABLE, path, **options)


def by_command(path, indexes=(), max_rows_per_page=None):
    source = path.parent / "source.parquet"
    pq.write_table(TABLE, source)
    options = [f"--index={index}" for index in indexes]
    if max_rows_per_page is not None:
        options.append(f"--max-rows-per-page={max_rows_per_page}")
    command = [sys.executable, "-m", "intarsia", "write", str(source), str(path), *options]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize("write", [by_write_table, by_writer, by_write_dataset, by_command])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 8192),
        ({"indexes": ["k:lookup"]}, 2048),
        ({"indexes": ["k:lookup"], "max_rows_per_page": 5120}, 5120),
        ({"max_rows_per_page": 1024}, 1024),
    ],
)
def test_rows_of_pages(write, options, expected, tmp_path):
    path = tmp_path / "new.parquet"
    write(path, **options)
    assert page_rows(path) == expected
    assert ia.dataset(path).to_table().sort_by("k") == TABLE
