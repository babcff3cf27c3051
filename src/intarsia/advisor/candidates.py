"""Which indexes might answer a filter: every kind there is, as it is by default."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from intarsia.errors import IndexSpecError
from intarsia.expr.comparison_operators import Op
from intarsia.file.embedded_indexes import may_answer
from intarsia.file.index_subjects import subject_of
from intarsia.file.open_file import OpenedFile
from intarsia.index.parquet_indexes import Bloom, PageIndex
from intarsia.index.registry import EmbeddedIndex, IndexSpec, kinds, make, parse, spec_name
from intarsia.index.spec import quoted
from intarsia.pruning.partition_pruning import Constants
from intarsia.pruning.predicate_tree import tests_of
from intarsia.pruning.predicates import Predicate, Test
from intarsia.pruning.term import Term
from intarsia.scan.file_planner import values_agree
from intarsia.scan.request import Request


def tests_in(requests: Sequence[Request]) -> list[Predicate]:
    """All that the filters ask."""
    return [test for request in requests for test in tests_of(request.pruning)]


def page_index_for(files: Sequence[OpenedFile], requests: Sequence[Request]) -> PageIndex | None:
    """A page index of the columns that are asked about, where chunks have none."""
    paths = {test.term.path for test in tests_in(requests) if isinstance(test, Test)} - {()}
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
    """Bloom filters and indexes to embed that might answer one of the filters, but for those that
    the file has.
    """
    known: dict[str, IndexSpec] = {}
    for request in requests:
        for test in tests_of(request.pruning):
            if values_agree(file, test.term, constants, request.schema):
                for index in _for(file, test):
                    known.setdefault(spec_name(index), index)
    there = {entry.name for entry in file.sections.entries}
    return [index for name, index in known.items() if name not in there]


def _for(file: OpenedFile, test: Predicate) -> Iterator[IndexSpec]:
    if isinstance(test, Test) and test.op in (Op.EQ, Op.IN) and any(test.term.path):
        yield Bloom(_dotted(test))
    for kind in kinds():
        if kind not in (Bloom.kind, PageIndex.kind):
            made = made_of(kind, test.term)
            if made is not None and fits(file, made, test):
                yield made


def answers(file: OpenedFile, index: IndexSpec, request: Request) -> bool:
    """Might an index answer one of the things a filter asks?"""
    tests = tests_of(request.pruning)
    if isinstance(index, PageIndex):
        return any(_dotted(test) in (index.columns or ()) for test in tests)
    if isinstance(index, Bloom):
        return any(
            isinstance(test, Test) and test.op in (Op.EQ, Op.IN) and _dotted(test) == index.on
            for test in tests
        )
    return any(fits(file, index, test) for test in tests)


def made_of(kind: str, term: Term) -> EmbeddedIndex | None:
    """An index as it is by default; None where its kind needs to be told more."""
    try:
        return make(kind, str(term), {})
    except IndexSpecError:
        return None


def fits(file: OpenedFile, index: EmbeddedIndex, test: Predicate) -> bool:
    """Can a file have the index, and is it one that is asked such things?"""
    try:
        of = subject_of(file.columns, index)
    except IndexSpecError:
        return False
    return of.term == test.term and may_answer(index, of, test)


def _dotted(test: Predicate) -> str:
    """The column that a test is about, as the format's own indexes are told it."""
    return ".".join(test.term.path)


def as_text(index: IndexSpec) -> str:
    """An index as ``parse`` reads it."""
    if isinstance(index, PageIndex):
        return f"page_index({', '.join(map(quoted, index.columns or ()))})"
    text = f"{index.kind}({index.on})"
    with contextlib.suppress(IndexSpecError):
        if parse(text) == index:
            return text
    return f"{index.kind}({quoted(index.on)})"  # a column's name that looks like something else
