"""Collects the rows of sections while a file is read: keys with granules, or summaries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import IndexSpecError
from intarsia.index.base import Inverted, Positions, Subject, Summary, index_name
from intarsia.index.key_formula import KeyArray
from intarsia.index.registry import EmbeddedIndex
from intarsia.index.section.writer import STEP_SCHEMA, entries_of, entry_table
from intarsia.indexing.column_values import Values
from intarsia.io.external_sort import BLOCK_ENTRIES, Runs, Workspace
from intarsia.memory import share
from intarsia.row_ranges import Int64Array, UInt64Array

_SLICE_BYTES = 4 * 1024 * 1024
"""Bytes of values that a kind gets at a time. It may make many keys from each value."""
_MOST_VALUES = 1_000_000
"""Distinct values that an index with exact keys may have."""
_MOST_VALUE_BYTES = 256 * 1024 * 1024
"""Bytes of the distinct values that an index with exact keys may have."""


class Gatherer(Protocol):
    """Takes the values of one index in order of rows, and gives the rows of its section."""

    schema: pa.Schema

    def add(self, values: Values) -> None:
        """Takes more values."""

    def take(self, block: pa.Table, first: int) -> None:
        """Takes rows from another gatherer. Their granule 0 is granule ``first`` here."""

    def blocks(self) -> Iterator[pa.Table]:
        """Yields the rows of the section, in blocks. Called once, at the end."""


def gatherer_for(
    index: EmbeddedIndex, subject: Subject, starts: Int64Array, work: Workspace
) -> Gatherer:
    """Returns the gatherer for ``index``. ``starts`` are the first rows of its granules."""
    if isinstance(index, Summary):
        return Summaries(index, subject, starts)
    return (
        ExactKeys(index, subject, starts, work)
        if index.exact
        else Fingerprints(index, starts, work)
    )


class _Entries:
    """The base of gatherers of inverted kinds: leaves out values, and assigns granules to keys."""

    def __init__(self, index: Inverted, starts: Int64Array, work: Workspace) -> None:
        self._index, self._starts = index, starts
        self._runs = Runs(work)

    def add(self, values: Values) -> None:
        count = len(values.values)
        if count > 1 and values.values.nbytes > _SLICE_BYTES:
            for part in (slice(0, count // 2), slice(count // 2, count)):
                self.add(Values(values.values[part], values.rows[part]))
        else:
            self._add(*values)

    def _add(self, values: pa.Array, rows: Int64Array) -> None:
        keep = _taken_values(self._index, values)
        if keep is not None:
            values, rows = values.filter(keep), rows[keep.to_numpy(zero_copy_only=False)]
        granules = _granules_of(rows, self._starts)
        keys, positions = _checked_keys(
            self._index, self._index.keys_of_runs(values, granules), values
        )
        entries = self._numbers(keys)
        entries <<= np.uint64(32)
        entries |= granules[positions].astype(np.uint64)
        self._runs.add(entries)

    def _numbers(self, keys: KeyArray) -> UInt64Array:
        """Returns a number for each key, in a new array."""
        raise NotImplementedError


class Fingerprints(_Entries):
    """Gathers entries of fingerprints."""

    schema = STEP_SCHEMA

    def _numbers(self, keys: KeyArray) -> UInt64Array:
        return np.asarray(keys).astype(np.uint64)

    def take(self, block: pa.Table, first: int) -> None:
        self._runs.add(entries_of(block) + np.uint64(first))

    def blocks(self) -> Iterator[pa.Table]:
        for block in self._runs.blocks():
            yield entry_table(block)


class ExactKeys(_Entries):
    """Gathers entries of values. Values are numbered as they appear and sorted at the end."""

    def __init__(
        self, index: Inverted, subject: Subject, starts: Int64Array, work: Workspace
    ) -> None:
        super().__init__(index, starts, work)
        self.schema = pa.schema([("key", subject.type), ("granule", pa.uint32())])
        self._values = pa.array([], subject.type)

    def _numbers(self, keys: KeyArray) -> UInt64Array:
        assert isinstance(keys, pa.Array)
        encoded = keys.dictionary_encode(null_encoding="encode")
        distinct_keys = encoded.dictionary
        known = pc.index_in(distinct_keys, value_set=self._values)
        new = distinct_keys.filter(known.is_null())
        numbers = np.array(known.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.uint64)
        is_new = known.is_null().to_numpy(zero_copy_only=False)
        numbers[is_new] = len(self._values) + np.arange(len(new))
        if len(new):
            self._values = pa.concat_arrays([self._values, new])
        most_bytes = share(_MOST_VALUE_BYTES, 8)
        if len(self._values) > _MOST_VALUES or self._values.nbytes > most_bytes:
            name = index_name(self._index.on, self._index.kind)
            raise IndexSpecError(f"no index {name}: there are too many distinct values; try lookup")
        key_numbers: UInt64Array = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
        return key_numbers

    def take(self, block: pa.Table, first: int) -> None:
        numbers = self._numbers(block["key"].combine_chunks())
        granules = block["granule"].to_numpy().astype(np.uint64) + np.uint64(first)
        self._runs.add(numbers << np.uint64(32) | granules)

    def blocks(self) -> Iterator[pa.Table]:
        merged = self._runs.whole()
        order = pc.array_sort_indices(self._values).to_numpy()
        numbers = np.arange(len(self._values) + 1, dtype=np.uint64) << np.uint64(32)
        edges = np.searchsorted(merged, numbers)
        starts, counts = edges[:-1][order], np.diff(edges)[order]
        position = 0
        while position < len(order) or position == 0:
            stop = position + max(
                1, int(np.searchsorted(np.cumsum(counts[position:]), BLOCK_ENTRIES))
            )
            yield self._block(
                merged, order[position:stop], starts[position:stop], counts[position:stop]
            )
            position = stop

    def _block(
        self, merged: UInt64Array, order: Int64Array, starts: Int64Array, counts: Int64Array
    ) -> pa.Table:
        """Returns the entries of some values, which begin at ``starts``, as rows."""
        places = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        keys = self._values.take(pa.array(np.repeat(order, counts)))
        granules = merged[places].astype(np.uint32)
        return pa.table([keys, pa.array(granules)], schema=self.schema)


class Summaries:
    """Makes the summary of each granule as soon as all its values are there."""

    def __init__(self, index: Summary, subject: Subject, starts: Int64Array) -> None:
        self._index, self._starts = index, starts
        self._pending_values: list[pa.Array] = []
        self._done = self._next = int(starts[0])
        self._batches: list[pa.RecordBatch] = []
        empty = index.summarize(pa.array([], subject.type), np.zeros(1, dtype=np.int64))
        _check_summaries(index, empty, 0)
        self._batches.append(empty)
        self.schema = empty.schema

    def add(self, values: Values) -> None:
        self._pending_values.append(values.values)
        self._next += len(values.values)
        first, last = np.searchsorted(self._starts, (self._done, self._next)).tolist()
        if last < len(self._starts) and self._starts[last] > self._next:
            last -= 1
        if last <= first:
            return
        edges = self._starts[first : last + 1] - self._done
        whole = pa.concat_arrays(self._pending_values)
        summaries = self._index.summarize(whole.slice(0, int(edges[-1])), edges)
        _check_summaries(self._index, summaries, last - first, self.schema)
        self._batches.append(summaries)
        self._done = int(self._starts[last])
        self._pending_values = [whole.slice(int(edges[-1]))]

    def take(self, block: pa.Table, first: int) -> None:
        self._batches += block.to_batches()

    def blocks(self) -> Iterator[pa.Table]:
        yield pa.Table.from_batches(self._batches, self.schema).combine_chunks()


def _granules_of(rows: Int64Array, starts: Int64Array) -> Int64Array:
    """Returns the granule of each of ``n`` ascending rows, given the granules' first rows."""
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    first, last = (np.searchsorted(starts, rows[[0, -1]], side="right") - 1).tolist()
    edges = np.searchsorted(rows, starts[first + 1 : last + 1])
    counts = np.diff(edges, prepend=0, append=len(rows))
    return np.repeat(np.arange(first, last + 1), counts)


