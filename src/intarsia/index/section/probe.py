"""Probes index sections: formulas over inverted sections, predicates over summary sections."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.errors import FormatError
from intarsia.index.base import Inverted, Subject, Summary
from intarsia.index.key_formula import (
    FingerprintArray,
    Formula,
    GranuleMask,
    Granules,
    Keys,
    KeysWhere,
    granules_of,
    leaves_of,
)
from intarsia.index.kinds.distinct_idx1 import DistinctIDX1, IDX1Section
from intarsia.index.probe_budget import Costs, ProbeBudget
from intarsia.index.section.granule_blocks import Blocks
from intarsia.index.section.reader import PAGE_CACHE, Entries, Section
from intarsia.index.section.writer import (
    CELL_SCHEMA,
    ENTRY_SCHEMA,
    STEP_SCHEMA,
    granules_of_steps,
    halves,
    packed,
)
from intarsia.index.value_predicates import passing
from intarsia.io.source import Source
from intarsia.process_state import cached_property
from intarsia.pruning.bounds_comparison import rows_might_match
from intarsia.pruning.predicates import Comparison, Predicate
from intarsia.row_ranges import Int64Array, RowRanges, UInt64Array, distinct

_FEW_GRANULES = 2
"""If at most this many granules remain, reading them is cheaper than looking up more keys."""
_MAX_CACHED_SUMMARY_BYTES = 1024 * 1024
"""Larger summaries are read again for each predicate."""
_PART_ENTRIES = 1 << 20
"""Entries that ``stored_parts`` yields at once."""
_ONE_PAGE = np.zeros(1, dtype=np.int64)
"""The page starts of a single page."""
_MAX_CACHED_PROBE_PAGES = 32
"""Pages are cached only by probes of at most this many, which are likely to recur."""


class InvertedSection(Section):
    """A section with rows ``(key, granule)``, or cells instead of granules if it has ``blocks``."""

    def __init__(
        self, source: Source, meta_length: int, meta_crc32: int, file_id: str, num_rows: int,
        *, exact: bool = False,
    ) -> None:  # fmt: skip
        """Opens the section. Keys are values if ``exact``, else fingerprints.

        Raises ``FormatError`` as ``Section`` does.
        """
        super().__init__(source, meta_length, meta_crc32, file_id, num_rows)
        self.exact = exact
        names = list(self.columns)
        self._has_steps = names in (STEP_SCHEMA.names, CELL_SCHEMA.names) and not exact
        if not self._has_steps and names != ENTRY_SCHEMA.names:
            raise FormatError("the section does not have the columns of an inverted index")
        self.blocks = self._read_blocks() if names == CELL_SCHEMA.names else None
        self._num_cells = self.blocks.cells if self.blocks else self.num_granules
        if exact or not self.num_pages:
            return
        bounds = self.columns["key"].bounds
        if bounds is None or not bounds.bounded.all():
            raise FormatError("the column index of the keys is incomplete")
        if bounds.low.dtype.kind not in "iu":
            raise FormatError("a section's keys are no fingerprints")
        if (bounds.low > bounds.high).any() or (bounds.high[:-1] > bounds.low[1:]).any():
            raise FormatError("the keys are not sorted")
        self._low, self._high = bounds.low, bounds.high

    def _read_blocks(self) -> Blocks:
        size = self.info.get("block_size")
        if not isinstance(size, int) or not 1 < size < self.num_granules:
            raise FormatError(f"blocks of {size!r} granules, in an index of {self.num_granules:,}")
        return Blocks(size, self.num_granules)

    def rows_of(
        self, formula: Formula, of: Subject, most_bytes: int | None = None
    ) -> RowRanges | None:
        """Returns the rows of all granules that pass ``formula``, or None if unknown.

        If reading the entries takes more than ``most_bytes``, or is unlikely to help, the result
        may include other rows. Raises ``FormatError`` if a page that has to be read is damaged.
        """
        if most_bytes is not None and not self.exact:
            mask = self._granules_within_budget(formula, most_bytes)
        else:
            mask = (
                self._granules_by_value(formula, of)
                if self.exact
                else self._granules_by_fingerprint(formula)
            )
        if mask is None:
            return None
        (passing_granules,) = mask.nonzero()
        return RowRanges(
            self.granule_starts[passing_granules], self.granule_starts[passing_granules + 1]
        )

    def _granules_within_budget(self, formula: Formula, most_bytes: int) -> GranuleMask | None:
        """Returns the granules that pass the part of ``formula`` that is worth reading.

        Returns None if no part is.
        """
        budget = ProbeBudget(self._costs, most_bytes)
        first, rest = budget.first(formula)
        if first is None:
            return None
        mask = self._granules_by_fingerprint(first)
        if rest is not None and np.count_nonzero(mask) > _FEW_GRANULES:
            affordable_rest = budget.more(rest)
            if affordable_rest is not None:
                mask &= self._granules_by_fingerprint(affordable_rest)
        return mask

    def _granules_by_fingerprint(self, formula: Formula) -> GranuleMask:
        leaf_keys = [leaf.keys for leaf in leaves_of(formula) if isinstance(leaf, Keys)]
        all_keys = distinct(np.concatenate([np.empty(0, np.uint32), *leaf_keys]))
        pages = [page for page in self._entries_by_page(all_keys) if len(page.keys)]
        first = [int(page.keys[0]) for page in pages]
        last = [int(page.keys[-1]) for page in pages]
        if any(low < high for low, high in zip(first[1:], last, strict=False)):
            raise FormatError("the keys are not sorted")

        def granules_with(leaf: Keys) -> GranuleMask:
            mask = np.zeros(self._num_cells, dtype=np.bool_)
            leaf_keys = distinct(leaf.keys)
            if len(leaf_keys):
                among = slice(bisect_left(last, leaf_keys[0]), bisect_right(first, leaf_keys[-1]))
                for page in pages[among]:
                    mask[_granules_with(page, leaf_keys)] = True
            return self.blocks.granules_in(mask) if self.blocks else mask

        return granules_of(formula, granules_with, self.num_granules)

    def _entries_by_page(self, keys: FingerprintArray) -> Sequence[Entries]:
        """Returns the entries of ``keys``, which are distinct and sorted.

        Returns one element per page if there are few pages, and caches these. Else returns one
        element.
        """
        pages = self.pages_for(keys)
        if len(pages) > _MAX_CACHED_PROBE_PAGES:
            stored = self._check_sorted(*self._read_stored(pages))
            return [self._select_keys(stored, keys, self.starts_of(pages))]
        numbers = pages.tolist()
        cached = PAGE_CACHE.get(self._cache_key, numbers)
        missing = np.array([page for page in numbers if page not in cached], dtype=np.int64)
        if len(missing):
            stored_keys, granules = self._read_stored(missing)
            stops = np.cumsum(self.rows_per_page[missing]).tolist()
            new_pages, start = {}, 0
            for page, stop in zip(missing.tolist(), stops, strict=True):
                rows = slice(start, stop)
                new_pages[page] = self._check_sorted(
                    stored_keys[rows].copy(), granules[rows].copy()
                )
                start = stop
            PAGE_CACHE.put(self._cache_key, new_pages)
            cached.update(new_pages)
        return [self._select_keys(cached[page], keys) for page in numbers]

    def _select_keys(
        self, stored: Entries, keys: FingerprintArray, page_starts: Int64Array = _ONE_PAGE
    ) -> Entries:
        """Returns the entries of ``keys`` among ``stored``, whose pages start at ``page_starts``.

        Adds up steps of these keys only.
        """
        positions = _positions_of(stored.keys, keys)
        selected_keys, numbers = stored.keys[positions], stored.granules[positions]
        if not self._has_steps:
            return Entries(selected_keys, numbers)
        starts = positions.searchsorted(page_starts)
        return Entries(
            selected_keys,
            self._check_granules_exist(granules_of_steps(selected_keys, numbers, starts)),
        )

    def _check_sorted(self, keys: FingerprintArray, granules: Granules) -> Entries:
        if (keys[1:] < keys[:-1]).any():
            raise FormatError("the keys are not sorted")
        return Entries(keys, granules)

    @cached_property
    def _cache_key(self) -> object:
        """Identifies this section in the page cache."""
        return object()

    @cached_property
    def _costs(self) -> Costs:
        sizes = np.sum([column.pages[:, 1] for column in self.columns.values()], axis=0)
        return Costs(self._cost_of, sizes.tolist())

    def _cost_of(self, leaf: Keys) -> tuple[Sequence[int], float]:
        """Returns pages and selectivity as ``Costs.of`` does.

        Assumes that a page has all keys between its bounds, each equally often.
        """
        if not self.num_pages:
            return (), 0.0
        if len(leaf.keys) == 1:
            pages: Sequence[int] = self._pages_for_key(leaf.keys)
            expected = sum(map(self._entries_per_key, pages))
        else:
            keys = distinct(leaf.keys)
            key_pages = self.pages_for(keys)
            low, high = (bound[key_pages].astype(np.int64) for bound in (self._low, self._high))
            num_keys = np.searchsorted(keys, high, side="right") - np.searchsorted(keys, low)
            expected = float((num_keys * self.rows_per_page[key_pages] / (high - low + 1)).sum())
            pages = key_pages.tolist()
        is_frequent = self.blocks is not None and expected > self.blocks.most * len(leaf.keys)
        num_targets = self.blocks.count if self.blocks and is_frequent else self.num_granules
        return pages, min(expected / num_targets, 1.0)

    def _pages_for_key(self, key: FingerprintArray) -> range:
        """Returns the pages that may contain one key, which has shape ``(1,)``."""
        typed_key = key.astype(self._high.dtype, copy=False)
        first = self._high.searchsorted(typed_key, side="left")
        last = self._low.searchsorted(typed_key, side="right")
        return range(int(first[0]), int(last[0]))

    def _entries_per_key(self, page: int) -> float:
        """Returns the entries per key of a page, if it has all keys between its bounds."""
        keys = int(self._high[page]) - int(self._low[page]) + 1
        return int(self.rows_per_page[page]) / keys

    def pages_for(self, keys: FingerprintArray) -> Int64Array:
        """Returns the pages that may contain any of ``keys``, which are distinct and sorted."""
        if not self.num_pages:
            return np.empty(0, dtype=np.int64)
        if len(keys) == 1:
            pages = self._pages_for_key(keys)
            return np.arange(pages.start, pages.stop)
        return pages_with_keys(self._low, self._high, keys)

    def entries_on(self, pages: Int64Array) -> tuple[FingerprintArray, Granules]:
        """Returns the keys and the granules of the entries on ``pages``.

        Raises ``FormatError`` if a page is damaged.
        """
        keys, numbers = self._read_stored(pages)
        if not self._has_steps:
            return keys, numbers
        return keys, self._check_granules_exist(
            granules_of_steps(keys, numbers, self.starts_of(pages))
        )

    def _read_stored(self, pages: Int64Array) -> tuple[FingerprintArray, NDArray[np.uint32]]:
        """Reads keys as stored, and granules or steps. Steps never exceed the granules."""
        if not len(pages):
            return np.empty(0, np.uint32), np.empty(0, np.uint32)
        keys, granules = self.read(tuple(self.columns), pages)
        if keys.type != pa.uint32() or keys.null_count:
            raise FormatError("a section's keys are no fingerprints")
        return keys.to_numpy(), self._check_granule_column(granules)

    def _check_granule_column(self, granules: pa.ChunkedArray) -> Granules:
        if granules.type != pa.uint32() or granules.null_count:
            raise FormatError("a section's granules are no numbers")
        return self._check_granules_exist(granules.to_numpy())

    def _check_granules_exist(self, granules: NDArray[np.uint32] | UInt64Array) -> Granules:
        if len(granules) and granules.max() >= self._num_cells:
            raise FormatError(f"granule {granules.max()} does not exist")
        return granules.astype(np.uint32, copy=False)

    def _granule_mask(self, granules: Granules) -> GranuleMask:
        mask = np.zeros(self.num_granules, dtype=np.bool_)
        mask[granules] = True
        return mask

    def _granules_by_value(self, formula: Formula, of: Subject) -> GranuleMask | None:
        leaves = [leaf for leaf in leaves_of(formula) if isinstance(leaf, KeysWhere)]
        masks: dict[KeysWhere, GranuleMask] = {}
        for leaf in leaves:
            mask = self._granules_where(leaf.predicate, of)
            if mask is None:
                return None
            masks[leaf] = mask
        return granules_of(formula, masks.__getitem__, self.num_granules)

    def _granules_where(self, predicate: Predicate, of: Subject) -> GranuleMask | None:
        pages = np.arange(self.num_pages)
        bounds = self.columns["key"].bounds
        if isinstance(predicate, Comparison) and bounds is not None:
            pages = np.flatnonzero(rows_might_match(predicate, bounds))
        if not len(pages):
            return self._granule_mask(np.empty(0, dtype=np.uint32))
        keys, granules = self.read(("key", "granule"), pages)
        numbers = self._check_granule_column(granules)
        encoded_keys = keys.combine_chunks().dictionary_encode(null_encoding="encode")
        is_passing = passing(predicate, encoded_keys.dictionary, of.order)
        if is_passing is None:
            return None
        return self._granule_mask(numbers[is_passing[encoded_keys.indices.to_numpy()]])

    def values(self) -> pa.Array:
        """Returns the distinct keys in order; NaN and then NULL come last.

        Raises ``FormatError`` if a page is damaged.
        """
        (keys,) = self.read(("key",), np.arange(self.num_pages, dtype=np.int64))
        return keys.combine_chunks().unique()

    def entries(self) -> UInt64Array:
        """Returns all entries of fingerprints, as ``packed`` does.

        Raises ``FormatError`` if a page is damaged.
        """
        stored = self.stored_entries()
        return self.blocks.entries_of(stored) if self.blocks else stored

    def stored_entries(self) -> UInt64Array:
        """Returns the same as ``entries``, but with cells if there are ``blocks``."""
        return distinct(np.concatenate([np.empty(0, np.uint64), *self.stored_parts()]))

    def stored_parts(self) -> Iterator[UInt64Array]:
        """Yields ``stored_entries`` in parts of some pages each."""
        step = max(1, _PART_ENTRIES // max(self.rows_per_page.max(initial=1), 1))
        for start in range(0, self.num_pages, step):
            yield packed([self.entries_on(np.arange(start, min(start + step, self.num_pages)))])

    def table(self) -> pa.Table:
        """Returns all entries as a table. Raises ``FormatError`` if a page is damaged."""
        if not self.exact:
            known, numbers = halves(self.entries())
            return pa.table({"key": known, "granule": numbers})
        keys, granules = self.read(("key", "granule"), np.arange(self.num_pages))
        self._check_granule_column(granules)
        return pa.table({"key": keys, "granule": granules})


def _granules_with(entries: Entries, keys: FingerprintArray) -> Granules:
    """Returns the granules of ``keys``, which are distinct and sorted. Some may repeat."""
    granules: Granules = entries.granules[_positions_of(entries.keys, keys)]
    return granules


def _positions_of(stored_keys: FingerprintArray, keys: FingerprintArray) -> Int64Array:
    """Returns the positions in ``stored_keys``, which ascend, of ``keys``, distinct and sorted."""
    first = stored_keys.searchsorted(keys, side="left")
    last = stored_keys.searchsorted(keys, side="right")
    if len(keys) == 1:
        return np.arange(first[0], last[0])
    counts = last - first
    before = np.cumsum(counts) - counts
    return np.repeat(first - before, counts) + np.arange(counts.sum())


def pages_with_keys(low: NDArray[Any], high: NDArray[Any], keys: FingerprintArray) -> Int64Array:
    """Returns the pages that may contain any of ``keys``, which are distinct and sorted.

    ``low`` and ``high`` are the bounds of the pages, which are sorted.
    """
    typed_keys = keys.astype(high.dtype)
    first = np.searchsorted(high, typed_keys, side="left")
    last = np.searchsorted(low, typed_keys, side="right")
    edges = np.zeros(len(low) + 1, dtype=np.int64)
    is_on_page = first < last
    np.add.at(edges, first[is_on_page], 1)
    np.add.at(edges, last[is_on_page], -1)
    return np.flatnonzero(np.cumsum(edges[:-1]) > 0)


class SummarySection(Section):
    """A section with one row per granule."""

    def __init__(
        self, source: Source, meta_length: int, meta_crc32: int, file_id: str, num_rows: int
    ) -> None:
        super().__init__(source, meta_length, meta_crc32, file_id, num_rows)
        if self.num_entries != self.num_granules:
            raise FormatError("there is not a summary for each granule")
        self._cached: tuple[bytes, pa.RecordBatch] | None = None

    def rows_of(
        self, kind: Summary, predicate: Predicate, of: Subject, within: RowRanges
    ) -> RowRanges | None:
        """Returns the rows of ``within`` whose granules might match, or None if unknown.

        Raises ``FormatError`` if a page that has to be read is damaged.
        """
        starts, stops = self.granule_starts[:-1], self.granule_starts[1:]
        candidates = np.flatnonzero(within.covers(starts, stops))
        if not len(candidates):
            return within
        pages = self.pages_with(candidates)
        might_match = kind.might_match(predicate, self.summaries(pages), of)
        if might_match is None:
            return None
        granules = self.rows_on(pages)
        might_match = np.asarray(might_match, dtype=np.bool_)
        if might_match.shape != granules.shape:
            raise FormatError(f"{len(might_match):,} results for {len(granules):,} granules")
        matching = granules[might_match]
        return RowRanges(starts[matching], stops[matching])

    def summaries(self, pages: Int64Array) -> pa.RecordBatch:
        """Returns the rows on ``pages``. Caches the last result if it is small."""
        cache_key, cached = pages.tobytes(), self._cached
        if cached is not None and cached[0] == cache_key:
            return cached[1]
        names = list(self.columns)
        values = self.read(names, pages)
        batch = pa.RecordBatch.from_arrays([column.combine_chunks() for column in values], names)
        if batch.nbytes <= _MAX_CACHED_SUMMARY_BYTES:
            self._cached = cache_key, batch
        return batch


def open_section(
    kind: Inverted | Summary, source: Source, meta_length: int, meta_crc32: int, file_id: str,
    num_rows: int,
) -> InvertedSection | SummarySection | IDX1Section:  # fmt: skip
    """Opens the section of an index of this kind. Raises ``FormatError`` as ``Section`` does."""
    if isinstance(kind, DistinctIDX1):
        return IDX1Section.listed_at(source, meta_length, meta_crc32)
    arguments = source, meta_length, meta_crc32, file_id, num_rows
    if isinstance(kind, Inverted):
        return InvertedSection(*arguments, exact=kind.exact)
    return SummarySection(*arguments)
