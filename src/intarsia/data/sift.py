"""Finding out which rows of many small files match, by decoding them together.

::

    file 0   … [id] …     ┐
    file 1   … [id] …     ├─▶  PAR1 [id][id][id] … footer'  ─▶  one table  ─▶  files 1 and 7
    file 2   … [id] …     ┘    a row group each

To plan, decode and filter a file by itself takes a millisecond or two, however small it is, and to
ask an index of its own some more. Files of one shape are spliced as row groups of one file are.
Files without such a row are left out; the rest are read as any other, just these rows of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from intarsia.decode.splice import ChunkBytes, RowGroupBytes, decode_roots
from intarsia.errors import IntarsiaError
from intarsia.format.schema import Root
from intarsia.plan.pages import whole_chunk
from intarsia.predicate.evaluation import evaluate
from intarsia.ranges import RowRanges
from intarsia.read.opened import OpenedFile
from intarsia.read.planner import Constants
from intarsia.read.request import PSEUDO_COLUMNS, Filter

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
    chosen = [files[i] for i in small]
    try:
        table = _decoded(chosen, roots)
        if table is None:
            return {}
        found = _with_constants(table, chosen, [constants[i] for i in small], schema, wanted)
        matching = evaluate(wanted.condition.expression, found).column(_ROW).to_numpy()
    except (IntarsiaError, OSError, pa.ArrowException):
        return {}  # which file it is, and what is wrong, reading it will say
    starts = np.cumsum([0, *(file.num_rows for file in chosen)])
    edges = np.searchsorted(matching, starts)
    return {
        i: RowRanges.from_rows(matching[first:last] - start)
        for i, start, first, last in zip(small, starts, edges, edges[1:], strict=False)
    }


def _roots(file: OpenedFile, constants: Constants, wanted: Filter) -> list[Root] | None:
    """The filter's columns in files of this shape; None where they cannot be decoded together."""
    options = file.options
    if options.read_dictionary or options.on_corrupt or options.page_size_limit is not None:
        return None
    if not wanted.columns:
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
    return size <= _MOST_BYTES


def _decoded(files: Sequence[OpenedFile], roots: Sequence[Root]) -> pa.Table | None:
    template = files[0].templates.together(roots)
    if template is None:
        return None
    groups = [group for file in files for group in _row_groups(file, roots)]
    verified = files[0].options.page_checksum_verification
    table = decode_roots(template, groups, verified)
    return table.rename_columns([root.name for root in roots])


def _row_groups(file: OpenedFile, roots: Sequence[Root]) -> list[RowGroupBytes]:
    """All row groups of a file, its columns read at once."""
    leaves = [root.leaves[0] for root in roots]
    counts = [group.num_rows for group in file.metadata.row_groups]
    chunks = [[file.chunk(group, leaf) for leaf in leaves] for group in range(len(counts))]
    selected = [
        [whole_chunk(chunk, count) for chunk in row]
        for row, count in zip(chunks, counts, strict=True)
    ]
    parts = iter(file.source.read([r for row in selected for one in row for r in one.byte_ranges]))
    found = []
    for row, count, selections in zip(chunks, counts, selected, strict=True):
        held = []
        for chunk, selection in zip(row, selections, strict=True):
            dictionary = next(parts) if selection.dictionary else None
            held.append(ChunkBytes(chunk, dictionary, [next(parts)], chunk.num_values))
        found.append(RowGroupBytes(count, held))
    return found


def _with_constants(
    table: pa.Table,
    files: Sequence[OpenedFile],
    constants: Sequence[Constants],
    schema: pa.Schema,
    wanted: Filter,
) -> pa.Table:
    """``table`` in the data set's types, with the columns of folders and the number of each row.

    Columns are cast as those that are read.
    """
    counts = [file.num_rows for file in files]
    columns = {}
    for name in wanted.columns or ():
        kind = schema.field(name).type
        if name in constants[0]:
            values = zip(constants, counts, strict=True)
            columns[name] = pa.chunked_array([pa.repeat(own[name], n) for own, n in values], kind)
        else:
            columns[name] = table.column(name).cast(kind)
    columns[_ROW] = pa.array(np.arange(sum(counts)))
    return pa.table(columns)
