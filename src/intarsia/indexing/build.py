"""Builds the sections of a file's indexes from its own pages, in one pass over them."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import intarsia.deadline as deadline
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
    MAX_GRANULES,
    BuiltSection,
    entries_of,
    entry_table,
    write_section,
)
from intarsia.indexing.column_values import leaves_of, pieces
from intarsia.indexing.entry_collector import Gatherer, gatherer_for
from intarsia.indexing.parquet_index_build import (
    ChunkPart,
    build_parquet_index,
    check_parquet_index,
    groups_of,
)
from intarsia.io.external_sort import Workspace, on_disk
from intarsia.parquet.schema import Leaf
from intarsia.pruning.term import Term
from intarsia.row_ranges import Int64Array

_BLOCK_BYTES = 512 * 1024
"""Bytes of values in a block of granules. A larger block would be read for a single match."""
GroupProgress = Callable[[int], None]
"""Called with the number of row groups of a file that are done."""


@dataclass(frozen=True, slots=True)
class Built:
    """A section, and the index that it belongs to."""

    kind: EmbeddedIndex
    section: BuiltSection
    term: Term | None = None

    def entry(self, offset: int) -> IndexEntry:
        """Returns the directory entry of the section if it starts at ``offset``."""
        return IndexEntry(
            self.kind.kind,
            self.kind.kind_version,
            indexed_expression(self.kind, self.term),
            dict(self.kind.params),
            offset,
            len(self.section.data),
            self.section.meta_length,
            self.section.meta_crc32,
            self.term.meaning if self.term else "",
        )


def indexed_expression(index: EmbeddedIndex, term: Term | None) -> str:
    """Returns what an index is on: a column, or the canonical SQL of a function."""
    return index.on if term is None or term.path else term.sql


def names_of(file: OpenedFile, indexes: Sequence[IndexSpec]) -> list[str]:
    """Returns the names of indexes in ``file``. Raises ``IndexSpecError`` if two are equal."""
    names = []
    for index in indexes:
        if isinstance(index, Standard):
            names.append(spec_name(index))
        else:
            names.append(
                index_name(indexed_expression(index, check_index(file, index).term), index.kind)
            )
    for name, count in Counter(names).items():
        if count > 1:
            raise IndexSpecError(f"index {name} is asked for twice")
    return names


@dataclass(frozen=True, slots=True)
class Due:
    """An index that is to be built.

    ``starts`` are the first rows of its granules, followed by the row where the last one ends.
    ``blocks`` are the blocks of granules that frequent keys are stored for.
    """

    index: EmbeddedIndex
    subject: Subject
    starts: Int64Array
    blocks: Blocks | None = None


def new_file_id() -> str:
    """Returns a random name for a file. Its sections repeat the name."""
    return secrets.token_hex(16)


def check_index(file: OpenedFile, index: EmbeddedIndex) -> Subject:
    """Returns what ``index`` is on. Raises ``IndexSpecError`` if the file cannot have it."""
    try:
        return subject_of(file.columns, index)
    except FormatError as error:
        raise error.at(Where(file.name)) from error
    except IndexSpecError as error:
        raise IndexSpecError(f"{file.name}: {error}") from error


def check_indexes(file: OpenedFile, indexes: Sequence[IndexSpec]) -> None:
    """Raises ``IndexSpecError`` unless ``file`` can have all of ``indexes``."""
    for index in indexes:
        if isinstance(index, Standard):
            check_parquet_index(file, index)
        else:
            check_index(file, index)


class Builder:
    """Makes the indexes of a file from its own pages. Subclasses take them from other places."""

    file_id: str | None = None
    """The name for a file that has none yet. None if any name will do."""

    def __init__(self, on_group_done: GroupProgress | None = None) -> None:
        self._on_group_done = on_group_done

    def standard(self, file: OpenedFile, index: Standard) -> Iterable[ChunkPart[bytes]]:
        """Yields page indexes or bloom filters, as ``build_parquet_index`` does."""
        return build_parquet_index(file, index)

    def sections(
        self, file: OpenedFile, indexes: Sequence[EmbeddedIndex], file_id: str, work: Workspace
    ) -> list[Built]:
        """Returns a section of each index. Reads each indexed column once."""
        due = due_indexes(file, indexes, groups_of(file))
        return build_sections(due, gather(file, due, work, self._on_group_done), file_id, work)


def due_indexes(file: OpenedFile, indexes: Sequence[EmbeddedIndex], groups: range) -> list[Due]:
    """Returns ``indexes`` with their granules in some consecutive row groups."""
    due = []
    for index in indexes:
        subject = check_index(file, index)
        starts = index_granule_starts(file, index, subject, groups)
        due.append(
            Due(index, subject, starts, granule_blocks(file, index, subject, starts, groups))
        )
    return due


def granule_blocks(
    file: OpenedFile, index: EmbeddedIndex, subject: Subject, starts: Int64Array, groups: range
) -> Blocks | None:
    """Returns the blocks of an index's granules. None if they would have one granule, or all."""
    if not (isinstance(index, Inverted) and index.has_blocks) or index.exact:
        return None
    chunks = [
        file.chunk(group, leaf.index) for leaf in leaves_of(file, subject) for group in groups
    ]
    num_bytes = sum(chunk.total_uncompressed_size for chunk in chunks)
    granules, rows = len(starts) - 1, int(starts[-1] - starts[0])
    size = min(
        index.granule_rows * granules // max(rows, 1), _BLOCK_BYTES * granules // max(num_bytes, 1)
    )
    return Blocks(size, granules) if 1 < size < granules else None


