"""Building the sections of a file's indexes from its own pages, in one pass over them."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from intarsia import deadline
from intarsia.errors import FormatError, IndexSpecError, Where, placed
from intarsia.file.index_subjects import subject_of
from intarsia.file.open_file import OpenedFile
from intarsia.index.base import Inverted, Subject, index_name
from intarsia.index.directory import IndexEntry
from intarsia.index.kinds.distinct_idx1 import DistinctIDX1, encoded
from intarsia.index.parquet_indexes import Standard
from intarsia.index.registry import EmbeddedIndex, IndexSpec, spec_name
from intarsia.index.section.granule_blocks import Blocks
from intarsia.index.section.writer import (
    CELL_SCHEMA,
    MOST_GRANULES,
    BuiltSection,
    entries_of,
    entry_table,
    write_section,
)
from intarsia.indexing.column_values import leaves_of, pieces
from intarsia.indexing.entry_collector import Gatherer, gatherer_for
from intarsia.indexing.parquet_index_build import (
    ChunkPart,
    build_standard,
    check_standard,
    groups_of,
)
from intarsia.io.external_sort import Workspace, on_disk
from intarsia.parquet.schema import Leaf
from intarsia.pruning.term import Term
from intarsia.row_ranges import Int64Array

_BLOCK_BYTES = 512 * 1024
"""Values of a block of granules: of more, too many would be read for one that is there."""
Told = Callable[[int], None]
"""Called with the number of row groups of a file that are done."""


@dataclass(frozen=True, slots=True)
class Built:
    """A section, and the index it is of."""

    kind: EmbeddedIndex
    section: BuiltSection
    of: Term | None = None

    def entry(self, offset: int) -> IndexEntry:
        """What the directory says of it when it starts at ``offset``."""
        return IndexEntry(
            self.kind.kind,
            self.kind.kind_version,
            on_of(self.kind, self.of),
            dict(self.kind.params),
            offset,
            len(self.section.data),
            self.section.meta_length,
            self.section.meta_crc32,
            self.of.meaning if self.of else "",
        )


def on_of(index: EmbeddedIndex, term: Term | None) -> str:
    """What an index is on, as the directory says it: of a function, the one text it has."""
    return index.on if term is None or term.path else term.sql


def names_of(file: OpenedFile, indexes: Sequence[IndexSpec]) -> list[str]:
    """What indexes are called once they are in ``file``."""
    names = []
    for index in indexes:
        if isinstance(index, Standard):
            names.append(spec_name(index))
        else:
            names.append(index_name(on_of(index, check_index(file, index).term), index.kind))
    for name, count in Counter(names).items():
        if count > 1:
            raise IndexSpecError(f"index {name} is asked for twice")
    return names


@dataclass(frozen=True, slots=True)
class Due:
    """An index that is to be built, and the first rows of its granules, then the number of rows.

    ``blocks`` are those of granules that frequent keys are stored for.
    """

    index: EmbeddedIndex
    of: Subject
    starts: Int64Array
    blocks: Blocks | None = None


def new_file_id() -> str:
    """A random name for a file, which its sections repeat."""
    return secrets.token_hex(16)


def check_index(file: OpenedFile, index: EmbeddedIndex) -> Subject:
    """What ``index`` is to be on. Raises ``IndexSpecError`` where it cannot be."""
    try:
        return subject_of(file.columns, index)
    except FormatError as error:
        raise error.at(Where(file.name)) from error
    except IndexSpecError as error:
        raise IndexSpecError(f"{file.name}: {error}") from error


def check_indexes(file: OpenedFile, indexes: Sequence[IndexSpec]) -> None:
    """Raise ``IndexSpecError`` unless ``file`` can be given all of ``indexes``."""
    for index in indexes:
        if isinstance(index, Standard):
            check_standard(file, index)
        else:
            check_index(file, index)


class Builder(Protocol):
    """What makes a file's indexes."""

    @property
    def file_id(self) -> str | None:
        """What its sections call a file that has no name yet; None where any will do."""

    def standard(self, file: OpenedFile, index: Standard) -> Iterable[ChunkPart[bytes]]:
        """As ``build_standard`` does."""

    def sections(
        self,
        file: OpenedFile,
        indexes: Sequence[EmbeddedIndex],
        file_id: str,
        work: Workspace,
        told: Told | None,
    ) -> list[Built]:
        """A section of each index."""


class FromPages:
    """Makes them from the file's own pages."""

    file_id = None

    def standard(self, file: OpenedFile, index: Standard) -> Iterable[ChunkPart[bytes]]:
        return build_standard(file, index)

    def sections(
        self,
        file: OpenedFile,
        indexes: Sequence[EmbeddedIndex],
        file_id: str,
        work: Workspace,
        told: Told | None,
    ) -> list[Built]:
        return build(file, indexes, file_id, work, told)


def build(
    file: OpenedFile,
    indexes: Sequence[EmbeddedIndex],
    file_id: str,
    work: Workspace,
    told: Told | None = None,
) -> list[Built]:
    """Read what is to be indexed, each column once, and make a section of each index."""
    due = due_of(file, indexes, groups_of(file))
    return sections_of(due, gather(file, due, work, told), file_id, work)


def due_of(file: OpenedFile, indexes: Sequence[EmbeddedIndex], groups: range) -> list[Due]:
    """``indexes`` of some row groups that follow each other, with their granules in these."""
    found = []
    for index in indexes:
        of = check_index(file, index)
        starts = starts_of(file, index, of, groups)
        found.append(Due(index, of, starts, blocks_of(file, index, of, starts, groups)))
    return found


