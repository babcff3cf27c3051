"""Indexes of large files, built by several: each gathers of some row groups, one merges.

A granule never crosses a row group, so what is gathered of row groups that follow each other can be
kept as it is: as the rows that a section of these row groups alone would have, their granules
numbered from 0. Read in the order of the row groups, they are the rows of the whole file's section.

::

    row groups   0 1 2 │ 3 4 │ 5 6 7     one part each, in any order, anywhere
    part         runs of (key, granule), or summaries; bytes of page indexes and bloom filters
    merge        granule + granules of the parts before; sorted again as it comes: of all indexes
                 together, or each elsewhere, and what was made of them put together
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from intarsia.errors import FormatError, Where
from intarsia.file.open_file import OpenedFile
from intarsia.index.parquet_indexes import Standard
from intarsia.index.registry import EmbeddedIndex, IndexSpec, spec_name
from intarsia.indexing.build import (
    Built,
    Due,
    Told,
    check_index,
    due_of,
    gather,
    mapped_section,
    sections_of,
    write_built,
)
from intarsia.indexing.entry_collector import Gatherer, gatherer_for
from intarsia.indexing.parquet_index_build import ChunkPart, build_standard, groups_of
from intarsia.io.external_sort import Workspace, on_disk
from intarsia.row_ranges import Int64Array

_CHUNKS = pa.schema(
    [
        ("group", pa.int32()),
        ("leaf", pa.int32()),
        ("name", pa.string()),
        ("data", pa.large_binary()),
    ]
)
_PLACE = "granules"
"""The key at which a part says the first rows of its granules, and where they end."""

Create = Callable[[int], AbstractContextManager[Path]]
"""Gives a path to write what is gathered of an index at, told by its number."""
Fetch = Callable[[int, Workspace], Path]
"""Gives the path of a section made elsewhere, by its index's number; a copy may be in a workspace.
"""
Reopen = Callable[[int, int], AbstractContextManager[Any]]
"""Opens what a part has of an index, as a file of pyarrow's: by the numbers of both."""


