"""Blocks of granules, for keys that are frequent although granules are small.

Small granules let a rare key select few rows. A frequent key then has many more entries, which
hardly help. Its entries are stored for *blocks* of ``size`` adjacent granules; the last block may
be shorter. Entries refer to *cells*, which number the blocks first and then the granules::

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
from intarsia.row_ranges import UInt64Array, distinct, without_repeats

_MIN_BLOCKS_PER_RARE_KEY = 16
"""A key is rare if it is in one block, or in at most one of this many blocks."""
_MAX_ENTRIES = 1 << 27
"""Most entries that blocks may expand to: 1 GB."""
_KEY_BITS = np.uint64(32)
_CELL_MASK = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The division of ``granules`` into blocks of ``size``: more than one, fewer than all."""

    size: int
    granules: int

    @property
    def count(self) -> int:
        """The number of blocks."""
        return -(-self.granules // self.size)

    @property
    def cells(self) -> int:
        """The number of blocks and granules together."""
        return self.count + self.granules

    @property
    def most(self) -> int:
        """A key in more blocks than this is stored for blocks."""
        return max(1, self.count // _MIN_BLOCKS_PER_RARE_KEY)

    def cells_of(self, entries: UInt64Array) -> UInt64Array:
        """Returns entries of granules as entries of cells. Both are sorted and distinct."""
        block: UInt64Array = (entries & _CELL_MASK) // np.uint64(self.size)
        in_blocks: UInt64Array = without_repeats((entries & ~_CELL_MASK) | block)
        counts = _run_lengths(in_blocks >> _KEY_BITS)
        frequent = counts > self.most
        of_blocks = in_blocks[np.repeat(frequent, counts)]
        of_granules = entries[np.repeat(~frequent, _run_lengths(entries >> _KEY_BITS))] + np.uint64(
            self.count
        )
        return distinct(np.concatenate([of_blocks, of_granules]))

    def entries_of(self, cells: UInt64Array) -> UInt64Array:
        """Returns entries of cells as entries of granules, sorted and distinct.

        Raises ``FormatError`` if there are more than 2**27 of them.
        """
        keys, numbers = cells & ~_CELL_MASK, cells & _CELL_MASK
        is_block = numbers < self.count
        if int(is_block.sum()) * self.size > _MAX_ENTRIES:
            raise FormatError(f"blocks of {self.size:,} granules hold too many entries")
        of_granules = cells[~is_block] - np.uint64(self.count)
        first_granules = numbers[is_block] * np.uint64(self.size)
        granules: UInt64Array = np.add.outer(first_granules, np.arange(self.size, dtype=np.uint64))
        of_blocks = (keys[is_block][:, np.newaxis] | granules)[granules < self.granules]
        return distinct(np.concatenate([of_granules, of_blocks]))

    def granules_in(self, cells: NDArray[np.bool_]) -> GranuleMask:
        """Returns the mask of granules that a mask of cells, of shape ``(cells,)``, selects."""
        in_blocks = np.repeat(cells[: self.count], self.size)[: self.granules]
        mask: GranuleMask = cells[self.count :] | in_blocks
        return mask


def _run_lengths(keys: UInt64Array) -> NDArray[np.int64]:
    """Returns how often each distinct key occurs in ``keys``, which ascend."""
    starts = np.flatnonzero(np.concatenate((np.ones(len(keys[:1]), bool), keys[1:] != keys[:-1])))
    return np.diff(starts, append=len(keys))
