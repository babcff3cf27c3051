"""Memory is bounded by the batches in progress; an abandoned scan leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia

WORKER = Path(__file__).with_name("memory_worker.py")
ROWS = 5_000_000
TEXT_BYTES = 640
LIMIT_BYTES = 320_000_000


def written(path, row_group_size, dictionary, rows=ROWS):
    """A file that takes seconds to write and little space on disk."""
    texts = pa.chunked_array([pa.array(["x" * TEXT_BYTES] * 20_000)] * (rows // 20_000))
    numbers = pa.chunked_array([pa.array(range(1000))] * (rows // 1000))
    pq.write_table(
        pa.table({"k": range(rows), "v": numbers, "text": texts}),
        path,
        row_group_size=row_group_size,
        use_dictionary=["text"] if dictionary else False,
        write_page_index=True,
        max_rows_per_page=5000,
        compression="zstd",
    )
    return path


def ran(task, path, limit=0):
    command = [sys.executable, WORKER, task, path, str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [int(word) for word in done.stdout.split()]


ENTRIES = 14_000_000
BUILD_BYTES = 320_000_000


def test_indexes_are_built_of_a_file_larger_than_the_memory(tmp_path):
    """14 million distinct keys, 8 bytes each as entries, are sorted on disk; values take 670 MB."""
    path, size = tmp_path / "large.parquet", 1_000_000
    schema = pa.schema([("k", pa.binary(40)), ("v", pa.int64())])
    with pq.ParquetWriter(path, schema, use_dictionary=False, compression="none") as writer:
        for start in range(0, ENTRIES, size):
            rows = np.arange(start, start + size, dtype=np.uint64)
            keys = np.zeros((size, 5), dtype=np.uint64)
            keys[:, 0] = rows * np.uint64(0x9E3779B97F4A7C15)
            fixed = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(40), size, [None, pa.py_buffer(keys)]
            )
            writer.write_table(pa.table([fixed, rows.astype(np.int64)], schema=schema))
    assert path.stat().st_size > 2 * BUILD_BYTES
    command = [sys.executable, WORKER.with_name("memory_build.py"), path, str(BUILD_BYTES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    steps, at, total = map(int, done.stdout.split())
    assert (at, total) == (ENTRIES // size, ENTRIES // size)
    assert steps >= ENTRIES // size
    key = pa.scalar(np.array([77 * 0x9E3779B97F4A7C15 % 2**64, 0, 0, 0, 0], np.uint64).tobytes())
    actual = ia.ParquetFile(path).read(filter=pc.field("k") == key.cast(pa.binary(40)))
    assert actual["v"].to_pylist() == [77]


@pytest.mark.parametrize(
    ("row_group_size", "dictionary"),
    [(200_000, False), (ROWS, False), (ROWS, True)],
    ids=["many_row_groups", "one_row_group", "one_row_group_of_few_texts"],
)
def test_a_file_ten_times_the_memory_is_scanned(tmp_path, row_group_size, dictionary):
    assert ROWS * TEXT_BYTES >= 10 * LIMIT_BYTES
    path = written(tmp_path / "large.parquet", row_group_size, dictionary)
    assert ran("scan", path, LIMIT_BYTES) == [ROWS * 9 // 10]


def test_scans_left_midway_leave_neither_memory_nor_threads(tmp_path):
    path = written(tmp_path / "t.parquet", 20_000, dictionary=False, rows=400_000)
    held, threads = ran("abandon", path)
    assert held == 0
    # a pool may start a thread late, but no other thread may remain
    assert threads <= pa.cpu_count()