def cut(file: OpenedFile, most_bytes: int) -> list[range]:
    """The row groups of a file, divided into runs that follow each other, of about one size each.

    As few as take no more than ``most_bytes`` in the file on average.
    """
    sizes = [
        sum(file.chunk(group, leaf.index).total_compressed_size for leaf in file.schema.leaves)
        for group in groups_of(file)
    ]
    ends = np.cumsum(sizes, dtype=np.int64)
    count = min(len(sizes), -(-int(ends[-1]) // most_bytes)) if sizes else 0
    if count < 2:
        return [groups_of(file)]
    middles = ends - np.array(sizes, dtype=np.int64) // 2
    of = np.minimum(middles * count // int(ends[-1]), count - 1)
    edges = [0, *(np.flatnonzero(np.diff(of)) + 1).tolist(), len(sizes)]
    return [range(low, high) for low, high in itertools.pairwise(edges)]


def gather_part(
    file: OpenedFile, indexes: Sequence[IndexSpec], groups: range, create: Create
) -> None:
    """Write what the row groups ``groups`` add to each index. Raises as ``build`` does."""
    for number, index in enumerate(indexes):
        if isinstance(index, Standard):
            with create(number) as path:
                _write(path, _CHUNKS, _chunk_tables(file, index, groups))
    numbers = [n for n, index in enumerate(indexes) if not isinstance(index, Standard)]
    due = due_of(file, [index for index in indexes if not isinstance(index, Standard)], groups)
    with Workspace() as work:
        gathered = gather(file, due, work, groups=groups)
        for number, one, found in zip(numbers, due, gathered, strict=True):
            schema = found.schema.with_metadata({_PLACE: one.starts.astype("<i8").tobytes()})
            with create(number) as path:
                _write(path, schema, found.blocks())


def _chunk_tables(file: OpenedFile, index: Standard, groups: range) -> Iterator[pa.Table]:
    for made in build_standard(file, index, groups):
        if made.name == "offset_index":  # granules are to be the pages that it tells of
            file.page_indexes.learn(made.chunk, made.data)
        columns = [[made.chunk[0]], [made.chunk[1]], [made.name], [made.data]]
        yield pa.table(columns, schema=_CHUNKS)


def _write(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")  # zstd takes longer than it saves
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_stream(sink, schema, options=options) as out,
    ):
        for table in tables:
            out.write_table(table.replace_schema_metadata(schema.metadata))


@dataclass(frozen=True, slots=True)
class FromParts:
    """Makes the ``indexes`` of a file of what ``count`` parts, in order, gathered of them."""

    indexes: Sequence[IndexSpec]
    count: int
    reopen: Reopen
    file_id: str | None = None

    def standard(self, file: OpenedFile, index: Standard) -> Iterable[ChunkPart[bytes]]:
        """Page indexes and bloom filters, as they were made."""
        for part in range(self.count):
            with self._opened(part, index) as found:
                for batch in found:
                    for row in batch.to_pylist():
                        chunk = row["group"], row["leaf"]
                        yield ChunkPart(chunk, row["data"], row["name"])

    def sections(
        self,
        file: OpenedFile,
        indexes: Sequence[EmbeddedIndex],
        file_id: str,
        work: Workspace,
        told: Told | None,
    ) -> list[Built]:
        """Sections that equal those built at once. Raises ``FormatError`` for other granules."""
        due, gathered = self._gathered(file, indexes, work)
        return sections_of(due, gathered, file_id, work)

    def write_one(self, file: OpenedFile, number: int, file_id: str, path: Path) -> None:
        """Write the section of one of the indexes, for ``FromSections``, which knows it by number.

        Raises ``FormatError`` for other granules.
        """
        index = self.indexes[number]
        assert not isinstance(index, Standard)
        for other in self.indexes:
            if isinstance(other, Standard):
                for made in self.standard(file, other):
                    if made.name == "offset_index":  # granules are the pages that it tells of
                        file.page_indexes.learn(made.chunk, made.data)
        with Workspace() as work:
            (due,), (gathered,) = self._gathered(file, [index], work)
            write_built(path, gathered, due, file_id)

    def _gathered(
        self, file: OpenedFile, indexes: Sequence[EmbeddedIndex], work: Workspace
    ) -> tuple[list[Due], list[Gatherer]]:
        due = due_of(file, indexes, groups_of(file))
        gathered = [gatherer_for(one.index, one.of, one.starts, work) for one in due]
        for one, gatherer in zip(due, gathered, strict=True):
            for part in range(self.count):
                with self._opened(part, one.index) as found:
                    first = _first_granule(file, one, found.schema)
                    for batch in found:
                        columns = batch.columns
                        block = pa.Table.from_arrays(columns, schema=gatherer.schema)
                        gatherer.take(block, first)
        return due, gathered

    @contextlib.contextmanager
    def _opened(self, part: int, index: IndexSpec) -> Iterator[pa.RecordBatchReader]:
        with self.reopen(part, self.indexes.index(index)) as file:
            yield pa.ipc.open_stream(file)


@dataclass(frozen=True, slots=True)
class FromSections:
    """Makes the indexes of a file of sections that were each made elsewhere, of the same parts.

    They call the file ``file_id`` where it has no name yet.
    """

    parts: FromParts
    file_id: str | None
    fetch: Fetch

    def standard(self, file: OpenedFile, index: Standard) -> Iterable[ChunkPart[bytes]]:
        """As ``FromParts`` does."""
        return self.parts.standard(file, index)

    def sections(
        self,
        file: OpenedFile,
        indexes: Sequence[EmbeddedIndex],
        file_id: str,
        work: Workspace,
        told: Told | None,
    ) -> list[Built]:
        """The sections that were made."""
        found = []
        for index in indexes:
            of = check_index(file, index)
            with on_disk():
                path = self.fetch(self.parts.indexes.index(index), work)
                found.append(Built(index, mapped_section(path, index), of.term))
                work.release(path)
        return found


def _first_granule(file: OpenedFile, due: Due, schema: pa.Schema) -> int:
    """The number in the whole file of a part's first granule."""
    starts: Int64Array = np.frombuffer(schema.metadata[_PLACE.encode()], "<i8").astype(np.int64)
    first = int(np.searchsorted(due.starts, starts[0], side="right")) - 1
    within = due.starts[first : first + len(starts) - 1]
    # The one list of DistinctIDX1 is of the whole file: its granule begins before.
    if len(due.starts) > 2 and not np.array_equal(within, starts[:-1]):
        name = spec_name(due.index)
        raise FormatError(f"index {name}: parts have other granules", Where(file.name))
    return max(first, 0)