def _taken_values(index: Inverted, values: pa.Array) -> pa.BooleanArray | None:
    """Returns which values the kind takes. Returns None if it takes all of them."""
    left_out = []
    if not index.nulls:
        left_out.append(values.is_null())
    if not index.nans and pa.types.is_floating(values.type):
        left_out.append(pc.fill_null(pc.is_nan(values), False))
    for mask in left_out:
        if pc.any(mask).as_py():
            return pc.invert(left_out[0] if len(left_out) == 1 else pc.or_(*left_out))
    return None


def _checked_keys(index: Inverted, result: Any, values: pa.Array) -> tuple[Any, Positions]:
    """Returns a kind's keys and positions. Raises ``IndexSpecError`` if they break the contract."""
    is_pair = isinstance(result, tuple) and len(result) == 2
    pair: Any = result if is_pair else (None, None)
    keys, positions = pair
    problem = None
    if not is_pair:
        problem = f"a {type(result).__name__}, not keys and positions"
    elif not (isinstance(positions, np.ndarray) and positions.dtype.kind in "iu"):
        problem = "positions that are no array of integers"
    elif index.exact != isinstance(keys, pa.Array) or (index.exact and keys.type != values.type):
        problem = "keys of another type"
    elif not index.exact and np.asarray(keys).dtype != np.uint32:
        problem = f"keys of type {np.asarray(keys).dtype}, not uint32"
    elif len(keys) != len(positions):
        problem = f"{len(keys)} keys for {len(positions)} positions"
    elif len(positions) and not (positions.min() >= 0 and positions.max() < len(values)):
        problem = "positions outside the values"
    if problem:
        raise IndexSpecError(f"index kind {index.kind!r} gave {problem}")
    return keys, positions


def _check_summaries(
    index: Summary, summaries: pa.RecordBatch, granules: int, schema: pa.Schema | None = None
) -> None:
    """Raises ``IndexSpecError`` if summaries break the contract, or differ from ``schema``."""
    problem = None
    if not isinstance(summaries, pa.RecordBatch):
        problem = f"a {type(summaries).__name__}, not a RecordBatch"
    elif summaries.num_rows != granules:
        problem = f"{summaries.num_rows} summaries of {granules} granules"
    elif schema is not None and summaries.schema != schema:
        problem = "summaries of other columns or types than of no values"
    if problem:
        raise IndexSpecError(f"index kind {index.kind!r} gave {problem}")