def build_sections(
    due: Sequence[Due], gathered: Sequence[Gatherer], file_id: str, work: Workspace
) -> list[Built]:
    """Returns the section of each index from its gathered values."""
    return [
        Built(due_index.index, _section(gatherer, due_index, file_id, work), due_index.subject.term)
        for due_index, gatherer in zip(due, gathered, strict=True)
    ]


def gather(
    file: OpenedFile,
    due: Sequence[Due],
    work: Workspace,
    on_group_done: GroupProgress | None = None,
    groups: range | None = None,
) -> list[Gatherer]:
    """Reads some or all row groups, and returns a gatherer of values for each index."""
    stops = file.row_group_starts[1:]
    groups = groups_of(file) if groups is None else groups
    gatherers = [
        gatherer_for(due_index.index, due_index.subject, due_index.starts, work)
        for due_index in due
    ]
    leaves = {leaf.index for due_index in due for leaf in leaves_of(file, due_index.subject)}
    done = groups.start
    for piece in pieces(file, sorted(leaves), groups):
        for due_index, gatherer in zip(due, gatherers, strict=True):
            with placed(Where(file.name, column=due_index.index.on)):
                for values in piece.values(due_index.index, due_index.subject):
                    deadline.check()
                    gatherer.add(values)
        before, done = done, int(np.searchsorted(stops, piece.stop, side="right"))
        if on_group_done is not None:
            for number in range(before, done):
                on_group_done(number + 1)
    return gatherers


def index_granule_starts(
    file: OpenedFile, index: EmbeddedIndex, subject: Subject, groups: range
) -> Int64Array:
    """Returns the first rows of an index's granules in some row groups, and the row after them."""
    if isinstance(index, DistinctIDX1):
        return file.row_group_starts[[groups.start, groups.stop]]
    leaf = leaves_of(file, subject)[0] if subject.term.path else None
    return granule_starts(file, leaf, index.granule_rows, groups)


def granule_starts(
    file: OpenedFile, leaf: Leaf | None, granule_rows: int, groups: range | None = None
) -> Int64Array:
    """Returns the first rows of granules, followed by the row where the last one ends.

    A granule is a page of the column ``leaf``; pages longer than ``granule_rows`` are divided
    evenly. Without a ``leaf``, row groups are divided. Raises ``IndexSpecError`` for more than
    ``MAX_GRANULES``.
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
            if total > MAX_GRANULES:
                raise IndexSpecError(
                    f"granules of {granule_rows:,} rows are more than {MAX_GRANULES:,}"
                )
            parts.append(low + np.arange(count, dtype=np.int64) * (high - low) // max(count, 1))
    parts.append(file.row_group_starts[groups.stop : groups.stop + 1])
    return np.concatenate(parts)


def _section(gathered: Gatherer, due: Due, file_id: str, work: Workspace) -> BuiltSection:
    with on_disk():
        path = work.new_path()
        write_built(path, gathered, due, file_id)
        section = mapped_section(path, due.index)
        work.release(path)
        return section


def write_built(path: Path, gathered: Gatherer, due: Due, file_id: str) -> None:
    """Writes the section of one index to a file of its own."""
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
    """Yields the rows of a gatherer's granules as rows of cells."""
    for table in tables:
        yield entry_table(blocks.cells_of(entries_of(table)), CELL_SCHEMA)


def mapped_section(path: Path, index: EmbeddedIndex) -> BuiltSection:
    """Returns a section that ``write_built`` wrote, mapped into memory."""
    with pa.memory_map(str(path)) as mapped:
        data = memoryview(mapped.read_buffer())
    return (
        BuiltSection(data, len(data)) if index.kind == DistinctIDX1.kind else BuiltSection.of(data)
    )
