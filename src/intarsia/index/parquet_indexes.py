"""The format's own indexes, as they are asked for: page indexes and bloom filters.

They are written where the specification puts them, so that other readers use them as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intarsia.errors import IndexSpecError
from intarsia.index.literal_encoding import exact_values, unfit_for_hashing
from intarsia.parquet.value_order import ValueOrder
from intarsia.parquet.xxhash64 import hash_values, xxh64
from intarsia.pruning.predicates import Test
from intarsia.row_ranges import UInt64Array


@dataclass(frozen=True, slots=True)
class PageIndex:
    """ColumnIndex and OffsetIndex for the chunks that have none.

    ``columns`` are the paths of columns that get a ColumnIndex, all by default; every column gets
    an OffsetIndex, without which some readers skip no page of any column. Bounds of byte strings
    are shortened to ``truncate_length`` bytes, 64 by default as in parquet-java. Raises
    ``IndexSpecError`` for a length below 1.
    """

    kind: ClassVar[str] = "page_index"

    columns: Sequence[str] | None = None
    truncate_length: int = 64

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            object.__setattr__(self, "columns", (self.columns,))
        elif not _are_names(self.columns):
            raise IndexSpecError(f"columns are named by a list of texts, not {self.columns!r}")
        if not _is_count(self.truncate_length):
            raise IndexSpecError(f"truncate_length must be 1 or more, not {self.truncate_length!r}")


@dataclass(frozen=True, slots=True)
class Bloom:
    """A split-block bloom filter for each chunk of a column: "is this value not here?", for ``=``.

    ``on`` is a column path. A filter is sized for the chunk's distinct values, or for ``ndv`` of
    them, and a share ``fpp`` of false positives, 0.01 by default; a filter takes a power of two of
    bytes, 32 to 128 MiB. Decimals of more than 38 digits get none, as DuckDB takes them for doubles
    and looks for these. Raises ``IndexSpecError`` for values outside.
    """

    kind: ClassVar[str] = "bloom"

    on: str
    fpp: float = 0.01
    ndv: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.on, str) or not self.on:
            raise IndexSpecError("a bloom filter needs the name of a column")
        if not isinstance(self.fpp, int | float) or not 0 < self.fpp < 1:
            raise IndexSpecError(f"fpp must be between 0 and 1, not {self.fpp!r}")
        if self.ndv is not None and not _is_count(self.ndv):
            raise IndexSpecError(f"ndv must be 1 or more, not {self.ndv!r}")


def _are_names(columns: object) -> bool:
    if columns is None:
        return True
    return isinstance(columns, Sequence) and all(isinstance(name, str) for name in columns)


def _is_count(value: object) -> bool:
    """Is it a number, 1 or more?"""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def bloom_hashes_for(test: Test, order: ValueOrder) -> UInt64Array | None:
    """Hashes, one of which every row that passes ``test`` has; None where this cannot be told."""
    if unfit_for_hashing(order):
        return None
    values = exact_values(test, order)
    if values is None:
        return None
    hashes = hash_values(values)
    if order.has_nan and (values.to_numpy() == 0).any():
        zero = np.array([-0.0], dtype=order.key).tobytes()  # writers hash zeros as they come
        hashes = np.append(hashes, np.uint64(xxh64(zero)))
    return hashes


Standard = PageIndex | Bloom
"""An index of the format's own."""
