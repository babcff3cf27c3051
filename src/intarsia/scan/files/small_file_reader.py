"""Reads known matching rows of many small files, which are decoded together.

Reading starts with the first file that the caller reads, and stays a few portions ahead. Other
files are not read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from intarsia.errors import IntarsiaError
from intarsia.expr.filterable_types import taken
from intarsia.expr.nested_types import has_dictionary
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.schema import Root
from intarsia.plan.cost_model import COSTS
from intarsia.plan.file_group import FileGroup
from intarsia.process_state import ForkLock
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.files.batch_decode import (
    SmallFile,
    as_in_data_set,
    may_be_together,
    of_portions,
)
from intarsia.scan.request import PSEUDO_COLUMNS, Request
from intarsia.scan.schema_adapter import roots_of

Read = Callable[[], pa.Table | None]
"""Returns the requested columns of one file's rows. Single use. Returns None on failure."""


class _File(NamedTuple):
    file: OpenedFile
    constants: Constants
    rows: RowRanges


def readers(group: FileGroup, rows: Mapping[int, RowRanges], request: Request) -> dict[int, Read]:
    """Returns functions that read ``rows`` of the files of ``group``, by number.

    The files are not damaged. Files that are faster read alone have no function.
    """
    files = group.files
    roots = _roots(group.file, group.constants[0], request)
    leaves = [leaf for root in roots for leaf in root.leaves]
    small: dict[int, SmallFile] = {}
    for number, matching in rows.items() if roots else ():
        if matching.starts.size:
            with contextlib.suppress(IntarsiaError):  # reading the file reports the error
                size = files[number].decoded_bytes(leaves)
                if size <= COSTS.portion_bytes:
                    chunks = [files[number].chunks(leaf) for leaf in leaves]
                    small[number] = SmallFile(files[number], chunks, size)
    if len(small) < 2:
        return {}
    members = [_File(files[number], group.constants[number], rows[number]) for number in small]
    batch = _BatchReader(members, request)
    batch.portions = of_portions([*small.values()], roots, group.size_factors, batch.read)
    return {number: partial(batch.table, i) for i, number in enumerate(small)}


def _roots(file: OpenedFile, constants: Constants, request: Request) -> list[Root]:
    """Returns the requested columns; none if files cannot be decoded together."""
    is_odd = request.pruned or set(request.columns) & set(PSEUDO_COLUMNS.names)
    if is_odd or not may_be_together(file):
        return []
    names = [name for name in dict.fromkeys(request.columns) if name not in constants]
    roots = roots_of(file, names, request.schema)
    # Dictionaries of several files would be merged into one that rows of each file refer to.
    return [] if any(has_dictionary(file.arrow_type(root)) for root in roots) else roots


class _BatchReader:
    """Reader of files in portions. A portion is decoded when the caller reads one of its files."""

    def __init__(self, files: Sequence[_File], request: Request) -> None:
        self._files, self._request = files, request
        self._lock = ForkLock()
        self.portions: Iterator[dict[int, pa.Table]] = iter(())
        """The results of ``read`` for portions of the files."""
        self._tables: dict[int, pa.Table] = {}

    def table(self, position: int) -> pa.Table | None:
        """Returns the matching rows of one file. Single use for each file."""
        with self._lock:
            while position not in self._tables:
                try:
                    self._tables.update(next(self.portions))
                except (StopIteration, IntarsiaError, OSError, pa.ArrowException):
                    return None  # reading the file by itself reports the error
            return self._tables.pop(position)

    def read(self, positions: range, decoded: pa.Table) -> dict[int, pa.Table]:
        """Takes the matching rows of the files at ``positions`` from all of their rows."""
        output, members = self._request.output, [self._files[i] for i in positions]
        starts = np.cumsum([0, *(member.file.num_rows for member in members)])
        rows = [member.rows.rows() + start for member, start in zip(members, starts, strict=False)]
        counts = [len(matching) for matching in rows]
        rows_taken = taken(decoded, pa.array(np.concatenate(rows)))
        columns = as_in_data_set(
            rows_taken, output, [member.constants for member in members], counts
        )
        table = pa.Table.from_arrays([columns[field.name] for field in output], schema=output)
        stops = np.cumsum(counts).tolist()
        return {
            i: table.slice(stop - n, n) for i, n, stop in zip(positions, counts, stops, strict=True)
        }
