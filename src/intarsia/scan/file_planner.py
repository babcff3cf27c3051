"""Planning one file: asking each source of knowledge in turn which rows are left.

Row-group statistics come first, since the footer is at hand; then embedded indexes, which read
little and may leave little; then the page indexes of the columns that no embedded index answered.
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
from intarsia.pruning.predicate_tree import Pruning, tests_of
from intarsia.pruning.predicates import Predicate, Test
from intarsia.pruning.prune import might_pass, rows_left
from intarsia.pruning.term import Term, field_term
from intarsia.pruning.type_compatibility import agree_at
from intarsia.row_ranges import RowRanges
from intarsia.scan.bloom_filters import has_bloom_filters, might_contain
from intarsia.scan.index_selection import by_promise, cost_of, is_little, may_pay, most_for
from intarsia.scan.page_selection import groups_of
from intarsia.scan.small_row_groups import pages_spare_little

BLOOM_FILTERS = "bloom filters"
PAGE_INDEX = "page index"
"""What the step is called that page indexes took."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows of one file that might match, and how it came to that.

    ``are_likely`` where each of their pages is expected to hold a row that does: an index of values
    pointed at it, or a range of one column reaches into it.
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
    """Which rows of ``file``, seen through ``schema``, might pass ``pruning``.

    ``leaves`` are those to be read at these rows: what that takes is fetched meanwhile, where
    storage is far. Only rows ``within`` are asked for; ``by_footer`` reads nothing to tell.
    """
    rows = RowRanges.all(file.num_rows) if within is None else within
    check_folder(file, constants, schema)
    constants = {**constants, **missing_columns(file, pruning, constants, schema)}
    return _Planner(file, constants, schema).run(pruning, leaves, rows, by_footer)


def leaf_of(
    file: OpenedFile, test: Predicate, constants: Constants, schema: pa.Schema
) -> Leaf | None:
    """The column a test is about, if bounds of its values say something about rows.

    That is where ``schema``, through which the file is seen, compares values as stored ones do.
    """
    path = test.term.path
    if not path or path[0] in constants:
        return None
    leaf = file.schema.leaf(path)
    if leaf is None or leaf.max_repetition_level:
        return None
    stored = file.arrow_type(file.schema.roots[leaf.root])
    return leaf if agree_at(stored, schema.field(path[0]).type, path[1:]) else None


def indexes_for(
    file: OpenedFile, tests: Sequence[Predicate], constants: Constants, schema: pa.Schema
) -> dict[Predicate, list[Embedded]]:
    """The embedded indexes that might answer each test, of values that compare as stored ones."""
    found: dict[Predicate, list[Embedded]] = {}
    for test in tests:
        usable = [index for index in file.sections.about(test.term) if index.may_answer(test)]
        if usable and values_agree(file, test.term, constants, schema):
            found[test] = usable
    return found


def values_agree(file: OpenedFile, term: Term, constants: Constants, schema: pa.Schema) -> bool:
    """Does what the file's own values say of a term hold for ``schema``, through which it is seen?

    A field has to be read in a type that compares alike; what a function makes of it may depend on
    the very type.
    """
    for path in term.fields:
        root = file.schema.root(path[0])
        if path[0] in constants or root is None:
            return False
        stored, seen = file.arrow_type(root), schema.field(path[0]).type
        if not agree_at(stored, seen, path[1:], exactly=not term.path):
            return False
    return True


def index_source(entry: IndexEntry) -> str:
    """What a step is called that an embedded index took."""
    return f"index {entry.name}"


def folder_might_match(pruning: Pruning, constants: Constants) -> bool:
    """Might any row of a file in this folder pass? Told without opening the file."""
    return might_pass(pruning, lambda test: constants_might_match(test, constants))


