"""Compares a data set's catalog with its files. Queries cannot notice such errors themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.fs as pafs

from intarsia.catalog.build import facts_at
from intarsia.catalog.catalog import list_folder, open_segments, pointer_path, read_pointer
from intarsia.catalog.file_facts import Facts, KeySpec, LeafBounds
from intarsia.catalog.location import Target
from intarsia.catalog.segment_reader import Identity, SegmentReader
from intarsia.errors import IntarsiaError, Where
from intarsia.file.read_options import DEFAULTS
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.row_ranges import UInt64Array
from intarsia.verify.finding import Finding, error, warning

_KEY_BITS, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def check_catalog(filesystem: pafs.FileSystem, root: str) -> Iterator[Finding]:
    """Yields faults of the catalog in ``root``, except for files that changed since."""
    try:
        pointer = read_pointer(filesystem, root)
        listing, _ = list_folder(filesystem, root)
        for reader in open_segments(filesystem, root, pointer, DEFAULTS):
            yield from _of_segment(Target(filesystem, root), reader, listing)
    except (IntarsiaError, OSError) as problem:
        yield warning(Where(pointer_path(root)), f"the catalog is ignored: {problem}")


def _of_segment(
    target: Target, reader: SegmentReader, listing: dict[str, Identity]
) -> Iterator[Finding]:
    listed, places = reader.listed, Sidecars(target.filesystem)
    bounds = _bounds(reader)
    keys = [(number, _entries(reader, number)) for number in range(len(reader.segment.keys))]
    for file, path in enumerate(listed.paths):
        identity = int(listed.sizes[file]), int(listed.mtimes[file])
        if listing.get(path) != identity:
            continue  # queries read the file itself
        facts = facts_at(target, path, identity, places)
        where = Where(f"{target.root}/{path}")
        if facts is None:
            yield warning(where, "the catalog is of this file, which cannot be read now")
            continue
        yield from _of_file(where, reader, file, facts)
        if {b.path: b for b in facts.bounds} != bounds.get(file, {}):
            yield error(where, "the catalog has other bounds of its columns")
        own = {spec: entries for spec, _, entries in facts.keys}
        for number, entries in keys:
            if file in entries:
                index = reader.segment.keys[number]
                # Only keys: a rebuilt index may have other granules.
                expected = own.get(KeySpec.of(index), _NONE)
                lost = np.setdiff1d(expected >> _KEY_BITS, entries[file] >> _KEY_BITS)
                if len(lost):
                    name = f"{index.on}:{index.kind}"
                    yield error(where, f"the catalog lacks {len(lost):,} keys of its index {name}")


_NONE = np.empty(0, dtype=np.uint64)


def _of_file(where: Where, reader: SegmentReader, file: int, facts: Facts) -> Iterator[Finding]:
    listed, entry = reader.listed, facts.entry
    schema_hash = reader.segment.forms[int(listed.schema_groups[file])].hash
    if (schema_hash, int(listed.rows[file])) != (entry.schema_hash, entry.rows):
        yield error(where, "the catalog has another schema of it, or another number of rows")
    if reader.tail(file) not in (b"", facts.tail):
        yield error(where, "the catalog has another footer of it")


def _bounds(reader: SegmentReader) -> dict[int, dict[tuple[str, ...], LeafBounds]]:
    """Returns the bounds in the catalog by file and column."""
    bounds: dict[int, dict[tuple[str, ...], LeafBounds]] = {}
    for leaf, path in enumerate(reader.segment.leaves):
        for row in reader.bounds_of(leaf).to_pylist():
            file = row.pop("file")
            bounds.setdefault(file, {})[path] = LeafBounds(path, **row)
    return bounds


def _entries(reader: SegmentReader, number: int) -> dict[int, UInt64Array]:
    """Returns the entries of an index by file, with granules numbered from the file's start."""
    covered, index = reader.covered(number), reader.segment.keys[number]
    parts = [reader.part(part.table, covered.num_granules).all() for part in index.parts]
    entries = np.concatenate([_NONE, *parts])
    granules = (entries & _LOW).astype(np.int64)
    at = np.searchsorted(covered.stops, granules, side="right")
    before = np.concatenate(([0], covered.stops))[at]
    own = (entries >> _KEY_BITS << _KEY_BITS) | (granules - before).astype(np.uint64)
    order = np.argsort(at, kind="stable")
    edges = np.searchsorted(at[order], np.arange(len(covered.files) + 1))
    return {
        file: own[order[edges[i] : edges[i + 1]]] for i, file in enumerate(covered.files.tolist())
    }
