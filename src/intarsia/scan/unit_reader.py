"""Reads a unit of a scan: first the filter's columns, then the others at the matching rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.casts import keeps_values
from intarsia.file.open_file import OpenedFile
from intarsia.io.source import PrefetchSource
from intarsia.plan.file_account import Activity
from intarsia.plan.index_selection import page_rows
from intarsia.process_state import cached_property
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.dictionary_codes import (
    is_string_dictionary,
    with_dictionaries,
    with_string_columns,
)
from intarsia.scan.filter.condition import (
    are_in_most_pages,
    mask_of,
    num_true,
    passing,
    rows_where,
    where,
)
from intarsia.scan.filter.page_text_filter import PageTextFilter, SearchCounts
from intarsia.scan.filter.substring import SubstringSearch
from intarsia.scan.nested_projection import Projection
from intarsia.scan.predicate_order import STAGED_ROWS, Stage, dictionary_paths, stages
from intarsia.scan.request import Request, without_columns, without_rows
from intarsia.scan.schema_adapter import expect_columns, read_columns, roots_of, roots_to_read


class _ReadRows(NamedTuple):
    """Columns of a unit at ``rows``. Rows where ``mask`` is true pass; None means all pass."""

    table: pa.Table
    rows: RowRanges
    mask: pa.ChunkedArray | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows that pass."""
        return self.rows.num_rows if self.mask is None else num_true(self.mask)

    def also(self, stage: Stage) -> pa.ChunkedArray | None:
        """Returns a mask of the rows that pass and meet the stage's condition.

        Returns None as ``mask_of`` does.
        """
        mask = mask_of(stage.condition, stage.columns, self.table)
        return mask if mask is None or self.mask is None else pc.and_kleene(self.mask, mask)


@dataclass(slots=True)
class ScanStatistics:
    """Statistics of a scan's units so far.

    They affect which pages are read, never which rows match.
    """

    search_counts: dict[SubstringSearch, SearchCounts] = field(default_factory=dict)
    """For each string searched: pages searched and pages skipped, in all files so far."""


