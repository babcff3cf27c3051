"""Rows by their numbers, counted from 0 at the first row of a data set's first file."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from intarsia.file.open_file import OpenedFile, as_current_version
from intarsia.plan.file_group import file_groups
from intarsia.plan.plan import ROW_GROUPS, ScanPlan
from intarsia.row_ranges import Int64Array, RowRanges
from intarsia.scan.files.file_cache import FileCache
from intarsia.scan.files.file_pruning import File, run_file_tasks
from intarsia.scan.files.small_file_reader import Read, readers
from intarsia.scan.request import Request
from intarsia.scan.scan import Part

_SMALL_BYTES, _SMALL_ROWS = 128 * 1024, 8192
"""Files up to this many bytes and rows are decoded in batches: one by one takes longer."""
_BATCH_FILES = 128
"""Files that are opened at a time, to decode the small ones together."""


def row_numbers(indices: Any) -> Int64Array:
    """Returns the row numbers that a caller gives to ``take``, of shape ``(n,)``.

    Raises ``ValueError`` for NULL and for values that are no integers, ``IndexError`` below 0.
    """
    is_array = isinstance(indices, pa.Array | pa.ChunkedArray)
    array = indices if is_array else pa.array(indices)
    if array.null_count:
        raise ValueError("rows are taken by their numbers, and one of these is NULL")
    numbers: Int64Array = array.cast(pa.int64()).to_numpy()
    if len(numbers) and numbers.min() < 0:
        raise IndexError(f"row {numbers.min()}: rows are counted from 0")
    return numbers


def check_within(numbers: Int64Array, num_rows: int) -> None:
    """Raises ``IndexError`` if one of ``numbers`` is not less than ``num_rows``."""
    last = int(numbers.max(initial=-1))
    if last >= num_rows:
        raise IndexError(f"row {last:,} of {num_rows:,}")


def parts_at(
    cache: FileCache, files: Sequence[File], rows: RowRanges
) -> Iterator[tuple[int, Part]]:
    """Returns the parts of a scan of ``rows``, each with the number of its file's first row.

    Raises ``IndexError`` if the files have fewer rows.
    """
    return ((one.start, one.part()) for one in _rows_by_file(cache, files, rows))


def parts_together(
    cache: FileCache, files: Sequence[File], rows: RowRanges, request: Request
) -> Iterator[Part]:
    """Yields parts as ``parts_at`` does. Small files are decoded in batches."""
    files_with_rows = _rows_by_file(cache, files, rows)
    while portion := list(itertools.islice(files_with_rows, _BATCH_FILES)):
        small = [one for one in portion if one.is_small]
        reads: dict[int, Read] = {}
        constants = [one.file.constants for one in small]
        for members, group in file_groups([one.opened for one in small], constants, request.schema):
            rows_by_file = {i: small[at].rows for i, at in enumerate(members)}
            for i, read in readers(group, rows_by_file, request).items():
                reads[small[members[i]].start] = read
        for one in portion:
            yield one.part(reads.get(one.start))


class _FileRows(NamedTuple):
    """A file with some of the rows, and these rows. ``start`` is the number of its first row."""

    start: int
    file: File
    opened: OpenedFile
    rows: RowRanges

    @property
    def is_small(self) -> bool:
        file = self.opened
        is_short = file.source.size <= _SMALL_BYTES and file.num_rows <= _SMALL_ROWS
        return is_short and not file.request_bytes

    def part(self, read: Read | None = None) -> Part:
        plan = None if read is None else ScanPlan(self.rows, reader=ROW_GROUPS)
        get = partial(as_current_version, self.opened)
        return Part(get, self.file.constants, self.rows, plan, read)


def _rows_by_file(cache: FileCache, files: Sequence[File], rows: RowRanges) -> Iterator[_FileRows]:
    if not rows:
        return
    start = 0
    opened = run_file_tasks(cache, (partial(cache.get, file.path) for file in files))
    with contextlib.closing(opened):
        for file, file_opened in zip(files, opened, strict=True):
            stop = start + file_opened.rows.num_rows
            if within := rows.clip(start, stop):
                yield _FileRows(start, file, file_opened, _in_file(file_opened, within, start))
            start = stop
            if start >= rows.stops[-1]:
                return
    check_within(rows.stops - 1, start)


def _in_file(file: OpenedFile, rows: RowRanges, start: int) -> RowRanges:
    """Returns the rows of a file that have these numbers, which are counted without deleted rows.

    The file's first row has the number ``start``.
    """
    own = rows.shift(-start)
    return file.rows.at(own.rows()) if file.view.deleted_rows else own