def check_folder(file: OpenedFile, constants: Constants, schema: pa.Schema) -> None:
    """Raise ``FormatError`` if the footer shows that a folder's value is not the file's own.

    ``constants`` are the columns that the folder fixes. Files may have them as well.
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


def _differ(test: Test, bounds: Bounds) -> BoolArray:
    """For each row group: do its bounds show that a row does not pass ``test``, an equality?"""
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


def _equals(name: str, value: pa.Scalar) -> Test:
    if not value.is_valid:
        return Test(field_term(name), Op.NONE, nulls=True)
    return Test(field_term(name), Op.EQ, pa.array([value]), nans=True)


def missing_columns(
    file: OpenedFile, pruning: Pruning, constants: Constants, schema: pa.Schema
) -> Constants:
    """NULL for each column of ``pruning`` that neither ``file`` nor its folder has."""
    names = {path[0] for test in tests_of(pruning) for path in test.term.fields}
    missing = [name for name in names - constants.keys() if file.schema.root(name) is None]
    return {name: pa.scalar(None, schema.field(name).type) for name in missing}


class _Planner:
    def __init__(self, file: OpenedFile, constants: Constants, schema: pa.Schema) -> None:
        self._file, self._constants, self._schema = file, constants, schema
        self._known: dict[Predicate, RowRanges] = {}
        self._all = RowRanges.all(file.num_rows)
        self._steps: list[Step] = []
        self._learned_from = ""
        """An index that said of a test what is yet to be made something of."""

    def run(
        self, pruning: Pruning, wanted: Sequence[int], rows: RowRanges, by_footer: bool
    ) -> Candidates:
        file = self._file
        tests = tests_of(pruning)
        for test in tests:
            might = constants_might_match(test, self._constants)
            self._known[test] = self._all if might else _NO_ROWS
        leaves = self._leaves(tests)
        for test, leaf in leaves.items():
            self._learn(test, self._by_row_groups(test, leaf))
        rows = self._step("row-group statistics", pruning, rows)
        if by_footer or not rows:
            return Candidates(rows, tuple(self._steps))
        idle = {test for test, leaf in leaves.items() if self._is_idle(test, leaf)}
        busy = [test for test in tests if test not in idle]
        indexes = indexes_for(file, busy, self._constants, self._schema)
        if file.request_bytes:
            self._expect(indexes.values(), list(leaves.values()), wanted, groups_of(file, rows))
        read = {leaf.index for leaf in leaves.values()}
        answered: dict[Predicate, bool] = {}
        rows = self._by_all_indexes(indexes, read, pruning, rows, answered)
        rest = {
            test: leaf for test, leaf in leaves.items() if test not in answered and test not in idle
        }
        if answered and is_little(file, read, rows):
            rest = {}
        for test, leaf in rest.items():
            kept = self._by_bloom_filters(test, leaf, groups_of(file, rows))
            if kept is not None:
                self._learn(test, kept)
                rows = self._step(f"{BLOOM_FILTERS} of {leaf.name}", pruning, rows)
        groups = groups_of(file, rows) if rest and rows else []
        if groups and not pages_spare_little(file, len(groups)):
            chunks = [(group, leaf.index) for group in groups for leaf in rest.values()]
            file.page_indexes.load(chunks, chunks)
            for test, leaf in rest.items():
                self._learn(test, self._by_pages(test, leaf, groups))
            rows = self._step(PAGE_INDEX, pruning, rows)
        asked = [test for test in tests if not (isinstance(test, Test) and test.op is Op.ANY)]
        are_likely = len({test.term for test in asked}) == 1 and all(
            answered.get(test) or (_is_range(test) and file.trusts_bounds) for test in asked
        )
        return Candidates(rows, tuple(self._steps), are_likely)

    def _leaves(self, tests: Sequence[Predicate]) -> dict[Test, Leaf]:
        """The columns of tests that bounds of stored values say something about."""
        found = {}
        for test in tests:
            leaf = leaf_of(self._file, test, self._constants, self._schema)
            if leaf is not None and isinstance(test, Test):
                found[test] = leaf
        return found

    def _by_all_indexes(
        self,
        indexes: Mapping[Predicate, Sequence[Embedded]],
        read: Collection[int],
        pruning: Pruning,
        rows: RowRanges,
        answered: dict[Predicate, bool],
    ) -> RowRanges:
        """Ask the indexes test by test, as long as it pays. ``read`` are the leaves tested."""
        file = self._file
        every = 1 + len(indexes) // _STEPS
        most = math.inf if every == 1 else most_for(file, indexes)
        for number, (test, usable) in enumerate(by_promise(indexes), 1):
            most -= cost_of(usable[0], test)
            if most < 0:
                break
            known = any(file.sections.is_opened(index.entry) for index in usable)
            if known or not answered or not is_little(file, read, rows):
                worth = [index for index in usable if may_pay(file, index, test, read)]
                rows = self._by_indexes(test, worth, pruning, rows, answered, at_once=every == 1)
            if self._learned_from and number % every == 0:
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
        """Ask the indexes that might answer a test, the smallest first, until one finds values.

        ``answered`` is told of tests that were, and whether values were found. What they leave is
        made out ``at_once``, or later.
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
        wanted: Sequence[int],
        groups: Sequence[int],
    ) -> None:
        file = self._file
        entries = dict.fromkeys(index.entry for usable in indexes for index in usable)
        columns = [(group, leaf.index) for group in groups for leaf in tested]
        offsets = [*columns, *((group, leaf) for group in groups for leaf in wanted)]
        file.expect_metadata(entries, offsets, columns)

    def _learn(self, test: Predicate, rows: RowRanges) -> None:
        self._known[test] = self._known[test] & rows

    def _step(self, source: str, pruning: Pruning, rows: RowRanges) -> RowRanges:
        left = rows_left(pruning, rows, self._known.__getitem__)
        self._learned_from = ""
        self._steps.append(Step(source, left.num_rows, len(groups_of(self._file, left))))
        return left

    def _by_row_groups(self, test: Test, leaf: Leaf) -> RowRanges:
        file = self._file
        if not file.trusts_bounds:
            return self._all
        might = rows_might_match(test, file.row_group_bounds(leaf.index))
        starts = file.row_group_starts
        return RowRanges(starts[:-1][might], starts[1:][might])

    def _by_bloom_filters(self, test: Test, leaf: Leaf, groups: Sequence[int]) -> RowRanges | None:
        file = self._file
        if not has_bloom_filters(file, leaf.index, groups):
            return None
        hashes = bloom_hashes_for(test, file.order(leaf.index))
        if hashes is None or len(hashes) > _BLOOM_VALUES:
            return None
        might = might_contain(file, leaf.index, groups, hashes)
        if might is None:
            return None
        excluded = [group for group, found in zip(groups, might, strict=True) if not found]
        starts = file.row_group_starts
        return self._all - RowRanges(starts[excluded], starts[np.array(excluded, dtype=int) + 1])

    def _is_idle(self, test: Test, leaf: Leaf) -> bool:
        """Does it ask for values where the footer knows of no row without one?"""
        if test.op is not Op.ANY or not self._file.trusts_bounds:
            return False
        bounds = self._file.row_group_bounds(leaf.index)
        return not bounds.order.has_nan and not bounds.null_counts.any()

    def _by_pages(self, test: Test, leaf: Leaf, groups: Sequence[int]) -> RowRanges:
        file = self._file
        found = []
        for group in groups:
            start, stop = file.row_group_starts[group : group + 2].tolist()
            bounds = file.page_indexes.bounds(group, leaf.index)
            offsets = file.page_indexes.offsets(group, leaf.index)
            if bounds is None or offsets is None:
                found.append(RowRanges.of((start, stop)))
                continue
            might = np.flatnonzero(rows_might_match(test, bounds))
            starts, stops = offsets.row_bounds(stop - start)
            found.append(RowRanges(starts[might], stops[might]).shift(start))
        return RowRanges.union(found)


def _is_range(test: Predicate) -> bool:
    """Does it ask for what bounds tell well? They seldom say that there is no NaN."""
    return isinstance(test, Test) and test.op in _RANGES and not test.nans


_NO_ROWS = RowRanges.none()
_RANGES = (Op.LT, Op.LE, Op.GT, Op.GE)
_STEPS = 16
"""Of more tests than this, what several leave is made out together: all tests are gone through."""
_BLOOM_VALUES = 1000
"""Of more values than this some are likely to be found, and each costs a read."""
