"""Choosing which indexes to consult: the most promising first, and none once little is left."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from intarsia.predicate.leaves import Op, Predicate, Test
from intarsia.ranges import RowRanges
from intarsia.read.opened import OpenedFile
from intarsia.read.rows import groups_of
from intarsia.read.sections import Embedded

_PROBE_BYTES = 256 * 1024
"""A probe takes about as long as it takes to read and decode so much; far storage says itself."""
_PAGE_BYTES = 20 * 1024
"""Of a section, about."""
_POINTS = {Op.EQ: 0, Op.IN: 1, Op.NONE: 1}
_OTHERS = 2


def by_promise(
    indexes: Mapping[Predicate, Sequence[Embedded]],
) -> list[tuple[Predicate, Sequence[Embedded]]]:
    """Tests and their indexes, those first that probably leave least.

    That is tests for single values, and of these the ones with the largest index: the more distinct
    values a column has, the more an index takes, and the fewer rows one of them is in.
    """

    def rank(item: tuple[Predicate, Sequence[Embedded]]) -> tuple[int, int]:
        test, usable = item
        sort = _POINTS.get(test.op, _OTHERS) if isinstance(test, Test) else _OTHERS
        return sort, -max(index.entry.length for index in usable)

    return sorted(indexes.items(), key=rank)


def may_pay(file: OpenedFile, index: Embedded, test: Predicate, leaves: Iterable[int]) -> bool:
    """Could asking ``index`` save more bytes of ``leaves`` than it reads?

    Values are taken to lie anywhere, each in one granule, and its keys anywhere in the index.
    """
    if not isinstance(test, Test) or test.op is not Op.IN or not index.finds_values:
        return True
    granules = max(file.num_rows / index.kind.granule_rows, 1)
    read = index.entry.length * _share(len(test.values), index.entry.length / _PAGE_BYTES)
    groups = range(len(file.metadata.row_groups))
    stored = sum(file.chunk(g, leaf).total_compressed_size for g in groups for leaf in leaves)
    return read < stored * (1 - _share(len(test.values), granules)) or read < _PROBE_BYTES


def _share(thrown: int, places: float) -> float:
    """The share of ``places`` that are hit by so many throws."""
    return -math.expm1(-thrown / max(places, 1))


def is_little(file: OpenedFile, leaves: Iterable[int], rows: RowRanges) -> bool:
    """Does reading ``leaves`` at ``rows`` cost less than asking one more index?"""
    most = max(file.request_bytes, _PROBE_BYTES)
    size = 0.0
    for group in groups_of(file, rows):
        count = file.num_rows_in(group)
        first = int(file.row_group_starts[group])
        share = rows.clip(first, first + count).num_rows / count
        size += share * sum(file.chunk(group, leaf).total_uncompressed_size for leaf in leaves)
        if size > most:
            return False
    return True
