"""Orders a filter's conditions for evaluation: cheap and selective ones first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from intarsia.expr.nested_types import type_at
from intarsia.file.open_file import OpenedFile
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.dictionary_codes import (
    dictionary_form,
    has_few_entries,
    may_be_dictionary_encoded,
    string_leaf,
)
from intarsia.scan.filter.condition import Condition
from intarsia.scan.page_selection import groups_of
from intarsia.scan.request import Conjunct, Request
from intarsia.scan.schema_adapter import roots_of

STAGED_ROWS = 64 * 1024
"""Below this number of candidate rows all conditions are one stage; more stages cost more time."""

_MIN_FAIL_SHARE = 0.01


class Stage(NamedTuple):
    """A condition and the columns that it needs."""

    condition: Condition
    columns: tuple[str, ...]

    def takes_dictionary(self, path: tuple[str, ...], *, is_map: bool) -> bool:
        """True if the condition can be evaluated on dictionary indices at ``path``.

        That is if the condition is a comparison, or uses only this column. For keys of a map, it
        is if the condition only looks up values by key.
        """
        if is_map:
            return self.condition.takes_dictionary_keys
        is_alone = len(path) == 1 and self.columns == path
        return is_alone or self.condition.comparison is not None


def stages(file: OpenedFile, request: Request, rows: RowRanges) -> list[Stage]:
    """Returns conditions to evaluate in order, each on the rows that passed the ones before.

    Together they are the request's filter. Conditions on the same columns are one stage. Stages are
    in order of ``c / (1 - p)``: ``c`` is their bytes per row, ``p`` the share of rows that pass.
    This order is cheapest if conditions are independent.
    """
    filter_ = request.filter
    if filter_ is None:
        return []
    if rows.num_rows < STAGED_ROWS or not filter_.conjuncts:
        return [Stage(filter_.condition, request.filter_columns)]
    by_columns: dict[tuple[str, ...], list[Conjunct]] = {}
    for conjunct in filter_.conjuncts:
        by_columns.setdefault(conjunct.columns, []).append(conjunct)
    group = groups_of(file, rows)[0]

    def rank(conjuncts: Iterable[Conjunct]) -> float:
        passing = 1.0
        names: tuple[str, ...] = ()
        for conjunct in conjuncts:
            passing *= conjunct.passing
            names = conjunct.columns
        leaves = [leaf for root in roots_of(file, names, request.schema) for leaf in root.leaves]
        cost = sum(file.chunk(group, leaf).total_uncompressed_size for leaf in leaves)
        return cost / max(1 - passing, _MIN_FAIL_SHARE)

    ordered = sorted(by_columns.items(), key=lambda item: rank(item[1]))
    return [
        Stage(Condition.all_of([conjunct.condition for conjunct in conjuncts]), columns)
        for columns, conjuncts in ordered
    ]


def dictionary_paths(
    file: OpenedFile,
    request: Request,
    stages: Sequence[Stage],
    constants: Constants,
    rows: RowRanges,
) -> list[tuple[str, ...]]:
    """Returns the paths of strings that the stages evaluate faster on dictionary indices."""
    if request.filter is None or rows.num_rows < STAGED_ROWS:
        return []
    groups, paths = groups_of(file, rows), []
    for path in sorted(request.filter.paths or ()):
        kind, leaf = type_at(request.schema, path), string_leaf(file.schema, path)
        if kind is None or dictionary_form(kind) is None or leaf is None or path[0] in constants:
            continue
        is_map = pa.types.is_map(kind)
        if is_map and not _has_string_keys(file, path):
            continue
        stages_on_column = [stage for stage in stages if path[0] in stage.columns]
        if not all(stage.takes_dictionary(path, is_map=is_map) for stage in stages_on_column):
            continue
        if may_be_dictionary_encoded(file, groups, leaf.index) and has_few_entries(
            file, groups, leaf.index
        ):
            paths.append(path)
    return paths


def _has_string_keys(file: OpenedFile, path: tuple[str, ...]) -> bool:
    """True if the file stores the keys of the map at ``path`` as strings."""
    root = file.schema.root(path[0])
    stored = (
        None if root is None else type_at(pa.schema([(root.name, file.arrow_type(root))]), path)
    )
    return stored is not None and pa.types.is_map(stored) and dictionary_form(stored) is not None
