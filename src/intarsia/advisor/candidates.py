"""Lists the indexes that might answer a filter: every kind with its default parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from intarsia.errors import IndexSpecError
from intarsia.expr.comparison_operators import Op
from intarsia.file.embedded_indexes import may_answer
from intarsia.file.index_subjects import subject_of
from intarsia.file.open_file import OpenedFile
from intarsia.index.kinds.distinct_idx1 import DistinctIDX1
from intarsia.index.parquet_indexes import Bloom, PageIndex
from intarsia.index.registry import EmbeddedIndex, IndexSpec, kinds, make, spec_name
from intarsia.plan.stored_columns import values_agree
from intarsia.pruning.partition_pruning import Constants
from intarsia.pruning.predicates import Comparison, Predicate, predicates_of
from intarsia.pruning.term import Term
from intarsia.scan.request import Request


def tests_in(requests: Sequence[Request]) -> list[Predicate]:
    """Returns the comparisons and search predicates of all filters."""
    return [test for request in requests for test in predicates_of(request.pruning)]


def page_index_for(files: Sequence[OpenedFile], requests: Sequence[Request]) -> PageIndex | None:
    """Returns a page index of the compared columns that lack one, or None."""
    paths = {test.term.path for test in tests_in(requests) if isinstance(test, Comparison)} - {()}
    columns = {
        leaf.name: None
        for file in files
        for leaf in file.schema.leaves
        if leaf.path in paths
        and any(
            file.column_chunk(group, leaf.index).column_index_offset is None
            for group in range(len(file.metadata.row_groups))
        )
    }
    return PageIndex(tuple(columns)) if columns else None


def indexes_for(
    file: OpenedFile, requests: Sequence[Request], constants: Constants
) -> list[IndexSpec]:
    """Returns the indexes, beside page indexes, that might answer a filter."""
    index_of: dict[str, IndexSpec] = {}
    for request in requests:
        for test in predicates_of(request.pruning):
            if values_agree(file, test.term, constants, request.schema):
                for index in _candidates_for(file, test):
                    index_of.setdefault(spec_name(index), index)
    existing_names = {entry.name for entry in file.sections.entries}
    return [index for name, index in index_of.items() if name not in existing_names]


def _candidates_for(file: OpenedFile, test: Predicate) -> Iterator[IndexSpec]:
    if isinstance(test, Comparison) and test.op in (Op.EQ, Op.IN) and any(test.term.path):
        yield Bloom(_dotted(test))
    for kind in kinds():
        if kind not in (Bloom.kind, PageIndex.kind, DistinctIDX1.kind):  # Distinct does more
            index = default_index(kind, test.term)
            if index is not None and fits(file, index, test):
                yield index


def answers(file: OpenedFile, index: IndexSpec, request: Request) -> bool:
    """True if an index might answer one predicate of a filter."""
    tests = predicates_of(request.pruning)
    if isinstance(index, PageIndex):
        return any(_dotted(test) in (index.columns or ()) for test in tests)
    if isinstance(index, Bloom):
        return any(
            isinstance(test, Comparison) and test.op in (Op.EQ, Op.IN) and _dotted(test) == index.on
            for test in tests
        )
    return any(fits(file, index, test) for test in tests)


def default_index(kind: str, term: Term) -> EmbeddedIndex | None:
    """Returns an index with default parameters. Returns None if its kind needs parameters."""
    try:
        return make(kind, str(term), {})
    except IndexSpecError:
        return None


def fits(file: OpenedFile, index: EmbeddedIndex, test: Predicate) -> bool:
    """True if a file can have the index, and the index may answer the predicate."""
    try:
        subject = subject_of(file.columns, index)
    except IndexSpecError:
        return False
    return subject.term == test.term and may_answer(index, subject, test)


def _dotted(test: Predicate) -> str:
    """Returns the column of a predicate, as page indexes and bloom filters name it."""
    return ".".join(test.term.path)
