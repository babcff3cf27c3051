"""Plans groups of files: pruners narrow the candidate rows, in order of cost.

::

    many files   partition values ► row-group statistics ► keys of many files
                                                             │ for each file left
    one file     partition values ► row-group statistics ►───┴► embedded indexes ► bloom filters
                                                                ► page index

Statistics come first, because footers are read already. Embedded indexes are next, because they
read few bytes and prune most. Page indexes come last, for columns that no embedded index answered.
A file's plan continues that of its group, so nothing is compared twice.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from intarsia.expr.comparison_operators import Op
from intarsia.file.embedded_indexes import Embedded
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.schema import Leaf
from intarsia.plan.cost_model import COSTS
from intarsia.plan.file_group import FileGroup
from intarsia.plan.file_keys import file_keys, required_predicates
from intarsia.plan.index_selection import by_promise, cost_of, is_little, may_pay, most_for
from intarsia.plan.plan import ScanPlan
from intarsia.plan.pruner import (
    ROW_GROUP_STATISTICS,
    Narrowed,
    bloom_filters,
    index_source,
    page_index,
    partition_values,
    row_group_statistics,
)
from intarsia.plan.stored_columns import check_folder
from intarsia.pruning.partition_pruning import Constants
from intarsia.pruning.predicates import Comparison, Predicate, Pruning, predicates_of, rows_left
from intarsia.row_ranges import RowRanges
from intarsia.scan.small_row_groups import reads_whole_chunks

_RANGE_OPERATORS = (Op.LT, Op.LE, Op.GT, Op.GE)


def plan_group(
    group: FileGroup,
    pruning: Pruning,
    *,
    within: RowRanges | None = None,
    by_footer: bool = False,
    after: ScanPlan | None = None,
    leaves: Sequence[int] = (),
) -> ScanPlan:
    """Returns the plan of ``group`` by our reader of pages.

    Only rows ``within`` are considered. ``by_footer`` uses footers alone. ``after`` is the
    plan by footer, if it is known. ``leaves`` are the leaves to read; on remote storage
    the offset indexes of a single file are fetched at the same time. Raises ``FormatError`` if the
    footer of a single file contradicts its partition values.
    """
    return _Planner(group, pruning, within, after).run(leaves, by_footer)


def plan_rows(
    file: OpenedFile,
    pruning: Pruning,
    constants: Constants,
    schema: pa.Schema,
    leaves: Sequence[int] = (),
    *,
    within: RowRanges | None = None,
    by_footer: bool = False,
) -> ScanPlan:
    """Returns the plan of ``file``, whose columns have the types of ``schema``.

    The other parameters are those of ``plan_group``.
    """
    group = FileGroup([file], [constants], schema)
    return plan_group(group, pruning, within=within, by_footer=by_footer, leaves=leaves)


def plan_of_all(file: OpenedFile) -> ScanPlan:
    """Returns the plan of a file of which no row is left out."""
    return ScanPlan(file.rows, ((ROW_GROUP_STATISTICS, file.rows),))


class _Planner:
    def __init__(
        self, group: FileGroup, pruning: Pruning, within: RowRanges | None, after: ScanPlan | None
    ) -> None:
        self._group, self._pruning, self._after = group, pruning, after
        self._predicates = predicates_of(pruning)
        self._all = RowRanges.all(group.num_rows)
        self._rows = group.rows if within is None else within
        self._rows_by_test: dict[Predicate, RowRanges] = {}
        self._steps: list[tuple[str, RowRanges]] = []
        self._learned_from = ""
        """Name of an index whose result is not applied yet."""

    def run(self, leaves_to_read: Sequence[int], by_footer: bool) -> ScanPlan:
        group = self._group
        are_likely = False
        self._by_footer()
        if self._rows and not by_footer:
            if group.is_single:
                are_likely = self._by_indexes(leaves_to_read)
            else:
                required = required_predicates(self._pruning)
                self._apply(file_keys(group, required, self._rows))
        return ScanPlan(
            self._rows,
            tuple(self._steps),
            are_likely=are_likely,
            by_predicate=self._rows_by_test,
        )

    def _by_footer(self) -> None:
        group, after = self._group, self._after
        if group.is_single:
            check_folder(group.file, group.constants[0], group.schema)
        if after is None:
            for narrow in (partition_values, row_group_statistics):
                self._learn(narrow(group, self._predicates, self._rows))
            self._step(ROW_GROUP_STATISTICS)
        else:
            self._rows_by_test.update(after.by_predicate)
            self._rows &= after.rows
            self._steps.append((ROW_GROUP_STATISTICS, self._rows))

    def _by_indexes(self, leaves_to_read: Sequence[int]) -> bool:
        """Narrows the rows of one file by its indexes. Returns ``ScanPlan.are_likely``."""
        group, file, tests = self._group, self._group.file, self._predicates
        leaves = group.leaves(tests)
        unneeded = {test for test, leaf in leaves.items() if self._is_idle(test, leaf)}
        indexes = group.indexes(test for test in tests if test not in unneeded)
        if file.request_bytes:
            self._expect(indexes.values(), list(leaves.values()), leaves_to_read)
        read = {leaf.index for leaf in leaves.values()}
        answered: dict[Predicate, bool] = {}
        if indexes:
            self._by_embedded_indexes(indexes, read, answered)
        rest = [test for test in leaves if test not in answered and test not in unneeded]
        if answered and is_little(file, read, self._rows):
            rest = []
        for test in rest:
            self._apply(bloom_filters(group, [test], self._rows))
        num_groups = len(group.row_groups_of(self._rows)) if rest else 0
        if num_groups and not reads_whole_chunks(file, num_groups):
            self._apply(page_index(group, rest, self._rows))
        restrictive = [
            test for test in tests if not (isinstance(test, Comparison) and test.op is Op.ANY)
        ]
        return len({test.term for test in restrictive}) == 1 and all(
            answered.get(test) or (_is_range(test) and file.trusts_bounds) for test in restrictive
        )

    def _by_embedded_indexes(
        self,
        indexes: Mapping[Predicate, Sequence[Embedded]],
        read: Collection[int],
        answered: dict[Predicate, bool],
    ) -> None:
        """Probes the indexes, test by test, as long as that pays.

        ``read`` are the leaves of the filter. Sets ``answered[test]`` to True if an index of values
        answered it, to False for other indexes.
        """
        file = self._group.file
        tests_per_step = 1 + len(indexes) // COSTS.single_steps
        bytes_left = math.inf if tests_per_step == 1 else most_for(file, indexes)
        for number, (test, usable) in enumerate(by_promise(indexes), 1):
            bytes_left -= cost_of(usable[0], test)
            if bytes_left < 0:
                break
            is_opened = any(file.sections.is_opened(index.entry) for index in usable)
            if is_opened or not answered or not is_little(file, read, self._rows):
                worthwhile = [index for index in usable if may_pay(file, index, test, read)]
                self._probe(test, worthwhile, answered, at_once=tests_per_step == 1)
            if self._learned_from and number % tests_per_step == 0:
                self._step(self._learned_from)
        if self._learned_from:
            self._step(self._learned_from)

    def _probe(
        self,
        test: Predicate,
        indexes: Sequence[Embedded],
        answered: dict[Predicate, bool],
        *,
        at_once: bool,
    ) -> None:
        """Probes the indexes of a test, the smallest first, until an index of values answers it.

        ``at_once`` applies each result immediately.
        """
        for index in indexes:
            if not self._rows:
                break
            hits = self._group.file.sections.rows_of(index, test, self._rows)
            if hits is None:
                continue
            self._learned_from = index_source(index.entry)
            self._learn(Narrowed({test: hits}, self._learned_from))
            answered[test] = index.finds_values
            if at_once:
                self._step(self._learned_from)
            if index.finds_values:
                break

    def _expect(
        self,
        indexes: Iterable[Sequence[Embedded]],
        tested: Sequence[Leaf],
        leaves_to_read: Sequence[int],
    ) -> None:
        groups = self._group.row_groups_of(self._rows)
        entries = dict.fromkeys(index.entry for usable in indexes for index in usable)
        columns = [(group, leaf.index) for group in groups for leaf in tested]
        offsets = [*columns, *((group, leaf) for group in groups for leaf in leaves_to_read)]
        self._group.file.expect_metadata(entries, offsets, columns)

    def _is_idle(self, test: Comparison, leaf: Leaf) -> bool:
        """True if the test is IS NOT NULL and the footer shows that no row is NULL or NaN."""
        if test.op is not Op.ANY or not self._group.trusts_bounds:
            return False
        bounds = self._group.bounds(leaf.index)
        return not bounds.order.has_nan and not bounds.null_counts.any()

    def _apply(self, narrowed: Narrowed | None) -> None:
        if narrowed is not None:
            self._learn(narrowed)
            self._step(narrowed.reason)

    def _learn(self, narrowed: Narrowed | None) -> None:
        for test, rows in () if narrowed is None else narrowed.rows.items():
            known = self._rows_by_test.get(test)
            self._rows_by_test[test] = rows if known is None else known & rows

    def _step(self, source: str) -> None:
        """Applies what was learned since the last step, and records the step."""
        known = self._rows_by_test
        self._rows = rows_left(self._pruning, self._rows, lambda test: known.get(test, self._all))
        self._learned_from = ""
        self._steps.append((source, self._rows))


def _is_range(test: Predicate) -> bool:
    """True if the test is a range without NaN. Bounds seldom show whether there are NaNs."""
    return isinstance(test, Comparison) and test.op in _RANGE_OPERATORS and not test.nans
