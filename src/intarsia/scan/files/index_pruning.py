"""Finding out which of many files lack the value that is looked for, by their indexes.

::

    file 0   … │ keys │ …     ┐
    file 1   … │ keys │ …     ├─▶  PAR1 [page][page][page] … footer'  ─▶  file 1
    file 2   … │ keys │ …     ┘    a row group each

A point query over many files finds nothing in nearly all of them. What most of that takes is not
reading: of each file's index the one page that its key can be on is decoded here together with
those of the others, and where the key is not on it the file is done with. What is found only leaves
files out: those that are left are planned as any other.
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
from intarsia.index.section.multi_probe import are_held
from intarsia.index.section.probe import InvertedSection
from intarsia.pruning.partition_pruning import Constants
from intarsia.pruning.predicate_tree import Pruning, tests_of
from intarsia.pruning.predicates import Predicate, seeks_values
from intarsia.pruning.prune import rows_left
from intarsia.row_ranges import RowRanges
from intarsia.scan.file_planner import indexes_for

BoolArray = NDArray[np.bool_]

_MOST_VALUES = 16
"""Of an IN: of more, each is on a page of its own, and some file or other holds one."""


class _Asked(NamedTuple):
    """The index of one file that is asked for ``keys``: fingerprints, distinct and sorted."""

    at: int
    section: InvertedSection
    keys: FingerprintArray


def hold_keys(
    files: Sequence[OpenedFile],
    constants: Sequence[Constants],
    schema: pa.Schema,
    pruning: Pruning,
) -> BoolArray:
    """For each of ``n`` files of one shape: might any of its rows pass? Shape ``(n,)``, bool.

    Only tests for a value, or a few, are asked about, without which no row passes ``pruning``.
    ``constants`` are the columns that each file's folder fixes, ``schema`` is the data set's.
    """
    try:
        return _hold_keys(files, constants, schema, decisive(pruning))
    except READ_ERRORS:  # which index it is, and what is wrong, asking it will say
        return np.ones(len(files), dtype=np.bool_)


def _hold_keys(
    files: Sequence[OpenedFile],
    constants: Sequence[Constants],
    schema: pa.Schema,
    tests: Sequence[Predicate],
) -> BoolArray:
    """As ``hold_keys``, of its ``decisive`` tests."""
    might = np.ones(len(files), dtype=np.bool_)
    if not tests:
        return might
    known: dict[tuple[int, int, int], tuple[Embedded, FingerprintArray | None]] = {}
    asked = []
    for at, (file, own) in enumerate(zip(files, constants, strict=True)):
        of_keys = _of_keys(indexes_for(file, tests, own, schema))
        if not of_keys:
            continue
        test, index = of_keys[0]
        meant = id(test), id(index.kind), id(index.of)  # of files of one shape the same objects
        if meant not in known:
            known[meant] = index, _keys(index, test)
        keys = known[meant][1]
        section = None if keys is None else file.sections.section(index)
        if keys is not None and isinstance(section, InvertedSection):
            asked.append(_Asked(at, section, keys))
    held = are_held([(one.section, one.keys) for one in asked])
    might[[one.at for one in asked]] = held
    return might


def decisive(pruning: Pruning) -> list[Predicate]:
    """Tests for a value, or a few, without which no row passes."""
    one = RowRanges.all(1)

    def fails(failed: Predicate) -> bool:
        def leaf(test: Predicate) -> RowRanges:
            return RowRanges.none() if test == failed else one

        return not rows_left(pruning, one, leaf)

    points = [
        test
        for test in tests_of(pruning)
        if seeks_values(test) and len(test.values) <= _MOST_VALUES
    ]
    return [test for test in points if fails(test)]


def _of_keys(found: dict[Predicate, list[Embedded]]) -> list[tuple[Predicate, Embedded]]:
    """Indexes that are asked for all keys there are of a value, the largest first.

    The more distinct values a column has, the more an index takes, and the fewer files hold one.
    """
    of_keys = [
        (test, index)
        for test, usable in found.items()
        for index in usable
        if isinstance(index.kind, Inverted)
        and not index.kind.exact
        and index.kind.reading_share is None
    ]
    return sorted(of_keys, key=lambda pair: -pair[1].entry.length)


def _keys(index: Embedded, test: Predicate) -> FingerprintArray | None:
    """The fingerprints of which a row that passes has one; None where that cannot be told."""
    assert isinstance(index.kind, Inverted)
    try:
        formula = index.kind.keys_for(test, index.of)
    except Exception:  # noqa: BLE001 # of a kind from elsewhere: the planner will say so
        return None
    return np.unique(formula.keys) if isinstance(formula, Keys) else None
