"""Sections of the two shapes, and what they are asked: formulas, and predicates over summaries."""

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
from intarsia.index.probe_budget import Costs, Purse
from intarsia.index.section.granule_blocks import Blocks
from intarsia.index.section.page_cache import HELD_PAGES, Entries
from intarsia.index.section.reader import Section
from intarsia.index.section.writer import (
    CELL_SCHEMA,
    ENTRY_SCHEMA,
    STEP_SCHEMA,
    distinct,
    granules_of_steps,
    halves,
    packed,
)
from intarsia.index.value_predicates import passing
from intarsia.io.source import Source
from intarsia.process_state import cached_property
from intarsia.pruning.bounds_comparison import rows_might_match
from intarsia.pruning.predicates import Predicate, Test
from intarsia.row_ranges import Int64Array, RowRanges, UInt64Array

_FEW_GRANULES = 2
"""So many are read rather than more keys looked for."""
_HELD_SUMMARIES = 1024 * 1024
"""Summaries that take more bytes are read again for each test."""
_PART_ENTRIES = 1 << 20
_ONE_PAGE = np.zeros(1, dtype=np.int64)
_FEW_PAGES = 32
"""A probe of so many may be asked for again; their entries are held."""


class InvertedSection(Section):
    """A section of ``(key, granule)``; of cells instead of granules where it has ``blocks``."""

    def __init__(
        self, source: Source, meta_length: int, meta_crc32: int, file_id: str, num_rows: int,
        *, exact: bool = False,
    ) -> None:  # fmt: skip
        """``exact`` says that keys are values; otherwise they are fingerprints.

        Raises ``FormatError`` as ``Section`` does.
        """
        super().__init__(source, meta_length, meta_crc32, file_id, num_rows)
        self.exact = exact
        names = list(self.columns)
        self._has_steps = names in (STEP_SCHEMA.names, CELL_SCHEMA.names) and not exact
        if not self._has_steps and names != ENTRY_SCHEMA.names:
            raise FormatError("the section does not have the columns of an inverted index")
        self.blocks = self._blocks() if names == CELL_SCHEMA.names else None
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

    def _blocks(self) -> Blocks:
        size = self.info.get("block_size")
        if not isinstance(size, int) or not 1 < size < self.num_granules:
            raise FormatError(f"blocks of {size!r} granules, of {self.num_granules:,}")
        return Blocks(size, self.num_granules)

    def rows_of(
        self, formula: Formula, of: Subject, most_bytes: int | None = None
    ) -> RowRanges | None:
        """The rows of all granules that pass ``formula``; None where it cannot be told.

        Where reading that takes more than ``most_bytes``, or is unlikely to help, others may be
        among them. Raises ``FormatError`` where a page that has to be read is damaged.
        """
        if most_bytes is not None and not self.exact:
            found = self._for_bytes(formula, most_bytes)
        else:
            found = self._by_value(formula, of) if self.exact else self._by_fingerprint(formula)
        if found is None:
            return None
        at = np.flatnonzero(found)
        return RowRanges(self.granule_starts[at], self.granule_starts[at + 1])

    def _for_bytes(self, formula: Formula, most_bytes: int) -> GranuleMask | None:
        """The granules that pass as much of ``formula`` as is worth reading; None for nothing."""
        purse = Purse(self._costs, most_bytes)
        first, rest = purse.first(formula)
        if first is None:
            return None
        found = self._by_fingerprint(first)
        if rest is not None and np.count_nonzero(found) > _FEW_GRANULES:
            more = purse.more(rest)
            if more is not None:
                found &= self._by_fingerprint(more)
        return found

    def _by_fingerprint(self, formula: Formula) -> GranuleMask:
        wanted = [leaf.keys for leaf in leaves_of(formula) if isinstance(leaf, Keys)]
        every = distinct(np.concatenate([np.empty(0, np.uint32), *wanted]))
        parts = [part for part in self._parts(every) if len(part.keys)]
        first = [int(part.keys[0]) for part in parts]
        last = [int(part.keys[-1]) for part in parts]
        if any(low < high for low, high in zip(first[1:], last, strict=False)):
            raise FormatError("the keys are not sorted")

        def held(leaf: Keys) -> GranuleMask:
            found = np.zeros(self._num_cells, dtype=np.bool_)
            wanted = leaf.keys if len(leaf.keys) == 1 else distinct(leaf.keys)
            if len(wanted):
                among = slice(bisect_left(last, wanted[0]), bisect_right(first, wanted[-1]))
                for part in parts[among]:
                    found[_granules_with(part, wanted)] = True
            return self.blocks.granules_in(found) if self.blocks else found

        return granules_of(formula, held, self.num_granules)

    def _parts(self, keys: FingerprintArray) -> Sequence[Entries]:
        """The entries of ``keys``, distinct and sorted; of few pages one by one."""
        pages = self._pages_of(keys)
        if len(pages) > _FEW_PAGES:
            stored = self._sorted(*self._stored(pages))
            return [self._chosen(stored, keys, self.starts_of(pages))]
        numbers = pages.tolist()
        held = HELD_PAGES.get(self._held_as, numbers)
        missing = np.array([page for page in numbers if page not in held], dtype=np.int64)
        if len(missing):
            known, granules = self._stored(missing)
            stops = np.cumsum(self.rows_per_page[missing]).tolist()
            new, start = {}, 0
            for page, stop in zip(missing.tolist(), stops, strict=True):
                own = slice(start, stop)
                new[page] = self._sorted(known[own].copy(), granules[own].copy())
                start = stop
            HELD_PAGES.put(self._held_as, new)
            held.update(new)
        return [self._chosen(held[page], keys) for page in numbers]

    def _chosen(
        self, stored: Entries, keys: FingerprintArray, page_starts: Int64Array = _ONE_PAGE
    ) -> Entries:
        """The entries of ``keys``, of those of pages: of the others, steps are not added up."""
        at = _places_of(stored.keys, keys)
        known, numbers = stored.keys[at], stored.granules[at]
        if not self._has_steps:
            return Entries(known, numbers)
        starts = np.flatnonzero(np.isin(at, page_starts))
        return Entries(known, self._existing(granules_of_steps(known, numbers, starts)))

    def _sorted(self, keys: FingerprintArray, granules: Granules) -> Entries:
        if (keys[1:] < keys[:-1]).any():
            raise FormatError("the keys are not sorted")
        return Entries(keys, granules)

    @cached_property
    def _held_as(self) -> object:
        """What stands for this section where its pages are held."""
        return object()

    @cached_property
    def _costs(self) -> Costs:
        sizes = np.sum([column.pages[:, 1] for column in self.columns.values()], axis=0)
        return Costs(self._costs_of, sizes.tolist())

    def _costs_of(self, leaf: Keys) -> tuple[Sequence[int], float]:
        """As of ``Costs``, as if all keys between a page's bounds were on it, and equally often."""
        if not self.num_pages:
            return (), 0.0
        if len(leaf.keys) == 1:
            pages: Sequence[int] = self._pages_of_one(leaf.keys)
            expected = sum(map(self._entries_a_key, pages))
        else:
            wanted = np.unique(leaf.keys)
            found = self._pages_of(wanted)
            low, high = (bound[found].astype(np.int64) for bound in (self._low, self._high))
            held = np.searchsorted(wanted, high, side="right") - np.searchsorted(wanted, low)
            expected = float((held * self.rows_per_page[found] / (high - low + 1)).sum())
            pages = found.tolist()
        frequent = self.blocks is not None and expected > self.blocks.most * len(leaf.keys)
        number = self.blocks.count if self.blocks and frequent else self.num_granules
        return pages, min(expected / number, 1.0)

    def _pages_of_one(self, key: FingerprintArray) -> range:
        """The pages that one key, of shape ``(1,)``, might be on."""
        wanted = key.astype(self._high.dtype, copy=False)
        first = self._high.searchsorted(wanted, side="left")
        last = self._low.searchsorted(wanted, side="right")
        return range(int(first[0]), int(last[0]))

    def _entries_a_key(self, page: int) -> float:
        """How many entries a key has on a page that has all keys between its bounds."""
        keys = int(self._high[page]) - int(self._low[page]) + 1
        return int(self.rows_per_page[page]) / keys

    def _pages_of(self, keys: FingerprintArray) -> Int64Array:
        """The pages that any of ``keys``, distinct and sorted, might be on."""
        if not self.num_pages:
            return np.empty(0, dtype=np.int64)
        if len(keys) == 1:
            found = self._pages_of_one(keys)
            return np.arange(found.start, found.stop)
        return pages_with_keys(self._low, self._high, keys)

    def _entries(self, pages: Int64Array) -> tuple[FingerprintArray, Granules]:
        known, numbers = self._stored(pages)
        if not self._has_steps:
            return known, numbers
        return known, self._existing(granules_of_steps(known, numbers, self.starts_of(pages)))

    def _stored(self, pages: Int64Array) -> tuple[FingerprintArray, NDArray[np.uint32]]:
        """Keys as they are stored, and granules or steps, which are no greater than these."""
        if not len(pages):
            return np.empty(0, np.uint32), np.empty(0, np.uint32)
        keys, granules = self.read(tuple(self.columns), pages)
        if keys.type != pa.uint32() or keys.null_count:
            raise FormatError("a section's keys are no fingerprints")
        return keys.to_numpy(), self._checked(granules)

    def _checked(self, granules: pa.ChunkedArray) -> Granules:
        if granules.type != pa.uint32() or granules.null_count:
            raise FormatError("a section's granules are no numbers")
        return self._existing(granules.to_numpy())

    def _existing(self, granules: NDArray[np.uint32] | UInt64Array) -> Granules:
        if len(granules) and granules.max() >= self._num_cells:
            raise FormatError(f"granule {granules.max()} does not exist")
        return granules.astype(np.uint32, copy=False)

    def _marked(self, granules: Granules) -> GranuleMask:
        found = np.zeros(self.num_granules, dtype=np.bool_)
        found[granules] = True
        return found

    def _by_value(self, formula: Formula, of: Subject) -> GranuleMask | None:
        found = [leaf for leaf in leaves_of(formula) if isinstance(leaf, KeysWhere)]
        held: dict[KeysWhere, GranuleMask] = {}
        for leaf in found:
            granules = self._where(leaf.predicate, of)
            if granules is None:
                return None
            held[leaf] = granules
        return granules_of(formula, held.__getitem__, self.num_granules)

    def _where(self, predicate: Predicate, of: Subject) -> GranuleMask | None:
        pages = np.arange(self.num_pages)
        bounds = self.columns["key"].bounds
        if isinstance(predicate, Test) and bounds is not None:
            pages = np.flatnonzero(rows_might_match(predicate, bounds))
        if not len(pages):
            return self._marked(np.empty(0, dtype=np.uint32))
        keys, granules = self.read(("key", "granule"), pages)
        numbers = self._checked(granules)
        runs = keys.combine_chunks().dictionary_encode(null_encoding="encode")
        passed = passing(predicate, runs.dictionary, of.order)
        if passed is None:
            return None
        return self._marked(numbers[passed[runs.indices.to_numpy()]])

    def values(self) -> pa.Array:
        """The distinct keys, in order; NaN and then NULL come last.

        Raises ``FormatError`` where a page is damaged.
        """
        (keys,) = self.read(("key",), np.arange(self.num_pages, dtype=np.int64))
        return keys.combine_chunks().unique()

    def entries(self) -> UInt64Array:
        """All entries of fingerprints, as ``packed``.

        Raises ``FormatError`` where a page is damaged.
        """
        found = self.stored_entries()
        return self.blocks.entries_of(found) if self.blocks else found

    def stored_entries(self) -> UInt64Array:
        """As ``entries``, with cells instead of granules where there are ``blocks``."""
        return distinct(np.concatenate([np.empty(0, np.uint64), *self.stored_parts()]))

    def stored_parts(self) -> Iterator[UInt64Array]:
        """Yields ``stored_entries`` in parts of some pages each."""
        step = max(1, _PART_ENTRIES // max(self.rows_per_page.max(initial=1), 1))
        for start in range(0, self.num_pages, step):
            yield packed([self._entries(np.arange(start, min(start + step, self.num_pages)))])

    def table(self) -> pa.Table:
        """All entries. Raises ``FormatError`` where a page is damaged."""
        if not self.exact:
            known, numbers = halves(self.entries())
            return pa.table({"key": known, "granule": numbers})
        keys, granules = self.read(("key", "granule"), np.arange(self.num_pages))
        self._checked(granules)
        return pa.table({"key": keys, "granule": granules})


def _granules_with(entries: Entries, keys: FingerprintArray) -> Granules:
    """The granules of ``keys``, distinct and sorted; some may repeat."""
    found: Granules = entries.granules[_places_of(entries.keys, keys)]
    return found


def _places_of(known: FingerprintArray, keys: FingerprintArray) -> Int64Array:
    """Where ``keys``, distinct and sorted, are among those ``known``, ascending."""
    first = known.searchsorted(keys, side="left")
    last = known.searchsorted(keys, side="right")
    if len(keys) == 1:
        return np.arange(first[0], last[0])
    counts = last - first
    before = np.cumsum(counts) - counts
    return np.repeat(first - before, counts) + np.arange(counts.sum())


def pages_with_keys(low: NDArray[Any], high: NDArray[Any], keys: FingerprintArray) -> Int64Array:
    """The pages, sorted and from ``low`` to ``high`` each, that any of ``keys`` might be on."""
    wanted = keys.astype(high.dtype)
    first = np.searchsorted(high, wanted, side="left")
    last = np.searchsorted(low, wanted, side="right")
    edges = np.zeros(len(low) + 1, dtype=np.int64)
    found = first < last
    np.add.at(edges, first[found], 1)
    np.add.at(edges, last[found], -1)
    return np.flatnonzero(np.cumsum(edges[:-1]) > 0)


class SummarySection(Section):
    """A section of a row a granule."""

    def __init__(
        self, source: Source, meta_length: int, meta_crc32: int, file_id: str, num_rows: int
    ) -> None:
        super().__init__(source, meta_length, meta_crc32, file_id, num_rows)
        if self.num_entries != self.num_granules:
            raise FormatError("there is not a summary for each granule")
        self._held: tuple[bytes, pa.RecordBatch] | None = None

    def rows_of(
        self, kind: Summary, predicate: Predicate, of: Subject, within: RowRanges
    ) -> RowRanges | None:
        """The rows ``within`` whose granules might match; None where it cannot be told.

        Raises ``FormatError`` where a page that has to be read is damaged.
        """
        starts, stops = self.granule_starts[:-1], self.granule_starts[1:]
        asked = np.flatnonzero(within.covers(starts, stops))
        if not len(asked):
            return within
        pages = self.pages_with(asked)
        might = kind.might_match(predicate, self.summaries(pages), of)
        if might is None:
            return None
        granules = self.rows_on(pages)
        might = np.asarray(might, dtype=np.bool_)
        if might.shape != granules.shape:
            raise FormatError(f"{len(might):,} verdicts on {len(granules):,} granules")
        found = granules[might]
        return RowRanges(starts[found], stops[found])

    def summaries(self, pages: Int64Array) -> pa.RecordBatch:
        """The rows on ``pages``. Where they are small, the last are held for the next test."""
        asked, held = pages.tobytes(), self._held
        if held is not None and held[0] == asked:
            return held[1]
        names = list(self.columns)
        values = self.read(names, pages)
        found = pa.RecordBatch.from_arrays([v.combine_chunks() for v in values], names)
        if found.nbytes <= _HELD_SUMMARIES:
            self._held = asked, found
        return found


def open_section(
    kind: Inverted | Summary, source: Source, meta_length: int, meta_crc32: int, file_id: str,
    num_rows: int,
) -> InvertedSection | SummarySection | IDX1Section:  # fmt: skip
    """The section of an index, of its shape. Raises ``FormatError`` as ``Section`` does."""
    if isinstance(kind, DistinctIDX1):
        return IDX1Section.listed_at(source, meta_length, meta_crc32)
    place = source, meta_length, meta_crc32, file_id, num_rows
    if isinstance(kind, Inverted):
        return InvertedSection(*place, exact=kind.exact)
    return SummarySection(*place)
