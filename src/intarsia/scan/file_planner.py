"""Plans one file: prunes its rows step by step.

Row-group statistics come first, because the footer is read already. Embedded indexes are next,
because they read few bytes and prune most. Page indexes come last, for columns that no embedded
index answered.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from intarsia.errors import FormatError, Where
from intarsia.expr.comparison_operators import Op
from intarsia.file.embedded_indexes import Embedded
from intarsia.file.open_file import OpenedFile
from intarsia.index.directory import IndexEntry
from intarsia.index.parquet_indexes import bloom_hashes_for
from intarsia.parquet.schema import Leaf
from intarsia.parquet.statistics import BoolArray, Bounds
from intarsia.parquet.value_order import Key
from intarsia.plan.plan import Step
from intarsia.pruning.bounds_comparison import rows_might_match
from intarsia.pruning.partition_pruning import Constants, constants_might_match
from intarsia.pruning.predicate_tree import Pruning, predicates_of
from intarsia.pruning.predicates import Comparison, Predicate
from intarsia.pruning.prune import might_pass, rows_left
from intarsia.pruning.term import Term, field_term
from intarsia.pruning.type_compatibility import types_agree_at
from intarsia.row_ranges import RowRanges
from intarsia.scan.bloom_filters import has_bloom_filters, might_contain
from intarsia.scan.index_selection import by_promise, cost_of, is_little, may_pay, most_for
from intarsia.scan.page_selection import groups_of
from intarsia.scan.small_row_groups import reads_whole_chunks

ROW_GROUP_STATISTICS = "row-group statistics"
BLOOM_FILTERS = "bloom filters"
PAGE_INDEX = "page index"
"""Names of the steps of planning. Embedded indexes have a step each."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidate rows of one file, and the steps that led to them.

    ``are_likely`` is true if each of their pages probably holds a matching row. That is so if an
    index of values or a range of one column selected them.
    """

    rows: RowRanges
    steps: tuple[Step, ...]
    are_likely: bool = False


def plan_rows(
    file: OpenedFile,
    pruning: Pruning,
    constants: Constants,
    schema: pa.Schema,
    leaves: Sequence[int] = (),
    *,
    within: RowRanges | None = None,
    by_footer: bool = False,
) -> Candidates:
    """Returns the candidate rows of ``file``, whose columns have the types of ``schema``.

    ``leaves`` are the leaves to read; on remote storage their offset indexes are fetched at the
    same time. Only rows ``within`` are considered. ``by_footer`` uses the footer alone.
    """
    rows = RowRanges.all(file.num_rows) if within is None else within
    check_folder(file, constants, schema)
    constants = {**constants, **missing_columns(file, pruning, constants, schema)}
    file.profile.planning()
    return _Planner(file, constants, schema).run(pruning, leaves, rows, by_footer)


def leaf_of(
    file: OpenedFile, test: Predicate, constants: Constants, schema: pa.Schema
) -> Leaf | None:
    """Returns the leaf of a test's column if bounds of stored values are valid for the test.

    They are if values compare in the type of ``schema`` as they do in the stored type.
    """
    path = test.term.path
    if not path or path[0] in constants:
        return None
    leaf = file.schema.leaf(path)
    if leaf is None or leaf.max_repetition_level:
        return None
    stored = file.arrow_type(file.schema.roots[leaf.root])
    return leaf if types_agree_at(stored, schema.field(path[0]).type, path[1:]) else None


def indexes_for(
    file: OpenedFile, tests: Sequence[Predicate], constants: Constants, schema: pa.Schema
) -> dict[Predicate, list[Embedded]]:
    """Returns the embedded indexes that might answer each test in the types of ``schema``."""
    usable_indexes: dict[Predicate, list[Embedded]] = {}
    for test in tests:
        usable = [index for index in file.sections.about(test.term) if index.may_answer(test)]
        if usable and values_agree(file, test.term, constants, schema):
            usable_indexes[test] = usable
    return usable_indexes


def values_agree(file: OpenedFile, term: Term, constants: Constants, schema: pa.Schema) -> bool:
    """True if an index of stored values of a term is valid for the types of ``schema``.

    A field's type must compare like the stored type. For functions, types must be equal.
    """
    for path in term.fields:
        root = file.schema.root(path[0])
        if path[0] in constants or root is None:
            return False
        stored, seen = file.arrow_type(root), schema.field(path[0]).type
        if not types_agree_at(stored, seen, path[1:], exactly=not term.path):
            return False
    return True


def index_source(entry: IndexEntry) -> str:
    """Returns the name of the step that uses an embedded index."""
    return f"index {entry.name}"


def folder_might_match(pruning: Pruning, constants: Constants) -> bool:
    """True if partition values allow rows to pass. The file is not opened."""
    return might_pass(pruning, lambda test: constants_might_match(test, constants))


def check_folder(file: OpenedFile, constants: Constants, schema: pa.Schema) -> None:
    """Raises ``FormatError`` if the footer contradicts a partition value.

    ``constants`` are the partition values. Files may store these columns as well.
    """
    for name, value in constants.items():
        if file.schema.root(name) is None or not file.trusts_bounds:
            continue
        test = _equals(name, value)
        leaf = leaf_of(file, test, {}, schema)
        if leaf is None:
            continue
        differ = _differ(test, file.row_group_bounds(leaf.index))
        wrong = np.flatnonzero(differ & (np.diff(file.row_group_starts) > 0))
        if len(wrong):
            raise FormatError(
                f"the folder says {name}={value}, but the file's own column {name!r} has another "
                "value: move the file, or give partitioning=None to read the file's column",
                Where(file.name, row_group=int(wrong[0]), column=name),
            )


def _differ(test: Comparison, bounds: Bounds) -> BoolArray:
    """Returns a mask of the row groups whose bounds show a row that fails ``test``, an equality."""
    differ = ~rows_might_match(test, bounds)
    if test.nulls:
        return differ | bounds.bounded
    differ |= bounds.null_counts > 0
    brackets = bounds.order.brackets(test.values)
    if brackets is None:
        return differ
    (key,), _ = brackets
    low, high = bounds.low.tolist(), bounds.high.tolist()
    others = [_is_other(a, key) or _is_other(b, key) for a, b in zip(low, high, strict=True)]
    return differ | (bounds.bounded & np.array(others, dtype=np.bool_))


def _is_other(bound: Key, key: Key) -> bool:
    """True if a bound shows a value other than ``key``. Bounds of bytes may be cut short."""
    is_cut = isinstance(bound, bytes) and isinstance(key, bytes) and len(bound) < len(key)
    return bool(bound != key) and not is_cut


def _equals(name: str, value: pa.Scalar) -> Comparison:
    if not value.is_valid:
        return Comparison(field_term(name), Op.NONE, nulls=True)
    return Comparison(field_term(name), Op.EQ, pa.array([value]), nans=True)


def missing_columns(
    file: OpenedFile, pruning: Pruning, constants: Constants, schema: pa.Schema
) -> Constants:
    """Returns NULL for each column of ``pruning`` that ``file`` and its partition values lack."""
    names = {path[0] for test in predicates_of(pruning) for path in test.term.fields}
    missing = [name for name in names - constants.keys() if file.schema.root(name) is None]
    return {name: pa.scalar(None, schema.field(name).type) for name in missing}


class _Planner:
    def __init__(self, file: OpenedFile, constants: Constants, schema: pa.Schema) -> None:
        self._file, self._constants, self._schema = file, constants, schema
        self._rows_by_test: dict[Predicate, RowRanges] = {}
        self._all = RowRanges.all(file.num_rows)
        self._steps: list[Step] = []
        self._learned_from = ""
        """Name of an index whose result is not applied yet."""

    def run(
        self, pruning: Pruning, leaves_to_read: Sequence[int], rows: RowRanges, by_footer: bool
    ) -> Candidates:
        file = self._file
        tests = predicates_of(pruning)
        for test in tests:
            might_pass_ = constants_might_match(test, self._constants)
            self._rows_by_test[test] = self._all if might_pass_ else _NO_ROWS
        leaves = self._leaves(tests)
        for test, leaf in leaves.items():
            self._learn(test, self._by_row_groups(test, leaf))
        rows = self._step(ROW_GROUP_STATISTICS, pruning, rows)
        if by_footer or not rows:
            return Candidates(rows, tuple(self._steps))
        unneeded = {test for test, leaf in leaves.items() if self._is_idle(test, leaf)}
        needed = [test for test in tests if test not in unneeded]
        indexes = indexes_for(file, needed, self._constants, self._schema)
        if file.request_bytes:
            self._expect(
                indexes.values(), list(leaves.values()), leaves_to_read, groups_of(file, rows)
            )
        read = {leaf.index for leaf in leaves.values()}
        answered: dict[Predicate, bool] = {}
        rows = self._by_all_indexes(indexes, read, pruning, rows, answered)
        rest = {
            test: leaf
            for test, leaf in leaves.items()
            if test not in answered and test not in unneeded
        }
        if answered and is_little(file, read, rows):
            rest = {}
        for test, leaf in rest.items():
            might_match = self._by_bloom_filters(test, leaf, groups_of(file, rows))
            if might_match is not None:
                self._learn(test, might_match)
                rows = self._step(f"{BLOOM_FILTERS} of {leaf.name}", pruning, rows)
        groups = groups_of(file, rows) if rest and rows else []
        if groups and not reads_whole_chunks(file, len(groups)):
            chunks = [(group, leaf.index) for group in groups for leaf in rest.values()]
            file.page_indexes.load(chunks, chunks)
            for test, leaf in rest.items():
                self._learn(test, self._by_pages(test, leaf, groups))
            rows = self._step(PAGE_INDEX, pruning, rows)
        restrictive = [
            test for test in tests if not (isinstance(test, Comparison) and test.op is Op.ANY)
        ]
        are_likely = len({test.term for test in restrictive}) == 1 and all(
            answered.get(test) or (_is_range(test) and file.trusts_bounds) for test in restrictive
        )
        return Candidates(rows, tuple(self._steps), are_likely)

    def _leaves(self, tests: Sequence[Predicate]) -> dict[Comparison, Leaf]:
        """Returns the leaves of the tests for which bounds of stored values are valid."""
        leaf_by_test = {}
        for test in tests:
            leaf = leaf_of(self._file, test, self._constants, self._schema)
            if leaf is not None and isinstance(test, Comparison):
                leaf_by_test[test] = leaf
        return leaf_by_test

    def _by_all_indexes(
        self,
        indexes: Mapping[Predicate, Sequence[Embedded]],
        read: Collection[int],
        pruning: Pruning,
        rows: RowRanges,
        answered: dict[Predicate, bool],
    ) -> RowRanges:
        """Probes the indexes, test by test, as long as that pays.

        ``read`` are the leaves of the filter.
        """
        file = self._file
        tests_per_step = 1 + len(indexes) // _MAX_SINGLE_STEPS
        bytes_left = math.inf if tests_per_step == 1 else most_for(file, indexes)
        for number, (test, usable) in enumerate(by_promise(indexes), 1):
            bytes_left -= cost_of(usable[0], test)
            if bytes_left < 0:
                break
            is_opened = any(file.sections.is_opened(index.entry) for index in usable)
            if is_opened or not answered or not is_little(file, read, rows):
                worthwhile = [index for index in usable if may_pay(file, index, test, read)]
                rows = self._by_indexes(
                    test, worthwhile, pruning, rows, answered, at_once=tests_per_step == 1
                )
            if self._learned_from and number % tests_per_step == 0:
                rows = self._step(self._learned_from, pruning, rows)
        return self._step(self._learned_from, pruning, rows) if self._learned_from else rows

    def _by_indexes(
        self,
        test: Predicate,
        indexes: Sequence[Embedded],
        pruning: Pruning,
        rows: RowRanges,
        answered: dict[Predicate, bool],
        *,
        at_once: bool,
    ) -> RowRanges:
        """Probes the indexes of a test, the smallest first, until an index of values answers it.

        Sets ``answered[test]`` to True if an index of values answered it, to False for other
        indexes. ``at_once`` applies each result immediately.
        """
        for index in indexes:
            if not rows:
                break
            hits = self._file.sections.rows_of(index, test, rows)
            if hits is None:
                continue
            self._learn(test, hits)
            answered[test] = index.finds_values
            self._learned_from = index_source(index.entry)
            if at_once:
                rows = self._step(self._learned_from, pruning, rows)
            if index.finds_values:
                break
        return rows

    def _expect(
        self,
        indexes: Iterable[Sequence[Embedded]],
        tested: Sequence[Leaf],
        leaves_to_read: Sequence[int],
        groups: Sequence[int],
    ) -> None:
        file = self._file
        entries = dict.fromkeys(index.entry for usable in indexes for index in usable)
        columns = [(group, leaf.index) for group in groups for leaf in tested]
        offsets = [*columns, *((group, leaf) for group in groups for leaf in leaves_to_read)]
        file.expect_metadata(entries, offsets, columns)

    def _learn(self, test: Predicate, rows: RowRanges) -> None:
        self._rows_by_test[test] = self._rows_by_test[test] & rows

    def _step(self, source: str, pruning: Pruning, rows: RowRanges) -> RowRanges:
        left = rows_left(pruning, rows, self._rows_by_test.__getitem__)
        self._file.profile.step(source, left)
        self._learned_from = ""
        self._steps.append(Step(source, left.num_rows, len(groups_of(self._file, left))))
        return left

    def _by_row_groups(self, test: Comparison, leaf: Leaf) -> RowRanges:
        file = self._file
        if not file.trusts_bounds:
            return self._all
        might = rows_might_match(test, file.row_group_bounds(leaf.index))
        starts = file.row_group_starts
        return RowRanges(starts[:-1][might], starts[1:][might])

    def _by_bloom_filters(
        self, test: Comparison, leaf: Leaf, groups: Sequence[int]
    ) -> RowRanges | None:
        file = self._file
        if not has_bloom_filters(file, leaf.index, groups):
            return None
        hashes = bloom_hashes_for(test, file.order(leaf.index))
        if hashes is None or len(hashes) > _MAX_BLOOM_VALUES:
            return None
        verdicts = might_contain(file, leaf.index, groups, hashes)
        if verdicts is None:
            return None
        excluded = [
            group for group, might_match in zip(groups, verdicts, strict=True) if not might_match
        ]
        starts = file.row_group_starts
        return self._all - RowRanges(starts[excluded], starts[np.array(excluded, dtype=int) + 1])

    def _is_idle(self, test: Comparison, leaf: Leaf) -> bool:
        """True if the test is IS NOT NULL and the footer shows that no row is NULL or NaN."""
        if test.op is not Op.ANY or not self._file.trusts_bounds:
            return False
        bounds = self._file.row_group_bounds(leaf.index)
        return not bounds.order.has_nan and not bounds.null_counts.any()

    def _by_pages(self, test: Comparison, leaf: Leaf, groups: Sequence[int]) -> RowRanges:
        file = self._file
        parts = []
        for group in groups:
            start, stop = file.row_group_starts[group : group + 2].tolist()
            bounds = file.page_indexes.bounds(group, leaf.index)
            offsets = file.page_indexes.offsets(group, leaf.index)
            if bounds is None or offsets is None:
                parts.append(RowRanges.of((start, stop)))
                continue
            pages = np.flatnonzero(rows_might_match(test, bounds))
            starts, stops = offsets.row_bounds(stop - start)
            parts.append(RowRanges(starts[pages], stops[pages]).shift(start))
        return RowRanges.union(parts)


def _is_range(test: Predicate) -> bool:
    """True if the test is a range without NaN. Bounds seldom show whether there are NaNs."""
    return isinstance(test, Comparison) and test.op in _RANGE_OPERATORS and not test.nans


_NO_ROWS = RowRanges.none()
_RANGE_OPERATORS = (Op.LT, Op.LE, Op.GT, Op.GE)
_MAX_SINGLE_STEPS = 16
"""With more tests, the results of several are applied together, because that visits all tests."""
_MAX_BLOOM_VALUES = 1000
"""With more values, a bloom filter probably contains one of them, and each costs a read."""
