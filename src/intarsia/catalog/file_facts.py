"""What a catalog keeps of a file: identity, end, bounds of its columns, keys of its indexes."""

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
from intarsia.index.directory import FOOTER_KEY, IndexEntry
from intarsia.index.section.probe import InvertedSection
from intarsia.parquet.compact_protocol import field_value
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

_LONGEST_BOUND = 64
_LONGEST_TAIL = 16 * 1024 * 1024
_SCHEMA, _COLUMN_ORDERS = 2, 7


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file: its path below the data set's folder, and what is known of it as a whole.

    ``size`` is in bytes, ``mtime`` in nanoseconds; ``form`` is a hash of what follows from its
    schema alone.
    """

    path: str
    size: int
    mtime: int
    stamp: str | None
    rows: int
    row_groups: int
    form: str


@dataclass(frozen=True, slots=True)
class LeafBounds:
    """Encoded bounds of one column of a file; counts are ``UNKNOWN`` (-1) where nobody counted."""

    path: tuple[str, ...]
    low: bytes | None
    high: bytes | None
    all_null: bool
    nulls: int
    nans: int


@dataclass(frozen=True, slots=True)
class KeySpec:
    """What the keys of an index mean; ``params`` are JSON, without the size of granules."""

    kind: str
    kind_version: int
    on: str
    params: str
    meaning: str

    @classmethod
    def of(cls, index: IndexEntry | KeyTable) -> KeySpec:
        """Of an index of a file or of a catalog."""
        params = {name: v for name, v in index.params.items() if name != "granule_rows"}
        text = json.dumps(params, sort_keys=True)
        return cls(index.kind, index.kind_version, index.on, text, index.meaning)

    def table(self, form: int, parts: Any) -> KeyTable:
        """The keys of this index as the pointer lists them."""
        params = json.loads(self.params)
        own = self.kind, self.kind_version, self.on, params, self.meaning
        return KeyTable(*own, form, tuple(parts))


def form_of(file: OpenedFile) -> str:
    """A hash of the schema, the columns' orders and the Arrow types: 32 hex digits."""
    digest = hashlib.blake2b(digest_size=16)
    for number in (_SCHEMA, _COLUMN_ORDERS):
        value = field_value(file.footer, number)
        digest.update(b"-" if value is None else b"+%d:" % len(value) + value)
    digest.update(file.schema_arrow.remove_metadata().serialize())
    return digest.hexdigest()


def tail_of(file: OpenedFile) -> bytes:
    """The file's end from its directory, or else its footer, on; nothing where that is too long."""
    start, size = file.footer_offset, file.source.size
    if file.directory is not None:
        try:
            start = min(start, int(json.loads(file.metadata.key_value(FOOTER_KEY) or "")["offset"]))
        except (ValueError, KeyError, TypeError):
            start = file.footer_offset
    if size - start > _LONGEST_TAIL:
        start = file.footer_offset
    if size - start > _LONGEST_TAIL:
        return b""
    return bytes(file.source.read([(start, size - start)])[0])


def bounds_of(file: OpenedFile) -> list[LeafBounds]:
    """Bounds of all columns without repeated values, as far as the row groups' statistics tell."""
    found = []
    for leaf in file.schema.leaves:
        order = file.order(leaf.index)
        if leaf.max_repetition_level or not has_bounds(order):
            continue
        try:
            bounds = file.row_group_bounds(leaf.index)
        except FormatError:
            continue
        one = _joined(leaf, order, bounds)
        if one.low is not None or one.all_null or one.nulls != UNKNOWN:
            found.append(one)
    return found


def _joined(leaf: Leaf, order: ValueOrder, bounds: Bounds) -> LeafBounds:
    """The bounds of all row groups as one."""
    has_values = ~bounds.all_null
    low: bytes | None = None
    high: bytes | None = None
    if has_values.any() and bounds.bounded[has_values].all():
        low = order.plain(min(bounds.low[has_values]))
        high = order.plain(max(bounds.high[has_values]))
        if may_shorten(leaf.element, order):
            text = is_text(leaf.element)
            low = shortened_low(low, _LONGEST_BOUND, text=text)
            high = shortened_high(high, _LONGEST_BOUND, text=text)
    all_null = bool(len(bounds)) and not has_values.any()
    counts = (_sum(bounds.null_counts), _sum(bounds.nan_counts))
    return LeafBounds(leaf.path, low, high, all_null, *counts)


def _sum(counts: np.ndarray[Any, Any]) -> int:
    return UNKNOWN if (counts == UNKNOWN).any() else int(counts.sum())


def keys_of(
    file: OpenedFile, *, with_keys: bool = True
) -> Iterator[tuple[KeySpec, int, UInt64Array]]:
    """Of each index of fingerprints: what it is, how many granules it has, its ``packed`` entries.

    Damaged ones are left out: their files are asked themselves. Without ``with_keys`` entries are
    neither read nor given.
    """
    done = set()
    for entry in file.sections.entries:
        found, spec = file.sections.resolved(entry), KeySpec.of(entry)
        if found is None or spec in done or not has_fingerprints(found.kind):
            continue
        section = file.sections.section(found)
        if not isinstance(section, InvertedSection):
            continue
        try:
            entries = section.entries() if with_keys else np.empty(0, np.uint64)
        except (FormatError, PathError):
            continue
        done.add(spec)
        yield spec, section.num_granules, entries


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a catalog keeps of one file."""

    entry: FileEntry
    tail: bytes
    bounds: list[LeafBounds]
    keys: list[tuple[KeySpec, int, UInt64Array]]


def facts_of(
    file: OpenedFile, path: str, size: int, mtime: int, *, with_keys: bool = True
) -> Facts | None:
    """What to keep of a file that a listing shows as ``path``, with this length and time.

    None where that is not the file that was opened, or it cannot be read.
    """
    try:
        if file.source.size != size:
            return None
        stamp = None if file.beside is None else file.beside.owner(b"").stamp or None
        groups = len(file.metadata.row_groups)
        entry = FileEntry(path, size, mtime, stamp, file.num_rows, groups, form_of(file))
        keys = list(keys_of(file, with_keys=with_keys))
        return Facts(entry, tail_of(file), bounds_of(file), keys)
    except (IntarsiaError, OSError):
        return None
