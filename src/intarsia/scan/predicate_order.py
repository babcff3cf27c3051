"""The order in which a filter's conditions are evaluated: cheap and selective ones first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from intarsia.expr.nested_types import type_at
from intarsia.file.open_file import OpenedFile
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.dictionary_codes import are_few, coded_form, coded_leaf, may_be_coded
from intarsia.scan.filter.condition import Condition
from intarsia.scan.page_selection import groups_of
from intarsia.scan.request import Conjunct, Request
from intarsia.scan.schema_adapter import roots_of

STAGED_ROWS = 64 * 1024
"""Fewer candidates than this are filtered in one go: a further stage costs more than it saves."""

_LEAST = 0.01


class Stage(NamedTuple):
    """A condition and the columns it needs."""

    condition: Condition
    columns: tuple[str, ...]

    def takes_codes(self, path: tuple[str, ...], *, is_map: bool) -> bool:
        """Can it be told where the texts at ``path``, of a column or a struct's field, are codes?

        It can where it compares texts, or a column of them is all that it is about; where keys of
        maps are, if all that it asks of maps are the values of keys.
        """
        if is_map:
            return self.condition.takes_coded_keys
        is_alone = len(path) == 1 and self.columns == path
        return is_alone or self.condition.comparison is not None


def stages(file: OpenedFile, request: Request, rows: RowRanges) -> list[Stage]:
    """Conditions to evaluate one after the other on what the ones before left of ``rows``.

    Together they are the request's filter; conditions on the same columns are one stage. A stage
    that costs bytes ``c`` a row and lets a share ``p`` pass goes first where ``c / (1 - p)`` is
    least, which is least in all if the conditions are independent of each other.
    """
    wanted = request.filter
    if wanted is None:
        return []
    if rows.num_rows < STAGED_ROWS or not wanted.conjuncts:
        return [Stage(wanted.condition, request.filter_columns)]
    same: dict[tuple[str, ...], list[Conjunct]] = {}
    for part in wanted.conjuncts:
        same.setdefault(part.columns, []).append(part)
    group = groups_of(file, rows)[0]

    def rank(parts: Iterable[Conjunct]) -> float:
        passing = 1.0
        names: tuple[str, ...] = ()
        for part in parts:
            passing *= part.passing
            names = part.columns
        leaves = [leaf for root in roots_of(file, names, request.schema) for leaf in root.leaves]
        cost = sum(file.chunk(group, leaf).total_uncompressed_size for leaf in leaves)
        return cost / max(1 - passing, _LEAST)

    ordered = sorted(same.items(), key=lambda item: rank(item[1]))
    return [
        Stage(Condition.all_of([part.condition for part in parts]), columns)
        for columns, parts in ordered
    ]


def coded_paths(
    file: OpenedFile,
    request: Request,
    found: Sequence[Stage],
    constants: Constants,
    rows: RowRanges,
) -> list[tuple[str, ...]]:
    """The paths of texts that are few, so that reading codes of them is quicker for ``found``."""
    if request.filter is None or rows.num_rows < STAGED_ROWS:
        return []
    groups, paths = groups_of(file, rows), []
    for path in sorted(request.filter.paths or ()):
        kind, leaf = type_at(request.schema, path), coded_leaf(file.schema, path)
        if kind is None or coded_form(kind) is None or leaf is None or path[0] in constants:
            continue
        is_map = pa.types.is_map(kind)
        if is_map and not _has_text_keys(file, path):
            continue
        about = [stage for stage in found if path[0] in stage.columns]
        if not all(stage.takes_codes(path, is_map=is_map) for stage in about):
            continue
        if may_be_coded(file, groups, leaf.index) and are_few(file, groups, leaf.index):
            paths.append(path)
    return paths


def _has_text_keys(file: OpenedFile, path: tuple[str, ...]) -> bool:
    """Are the keys of maps at ``path`` texts in the file as well? They may be cast to texts."""
    root = file.schema.root(path[0])
    stored = None if root is None else type_at([pa.field(root.name, file.arrow_type(root))], path)
    return stored is not None and pa.types.is_map(stored) and coded_form(stored) is not None
