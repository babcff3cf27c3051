"""Prunes files that lack a value, by probing the indexes of many files together.

::

    file 0   … │ keys │ …     ┐
    file 1   … │ keys │ …     ├─▶  PAR1 [page][page][page] … footer'  ─▶  file 1
    file 2   … │ keys │ …     ┘    a row group each

A point query over many files matches nothing in nearly all of them, and most of its time is not
spent reading. For each file, one page of the index can hold the key. These pages are decoded
together, and files without the key are skipped. The other files are planned as usual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from intarsia.file.embedded_indexes import Embedded
from intarsia.file.open_file import READ_ERRORS
from intarsia.index.base import Inverted
from intarsia.index.key_formula import FingerprintArray, Keys
from intarsia.index.section.multi_probe import have_any_key
from intarsia.index.section.probe import InvertedSection
from intarsia.plan.cost_model import COSTS
from intarsia.plan.file_group import FileGroup
from intarsia.plan.pruner import Narrowed, Tests, index_source
from intarsia.pruning.predicates import Predicate, Pruning, predicates_of, rows_left, seeks_values
from intarsia.row_ranges import RowRanges, distinct

KEYS = "keys of many files"
"""The step's name if the files have different indexes. Else it is named as that index."""


class _Probe(NamedTuple):
    """A probe of one file's index for ``keys``: fingerprints, distinct and sorted."""

    number: int
    test: Predicate
    source: str
    section: InvertedSection
    keys: FingerprintArray


def file_keys(group: FileGroup, tests: Tests, rows: RowRanges) -> Narrowed | None:
    """Prunes files that lack a key of a predicate. One index of each file is probed.

    Every matching row must pass the predicates: see ``required_predicates``.
    """
    try:
        probes = _probes(group, tests, rows)
        have_key = have_any_key([(probe.section, probe.keys) for probe in probes])
    except READ_ERRORS:  # probing the indexes one by one reports the error
        return None
    might_match = {probe.test: np.ones(len(group.files), dtype=np.bool_) for probe in probes}
    for probe, has_key in zip(probes, have_key, strict=True):
        might_match[probe.test][probe.number] = has_key
    rows_by_test = {test: group.rows_of_files(mask) for test, mask in might_match.items()}
    sources = {probe.source for probe in probes}
    if not sources:
        return None
    return Narrowed(rows_by_test, sources.pop() if len(sources) == 1 else KEYS)


def _probes(group: FileGroup, tests: Tests, rows: RowRanges) -> list[_Probe]:
    """Returns a probe for each file that holds any of ``rows`` and has an index of keys."""
    keys_by_meaning: dict[tuple[int, int, int], tuple[Embedded, FingerprintArray | None]] = {}
    probes = []
    for number in np.flatnonzero(group.files_of(rows)).tolist() if tests else ():
        usable = _key_indexes(group.indexes(tests, number))
        if not usable:
            continue
        test, index = usable[0]
        # Files of one footer layout share these objects. The index keeps them alive.
        meaning = id(test), id(index.kind), id(index.of)
        if meaning not in keys_by_meaning:
            keys_by_meaning[meaning] = index, _keys(index, test)
        keys = keys_by_meaning[meaning][1]
        section = None if keys is None else group.files[number].sections.section(index)
        if keys is not None and isinstance(section, InvertedSection):
            probes.append(_Probe(number, test, index_source(index.entry), section, keys))
    return probes


def required_predicates(pruning: Pruning) -> list[Predicate]:
    """Returns the tests for one or a few values that every matching row must pass."""
    one = RowRanges.all(1)

    def fails(failed: Predicate) -> bool:
        def leaf(test: Predicate) -> RowRanges:
            return RowRanges.none() if test == failed else one

        return not rows_left(pruning, one, leaf)

    points = [
        test
        for test in predicates_of(pruning)
        if seeks_values(test) and len(test.values) <= COSTS.key_values
    ]
    return [test for test in points if fails(test)]


def _key_indexes(
    indexes_by_test: Mapping[Predicate, Sequence[Embedded]],
) -> list[tuple[Predicate, Embedded]]:
    """Returns tests with fingerprint indexes, the largest index first.

    A larger index has more distinct values, so fewer files hold each value.
    """
    pairs = [
        (test, index)
        for test, usable in indexes_by_test.items()
        for index in usable
        if isinstance(index.kind, Inverted)
        and not index.kind.exact
        and index.kind.reading_share is None
    ]
    return sorted(pairs, key=lambda pair: -pair[1].entry.length)


def _keys(index: Embedded, test: Predicate) -> FingerprintArray | None:
    """Returns fingerprints of which each passing row has one; None if there are none."""
    assert isinstance(index.kind, Inverted)
    try:
        formula = index.kind.keys_for(test, index.of)
    except Exception:  # noqa: BLE001 # third-party kinds may raise anything; the planner reports it
        return None
    return distinct(formula.keys) if isinstance(formula, Keys) else None
