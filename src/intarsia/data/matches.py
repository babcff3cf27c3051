"""Reading the rows that are known to match of many small files, the files decoded together.

That happens when the rows of the first of them are asked for, so that nothing is read of files
whose rows nobody takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from intarsia.data.together import as_in_data_set, decoded_together
from intarsia.errors import IntarsiaError
from intarsia.format.schema import Root
from intarsia.parallel import may_divide
from intarsia.predicate.views import taken
from intarsia.ranges import RowRanges
from intarsia.read.columns import roots_of
from intarsia.read.opened import OpenedFile
from intarsia.read.planner import Constants
from intarsia.read.request import PSEUDO_COLUMNS, Request
from intarsia.read.units import decoded_bytes

_FILES, _BYTES = 64, 4 * 1024 * 1024
"""Decoded at once: files, and bytes of their columns. A larger file is read by itself."""
_LEAST = 2

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
    found: dict[int, Read] = {}
    if not roots:
        return found
    matching = {at: _File(files[at], constants[at], own) for at, own in rows.items() if own}
    for group in _groups(matching, roots):
        if len(group) >= _LEAST:
            together = _Together([matching[at] for at in group], roots, request)
            found.update((at, partial(together.table, i)) for i, at in enumerate(group))
    return found


def _roots(file: OpenedFile, constants: Constants, request: Request) -> list[Root]:
    """The requested columns in files of this shape; none where they cannot be decoded together."""
    if request.pruned or set(request.columns) & set(PSEUDO_COLUMNS.names):
        return []
    names = [name for name in dict.fromkeys(request.columns) if name not in constants]
    roots = roots_of(file, names)
    # Those of several files would become one, which each file's rows then refer to.
    return [] if any(_has_dictionary(file.arrow_type(root)) for root in roots) else roots


def _has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    held = (kind.field(number).type for number in range(kind.num_fields))
    return pa.types.is_dictionary(kind) or any(map(_has_dictionary, held))


def _groups(files: Mapping[int, _File], roots: Sequence[Root]) -> Iterator[list[int]]:
    """The positions of files that are small, in portions to be decoded at once."""
    group: list[int] = []
    size = 0
    for at, (file, _, _) in files.items():
        own = sum(
            decoded_bytes(file, number, leaf)
            for number in range(len(file.metadata.row_groups))
            for root in roots
            for leaf in root.leaves
        )
        if own > _BYTES:
            continue
        if group and (size + own > _BYTES or len(group) == _FILES):
            yield group
            group, size = [], 0
        group.append(at)
        size += own
    yield group


class _Together:
    """Files that are decoded at once, when the rows of one of them are asked for."""

    def __init__(self, files: Sequence[_File], roots: Sequence[Root], request: Request) -> None:
        self._files, self._roots, self._request = files, roots, request
        self._lock = threading.Lock()
        self._tables: list[pa.Table | None] | None = None

    def table(self, at: int) -> pa.Table | None:
        """The matching rows of one file, once."""
        with self._lock:
            if self._tables is None:
                self._tables = self._read()
                self._files = ()
            found, self._tables[at] = self._tables[at], None
        return found

    def _read(self) -> list[pa.Table | None]:
        files = self._files
        try:
            decoded = decoded_together(
                [one.file for one in files], self._roots, use_threads=may_divide()
            )
            if decoded is None:
                return [None] * len(files)
            starts = np.cumsum([0, *(one.file.num_rows for one in files)])
            rows = [one.rows.rows() + start for one, start in zip(files, starts, strict=False)]
            counts = [len(own) for own in rows]
            found = taken(decoded, pa.array(np.concatenate(rows)))
            output, constants = self._request.output, [one.constants for one in files]
            columns = as_in_data_set(found, output, constants, counts)
            table = pa.Table.from_arrays([columns[field.name] for field in output], schema=output)
        except (IntarsiaError, OSError, pa.ArrowException):
            return [None] * len(files)  # which file it is, and what is wrong, reading it will say
        stops = np.cumsum(counts).tolist()
        return [table.slice(stop - n, n) for n, stop in zip(counts, stops, strict=True)]
