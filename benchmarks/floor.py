"""Measures the floor of a query: the time and the bytes of the pages that must be decoded.

These pages are, in the columns of the filter, all pages of planned rows, and in the other columns
the pages of matching rows. The code here finds pages by the page index itself, and does not
use the reader that is measured. ``queries.py`` and ``indexes.py`` import this module. It
also counts the bytes that a query reads, and divides its time among pyarrow, storage and
Intarsia. All times are wall time.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from logs import ROW_GROUP_ROWS
from peers import Query

import intarsia as ia
from intarsia.decode.splice import ChunkBytes, RowGroupBytes, splice
from intarsia.decode.synthetic_footer import SchemaTemplates
from intarsia.io.storage import FileSource

_KEY_SLACK = 64 * 1024
"""Bytes that a query of an index may read above 1.2 times its pages and a page of keys."""
_PROFILED_SECONDS = 0.5
_PROFILED_RUNS = (3, 50)
"""Minimum and maximum number of profiled runs."""


# --- pages --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pages:
    """Pages of one column chunk: ``(offset, length)`` of each in bytes, and their row count."""

    row_group: int
    dictionary: tuple[int, int] | None
    data: list[tuple[int, int]]
    rows: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the data pages and the dictionary page."""
        return sum(
            length for _, length in [*([self.dictionary] if self.dictionary else []), *self.data]
        )


def pages_at(file: ia.ParquetFile, column: int, rows: ia.RowRanges) -> list[Pages]:
    """Returns the pages of a flat column that contain any of ``rows``, by row group."""
    pages = []
    first = 0
    for number, group in enumerate(file.metadata.row_groups):
        index = file.page_index(number, column).offset_index
        starts = index.first_row_index
        stops = np.append(starts[1:], group.num_rows)
        page_numbers = np.flatnonzero(rows.covers(starts + first, stops + first))
        first += group.num_rows
        if not len(page_numbers):
            continue
        start, data = group.columns[column].meta_data.start, int(index.offset[0])
        page_places = zip(
            index.offset[page_numbers].tolist(),
            index.compressed_page_size[page_numbers].tolist(),
            strict=True,
        )
        dictionary = (start, data - start) if data > start else None
        pages.append(
            Pages(number, dictionary, list(page_places), int((stops - starts)[page_numbers].sum()))
        )
    return pages


def largest_page(file: ia.ParquetFile, column: int) -> int:
    """Returns the size of a column's largest data page in bytes."""
    groups = range(len(file.metadata.row_groups))
    indexes = (file.page_index(group, column).offset_index for group in groups)
    return max(int(index.compressed_page_size.max()) for index in indexes)


def matching_rows(path: Path, query: Query) -> ia.RowRanges:
    """Returns the positions of the matching rows, by pyarrow."""
    file = pq.ParquetFile(path)
    row_numbers, first = [], 0
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, columns=list(query.filtered))
        numbers = pa.array(np.arange(first, first + len(table)))
        first += len(table)
        row_numbers.append(
            table.append_column("row", numbers).filter(query.arrow)["row"].to_numpy()
        )
    return ia.RowRanges.from_rows(np.concatenate(row_numbers))


# --- time ---------------------------------------------------------------------------------------


class Floor:
    """The pages that a query has to decode, spliced into files that pyarrow can read."""

    def __init__(self, path: Path, query: Query) -> None:
        file = ia.ParquetFile(path)
        matching = matching_rows(path, query)
        plan = ia.dataset(path).plan(list(query.columns), query.arrow)
        planned = ia.RowRanges.union(part.rows for part in plan.files)
        templates = SchemaTemplates(file.metadata, file.footer)
        self._spliced = []
        self.matching_bytes = 0
        """Bytes of all columns' pages with matching rows, dictionary pages included."""
        for name in query.columns:
            root = file.schema.root(name)
            (column,) = root.leaves
            pages_of_column = pages_at(
                file, column, planned if name in query.filtered else matching
            )
            template = templates.logical(root)
            for groups in _portions(
                [_read(path, file, column, pages) for pages in pages_of_column]
            ):
                self._spliced.append(splice(template, groups))
            self.matching_bytes += sum(p.num_bytes for p in pages_at(file, column, matching))
        self.most_bytes = None
        """Maximum bytes that a warm query of an index may read; None without an index."""
        if query.key is not None:
            (key,) = file.schema.root(query.key).leaves
            most = 1.2 * self.matching_bytes + largest_page(file, key) + _KEY_SLACK
            self.most_bytes = int(most)

    def decode(self) -> None:
        """Decodes the pages with pyarrow, in one thread, and drops the result."""
        for buffer in self._spliced:
            file = pq.ParquetFile(pa.BufferReader(buffer), pre_buffer=False)
            file.read(use_threads=False)


