"""The facts that a catalog stores of a file: identity, end, column bounds and index keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from intarsia.catalog.manifest import KeyTable
from intarsia.catalog.segment_reader import has_fingerprints
from intarsia.errors import FormatError, IntarsiaError, PathError
from intarsia.file.open_file import OpenedFile
from intarsia.index.directory import IndexEntry
from intarsia.index.section.probe import InvertedSection
from intarsia.parquet.compact_protocol import field_value
from intarsia.parquet.footer_cache import FOOTER_KEY
from intarsia.parquet.page_statistics import (
    has_bounds,
    is_text,
    may_shorten,
    shortened_high,
    shortened_low,
)
from intarsia.parquet.schema import Leaf
from intarsia.parquet.statistics import UNKNOWN, Bounds
from intarsia.parquet.value_order import ValueOrder
from intarsia.row_ranges import UInt64Array

_MAX_BOUND_BYTES = 64
"""Longer bounds of strings are shortened, so that the table of bounds stays small."""
_MAX_TAIL_BYTES = 16 * 1024 * 1024
"""Longer ends are not stored; a query reads them from the files."""
NO_KEYS = np.empty(0, np.uint64)
"""The keys of an index whose keys are not read."""
_SCHEMA_FIELD, _COLUMN_ORDERS_FIELD = 2, 7
"""Thrift field numbers in ``FileMetaData``."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file: its path relative to the data set's folder, its identity and its counts.

    ``size`` is in bytes, ``mtime`` in nanoseconds. ``schema_hash`` is that of its schema group.
    """

    path: str
    size: int
    mtime: int
    stamp: str | None
    rows: int
    row_groups: int
    schema_hash: str


@dataclass(frozen=True, slots=True)
class LeafBounds:
    """Plain-encoded bounds of one column of a file. A count that is missing is ``UNKNOWN`` (-1)."""

    path: tuple[str, ...]
    low: bytes | None
    high: bytes | None
    all_null: bool
    nulls: int
    nans: int


@dataclass(frozen=True, slots=True)
class KeySpec:
    """The meaning of an index's keys. ``params`` is JSON without the size of granules."""

    kind: str
    kind_version: int
    on: str
    params: str
    meaning: str

    @classmethod
    def of(cls, index: IndexEntry | KeyTable) -> KeySpec:
        """Returns the spec of an index of a file or of a catalog."""
        params = {name: v for name, v in index.params.items() if name != "granule_rows"}
        text = json.dumps(params, sort_keys=True)
        return cls(index.kind, index.kind_version, index.on, text, index.meaning)

    def table(self, schema_group: int, parts: Any) -> KeyTable:
        """Returns the entry of this index in the pointer."""
        params = json.loads(self.params)
        own = self.kind, self.kind_version, self.on, params, self.meaning
        return KeyTable(*own, schema_group, tuple(parts))


def schema_hash(file: OpenedFile) -> str:
    """Returns a hash of the schema, the column orders and the Arrow types: 32 hex digits."""
    digest = hashlib.blake2b(digest_size=16)
    for number in (_SCHEMA_FIELD, _COLUMN_ORDERS_FIELD):
        value = field_value(file.footer, number)
        digest.update(b"-" if value is None else b"+%d:" % len(value) + value)
    digest.update(file.schema_arrow.remove_metadata().serialize())
    return digest.hexdigest()


def tail_of(file: OpenedFile) -> bytes:
    """Returns the file's end, from its directory or its footer on; ``b""`` if that is too long."""
    start, size = file.footer_offset, file.source.size
    if file.directory is not None:
        try:
            start = min(start, int(json.loads(file.metadata.key_value(FOOTER_KEY) or "")["offset"]))
        except (ValueError, KeyError, TypeError):
            start = file.footer_offset
    if size - start > _MAX_TAIL_BYTES:
        start = file.footer_offset
    if size - start > _MAX_TAIL_BYTES:
        return b""
    return bytes(file.source.read([(start, size - start)])[0])


def bounds_of(file: OpenedFile) -> list[LeafBounds]:
    """Returns bounds of the columns without repeated values, from row-group statistics."""
    column_bounds = []
    for leaf in file.schema.leaves:
        order = file.order(leaf.index)
        if leaf.max_repetition_level or not has_bounds(order):
            continue
        try:
            bounds = file.row_group_bounds(leaf.index)
        except FormatError:
            continue
        joined = _joined(leaf, order, bounds)
        if joined.low is not None or joined.all_null or joined.nulls != UNKNOWN:
            column_bounds.append(joined)
    return column_bounds


def _joined(leaf: Leaf, order: ValueOrder, bounds: Bounds) -> LeafBounds:
    """Merges the bounds of all row groups into one."""
    has_values = ~bounds.all_null
    low: bytes | None = None
    high: bytes | None = None
    if has_values.any() and bounds.bounded[has_values].all():
        low = order.plain(min(bounds.low[has_values]))
        high = order.plain(max(bounds.high[has_values]))
        if may_shorten(leaf.element, order):
            is_string = is_text(leaf.element)
            low = shortened_low(low, _MAX_BOUND_BYTES, text=is_string)
            high = shortened_high(high, _MAX_BOUND_BYTES, text=is_string)
    all_null = bool(len(bounds)) and not has_values.any()
    counts = (_sum(bounds.null_counts), _sum(bounds.nan_counts))
    return LeafBounds(leaf.path, low, high, all_null, *counts)


def _sum(counts: np.ndarray[Any, Any]) -> int:
    return UNKNOWN if (counts == UNKNOWN).any() else int(counts.sum())


def keys_of(
    file: OpenedFile, *, with_keys: bool = True
) -> Iterator[tuple[KeySpec, int, UInt64Array]]:
    """Yields the meaning, number of granules and ``packed`` entries of each fingerprint index.

    Damaged indexes are left out; a query then opens the file. Without ``with_keys`` no entries are
    read, and the arrays are empty.
    """
    seen_specs = set()
    for entry in file.sections.entries:
        index, spec = file.sections.resolved(entry), KeySpec.of(entry)
        if index is None or spec in seen_specs or not has_fingerprints(index.kind):
            continue
        section = file.sections.section(index)
        if not isinstance(section, InvertedSection):
            continue
        try:
            entries = section.entries() if with_keys else NO_KEYS
        except (FormatError, PathError):
            continue
        seen_specs.add(spec)
        yield spec, section.num_granules, entries


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that a catalog stores of one file; ``tail`` is None once it is stored."""

    entry: FileEntry
    tail: bytes | None
    bounds: list[LeafBounds]
    keys: list[tuple[KeySpec, int, UInt64Array]]


def facts_of(
    file: OpenedFile, path: str, size: int, mtime: int, *, with_keys: bool = True
) -> Facts | None:
    """Returns the facts of a file, or None if it cannot be read or has another ``size``."""
    try:
        if file.source.size != size:
            return None
        stamp = (
            None if file.sidecar_finder is None else file.sidecar_finder.owner(b"").stamp or None
        )
        groups = len(file.metadata.row_groups)
        entry = FileEntry(path, size, mtime, stamp, file.num_rows, groups, schema_hash(file))
        keys = list(keys_of(file, with_keys=with_keys))
        return Facts(entry, tail_of(file), bounds_of(file), keys)
    except (IntarsiaError, OSError):
        return None
