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

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.file.embedded_indexes import Embedded
from intarsia.file.open_file import READ_ERRORS, OpenedFile
from intarsia.index.base import Inverted
from intarsia.index.key_formula import FingerprintArray, Keys
from intarsia.index.section.multi_probe import have_any_key
from intarsia.index.section.probe import InvertedSection
from intarsia.pruning.partition_pruning import Constants
from intarsia.pruning.predicate_tree import Pruning, predicates_of
from intarsia.pruning.predicates import Predicate, seeks_values
from intarsia.pruning.prune import rows_left
from intarsia.row_ranges import RowRanges
from intarsia.scan.file_planner import indexes_for

BoolArray = NDArray[np.bool_]

_MAX_VALUES = 16
"""Maximum values of an ``IN``. With more, most files hold one, and each needs a page of its own."""


class _Probe(NamedTuple):
    """A probe of one file's index for ``keys``: fingerprints, distinct and sorted."""

    position: int
    section: InvertedSection
    keys: FingerprintArray


def files_with_keys(
    files: Sequence[OpenedFile],
    constants: Sequence[Constants],
    schema: pa.Schema,
    pruning: Pruning,
) -> BoolArray:
    """Returns a mask of the ``n`` files that might hold a passing row: shape ``(n,)``, bool.

    The files are of one schema group. Only the ``required_predicates`` of ``pruning`` are used.
    ``constants`` are each file's partition values, ``schema`` is the data set's.
    """
    try:
        return _hold_keys(files, constants, schema, required_predicates(pruning))
    except READ_ERRORS:  # probing the indexes one by one reports the error
        return np.ones(len(files), dtype=np.bool_)


def _hold_keys(
    files: Sequence[OpenedFile],
    constants: Sequence[Constants],
    schema: pa.Schema,
    tests: Sequence[Predicate],
) -> BoolArray:
    """Returns the mask of ``files_with_keys`` for its required predicates."""
    might_match = np.ones(len(files), dtype=np.bool_)
    if not tests:
        return might_match
    keys_by_meaning: dict[tuple[int, int, int], tuple[Embedded, FingerprintArray | None]] = {}
    probes = []
    for position, (file, values) in enumerate(zip(files, constants, strict=True)):
        usable = _key_indexes(indexes_for(file, tests, values, schema))
        if not usable:
            continue
        test, index = usable[0]
        meaning = (
            id(test),
            id(index.kind),
            id(index.of),
        )  # files of one schema group share these objects
        if meaning not in keys_by_meaning:
            keys_by_meaning[meaning] = index, _keys(index, test)
        keys = keys_by_meaning[meaning][1]
        section = None if keys is None else file.sections.section(index)
        if keys is not None and isinstance(section, InvertedSection):
            probes.append(_Probe(position, section, keys))
    is_found = have_any_key([(probe.section, probe.keys) for probe in probes])
    might_match[[probe.position for probe in probes]] = is_found
    return might_match


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
        if seeks_values(test) and len(test.values) <= _MAX_VALUES
    ]
    return [test for test in points if fails(test)]


def _key_indexes(
    indexes_by_test: dict[Predicate, list[Embedded]],
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
    return np.unique(formula.keys) if isinstance(formula, Keys) else None
