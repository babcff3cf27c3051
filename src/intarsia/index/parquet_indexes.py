"""Parquet's own indexes: page indexes and bloom filters.

They are written at the positions that the specification defines, so that other readers use them.

Source: ``PageIndex.md`` and ``BloomFilter.md`` in the Parquet specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intarsia.errors import IndexSpecError
from intarsia.index.index import Index
from intarsia.index.literal_encoding import exact_values, unfit_for_hashing
from intarsia.parquet.value_order import ValueOrder
from intarsia.parquet.xxhash64 import hash_values, xxh64
from intarsia.pruning.predicates import Comparison
from intarsia.row_ranges import UInt64Array


@dataclass(frozen=True, slots=True)
class PageIndex(Index):
    """A request for page indexes: ColumnIndex and OffsetIndex of chunks that lack them.

    Implements ``PageIndex.md`` of the Parquet specification.

    Parameters
    ----------
    columns : sequence of str, optional
        Paths of columns that get a ColumnIndex; all columns by default. Every column gets an
        OffsetIndex, because some readers skip no page of any column if one is missing.
    truncate_length : int, default 64
        Length in bytes to which bounds of strings are shortened; the default is that of
        parquet-java.

    Raises
    ------
    IndexSpecError
        If ``columns`` are not names, or ``truncate_length`` is below 1.

    Examples
    --------
    >>> ia.PageIndex(["ts"])
    PageIndex(columns=['ts'], truncate_length=64)
    >>> reports = ia.add_indexes("lake", [ia.PageIndex()])
    """

    kind: ClassVar[str] = "page_index"

    columns: Sequence[str] | None = None
    truncate_length: int = 64

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            object.__setattr__(self, "columns", (self.columns,))
        elif not _are_names(self.columns):
            raise IndexSpecError(f"columns must be a list of column names, not {self.columns!r}")
        if not _is_count(self.truncate_length):
            raise IndexSpecError(f"truncate_length must be 1 or more, not {self.truncate_length!r}")


@dataclass(frozen=True, slots=True)
class Bloom(Index):
    """A split-block bloom filter for each chunk of a column. It serves ``=`` and ``IN``.

    Implements ``BloomFilter.md`` of the Parquet specification. Decimals of more than 38 digits get
    no filter, because DuckDB would look them up as doubles.

    Parameters
    ----------
    on : str
        A column path.
    fpp : float, default 0.01
        False-positive rate, between 0 and 1, both excluded.
    ndv : int, optional
        Number of distinct values to size each filter for. By default it is estimated for each
        chunk. A filter takes a power of two of bytes, 32 bytes to 128 MiB.

    Raises
    ------
    IndexSpecError
        If a parameter is out of range.

    Examples
    --------
    >>> ia.Bloom("trace_id", fpp=0.001)
    Bloom(on='trace_id', fpp=0.001, ndv=None)
    >>> report, = ia.add_indexes("logs.parquet", [ia.Bloom("trace_id")])
    >>> report.added
    ('trace_id:bloom',)
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
    """True if ``value`` is an integer of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def bloom_hashes_for(comparison: Comparison, order: ValueOrder) -> UInt64Array | None:
    """Returns hashes of which each row that passes ``comparison`` has one, or None if unknown."""
    if unfit_for_hashing(order):
        return None
    values = exact_values(comparison, order)
    if values is None:
        return None
    hashes = hash_values(values)
    if order.has_nan and (values.to_numpy() == 0).any():
        zero = np.array([-0.0], dtype=order.key).tobytes()  # other writers hash both zeros
        hashes = np.append(hashes, np.uint64(xxh64(zero)))
    return hashes


Standard = PageIndex | Bloom
"""An index that Parquet itself defines."""
