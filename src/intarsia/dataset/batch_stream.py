"""Streams of Python's record batches that Arrow's threads pull, and that end before the process.

Arrow's threads read ahead of the consumer, and go on for a while after it has stopped. If the
interpreter exits during a pull, the process ends with a fatal error. So an exit hook closes all
streams first.
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

_SCANNER_COLUMNS = {"__filename", "__fragment_index", "__batch_index", "__last_in_fragment"}
"""Columns that pyarrow's scanners add."""
_RENAMED = "__intarsia_column_"
_DRAIN_SECONDS = 0.2
"""At exit, the time that all streams together wait for Arrow's threads."""
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
        """Waits for a pull that is under way. Every later pull gets the end of the stream."""
        self._closed = True
        with self._lock:
            self._batches.close()

    def drain(self, deadline: float) -> None:
        """Waits until Arrow has pulled the end of the stream, if it has pulled at all.

        ``deadline`` is a time of ``time.monotonic``, in seconds.
        """
        if self._started.is_set():
            self._ended.wait(max(deadline - time.monotonic(), 0))


def scanner_of(
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    columns: Sequence[str] | None,
    batch_size: int,
) -> pads.Scanner:
    """Returns a scanner over ``tables``, which have this schema. It can be consumed once.

    ``columns`` are the names by which the caller selected the columns, None for all.
    """
    names = None
    if columns is not None and len(set(columns)) < len(columns):
        # pyarrow looks up a stream's columns by name, so a column named twice is sent once.
        names = schema.names
        once = [columns.index(column) for column in dict.fromkeys(columns)]
        schema = pa.schema([schema.field(i) for i in once], schema.metadata)
        tables = (table.select(once) for table in tables)
    projection: list[str] | dict[str, pc.Expression] | None = names
    if names is None and not _SCANNER_COLUMNS.isdisjoint(schema.names):
        # Scanners have columns of these names themselves.
        renamed = [f"{_RENAMED}{number}" for number in range(len(schema))]
        projection = dict(zip(schema.names, map(pc.field, renamed), strict=True))
        tables = (table.rename_columns(renamed) for table in tables)
        fields = [field.with_name(name) for field, name in zip(schema, renamed, strict=True)]
        schema = pa.schema(fields, schema.metadata)
    reader = pa.RecordBatchReader.from_batches(schema, Stream(batches_of(tables, batch_size)))
    return pads.Scanner.from_batches(reader, columns=projection, batch_size=batch_size)


@atexit.register
def _close_all() -> None:
    streams = [stream for stream in _live if stream._process == os.getpid()]
    for stream in streams:
        stream.close()
    deadline = time.monotonic() + _DRAIN_SECONDS
    for stream in streams:
        stream.drain(deadline)
