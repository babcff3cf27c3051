"""Pruners: each narrows the candidate rows of a group of files by one source of information."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from intarsia.errors import FormatError, Where
from intarsia.index.directory import IndexEntry
from intarsia.index.parquet_indexes import bloom_hashes_for
from intarsia.parquet.bloom_filter import filters_might_contain
from intarsia.plan.cost_model import COSTS
from intarsia.plan.file_group import FileGroup
from intarsia.plan.stored_columns import missing_columns
from intarsia.pruning.bounds_comparison import rows_might_match
from intarsia.pruning.partition_pruning import constants_might_match
from intarsia.pruning.predicates import Predicate
from intarsia.row_ranges import RowRanges

ROW_GROUP_STATISTICS = "row-group statistics"
BLOOM_FILTERS = "bloom filters"
PAGE_INDEX = "page index"
INDEX = "index "
"""Names of the steps of planning. Embedded indexes have a step each, whose name is
``INDEX`` and the name of the index.
"""


class Narrowed(NamedTuple):
    """The rows of a group that might pass each predicate, as a pruner found.

    ``reason`` names the pruner in a plan's steps.
    """

    rows: Mapping[Predicate, RowRanges]
    reason: str


Tests = Sequence[Predicate]
Pruner = Callable[[FileGroup, Tests, RowRanges], Narrowed | None]
"""Returns what one source of information says about predicates, or None if it says nothing.

Only the rows that are given count: the planner ignores others.
"""


def partition_values(group: FileGroup, tests: Tests, rows: RowRanges) -> Narrowed | None:
    """Prunes by partition values, and by columns that the files lack, which are NULL."""
    missing = missing_columns(group.file, tests, group.constants[0], group.schema)
    names = missing.keys() | group.constants[0].keys()
    narrowed = {}
    for test in tests if names else ():
        of_test = [path[0] for path in test.term.fields if path[0] in names]
        if of_test:
            constants = [{**values, **missing} for values in group.constants]
            keys = [tuple([values[name] for name in of_test]) for values in constants]
            verdicts = {
                key: constants_might_match(test, dict(zip(of_test, key, strict=True)))
                for key in set(keys)
            }
            narrowed[test] = group.rows_of_files(np.array([verdicts[key] for key in keys]))
    return Narrowed(narrowed, ROW_GROUP_STATISTICS) if narrowed else None


def row_group_statistics(group: FileGroup, tests: Tests, rows: RowRanges) -> Narrowed | None:
    """Prunes by the statistics of all row groups in footers, which are compared at once."""
    narrowed: dict[Predicate, RowRanges] = {}
    for test, leaf in group.leaves(tests).items() if group.trusts_bounds else ():
        might_match = rows_might_match(test, group.bounds(leaf.index))
        narrowed[test] = group.rows_of_row_groups(might_match)
    return Narrowed(narrowed, ROW_GROUP_STATISTICS)


def bloom_filters(group: FileGroup, tests: Tests, rows: RowRanges) -> Narrowed | None:
    """Prunes row groups of one file by the bloom filters of one predicate's column.

    They have no checksums, so they are not used if the file is checked for damage.
    """
    file, ((test, leaf),) = group.file, group.leaves(tests).items()
    groups = group.row_groups_of(rows)
    chunks = [file.chunk(number, leaf.index) for number in groups]
    filter_ranges = [
        (chunk.bloom_filter_offset, chunk.bloom_filter_length)
        for chunk in chunks
        if chunk.bloom_filter_offset is not None
    ]
    hashes = bloom_hashes_for(test, file.order(leaf.index)) if filter_ranges else None
    if hashes is None or len(hashes) > COSTS.bloom_values or file.options.looks_for_damage:
        return None
    try:
        might_hold = iter(filters_might_contain(file.source, filter_ranges, hashes))
    except FormatError as error:
        file.warn(f"bloom filters are ignored: {error.at(Where(column=leaf.name))}")
        return None
    might_match = np.ones(len(group.row_group_starts) - 1, dtype=np.bool_)
    might_match[groups] = [c.bloom_filter_offset is None or next(might_hold) for c in chunks]
    left = group.rows_of_row_groups(might_match)
    return Narrowed({test: left}, f"{BLOOM_FILTERS} of {leaf.name}")


def page_index(group: FileGroup, tests: Tests, rows: RowRanges) -> Narrowed | None:
    """Prunes by the bounds of pages in one file."""
    leaves, indexes = group.leaves(tests), group.file.page_indexes
    groups = group.row_groups_of(rows)
    chunks = [(number, leaf.index) for number in groups for leaf in leaves.values()]
    indexes.load(chunks, chunks)
    narrowed: dict[Predicate, RowRanges] = {}
    for test, leaf in leaves.items():
        parts = []
        for number in groups:
            start, stop = group.row_group_starts[number : number + 2].tolist()
            bounds = indexes.bounds(number, leaf.index)
            offsets = indexes.offsets(number, leaf.index)
            if bounds is None or offsets is None:
                parts.append(RowRanges.of((start, stop)))
                continue
            pages = np.flatnonzero(rows_might_match(test, bounds))
            starts, stops = offsets.row_bounds(stop - start)
            parts.append(RowRanges(starts[pages], stops[pages]).shift(start))
        narrowed[test] = RowRanges.union(parts)
    return Narrowed(narrowed, PAGE_INDEX)


def index_source(entry: IndexEntry) -> str:
    """Returns the name of the step that uses an embedded index."""
    return f"{INDEX}{entry.name}"