def blocks_of(
    file: OpenedFile, index: EmbeddedIndex, of: Subject, starts: Int64Array, groups: range
) -> Blocks | None:
    """Of so many granules as have ``granule_rows`` or ``_BLOCK_BYTES``.

    None where that is one, or all.
    """
    if not (isinstance(index, Inverted) and index.has_blocks) or index.exact:
        return None
    chunks = [file.chunk(group, leaf.index) for leaf in leaves_of(file, of) for group in groups]
    num_bytes = sum(chunk.total_uncompressed_size for chunk in chunks)
    granules, rows = len(starts) - 1, int(starts[-1] - starts[0])
    size = min(
        index.granule_rows * granules // max(rows, 1), _BLOCK_BYTES * granules // max(num_bytes, 1)
    )
    return Blocks(size, granules) if 1 < size < granules else None


def sections_of(
    due: Sequence[Due], gathered: Sequence[Gatherer], file_id: str, work: Workspace
) -> list[Built]:
    """A section of what was gathered of each index."""
    return [
        Built(one.index, _section(found, one, file_id, work), one.of.term)
        for one, found in zip(due, gathered, strict=True)
    ]


def gather(
    file: OpenedFile,
    due: Sequence[Due],
    work: Workspace,
    told: Told | None = None,
    groups: range | None = None,
) -> list[Gatherer]:
    """The rows of the sections of all indexes that are ``due``, of all or some row groups."""
    stops = file.row_group_starts[1:]
    groups = groups_of(file) if groups is None else groups
    found = [gatherer_for(one.index, one.of, one.starts, work) for one in due]
    leaves = {leaf.index for one in due for leaf in leaves_of(file, one.of)}
    done = groups.start
    for piece in pieces(file, sorted(leaves), groups):
        for one, gatherer in zip(due, found, strict=True):
            with placed(Where(file.name, column=one.index.on)):
                for values in piece.values(one.index, one.of):
                    deadline.check()
                    gatherer.add(values)
        before, done = done, int(np.searchsorted(stops, piece.stop, side="right"))
        if told is not None:
            for number in range(before, done):
                told(number + 1)
    return found


def starts_of(file: OpenedFile, index: EmbeddedIndex, of: Subject, groups: range) -> Int64Array:
    """First rows of an index's granules in some row groups, and the row where these end."""
    if isinstance(index, DistinctIDX1):
        return file.row_group_starts[[groups.start, groups.stop]]
    leaf = leaves_of(file, of)[0] if of.term.path else None
    return granule_starts(file, leaf, index.granule_rows, groups)


def granule_starts(
    file: OpenedFile, leaf: Leaf | None, granule_rows: int, groups: range | None = None
) -> Int64Array:
    """First rows of granules, and the number of rows: a column's pages, long ones divided evenly.

    Without a ``leaf``, row groups are divided. Of some ``groups``, the last is the row where they
    end. Raises ``IndexSpecError`` for more granules than are taken.
    """
    parts: list[Int64Array] = []
    total = 0
    groups = groups_of(file) if groups is None else groups
    if leaf is not None:
        file.page_indexes.load([(group, leaf.index) for group in groups], [])
    for group in groups:
        first, stop = file.row_group_starts[group : group + 2].tolist()
        index = None if leaf is None else file.page_indexes.offsets(group, leaf.index)
        pages = index.first_row_index if index is not None else np.zeros(1, dtype=np.int64)
        edges = np.append(pages + first, stop)
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            count = -(-(high - low) // granule_rows)
            total += count
            if total > MOST_GRANULES:
                raise IndexSpecError(
                    f"granules of {granule_rows:,} rows are more than {MOST_GRANULES:,}"
                )
            parts.append(low + np.arange(count, dtype=np.int64) * (high - low) // max(count, 1))
    parts.append(file.row_group_starts[groups.stop : groups.stop + 1])
    return np.concatenate(parts)


def _section(gathered: Gatherer, due: Due, file_id: str, work: Workspace) -> BuiltSection:
    with on_disk():
        path = work.new_path()
        write_built(path, gathered, due, file_id)
        found = mapped_section(path, due.index)
        work.release(path)
        return found


def write_built(path: Path, gathered: Gatherer, due: Due, file_id: str) -> None:
    """Write what was gathered of an index to a file of its own."""
    with pa.OSFile(str(path), "wb") as sink:
        if isinstance(due.index, DistinctIDX1):
            keys = pa.concat_tables(list(gathered.blocks()))["key"]
            sink.write(encoded(keys, due.index.on))
        else:
            schema, rows, size = gathered.schema, gathered.blocks(), None
            if due.blocks is not None:
                schema, rows, size = CELL_SCHEMA, cell_tables(rows, due.blocks), due.blocks.size
            write_section(sink, schema, rows, due.starts, file_id, block_size=size)


def cell_tables(tables: Iterable[pa.Table], blocks: Blocks) -> Iterator[pa.Table]:
    """Rows of granules, as a gatherer gives them, as rows of cells."""
    for table in tables:
        yield entry_table(blocks.cells_of(entries_of(table)), CELL_SCHEMA)


def mapped_section(path: Path, index: EmbeddedIndex) -> BuiltSection:
    """A section that ``write_built`` wrote: it is mapped into memory, and read as it is copied."""
    with pa.memory_map(str(path)) as mapped:
        data = memoryview(mapped.read_buffer())
    return (
        BuiltSection(data, len(data)) if index.kind == DistinctIDX1.kind else BuiltSection.of(data)
    )
