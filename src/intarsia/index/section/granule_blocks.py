"""Blocks of granules, for keys that are frequent where granules are small.

Granules of short pages let a rare key point at few rows; of a frequent one there are as many more
entries, which tell little. Such keys are stored for *blocks*, each of ``size`` granules side by
side, the last perhaps of fewer. Entries have *cells*: blocks are numbered first, then granules::

    granules   0 1 2 3 │ 4 5 6 7 │ 8 9          size 4
    cells      0       │ 1       │ 2            of a frequent key
               3 4 5 6   7 8 9 10  11 12        of a rare one
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from intarsia.errors import FormatError
from intarsia.index.key_formula import GranuleMask
from intarsia.index.section.writer import distinct, without_repeats
from intarsia.row_ranges import UInt64Array

_RARE = 16
"""A key is rare that is in a single block, or in no more than one of so many."""
_MOST_ENTRIES = 1 << 27
"""That blocks may stand for: 1 GB."""
_KEY_BITS = np.uint64(32)
_NUMBER = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Blocks:
    """How ``granules`` are put together: ``size`` a block, more than one and fewer than all."""

    size: int
    granules: int

    @property
    def count(self) -> int:
        return -(-self.granules // self.size)

    @property
    def cells(self) -> int:
        """How many blocks and granules there are."""
        return self.count + self.granules

    @property
    def most(self) -> int:
        """A key that is in more blocks than this is stored for blocks."""
        return max(1, self.count // _RARE)

    def cells_of(self, entries: UInt64Array) -> UInt64Array:
        """Entries of granules, sorted and distinct, with cells instead: sorted and distinct."""
        block: UInt64Array = (entries & _NUMBER) // np.uint64(self.size)
        in_blocks: UInt64Array = without_repeats((entries & ~_NUMBER) | block)
        counts = _runs(in_blocks >> _KEY_BITS)
        frequent = counts > self.most
        of_blocks = in_blocks[np.repeat(frequent, counts)]
        of_granules = entries[np.repeat(~frequent, _runs(entries >> _KEY_BITS))] + np.uint64(
            self.count
        )
        return distinct(np.concatenate([of_blocks, of_granules]))

    def entries_of(self, cells: UInt64Array) -> UInt64Array:
        """Entries of cells with all granules of each: sorted and distinct.

        Raises ``FormatError`` for more than are taken.
        """
        keys, numbers = cells & ~_NUMBER, cells & _NUMBER
        is_block = numbers < self.count
        if int(is_block.sum()) * self.size > _MOST_ENTRIES:
            raise FormatError(f"blocks of {self.size:,} granules hold too many entries")
        single = cells[~is_block] - np.uint64(self.count)
        first = numbers[is_block] * np.uint64(self.size)
        granules: UInt64Array = np.add.outer(first, np.arange(self.size, dtype=np.uint64))
        spread = (keys[is_block][:, np.newaxis] | granules)[granules < self.granules]
        return distinct(np.concatenate([single, spread]))

    def granules_in(self, cells: NDArray[np.bool_]) -> GranuleMask:
        """Of a mask of shape ``(cells,)``, that of granules: each that is one, or in a block."""
        in_blocks = np.repeat(cells[: self.count], self.size)[: self.granules]
        found: GranuleMask = cells[self.count :] | in_blocks
        return found


def _runs(keys: UInt64Array) -> NDArray[np.int64]:
    """How often each of the distinct ``keys``, ascending, is there."""
    starts = np.flatnonzero(np.concatenate((np.ones(len(keys[:1]), bool), keys[1:] != keys[:-1])))
    return np.diff(starts, append=len(keys))
