"""Runs mutants in its own process, whose memory is limited.

Reads lines of a path, a tab and a seed; prints ``start`` for each, then ``ok`` or what went wrong.
"""

import resource
import sys
import time
import traceback
import warnings
from pathlib import Path

import pyarrow as pa
from mutants import FEW_CHUNKS, mutant

import intarsia as ia
from intarsia.io.source import BufferSource
from intarsia.scan.parquet_file import open_file
from intarsia.verify.file import findings_of

MEMORY_BYTES = 512 * 1024 * 1024
SECONDS = 10  # of processor time


def exercise(data: bytes) -> None:
    """Opens, walks, decodes and checks a file; only Intarsia's own errors are caught."""
    try:
        file = ia.ParquetFile(BufferSource(data))
    except ia.IntarsiaError:
        return
    for group, leaf in chunks_of(file):
        attempt(lambda group=group, leaf=leaf: file.page_index(group, leaf))
        attempt(lambda group=group, leaf=leaf: file.pages(group, leaf))
        attempt(lambda group=group, leaf=leaf: file.dictionary(group, leaf))
    attempt(lambda: file.indexes)
    attempt(lambda: file.read())
    if file.num_rows > 2:
        middle = ia.RowRanges.of((file.num_rows // 2, file.num_rows // 2 + 1))
        attempt(lambda: file.read(rows=middle))
    attempt(lambda: list(findings_of(open_file(BufferSource(data)))))


def chunks_of(file):
    leaves = range(len(file.schema.leaves))
    ids = [(group, leaf) for group in range(len(file.metadata.row_groups)) for leaf in leaves]
    return ids[:FEW_CHUNKS]


def attempt(action) -> None:
    try:
        action()
    except ia.IntarsiaError as error:
        str(error)


def main() -> None:
    for name in ia.__all__:
        getattr(ia, name)  # imported before memory is limited
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    warnings.simplefilter("ignore", ia.IntarsiaWarning)
    for line in sys.stdin:
        path, seed = line.rstrip("\n").split("\t")
        print("start", line.rstrip("\n"), sep="\t", flush=True)
        before = time.process_time()
        try:
            exercise(mutant(Path(path).read_bytes(), int(seed)))
            took = time.process_time() - before
            outcome = "ok" if took < SECONDS else f"took {took:.1f} s"
        except BaseException:  # noqa: BLE001 # any other exception
            outcome = repr(traceback.format_exc())
        print("done", outcome, sep="\t", flush=True)


if __name__ == "__main__":
    main()
