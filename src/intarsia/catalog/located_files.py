"""The files of a data set, as the segments of its catalog know them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from intarsia.catalog.segment_reader import BoolArray, Identity, SegmentReader
from intarsia.plan.plan import Amount, Figures
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import Int64Array
from intarsia.scan.request import Request

Entry = tuple[SegmentReader, int]
"""A segment, and the number of a file in it."""


class _Group(NamedTuple):
    """Files of one segment and schema group that have the same partition columns.

    ``numbers`` are the files' numbers in the segment, ``positions`` those in the data set. Both
    have shape ``(n,)``.
    """

    segment: SegmentReader
    schema_group: int
    constants: Constants
    numbers: Int64Array
    positions: Int64Array


class LocatedFiles:
    """The entries that files have in segments. They depend on no query and no listing."""

    def __init__(
        self,
        base: str,
        files: Sequence[tuple[str, Constants]],
        segments: Sequence[SegmentReader],
    ) -> None:
        """Takes the paths and partition values of files, and the segments, oldest first.

        ``base`` is the path to which paths of segments are added.
        """
        self.files = files
        self.positions = {path: position for position, (path, _) in enumerate(files)}
        """The position in ``files`` of each path."""
        self.entries: list[Entry | None] = []
        """None for files that no segment has."""
        self._identities: list[Identity | None] = []
        members: dict[tuple[int, int, tuple[str, ...]], list[tuple[int, int]]] = {}
        schema_groups = [segment.listed.schema_groups.tolist() for segment in segments]
        newest_first = list(enumerate(segments))[::-1]
        for position, (path, constants) in enumerate(files):
            name = path.removeprefix(base)
            for at, segment in newest_first:
                number = segment.numbers.get(name)
                if number is not None:
                    key = at, schema_groups[at][number], tuple(constants)
                    members.setdefault(key, []).append((number, position))
                    self.entries.append((segment, number))
                    self._identities.append(segment.identities[number])
                    break
            else:
                self.entries.append(None)
                self._identities.append(None)
        self._groups = [
            _Group(segments[at], group, files[pairs[0][1]][1], *np.array(pairs, dtype=np.int64).T)
            for (at, group, _), pairs in members.items()
        ]

    def current(self, positions: Int64Array, identities: Sequence[Identity | None]) -> BoolArray:
        """Returns a mask of all files: those at ``positions`` that are as the catalog knows them.

        ``identities`` are those of the files at ``positions`` now, None if there is no file.
        """
        known = self._identities
        if len(positions) < len(known):
            known = [known[position] for position in positions.tolist()]
        is_current = np.zeros(len(self.files), dtype=np.bool_)
        is_current[positions] = list(map(operator.eq, identities, known))
        return is_current

    def positions_of(self, files: Sequence[tuple[str, Constants]]) -> Int64Array:
        """Returns the positions of some or all of the files."""
        if files is self.files:
            return np.arange(len(files))
        return np.array([self.positions[path] for path, _ in files], dtype=np.int64)

    def pruned(self, is_current: BoolArray, request: Request) -> BoolArray:
        """Returns a mask of files that cannot match. Only those in the mask ``is_current`` can be.

        Both masks have shape ``(n,)`` for the ``n`` files.
        """
        is_pruned = np.zeros(len(self.files), dtype=np.bool_)
        for segment, schema_group, constants, numbers, positions in self._groups:
            is_usable = is_current[positions]
            candidates = np.zeros(segment.num_files, dtype=np.bool_)
            candidates[numbers[is_usable]] = True
            if not candidates.any():
                continue
            matching = segment.might_match(
                np.flatnonzero(candidates), schema_group, constants, request
            )
            candidates[matching] = False
            is_pruned[positions] = candidates[numbers] & is_usable
        return is_pruned

    def figures(self, paths: Iterable[str]) -> Figures:
        """Returns how many row groups, rows and bytes some of the files have, none of them read."""
        entries = [self.entries[self.positions[path]] for path in paths]
        known = [(segment.listed, number) for segment, number in filter(None, entries)]
        return Figures(
            files=Amount(0, len(known)),
            row_groups=Amount(0, sum(int(listed.row_groups[number]) for listed, number in known)),
            rows=Amount(0, sum(int(listed.rows[number]) for listed, number in known)),
            bytes=Amount(0, sum(int(listed.sizes[number]) for listed, number in known)),
        )