class UnitReader:
    """Reader of the matching rows of one file, unit by unit. Threads may share it.

    ``are_likely`` means that most pages of the candidate rows hold a matching row.
    """

    def __init__(
        self,
        file: OpenedFile,
        request: Request,
        constants: Constants,
        scan_statistics: ScanStatistics,
        are_likely: bool = False,
    ) -> None:
        self.file = file
        self._request, self._constants = request, constants
        self._are_likely = are_likely
        self._scan_statistics = scan_statistics
        self._filter_pruned = request.filter.pruned if request.filter else {}
        self._page_filters: dict[SubstringSearch, PageTextFilter] = {}

    @cached_property
    def _allows_one_pass(self) -> bool:
        return _allows_reading_at_once(self.file, self._request, self._constants)

    @cached_property
    def _reads_repeated_columns(self) -> bool:
        leaves = self.file.schema.leaves
        if not max([leaf.max_repetition_level for leaf in leaves], default=0):
            return False
        roots = roots_to_read(self.file, self._request, self._constants)
        return any(leaves[leaf].max_repetition_level for root in roots for leaf in root.leaves)

    def matching(self, rows: RowRanges) -> pa.Table:
        """Returns the requested columns of the matching rows among ``rows``."""
        request, source = self._request, PrefetchSource(self.file.source)
        current = _ReadRows(pa.table([]), rows)
        stages_left = self._stages(rows, source)
        schema, pruned = self._column_types(stages_left, rows)
        for number, stage in enumerate(stages_left, start=1):
            if not current.table.num_columns:
                current = _ReadRows(current.table, self._without_skipped_pages(stage, rows, source))
            if current.rows:
                names = set(current.table.column_names)
                new = [name for name in stage.columns if name not in names]
                columns = self._read(new, current.rows, pruned, source, schema)
                current = current._replace(table=_with_columns(columns, current.table))
                current = self._apply_stage(stage, current, stages_left[number:])
            if not current.rows:
                return without_rows(request.output)
        if not request.columns:
            return without_columns(current.num_rows)
        complete = self._complete_columns(current.table)
        late_names = [name for name in dict.fromkeys(request.columns) if name not in complete]
        by_name = columns_by_name(current.table)
        if late_names:
            late_columns = self._read(late_names, current.rows, request.pruned, source)
            by_name |= columns_by_name(late_columns)
        arrays = [by_name[name] for name in request.columns]
        table = pa.Table.from_arrays(arrays, list(request.columns))
        if current.mask is not None:
            with self.file.profile.during(Activity.FILTERING):
                table = where(current.mask, table)
        return with_string_columns(table, request.output)

    def _stages(self, rows: RowRanges, source: PrefetchSource) -> list[Stage]:
        """Returns the filter's conditions in order, with the columns read for each.

        All columns are read at once if most pages of few rows are needed, and reading them costs no
        extra request. Repeated columns are read later: to know where a row ends, they need the page
        after it, and candidate rows usually end where a page ends.
        """
        request, file = self._request, self.file
        if request.filter is None:
            return []
        is_free = expect_columns(file, request, rows, source) or not file.request_bytes
        stage_list, is_unstaged = stages(file, request, rows), rows.num_rows < STAGED_ROWS
        is_one_pass = is_free and is_unstaged and self._are_likely
        if is_one_pass and self._allows_one_pass and not self._reads_repeated_columns:
            return [stage._replace(columns=request.all_columns) for stage in stage_list]
        return stage_list

    def _without_skipped_pages(
        self, stage: Stage, rows: RowRanges, source: PrefetchSource
    ) -> RowRanges:
        """Returns ``rows`` without pages that cannot hold the string the condition requires."""
        search = stage.condition.needed
        if search is None or search.column in self._constants or rows.num_rows < STAGED_ROWS:
            return rows
        counts = self._scan_statistics.search_counts.setdefault(search, SearchCounts())
        page_filter = self._page_filters.setdefault(
            search, PageTextFilter(self.file, search, counts)
        )
        with self.file.profile.during(Activity.FILTERING):
            return page_filter.rows_left(rows, source)

    def _column_types(
        self, stages: Sequence[Stage], rows: RowRanges
    ) -> tuple[pa.Schema, Projection]:
        """Returns the types in which the filter's columns are read.

        Columns with few distinct strings are read as dictionaries.
        """
        request, filter_pruned = self._request, self._filter_pruned
        paths = dictionary_paths(self.file, request, stages, self._constants, rows)
        if not paths:
            return request.schema, filter_pruned
        pruned = {
            name: replace(column, type=with_dictionaries(pa.field(name, column.type), paths).type)
            for name, column in filter_pruned.items()
        }
        return pa.schema([with_dictionaries(field, paths) for field in request.schema]), pruned

    def _read(
        self,
        columns: Sequence[str],
        rows: RowRanges,
        pruned: Projection,
        source: PrefetchSource,
        schema: pa.Schema | None = None,
    ) -> pa.Table:
        """Reads columns in the types of ``schema``, by default the data set's."""
        file, schema = self.file, schema or self._request.schema
        with file.profile.during(Activity.DECODING):
            return read_columns(file, schema, columns, self._constants, rows, pruned, source)

    def _complete_columns(self, table: pa.Table) -> set[str]:
        """Returns the columns of the filter's table that have all fields the output needs."""
        filter_pruned, pruned = self._filter_pruned, self._request.pruned
        return {name for name in table.column_names if filter_pruned.get(name) == pruned.get(name)}

    def _apply_stage(self, stage: Stage, current: _ReadRows, later: Sequence[Stage]) -> _ReadRows:
        """Applies a stage's condition, and keeps the columns that are still needed.

        Rows that fail are removed, or only masked. They are masked if no column is left to read, or
        if most pages of the columns left hold a passing row.
        """
        profile, condition, table = self.file.profile, stage.condition, current.table
        with profile.during(Activity.FILTERING):
            mask = current.also(stage)
            if mask is None:
                assert current.mask is None  # only filters made of comparisons have masks
                passed = _ReadRows(*passing(condition, table, current.rows))
            else:
                needed = {*self._request.columns, *(name for s in later for name in s.columns)}
                unread = needed - self._complete_columns(table)
                table = _select(table, needed)
                is_last = not later and not unread
                if is_last or self._reads_most_pages(mask, unread, current.rows):
                    passed = _ReadRows(table, current.rows, mask)
                else:
                    passed = _ReadRows(*rows_where(mask, table, current.rows))
        if profile.is_recording:
            profile.filtered(condition.node, current.num_rows, passed.num_rows)
        return passed

    def _reads_most_pages(
        self, mask: pa.ChunkedArray, others: Collection[str], rows: RowRanges
    ) -> bool:
        """True if reading ``others`` at the passing rows would skip hardly any page."""
        if not self._allows_one_pass:
            return False
        read = [name for name in others if name not in self._constants]
        roots = roots_of(self.file, read, self._request.schema)
        leaves = [leaf for root in roots for leaf in root.leaves]
        return are_in_most_pages(mask, page_rows(self.file, leaves, rows))


def columns_by_name(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Returns the columns of a table by name. Each lookup in a table takes linear time."""
    return dict(zip(table.column_names, table.columns, strict=True))


def _select(table: pa.Table, names: Collection[str]) -> pa.Table:
    """Returns the columns of ``table`` in ``names``; at least one, to keep the number of rows."""
    selected = [name for name in table.column_names if name in names]
    return table.select(selected or table.column_names[:1])


def _with_columns(table: pa.Table, others: pa.Table) -> pa.Table:
    for name in others.column_names:
        table = table.append_column(name, others.column(name))
    return table


def _allows_reading_at_once(file: OpenedFile, request: Request, constants: Constants) -> bool:
    """True if reading all columns at all candidate rows cannot raise additional errors.

    The filter must consist of comparisons, columns must be complete, and stored types must fit the
    data set's types. False if the file is checked for damage: rows that fail the filter would count
    as lost.
    """
    filter_ = request.filter
    if filter_ is None or filter_.condition.comparison is None or file.options.looks_for_damage:
        return False
    if request.pruned or filter_.pruned:
        return False
    stored = file.schema_arrow
    for name in request.all_columns:
        positions = [] if name in constants else stored.get_all_field_indices(name)
        kind = request.schema.field(name).type
        for place in positions:
            stored_type = stored.field(place).type
            if stored_type != kind and not fits(stored_type, kind):
                return False
    return True


def fits(stored: pa.DataType, kind: pa.DataType) -> bool:
    """True if each value of type ``stored`` can be cast to ``kind``.

    Structs may have fewer fields in ``kind``.
    """
    if pa.types.is_struct(kind) and pa.types.is_struct(stored):
        return all(
            len(positions := stored.get_all_field_indices(field.name)) == 1
            and fits(stored.field(positions[0]).type, field.type)
            for field in kind
        )
    kind = kind.value_type if is_string_dictionary(kind) else kind
    return stored == kind or keeps_values(stored, kind)
