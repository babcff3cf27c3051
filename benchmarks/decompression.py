"""Measures how long Arrow takes to decompress the pages of each column, and pyarrow to decode them.

A query without an index cannot take less time than its columns' decompression. Times are
milliseconds of processor time in one thread, the least of several runs.

    python benchmarks/decompression.py bench-data/DuckDB-2000000.parquet
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from queries import Table, markdown

import intarsia as ia
from intarsia.io.source import BufferSource
from intarsia.parquet.page_header import walk_pages


def stored_pages(path: Path, column: int) -> list[tuple[memoryview, int]]:
    """Returns the compressed bytes and the decompressed size of each page of a column."""
    data, pages = memoryview(path.read_bytes()), []
    for group in ia.ParquetFile(path).metadata.row_groups:
        for page in walk_pages(BufferSource(data), group.columns[column].meta_data):
            start, header = page.body_offset, page.header
            body = data[start : start + header.compressed_page_size]
            pages.append((body, header.uncompressed_page_size))
    return pages


def least_ms(action: Callable[[], Any], runs: int) -> float:
    """Returns the least processor time of an action in milliseconds."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times) * 1e3


def line_of(path: Path, column: int, runs: int) -> list[str]:
    """Returns a column's name, number of pages, decompressed megabytes and times."""
    file = pq.ParquetFile(path)
    chunk = file.metadata.row_group(0).column(column)
    pages, name = stored_pages(path, column), chunk.path_in_schema
    codec = pa.Codec(chunk.compression.lower())

    def decompress() -> None:
        for body, size in pages:
            codec.decompress(body, size)

    decompressed = least_ms(decompress, runs)
    decoded = least_ms(lambda: file.read(columns=[name], use_threads=False), runs)
    megabytes = sum(size for _, size in pages) / 1e6
    return [name, f"{len(pages):,}", f"{megabytes:,.1f}", f"{decompressed:,.1f}", f"{decoded:,.1f}"]


def main() -> None:
    """Prints one table for each file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    for path in options.files:
        columns = range(pq.ParquetFile(path).metadata.num_columns)
        table: Table = [[path.name, "pages", "MB", "decompressed, ms", "decoded by pyarrow, ms"]]
        table += [line_of(path, column, options.runs) for column in columns]
        total = sum(float(line[3].replace(",", "")) for line in table[1:])
        table.append(["all columns", "", "", f"{total:,.1f}", ""])
        print(markdown(table), end="\n\n")


if __name__ == "__main__":
    main()
