"""Rows by their numbers, counted from the first row of a data set's first file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from intarsia.data.cache import FileCache
from intarsia.data.survey import File, each_of
from intarsia.ranges import Int64Array, RowRanges
from intarsia.read.opened import lease_of
from intarsia.read.scan import Part


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
    if not rows:
        return
    start = 0
    opened = each_of(cache, (partial(cache.get, file.path) for file in files))
    with contextlib.closing(opened):
        for file, found in zip(files, opened, strict=True):
            stop = start + found.num_rows
            if within := rows.clip(start, stop):
                yield start, Part(partial(lease_of, found), file.constants, within.shift(-start))
            start = stop
            if start >= rows.stops[-1]:
                return
    check_within(rows.stops - 1, start)