def _portions(groups: Iterable[RowGroupBytes]) -> Iterator[list[RowGroupBytes]]:
    """Yields lists of row groups to decode at once, each list with the rows of a full one."""
    portion: list[RowGroupBytes] = []
    for group in groups:
        if sum(part.num_rows for part in [*portion, group]) > ROW_GROUP_ROWS and portion:
            yield portion
            portion = []
        portion.append(group)
    if portion:
        yield portion


def _read(path: Path, file: ia.ParquetFile, column: int, pages: Pages) -> RowGroupBytes:
    with path.open("rb") as handle:

        def read(place: tuple[int, int]) -> memoryview:
            handle.seek(place[0])
            return memoryview(handle.read(place[1]))

        dictionary = read(pages.dictionary) if pages.dictionary else None
        data = [read(place) for place in pages.data]
    metadata = file.metadata.row_groups[pages.row_group].columns[column].meta_data
    return RowGroupBytes(pages.rows, [ChunkBytes(metadata, dictionary, data, pages.rows)])


# --- what a query reads, and where its time goes ------------------------------------------------


@contextmanager
def count_bytes() -> Iterator[Callable[[], int]]:
    """Counts bytes read: in the block, the function returns those that Intarsia has read."""
    before: dict[FileSource, int] = {}
    read = FileSource.read

    def counting_read(self: FileSource, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        before.setdefault(self, self.count.bytes)
        return read(self, ranges)

    with patch.object(FileSource, "read", counting_read):
        yield lambda: sum(source.count.bytes - old for source, old in before.items())


_DECODING, _READING = ("splice.py", "_decoded"), ("file_handle.py", "read_at")
"""The functions (file and name) that call pyarrow's reader, and that read storage."""
_PREAD = f"<built-in method {os.pread.__module__}.pread>"
"""The name under which a profile lists the system's call that reads."""


@dataclass(frozen=True)
class Shares:
    """Fractions of a query's wall time. ``ours`` is the time outside storage and pyarrow."""

    pyarrow: float
    storage: float
    ours: float


def shares(action: Callable[[], Any]) -> Shares:
    """Returns how a query's wall time is divided, by a profile.

    A profiler slows Python down, but not the long calls inside pyarrow and the system. The profile
    gives the times of these calls. The rest of the time without a profiler is ours. Each of the
    three is the shortest of several runs, which leaves out the load of other processes.
    """
    action()
    start = time.perf_counter()
    action()
    once = time.perf_counter() - start
    min_runs, max_runs = _PROFILED_RUNS
    runs = max(min_runs, min(max_runs, int(_PROFILED_SECONDS / once)))
    plain, pyarrow, storage = [], [], []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        plain.append(time.perf_counter() - start)
        profile = cProfile.Profile()
        profile.runcall(action)
        totals = _own_seconds(profile)
        pyarrow.append(totals["pyarrow"])
        storage.append(totals["storage"])
    rest = max(min(plain) - min(pyarrow) - min(storage), 0)
    whole = rest + min(pyarrow) + min(storage)
    return Shares(min(pyarrow) / whole, min(storage) / whole, rest / whole)


def _own_seconds(profile: cProfile.Profile) -> dict[str, float]:
    """Returns the seconds in pyarrow's functions and in reading, without the functions they call.

    Compiled calls of pyarrow count for the Python function that calls them, mostly pyarrow's own.
    Waiting for a thread counts as waiting for pyarrow.
    """
    totals = {"pyarrow": 0.0, "storage": 0.0}
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (file, _, name), (_, _, seconds, _, _) in stats.items():
        place = Path(file).name, name
        if "pyarrow" in Path(file).parts or "'acquire' of '_thread" in name or place == _DECODING:
            totals["pyarrow"] += seconds
        elif place == _READING or name == _PREAD:
            totals["storage"] += seconds
    return totals
