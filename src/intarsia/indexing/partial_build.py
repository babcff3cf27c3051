"""Builds the indexes of large files in parts: each task gathers some row groups, one merges.

A granule never crosses a row group. A part is therefore stored as the rows of a section of its row
groups alone, with granules numbered from 0. Read in the order of the row groups, the
parts are the rows of the whole file's section.

::

    row groups   0 1 2 │ 3 4 │ 5 6 7     one part each, in any order, on any machine
    part         runs of (key, granule), or summaries; bytes of page indexes and bloom filters
    merge        granule + granules of the parts before, sorted again; either all indexes together,
                 or each index by its own task, with the sections put together at the end
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
    Builder,
    Built,
    Due,
    build_sections,
    check_index,
    due_indexes,
    gather,
    mapped_section,
    write_built,
)
from intarsia.indexing.entry_collector import Gatherer, gatherer_for
from intarsia.indexing.parquet_index_build import (
    ChunkPart,
    build_parquet_index,
    groups_of,
    learned,
)
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
_GRANULE_STARTS_KEY = "granules"
"""The metadata key of the first rows of a part's granules and the row where the last one ends."""

Create = Callable[[int], AbstractContextManager[Path]]
"""Gives a path to write the part of an index to, given the index's number."""
Fetch = Callable[[int, Workspace], Path]
"""Gives the path of a section made by another task, given the index's number.

The file may be a copy in the workspace.
"""
Reopen = Callable[[int, int], AbstractContextManager[Any]]
"""Opens the part of an index as a pyarrow file, given the numbers of the part and the index."""


