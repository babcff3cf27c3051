"""Finds the matching rows of many small files by decoding the filter's columns together.

This takes less time than probing an index of each file. Files without matching rows are skipped.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from intarsia.expr.evaluate import evaluate, unused
from intarsia.file.open_file import READ_ERRORS, OpenedFile
from intarsia.parquet.schema import Root
from intarsia.plan.cost_model import COSTS
from intarsia.plan.file_group import FileGroup
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.files.batch_decode import (
    SmallFile,
    as_in_data_set,
    may_be_together,
    of_portions,
)
from intarsia.scan.request import PSEUDO_COLUMNS, Filter

_ROW_COLUMN = "__intarsia_row"


def matching_rows(
    group: FileGroup, numbers: Sequence[int], filter_: Filter
) -> dict[int, RowRanges]:
    """Returns the matching rows of those files of ``group`` that are small, by number.

    Only files given by ``numbers`` count. The result is empty if these are few, or if the filter's
    columns cannot be decoded together.
    """
    small, roots = small_files_of(group, numbers, filter_)
    if not small:
        return {}
    numbers, folders = list(small), [group.constants[i] for i in small]
    fields = [group.schema.field(name) for name in filter_.columns or ()]

    def matching_in(positions: range, table: pa.Table) -> dict[int, RowRanges]:
        counts = [group.files[numbers[i]].num_rows for i in positions]
        columns = as_in_data_set(table, fields, [folders[i] for i in positions], counts)
        row = unused(_ROW_COLUMN, columns)
        columns[row] = pa.chunked_array([np.arange(sum(counts))])
        passed = evaluate(filter_.condition.expression, pa.table(columns))
        rows = RowRanges.by_part(passed.column(row).to_numpy(), np.cumsum([0, *counts]))
        by_file = zip([numbers[i] for i in positions], rows, strict=True)
        return {number: _without_deleted(group.files[number], own) for number, own in by_file}

    rows_by_file: dict[int, RowRanges] = {}
    try:
        for portion in of_portions([*small.values()], roots, group.size_factors, matching_in):
            rows_by_file |= portion
    except READ_ERRORS:
        pass  # reading the files one by one reports the error
    return rows_by_file


def _without_deleted(file: OpenedFile, rows: RowRanges) -> RowRanges:
    deleted = file.view.deleted_rows
    return rows - deleted if deleted else rows


def small_files_of(
    group: FileGroup, numbers: Sequence[int], filter_: Filter
) -> tuple[dict[int, SmallFile], list[Root]]:
    """Returns the files that ``matching_rows`` decodes, by number, and the filter's columns."""
    roots = _roots(group.file, group.constants[0], filter_) or []
    leaves = [root.leaves[0] for root in roots]
    columns = [group.chunks(leaf) for leaf in leaves]
    small: dict[int, SmallFile] = {}
    for number in numbers if roots else ():
        file = group.files[number]
        if file.num_rows > COSTS.small_file_rows:
            continue
        own = [column[number] for column in columns]
        chunks = [*itertools.chain.from_iterable(own)]
        has_blooms = any(chunk.bloom_filter_offset is not None for chunk in chunks)
        size = sum([chunk.total_compressed_size for chunk in chunks])
        if size <= COSTS.small_file_bytes and not has_blooms:
            decoded = file.decoded_bytes(leaves)
            if decoded <= COSTS.portion_bytes:
                small[number] = SmallFile(file, own, decoded)
    return small if len(small) >= COSTS.least_files else {}, roots


def _roots(file: OpenedFile, constants: Constants, filter_: Filter) -> list[Root] | None:
    """Returns the filter's columns; None if they cannot be decoded together."""
    if not filter_.columns or not may_be_together(file):
        return None
    names = [name for name in filter_.columns if name not in constants]
    roots = [root for root in map(file.schema.root, names) if root is not None]
    are_flat = all(len(r.leaves) == 1 and file.schema.leaves[r.leaves[0]].is_flat for r in roots)
    is_whole = len(roots) == len(names) and not set(names) & set(PSEUDO_COLUMNS.names)
    return roots if roots and are_flat and is_whole else None
