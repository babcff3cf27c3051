"""Handing a Python iterator of batches to Arrow's threads, and taking it back in time.

Arrow pulls from threads of its own, ahead of whoever consumes, and goes on for a while after they
have lost interest. A pull that is under way when the interpreter exits would end the process with a
fatal error, so streams are closed before that.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Generator, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from intarsia.dataset.record_batches import batches_of
from intarsia.errors import guarded_items
from intarsia.process_state import ForkLock
from intarsia.threads import check_process

_OF_SCANS = {"__filename", "__fragment_index", "__batch_index", "__last_in_fragment"}
_RENAMED = "__intarsia_column_"
_DRAIN_SECONDS = 0.2
_live: weakref.WeakSet[Stream] = weakref.WeakSet()


class Stream:
    """An iterator of record batches that can be closed from another thread."""

    def __init__(self, batches: Generator[pa.RecordBatch]) -> None:
        self._batches = guarded_items(batches)
        self._lock = ForkLock()
        self._closed = False
        self._process = os.getpid()
        self._started = threading.Event()
        self._ended = threading.Event()
        _live.add(self)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> pa.RecordBatch:
        check_process(self._process, "a scan")
        with self._lock:
            self._started.set()
            if not self._closed:
                try:
                    return next(self._batches)
                except BaseException:
                    self._ended.set()
                    raise
            self._ended.set()
            raise StopIteration

    def close(self) -> None:
        """Wait for a pull that is under way; every later one finds the end."""
        self._closed = True
        with self._lock:
            self._batches.close()

    def drained(self, deadline: float) -> None:
        """Give Arrow until ``deadline`` to find the end, if it pulls at all."""
        if self._started.is_set():
            self._ended.wait(max(deadline - time.monotonic(), 0))


def scanner_of(
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    columns: Sequence[str] | None,
    batch_size: int,
) -> pads.Scanner:
    """What scans ``tables`` of that schema, whose ``columns`` were asked for by these names.

    It can be consumed once.
    """
    names = None
    if columns is not None and len(set(columns)) < len(columns):
        # pyarrow finds a stream's columns by their names: what is named twice is there once.
        names = schema.names
        once = [columns.index(column) for column in dict.fromkeys(columns)]
        schema = pa.schema([schema.field(i) for i in once], schema.metadata)
        tables = (table.select(once) for table in tables)
    asked: list[str] | dict[str, pc.Expression] | None = names
    if names is None and not _OF_SCANS.isdisjoint(schema.names):
        # A scan has columns of these names itself.
        given = [f"{_RENAMED}{number}" for number in range(len(schema))]
        asked = dict(zip(schema.names, map(pc.field, given), strict=True))
        tables = (table.rename_columns(given) for table in tables)
        fields = [field.with_name(name) for field, name in zip(schema, given, strict=True)]
        schema = pa.schema(fields, schema.metadata)
    reader = pa.RecordBatchReader.from_batches(schema, Stream(batches_of(tables, batch_size)))
    return pads.Scanner.from_batches(reader, columns=asked, batch_size=batch_size)


@atexit.register
def _close_all() -> None:
    streams = [stream for stream in _live if stream._process == os.getpid()]
    for stream in streams:
        stream.close()
    deadline = time.monotonic() + _DRAIN_SECONDS
    for stream in streams:
        stream.drained(deadline)
