"""Finds the matching rows of many small files by decoding the filter's columns together.

This takes less time than probing an index of each file. Files without matching rows are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from intarsia.expr.evaluate import evaluate, unused
from intarsia.file.open_file import READ_ERRORS, OpenedFile
from intarsia.parquet.schema import Root
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.files.batch_decode import (
    PORTION_BYTES,
    as_in_data_set,
    decoded_size,
    may_be_together,
    of_portions,
)
from intarsia.scan.request import PSEUDO_COLUMNS, Filter

LEAST_FILES = 4
_MAX_FILE_BYTES, _MAX_FILE_ROWS = 64 * 1024, 64 * 1024
"""Maximum stored bytes of the filter's columns and maximum rows of a file. Larger ones are planned.
"""
_ROW_COLUMN = "__intarsia_row"


def matching_rows(
    files: Sequence[OpenedFile],
    constants: Sequence[Constants],
    schema: pa.Schema,
    filter_: Filter,
) -> dict[int, RowRanges]:
    """Returns the matching rows of those ``files`` that are small, by position in ``files``.

    The files are of one schema group. ``constants`` are each file's partition values, ``schema`` is
    the data set's. The result is empty if the filter's columns cannot be decoded together.
    """
    roots = _roots(files[0], constants[0], filter_)
    small = small_files_of(files, constants, filter_)
    if roots is None or not small:
        return {}
    small_files, folders = [files[i] for i in small], [constants[i] for i in small]
    fields = [schema.field(name) for name in filter_.columns or ()]

    def matching_in(positions: range, table: pa.Table) -> dict[int, RowRanges]:
        counts = [small_files[i].num_rows for i in positions]
        columns = as_in_data_set(table, fields, [folders[i] for i in positions], counts)
        row = unused(_ROW_COLUMN, columns)
        columns[row] = pa.chunked_array([np.arange(sum(counts))])
        passed = evaluate(filter_.condition.expression, pa.table(columns))
        matching = passed.column(row).to_numpy()
        starts = np.cumsum([0, *counts])
        edges = np.searchsorted(matching, starts)
        return {
            small[i]: RowRanges.from_rows(matching[first:last] - start)
            for i, start, first, last in zip(positions, starts, edges, edges[1:], strict=False)
        }

    rows_by_file: dict[int, RowRanges] = {}
    try:
        for portion in of_portions(small_files, roots, matching_in):
            rows_by_file |= portion
    except READ_ERRORS:
        pass  # reading the files one by one reports the error
    return rows_by_file


def small_files_of(
    files: Sequence[OpenedFile], constants: Sequence[Constants], filter_: Filter
) -> list[int]:
    """Returns the positions of the files that ``matching_rows`` decodes."""
    roots = _roots(files[0], constants[0], filter_)
    if roots is None:
        return []
    small = [i for i, file in enumerate(files) if _is_small(file, roots)]
    return small if len(small) >= LEAST_FILES else []


def _roots(file: OpenedFile, constants: Constants, filter_: Filter) -> list[Root] | None:
    """Returns the filter's columns; None if they cannot be decoded together."""
    if not filter_.columns or not may_be_together(file):
        return None
    names = [name for name in filter_.columns if name not in constants]
    roots = [root for root in map(file.schema.root, names) if root is not None]
    are_flat = all(len(r.leaves) == 1 and file.schema.leaves[r.leaves[0]].is_flat for r in roots)
    is_whole = len(roots) == len(names) and not set(names) & set(PSEUDO_COLUMNS.names)
    return roots if roots and are_flat and is_whole else None


def _is_small(file: OpenedFile, roots: Sequence[Root]) -> bool:
    if file.num_rows > _MAX_FILE_ROWS:
        return False
    size = 0
    for group in range(len(file.metadata.row_groups)):
        for root in roots:
            chunk = file.chunk(group, root.leaves[0])
            size += chunk.total_compressed_size
            if chunk.bloom_filter_offset is not None:
                return False
    return size <= _MAX_FILE_BYTES and decoded_size(file, roots) <= PORTION_BYTES
