"""Reads hostile files in its own process, whose memory is limited.

Reads lines of an action, a tab and a path. Prints one line of JSON for each: the outcome, seconds
of processor time, and the peak memory in megabytes above the memory before.
"""

import json
import resource
import sys
import time
import traceback
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs

import intarsia as ia
from intarsia.io.source import BufferSource
from intarsia.recovery.salvage import salvage

MEMORY_BYTES = 512 * 1024 * 1024
FEW_CHUNKS = 24


def opened(path):
    return ia.ParquetFile(path)


def everything(path):
    """Every read operation on a file."""
    file = ia.ParquetFile(path)
    leaves = range(len(file.schema.leaves))
    chunks = [(group, leaf) for group in range(len(file.metadata.row_groups)) for leaf in leaves]
    for chunk in chunks[:FEW_CHUNKS]:
        for ask in (file.page_index, file.pages, file.dictionary):
            attempt(lambda ask=ask, chunk=chunk: ask(*chunk))
    attempt(lambda: file.indexes)
    attempt(lambda: file.read(filter=asked(file)))
    attempt(file.read)
    half = file.num_rows // 2
    attempt(lambda: ia.ParquetFile(path).read(rows=ia.RowRanges.of((half, half + 10))))
    attempt(lambda: list_of(path))
    attempt(lambda: ia.dataset(path).explain(filter=asked(file)))
    attempt(lambda: ia.dataset(path).to_table(filter=asked(file)))
    attempt(ia.dataset(path, on_corrupt="skip").to_table)
    attempt(lambda: ia.verify(path))


def asked(file):
    """A filter on the first column of numbers or strings."""
    for field in file.schema_arrow:
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            return pc.field(field.name) == 1
        if pa.types.is_string(field.type):
            return pc.field(field.name) == "x1"
    return pc.scalar(True)


def limited(path):
    """The result of every way to read, with a page size limit."""
    limit = 64 << 20
    file, data = (
        ia.ParquetFile(path, page_size_limit=limit),
        ia.dataset(path, page_size_limit=limit),
    )
    last = file.num_rows - 1
    expected = pc.field("a") >= 0
    ways = {
        "file": file.read,
        "rows": lambda: file.read(rows=ia.RowRanges.of((last, last + 1))),
        "filter": lambda: file.read(filter=expected),
        "to_table": data.to_table,
        "filtered": lambda: data.to_table(filter=expected),
        "batches": lambda: list(data.to_batches()),
        "take": lambda: data.take([last]),
        "raise": lambda: ia.dataset(path, page_size_limit=limit, on_corrupt="raise").to_table(),
    }
    said = {}
    for name, way in ways.items():
        try:
            said[name] = f"{way().num_rows} rows"
        except ia.FormatError as error:
            said[name] = str(error)
    return json.dumps(said)


def verified(path):
    """Returns the number of findings."""
    return len(ia.verify(path))


def list_of(path):
    return ia.list_indexes(path)


def add(path):
    ia.add_indexes(path, ["a:lookup"])


def add_beside(path):
    ia.add_indexes(path, ["a:lookup"], sidecar=True)


def drop(path):
    ia.drop_indexes(path, ["a:lookup"])


def recovered(path):
    source = BufferSource(Path(path).read_bytes())
    salvage(source).document(source)


def recovered_as_ints(path):
    source = BufferSource(Path(path).read_bytes())
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    salvage(source, schema).document(source)


def rows(path):
    """Returns how many rows a filter leaves."""
    file = ia.ParquetFile(path)
    return file.read(filter=asked(file)).num_rows


def attempt(action):
    try:
        action()
    except ia.IntarsiaError as error:
        str(error)


def peak_bytes():
    """Peak memory since the last call, in bytes, on Linux."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    Path("/proc/self/clear_refs").write_text("5")
    return int(status["VmHWM"].split()[0]) * 1024


def held_bytes():
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) * 1024


def main():
    for name in ia.__all__:
        getattr(ia, name)  # imported before memory is limited and measured
    limit = int(sys.argv[1]) if sys.argv[1:] else MEMORY_BYTES
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    for line in sys.stdin:
        name, path = line.rstrip("\n").split("\t")
        warned = []
        peak_bytes()
        before, began = held_bytes(), time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                value = globals()[name](path)
                outcome = "ok"
            except ia.IntarsiaError as error:
                value, outcome = f"{type(error).__name__}: {error}", "refused"
            except BaseException:  # noqa: BLE001 # any other exception
                value, outcome = traceback.format_exc(), "failed"
            warned = [str(each.message) for each in caught]
        actual = {
            "outcome": outcome,
            "value": value if isinstance(value, int | str) else None,
            "warned": warned[:10],
            "seconds": time.process_time() - began,
            "megabytes": (peak_bytes() - before) / 1e6,
        }
        print(json.dumps(actual), flush=True)


if __name__ == "__main__":
    main()
