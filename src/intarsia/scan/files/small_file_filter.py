"""Finding out which rows of many small files match, by decoding the filter's columns together.

That takes less than to ask an index of each. Files without such a row are left out; of the others,
just these rows are read.
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
_MOST_BYTES, _MOST_ROWS = 64 * 1024, 64 * 1024
"""Of one file: bytes of the columns that are decoded, and rows. A larger one is worth planning."""
_ROW = "__intarsia_row"


def matching_rows(
    files: Sequence[OpenedFile],
    constants: Sequence[Constants],
    schema: pa.Schema,
    wanted: Filter,
) -> dict[int, RowRanges]:
    """The rows that match of those of ``files``, all of one shape, that are small; by position.

    ``constants`` are the columns that each file's folder fixes, ``schema`` is the data set's.
    Nothing is found of any where the filter's columns are not such as can be decoded together.
    """
    roots = _roots(files[0], constants[0], wanted)
    if roots is None:
        return {}
    small = [i for i, file in enumerate(files) if _is_small(file, roots)]
    if len(small) < LEAST_FILES:
        return {}
    chosen, folders = [files[i] for i in small], [constants[i] for i in small]
    fields = [schema.field(name) for name in wanted.columns or ()]

    def sifted(places: range, table: pa.Table) -> dict[int, RowRanges]:
        counts = [chosen[i].num_rows for i in places]
        columns = as_in_data_set(table, fields, [folders[i] for i in places], counts)
        row = unused(_ROW, columns)
        columns[row] = pa.chunked_array([np.arange(sum(counts))])
        passed = evaluate(wanted.condition.expression, pa.table(columns))
        matching = passed.column(row).to_numpy()
        starts = np.cumsum([0, *counts])
        edges = np.searchsorted(matching, starts)
        return {
            small[i]: RowRanges.from_rows(matching[first:last] - start)
            for i, start, first, last in zip(places, starts, edges, edges[1:], strict=False)
        }

    found: dict[int, RowRanges] = {}
    try:
        for part in of_portions(chosen, roots, sifted):
            found |= part
    except READ_ERRORS:
        pass  # which file it is, and what is wrong, reading it will say
    return found


def _roots(file: OpenedFile, constants: Constants, wanted: Filter) -> list[Root] | None:
    """The filter's columns in files of this shape; None where they cannot be decoded together."""
    if not wanted.columns or not may_be_together(file):
        return None
    names = [name for name in wanted.columns if name not in constants]
    roots = [root for root in map(file.schema.root, names) if root is not None]
    are_flat = all(len(r.leaves) == 1 and file.schema.leaves[r.leaves[0]].is_flat for r in roots)
    is_whole = len(roots) == len(names) and not set(names) & set(PSEUDO_COLUMNS.names)
    return roots if roots and are_flat and is_whole else None


def _is_small(file: OpenedFile, roots: Sequence[Root]) -> bool:
    if file.num_rows > _MOST_ROWS:
        return False
    size = 0
    for group in range(len(file.metadata.row_groups)):
        for root in roots:
            chunk = file.chunk(group, root.leaves[0])
            size += chunk.total_compressed_size
            if chunk.bloom_filter_offset is not None:
                return False
    return size <= _MOST_BYTES and decoded_size(file, roots) <= PORTION_BYTES
