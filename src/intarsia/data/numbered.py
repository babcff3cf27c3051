"""Rows by their numbers, counted from the first row of a data set's first file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

from intarsia.data.cache import FileCache
from intarsia.data.survey import File, each_of
from intarsia.ranges import RowRanges
from intarsia.read.scan import Part


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
                get = partial(cache.lease, file.path)
                yield start, Part(get, file.constants, within.shift(-start))
            start = stop
            if start >= rows.stops[-1]:
                return
    raise IndexError(f"row {int(rows.stops[-1]) - 1:,} of {start:,}")