def cut(file: OpenedFile, most_bytes: int) -> list[range]:
    """Divides row groups into as few even runs as have ``most_bytes`` compressed on average."""
    sizes = [
        sum(file.chunk(group, leaf.index).total_compressed_size for leaf in file.schema.leaves)
        for group in groups_of(file)
    ]
    ends = np.cumsum(sizes, dtype=np.int64)
    count = min(len(sizes), -(-int(ends[-1]) // most_bytes)) if sizes else 0
    if count < 2:
        return [groups_of(file)]
    middles = ends - np.array(sizes, dtype=np.int64) // 2
    run_of = np.minimum(middles * count // int(ends[-1]), count - 1)
    edges = [0, *(np.flatnonzero(np.diff(run_of)) + 1).tolist(), len(sizes)]
    return [range(low, high) for low, high in itertools.pairwise(edges)]


def gather_part(
    file: OpenedFile, indexes: Sequence[IndexSpec], groups: range, create: Create
) -> None:
    """Writes what the row groups ``groups`` add to each index. Raises as ``build`` does."""
    for number, index in enumerate(indexes):
        if isinstance(index, Standard):
            with create(number) as path:
                _write(path, _CHUNKS, _chunk_tables(file, index, groups))
    numbers = [n for n, index in enumerate(indexes) if not isinstance(index, Standard)]
    due = due_indexes(file, [index for index in indexes if not isinstance(index, Standard)], groups)
    with Workspace() as work:
        gathered = gather(file, due, work, groups=groups)
        for number, due_index, gatherer in zip(numbers, due, gathered, strict=True):
            schema = gatherer.schema.with_metadata(
                {_GRANULE_STARTS_KEY: due_index.starts.astype("<i8").tobytes()}
            )
            with create(number) as path:
                _write(path, schema, gatherer.blocks())


def _chunk_tables(file: OpenedFile, index: Standard, groups: range) -> Iterator[pa.Table]:
    for part in learned(file, build_parquet_index(file, index, groups)):
        columns = [[part.chunk[0]], [part.chunk[1]], [part.name], [part.data]]
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
class FromParts(Builder):
    """Builds the ``indexes`` of a file from ``count`` gathered parts, in order."""

    indexes: Sequence[IndexSpec]
    count: int
    reopen: Reopen
    file_id: str | None = None

    def standard(self, file: OpenedFile, index: Standard) -> Iterable[ChunkPart[bytes]]:
        """Yields the page indexes and bloom filters of all parts."""
        for part in range(self.count):
            with self._opened(part, index) as batches:
                for batch in batches:
                    for row in batch.to_pylist():
                        chunk = row["group"], row["leaf"]
                        yield ChunkPart(chunk, row["data"], row["name"])

    def sections(
        self, file: OpenedFile, indexes: Sequence[EmbeddedIndex], file_id: str, work: Workspace
    ) -> list[Built]:
        """Returns sections as if built at once. Raises ``FormatError`` for other granules."""
        due, gathered = self._gathered(file, indexes, work)
        return build_sections(due, gathered, file_id, work)

    def write_one(self, file: OpenedFile, number: int, file_id: str, path: Path) -> None:
        """Writes one section for ``FromSections``. Raises the errors of ``sections``."""
        index = self.indexes[number]
        assert not isinstance(index, Standard)
        for parquet_index in self.indexes:
            if isinstance(parquet_index, Standard):
                for _ in learned(file, self.standard(file, parquet_index)):
                    pass
        with Workspace() as work:
            (due,), (gathered,) = self._gathered(file, [index], work)
            write_built(path, gathered, due, file_id)

    def _gathered(
        self, file: OpenedFile, indexes: Sequence[EmbeddedIndex], work: Workspace
    ) -> tuple[list[Due], list[Gatherer]]:
        due = due_indexes(file, indexes, groups_of(file))
        gathered = [
            gatherer_for(due_index.index, due_index.subject, due_index.starts, work)
            for due_index in due
        ]
        for due_index, gatherer in zip(due, gathered, strict=True):
            for part in range(self.count):
                with self._opened(part, due_index.index) as batches:
                    first = _first_granule(file, due_index, batches.schema)
                    for batch in batches:
                        columns = batch.columns
                        block = pa.Table.from_arrays(columns, schema=gatherer.schema)
                        gatherer.take(block, first)
        return due, gathered

    @contextlib.contextmanager
    def _opened(self, part: int, index: IndexSpec) -> Iterator[pa.RecordBatchReader]:
        with self.reopen(part, self.indexes.index(index)) as file:
            yield pa.ipc.open_stream(file)


@dataclass(frozen=True, slots=True)
class FromSections(Builder):
    """Builds the indexes of a file from sections that other tasks made of the same parts."""

    parts: FromParts
    fetch: Fetch
    file_id: str | None = None

    def standard(self, file: OpenedFile, index: Standard) -> Iterable[ChunkPart[bytes]]:
        """Yields the page indexes and bloom filters of all parts."""
        return self.parts.standard(file, index)

    def sections(
        self, file: OpenedFile, indexes: Sequence[EmbeddedIndex], file_id: str, work: Workspace
    ) -> list[Built]:
        """Returns the sections that were made."""
        sections = []
        for index in indexes:
            subject = check_index(file, index)
            with on_disk():
                path = self.fetch(self.parts.indexes.index(index), work)
                sections.append(Built(index, mapped_section(path, index), subject.term))
                work.release(path)
        return sections


def _first_granule(file: OpenedFile, due: Due, schema: pa.Schema) -> int:
    """Returns the number, in the whole file, of a part's first granule."""
    starts: Int64Array = np.frombuffer(schema.metadata[_GRANULE_STARTS_KEY.encode()], "<i8").astype(
        np.int64
    )
    first = int(np.searchsorted(due.starts, starts[0], side="right")) - 1
    within = due.starts[first : first + len(starts) - 1]
    # The list of DistinctIDX1 has one granule, the whole file, which begins before the part.
    if len(due.starts) > 2 and not np.array_equal(within, starts[:-1]):
        name = spec_name(due.index)
        raise FormatError(
            f"index {name}: a part has other granules than the file", Where(file.name)
        )
    return max(first, 0)
