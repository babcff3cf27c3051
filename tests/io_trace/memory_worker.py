"""Scans in its own process with limited memory. Arguments: a task, a file, bytes."""

import resource
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads

import intarsia as ia

MOST = pads.field("v") < 900


def data_bytes():
    """The private memory of the process, to which the limit applies."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))


def scan(path, allowed):
    """Reads all matching rows, batch by batch."""
    for name in ia.__all__:
        getattr(ia, name)  # imported before memory is limited
    limit = data_bytes() + allowed
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    print(sum(batch.num_rows for batch in ia.dataset(path).to_batches(filter=MOST)))


def abandon(path, _):
    """Leaves a hundred scans midway, in every possible way, and prints what they left behind."""
    data = ia.dataset(path)
    leave = (
        lambda: next(data.to_batches(filter=MOST)),
        lambda: next(data.scanner(filter=MOST).to_batches()),
        lambda: data.scanner(filter=MOST).to_reader().read_next_batch(),
        lambda: data.head(5, filter=MOST),
        lambda: data.to_batches(filter=MOST),
    )
    for action in leave:  # the pools start threads on first use
        action()
    settled()
    before = settled()
    for i in range(100):
        leave[i % len(leave)]()
    after = settled()
    print(after[0] - before[0], after[1] - before[1])


def settled():
    """Arrow's memory in bytes and the number of threads, once work in progress has ended."""
    seen = None
    while seen != (seen := (pa.total_allocated_bytes(), threading.active_count())):
        time.sleep(0.5)
    return seen


if __name__ == "__main__":
    pa.set_cpu_count(2)
    pa.set_io_thread_count(2)
    globals()[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
