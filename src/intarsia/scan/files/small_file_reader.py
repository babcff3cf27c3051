"""Reading the rows that are known to match of many small files, the files decoded together.

That begins when the rows of the first of them are asked for, and goes on as they are taken, a few
portions ahead: of files whose rows nobody takes, no more than these are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from intarsia.errors import IntarsiaError
from intarsia.expr.filterable_types import taken
from intarsia.expr.nested_types import has_dictionary
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.schema import Root
from intarsia.process_state import ForkLock
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.files.batch_decode import (
    PORTION_BYTES,
    as_in_data_set,
    decoded_size,
    may_be_together,
    of_portions,
)
from intarsia.scan.request import PSEUDO_COLUMNS, Request
from intarsia.scan.schema_adapter import roots_of

Read = Callable[[], pa.Table | None]
"""Gives the requested columns of the rows of one file, once; None where that fails."""


class _File(NamedTuple):
    file: OpenedFile
    constants: Constants
    rows: RowRanges


def readers(
    files: Sequence[OpenedFile],
    constants: Sequence[Constants],
    rows: Mapping[int, RowRanges],
    request: Request,
) -> dict[int, Read]:
    """What reads ``rows`` of ``files``, all of one shape and not damaged, by position.

    ``constants`` are the columns that each file's folder fixes. There is none for a file that is
    better read by itself.
    """
    roots = _roots(files[0], constants[0], request)
    chosen = [at for at, own in rows.items() if own and roots and _is_little(files[at], roots)]
    if len(chosen) < 2:
        return {}
    together = _Together(
        [_File(files[at], constants[at], rows[at]) for at in chosen], roots, request
    )
    return {at: partial(together.table, i) for i, at in enumerate(chosen)}


def _roots(file: OpenedFile, constants: Constants, request: Request) -> list[Root]:
    """The requested columns in files of this shape; none where they cannot be decoded together."""
    is_odd = request.pruned or set(request.columns) & set(PSEUDO_COLUMNS.names)
    if is_odd or not may_be_together(file):
        return []
    names = [name for name in dict.fromkeys(request.columns) if name not in constants]
    roots = roots_of(file, names, request.schema)
    # Those of several files would become one, which each file's rows then refer to.
    return [] if any(has_dictionary(file.arrow_type(root)) for root in roots) else roots


def _is_little(file: OpenedFile, roots: Sequence[Root]) -> bool:
    try:
        return decoded_size(file, roots) <= PORTION_BYTES
    except IntarsiaError:
        return False  # reading it will say what is wrong


class _Together:
    """Files that are decoded a portion at a time, when the rows of one of them are asked for."""

    def __init__(self, files: Sequence[_File], roots: Sequence[Root], request: Request) -> None:
        self._files, self._request = files, request
        self._lock = ForkLock()
        self._portions = of_portions([one.file for one in files], roots, self._read)
        self._tables: dict[int, pa.Table] = {}

    def table(self, at: int) -> pa.Table | None:
        """The matching rows of one file, once."""
        with self._lock:
            while at not in self._tables:
                try:
                    self._tables.update(next(self._portions))
                except (StopIteration, IntarsiaError, OSError, pa.ArrowException):
                    return None  # which file it is, and what is wrong, reading it will say
            return self._tables.pop(at)

    def _read(self, places: range, decoded: pa.Table) -> dict[int, pa.Table]:
        """The matching rows of the files at ``places``, of all their rows."""
        output, members = self._request.output, [self._files[i] for i in places]
        starts = np.cumsum([0, *(one.file.num_rows for one in members)])
        rows = [one.rows.rows() + start for one, start in zip(members, starts, strict=False)]
        counts = [len(own) for own in rows]
        found = taken(decoded, pa.array(np.concatenate(rows)))
        columns = as_in_data_set(found, output, [one.constants for one in members], counts)
        table = pa.Table.from_arrays([columns[field.name] for field in output], schema=output)
        stops = np.cumsum(counts).tolist()
        return {
            i: table.slice(stop - n, n) for i, n, stop in zip(places, counts, stops, strict=True)
        }
