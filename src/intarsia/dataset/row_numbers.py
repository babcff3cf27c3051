"""Rows by their numbers, counted from the first row of a data set's first file."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from intarsia.file.open_file import OpenedFile, lease_of
from intarsia.row_ranges import Int64Array, RowRanges
from intarsia.scan.files.file_cache import FileCache
from intarsia.scan.files.file_pruning import File, alike, each_of
from intarsia.scan.files.small_file_reader import Read, readers
from intarsia.scan.request import Request
from intarsia.scan.scan import Matching, Part

_SMALL_BYTES, _SMALL_ROWS = 128 * 1024, 8192
"""A file of so many is decoded sooner with others than its pages are by themselves."""
_TOGETHER = 128


def row_numbers(indices: Any) -> Int64Array:
    """Indices of rows, as ``take`` is given them; shape ``(n,)``.

    Raises ``ValueError`` for NULL and for what is no whole number, ``IndexError`` for one below 0.
    """
    is_array = isinstance(indices, pa.Array | pa.ChunkedArray)
    given = indices if is_array else pa.array(indices)
    if given.null_count:
        raise ValueError("rows are taken by their numbers, and one of these is NULL")
    found: Int64Array = given.cast(pa.int64()).to_numpy()
    if len(found) and found.min() < 0:
        raise IndexError(f"row {found.min()}: rows are counted from 0")
    return found


def check_within(numbers: Int64Array, num_rows: int) -> None:
    """Raise ``IndexError`` where one of ``numbers`` is beyond so many rows."""
    last = int(numbers.max(initial=-1))
    if last >= num_rows:
        raise IndexError(f"row {last:,} of {num_rows:,}")


def parts_at(
    cache: FileCache, files: Sequence[File], rows: RowRanges
) -> Iterator[tuple[int, Part]]:
    """The parts of a scan that are ``rows``, each with the number of its file's first row.

    Raises ``IndexError`` where the files have fewer rows.
    """
    return ((one.start, one.part()) for one in _held(cache, files, rows))


def parts_together(
    cache: FileCache, files: Sequence[File], rows: RowRanges, request: Request
) -> Iterator[Part]:
    """As ``parts_at``; small files are decoded together."""
    held = _held(cache, files, rows)
    while portion := list(itertools.islice(held, _TOGETHER)):
        small = ((at, one) for at, one in enumerate(portion) if one.is_small)
        reads: dict[int, Read] = {}
        for members in alike((at, one.opened, one.file) for at, one in small):
            chosen = [portion[at] for at in members]
            wanted = {i: one.rows for i, one in enumerate(chosen)}
            constants = [one.file.constants for one in chosen]
            found = readers([one.opened for one in chosen], constants, wanted, request)
            reads |= {members[i]: read for i, read in found.items()}
        for at, one in enumerate(portion):
            yield one.part(reads.get(at))


class _Held(NamedTuple):
    """A file that holds some of the rows, and which; ``start`` is the number of its first row."""

    start: int
    file: File
    opened: OpenedFile
    rows: RowRanges

    @property
    def is_small(self) -> bool:
        file = self.opened
        is_little = file.source.size <= _SMALL_BYTES and file.num_rows <= _SMALL_ROWS
        return is_little and not file.request_bytes

    def part(self, read: Read | None = None) -> Part:
        matching = None if read is None else Matching(self.rows, read)
        get = partial(lease_of, self.opened)
        return Part(get, self.file.constants, self.rows, matching=matching)


def _held(cache: FileCache, files: Sequence[File], rows: RowRanges) -> Iterator[_Held]:
    if not rows:
        return
    start = 0
    opened = each_of(cache, (partial(cache.get, file.path) for file in files))
    with contextlib.closing(opened):
        for file, found in zip(files, opened, strict=True):
            stop = start + found.num_rows
            if within := rows.clip(start, stop):
                yield _Held(start, file, found, within.shift(-start))
            start = stop
            if start >= rows.stops[-1]:
                return
    check_within(rows.stops - 1, start)
