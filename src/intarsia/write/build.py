"""Building the sections of a file's indexes from its own pages."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import IndexSpecError
from intarsia.format.schema import Leaf, Root
from intarsia.index.directory import IndexEntry
from intarsia.index.kind import InvertedKind, KeyArray, index_name
from intarsia.index.registry import IndexSpec
from intarsia.index.section import BuiltSection, build_section
from intarsia.index.standard import Standard
from intarsia.ranges import Int64Array, RowRanges
from intarsia.read.opened import OpenedFile
from intarsia.read.rows import PageIndexMistrust, read_rows
from intarsia.write.standard import check_standard


@dataclass(frozen=True, slots=True)
class Built:
    """A section, and the index it is of."""

    kind: InvertedKind
    section: BuiltSection

    def entry(self, offset: int) -> IndexEntry:
        """What the directory says of it when it starts at ``offset``."""
        return IndexEntry(
            self.kind.kind,
            self.kind.kind_version,
            self.kind.on,
            dict(self.kind.params),
            offset,
            len(self.section.data),
            self.section.meta_length,
            self.section.meta_crc32,
        )


def new_file_id() -> str:
    """A random name for a file, which its sections repeat."""
    return secrets.token_hex(16)


def check_index(file: OpenedFile, kind: InvertedKind) -> Leaf:
    """The column that ``kind`` is to index. Raises ``IndexSpecError`` where it cannot be."""
    name = index_name(kind.on, kind.kind)
    leaf = file.schema.leaf(kind.on)
    if leaf is None and file.schema.root(kind.on) is None:
        known = ", ".join(leaf.name for leaf in file.schema.leaves[:20])
        raise IndexSpecError(
            f"{file.name}: no index {name}: there is no column {kind.on!r}; there are: {known}"
        )
    if leaf is None or not leaf.is_flat:
        raise IndexSpecError(f"{file.name}: no index {name}: the column is nested")
    reason = kind.unfit(file.order(leaf.index))
    if reason:
        raise IndexSpecError(f"{file.name}: no index {name}: {reason}")
    return leaf


def check_indexes(file: OpenedFile, indexes: Sequence[IndexSpec]) -> None:
    """Raise ``IndexSpecError`` unless ``file`` can be given all of ``indexes``."""
    for index in indexes:
        if isinstance(index, Standard):
            check_standard(file, index)
        else:
            check_index(file, index)


def build(file: OpenedFile, kind: InvertedKind, file_id: str) -> Built:
    """Read the indexed column, row group by row group, and make the section of ``kind``."""
    leaf = check_index(file, kind)
    starts = granule_starts(file, leaf, kind.granule_rows)
    return Built(kind, build_section(entries_of(file, leaf, kind, starts), starts, file_id))


def granule_starts(file: OpenedFile, leaf: Leaf, granule_rows: int) -> Int64Array:
    """First rows of a column's granules, and the number of rows: its pages, long ones divided
    evenly.
    """
    parts: list[Int64Array] = []
    groups = range(len(file.metadata.row_groups))
    file.load_page_indexes([(group, leaf.index) for group in groups], [])
    for group in groups:
        first, stop = file.row_group_starts[group : group + 2].tolist()
        index = file.offset_index(group, leaf.index)
        pages = index.first_row_index if index is not None else np.zeros(1, dtype=np.int64)
        edges = np.append(pages + first, stop)
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            count = -(-(high - low) // granule_rows)
            parts.append(low + np.arange(count, dtype=np.int64) * (high - low) // max(count, 1))
    parts.append(np.array([file.num_rows], dtype=np.int64))
    return np.concatenate(parts)


def entries_of(
    file: OpenedFile, leaf: Leaf, kind: InvertedKind, starts: Int64Array
) -> Iterator[tuple[KeyArray, KeyArray]]:
    """Keys of a column's values, and the granules, of which ``starts`` are the first rows, that
    hold them: arrays of one length, row group by row group.
    """
    root = file.schema.roots[leaf.root]
    for group in range(len(file.metadata.row_groups)):
        first, stop = file.row_group_starts[group : group + 2].tolist()
        if first == stop:
            continue
        values = _physical(file, root, RowRanges.of((first, stop)))
        row = first
        for chunk in values.chunks:
            rows = np.arange(row, row + len(chunk))
            row += len(chunk)
            keep = _indexed(chunk)
            if keep is not None:
                chunk, rows = chunk.filter(keep), rows[keep.to_numpy(zero_copy_only=False)]
            granules = np.searchsorted(starts, rows, side="right") - 1
            yield kind.keys_of_values(chunk), granules.astype(np.uint32)


def _physical(file: OpenedFile, root: Root, rows: RowRanges) -> pa.ChunkedArray:
    while True:
        try:
            return read_rows(file, [root], rows, physical=True)[0]
        except PageIndexMistrust:
            continue  # the index was dropped: this time, pages are found without it


def _indexed(values: pa.Array) -> pa.BooleanArray | None:
    """Which values are neither NULL nor NaN; None where all are."""
    keep = values.is_valid()
    if pa.types.is_floating(values.type):
        keep = pc.and_(keep, pc.fill_null(pc.invert(pc.is_nan(values)), False))
    return None if pc.all(keep).as_py() in (True, None) else keep
