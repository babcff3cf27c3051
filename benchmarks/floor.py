"""What a page-precise read cannot go below: the pages that must be decoded, their time and bytes.

Those are the filter's columns wherever rows might match by the plan, and the other columns where
rows do match. Where pages are is read off the page index here, not asked of what is measured.
"""

from __future__ import annotations

import cProfile
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
from peers import Question

import intarsia as ia
from intarsia.decode.splice import ChunkBytes, RowGroupBytes, splice
from intarsia.decode.synthetic_footer import SchemaTemplates
from intarsia.io.storage import FileSource

_KEY_SLACK = 64 * 1024
_PROFILED_SECONDS = 0.5
_PROFILED_RUNS = (3, 50)
"""At least and at most."""


# --- pages --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pages:
    """Pages of one column chunk: ``(offset, length)`` of each, and how many rows they hold."""

    row_group: int
    dictionary: tuple[int, int] | None
    data: list[tuple[int, int]]
    rows: int

    @property
    def num_bytes(self) -> int:
        """Dictionary included."""
        return sum(
            length for _, length in [*([self.dictionary] if self.dictionary else []), *self.data]
        )


def pages_at(file: ia.ParquetFile, column: int, rows: ia.RowRanges) -> list[Pages]:
    """The pages of a flat column that hold any of ``rows``, row group by row group."""
    found = []
    first = 0
    for number, group in enumerate(file.metadata.row_groups):
        index = file.page_index(number, column).offset_index
        starts = index.first_row_index
        stops = np.append(starts[1:], group.num_rows)
        at = np.flatnonzero(rows.covers(starts + first, stops + first))
        first += group.num_rows
        if not len(at):
            continue
        start, data = group.columns[column].meta_data.start, int(index.offset[0])
        places = zip(
            index.offset[at].tolist(), index.compressed_page_size[at].tolist(), strict=True
        )
        dictionary = (start, data - start) if data > start else None
        found.append(Pages(number, dictionary, list(places), int((stops - starts)[at].sum())))
    return found


def largest_page(file: ia.ParquetFile, column: int) -> int:
    """Bytes of a column's largest data page."""
    groups = range(len(file.metadata.row_groups))
    indexes = (file.page_index(group, column).offset_index for group in groups)
    return max(int(index.compressed_page_size.max()) for index in indexes)


def matching_rows(path: Path, asked: Question) -> ia.RowRanges:
    """Where the rows are that match, by pyarrow."""
    file = pq.ParquetFile(path)
    found, first = [], 0
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, columns=list(asked.filtered))
        numbers = pa.array(np.arange(first, first + len(table)))
        first += len(table)
        found.append(table.append_column("row", numbers).filter(asked.arrow)["row"].to_numpy())
    return ia.RowRanges.from_rows(np.concatenate(found))


# --- time ---------------------------------------------------------------------------------------


class Floor:
    """The pages that answer a question, ready to be decoded."""

    def __init__(self, path: Path, asked: Question) -> None:
        file = ia.ParquetFile(path)
        matching = matching_rows(path, asked)
        plan = ia.dataset(path).plan(list(asked.columns), asked.arrow)
        planned = ia.RowRanges.union(part.rows for part in plan.files)
        templates = SchemaTemplates(file.metadata, file.footer)
        self._spliced = []
        self.matching_bytes = 0
        """Of the pages that hold matching rows, in all columns, with their dictionaries."""
        for name in asked.columns:
            root = file.schema.root(name)
            (column,) = root.leaves
            wanted = pages_at(file, column, planned if name in asked.filtered else matching)
            template = templates.logical(root)
            for groups in _portions([_read(path, file, column, pages) for pages in wanted]):
                self._spliced.append(splice(template, groups))
            self.matching_bytes += sum(p.num_bytes for p in pages_at(file, column, matching))
        self.most_bytes = None
        """What a warm query of an index may read."""
        if asked.key is not None:
            (key,) = file.schema.root(asked.key).leaves
            most = 1.2 * self.matching_bytes + largest_page(file, key) + _KEY_SLACK
            self.most_bytes = int(most)

    def decode(self) -> None:
        """What pyarrow has to do, and nothing else; what is decoded is let go at once."""
        for buffer in self._spliced:
            file = pq.ParquetFile(pa.BufferReader(buffer), pre_buffer=False)
            file.read(use_threads=False)


def _portions(groups: Iterable[RowGroupBytes]) -> Iterator[list[RowGroupBytes]]:
    """Row groups to decode at once: as many as have the rows of one whole one."""
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
def counted() -> Iterator[Callable[[], int]]:
    """While it lasts: how many bytes Intarsia has asked of storage."""
    before: dict[FileSource, int] = {}
    read = FileSource.read

    def noted(self: FileSource, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        before.setdefault(self, self.count.bytes)
        return read(self, ranges)

    with patch.object(FileSource, "read", noted):
        yield lambda: sum(source.count.bytes - old for source, old in before.items())


_DECODING, _READING = ("splice.py", "_decoded"), ("handle.py", "read_at")
"""The functions that call pyarrow's reader, and storage."""


@dataclass(frozen=True)
class Shares:
    """Parts of a query's time, of 1. ``ours`` is what is neither storage nor pyarrow."""

    pyarrow: float
    storage: float
    ours: float


def shares(action: Callable[[], Any]) -> Shares:
    """Where the time goes, by profile.

    A profiler slows Python down, but not the long calls inside pyarrow and the system: those are
    taken from the profile, and what they leave of the time without a profiler is ours. All three
    are the least of several runs, so that what else the machine did is nobody's share.
    """
    action()
    start = time.perf_counter()
    action()
    once = time.perf_counter() - start
    least, most = _PROFILED_RUNS
    runs = max(least, min(most, int(_PROFILED_SECONDS / once)))
    plain, theirs, storage = [], [], []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        plain.append(time.perf_counter() - start)
        profile = cProfile.Profile()
        profile.runcall(action)
        found = _own_seconds(profile)
        theirs.append(found["pyarrow"])
        storage.append(found["storage"])
    rest = max(min(plain) - min(theirs) - min(storage), 0)
    whole = rest + min(theirs) + min(storage)
    return Shares(min(theirs) / whole, min(storage) / whole, rest / whole)


def _own_seconds(profile: cProfile.Profile) -> dict[str, float]:
    """Seconds spent in pyarrow's functions and in reading, what they call left out.

    Compiled calls of pyarrow count for the Python function that makes them, mostly its own.
    Waiting for a thread is taken for waiting for pyarrow.
    """
    found = {"pyarrow": 0.0, "storage": 0.0}
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (file, _, name), (_, _, seconds, _, _) in stats.items():
        place = Path(file).name, name
        if "pyarrow" in Path(file).parts or "'acquire' of '_thread" in name or place == _DECODING:
            found["pyarrow"] += seconds
        elif place == _READING:
            found["storage"] += seconds
    return found
