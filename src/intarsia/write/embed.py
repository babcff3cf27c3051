"""Adding indexes to files that exist, and listing them.

::

    before    PAR1 … row groups … footer
    after     PAR1 … row groups … footer | sections, page indexes, filters | directory | footer'
              └──── not a byte moved ───┘
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from intarsia.errors import FormatError, IndexSpecError, Where
from intarsia.format.footer import check_editable
from intarsia.handle import Version, version_of
from intarsia.index.directory import IndexEntry
from intarsia.index.idx1 import DistinctIDX1
from intarsia.index.kind import index_name
from intarsia.index.registry import IndexSpec, kinds_of
from intarsia.index.standard import Bloom, PageIndex
from intarsia.read.file import open_file
from intarsia.read.opened import OpenedFile
from intarsia.read.strays import stray_list
from intarsia.source import WindowSource
from intarsia.storage import PathLike, copy_into, list_files, replacing
from intarsia.write.build import check_indexes
from intarsia.write.compose import Composed, compose
from intarsia.write.spill import Workspace

Progress = Callable[[str, int, int], None]
"""Called with a file's path, how many files are done, and how many there are."""


@dataclasses.dataclass(frozen=True, slots=True)
class StandardReport:
    """The format's own indexes of a name: on how many chunks, and their length in bytes.

    ``distinct_idx1`` is the list of distinct values that another writer left, of a column that the
    file does not name: on no chunk.
    """

    name: str
    chunks: int
    bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class IndexReport:
    """What one file's indexes are and take: lengths in bytes."""

    path: str
    rows: int
    file_bytes: int
    indexes: tuple[IndexEntry, ...]
    standard: tuple[StandardReport, ...]


def add_indexes(
    path: PathLike | Sequence[PathLike],
    indexes: Sequence[IndexSpec | str],
    *,
    filesystem: Any = None,
    progress: Progress | None = None,
) -> list[IndexReport]:
    """Add ``indexes`` to every Parquet file under ``path``: a file, folder, glob or URI.

    An index is an object, ``Lookup("trace_id")``, ``Bloom("user_id")``, ``PageIndex()``, or text,
    ``"trace_id:lookup"``. Page indexes and bloom filters are the format's own: other readers use
    them as well. A chunk that has a page index keeps it; one with pages that begin within a row can
    have none, nor bounds where its values have no order, or a NaN among them.

    All indexes of a file are built in one pass over it, in bounded memory. A file keeps all its
    bytes; what is new is appended to a copy that then takes its place at once. An index of the same
    name is replaced, and its space returned. Every file is checked before the first one is changed.
    Raises ``IndexSpecError`` for an index that cannot be built, ``FormatError`` for a file that is
    not Parquet or must not be changed, ``PathError`` where there is none.
    """
    indexes = kinds_of(indexes)
    if not indexes:
        raise IndexSpecError("no index was asked for")
    found, files = list_files(path, filesystem)
    for file in files:
        _check(open_file(file, found), indexes)
    reports = []
    for done, file in enumerate(files):
        if progress:
            progress(file, done, len(files))
        reports.append(_add_to_file(file, indexes, found))
    if progress:
        progress(files[-1], len(files), len(files))
    return reports


def list_indexes(
    path: PathLike | Sequence[PathLike], *, filesystem: Any = None
) -> list[IndexReport]:
    """The embedded indexes of every Parquet file under ``path``. Raises as ``add_indexes`` does."""
    found, files = list_files(path, filesystem)
    return [report_of(open_file(file, found)) for file in files]


def _check(file: OpenedFile, indexes: Sequence[IndexSpec]) -> None:
    try:
        check_editable(file.footer)
    except FormatError as error:
        raise error.at(Where(file.name)) from error
    check_indexes(file, indexes)


def _add_to_file(path: str, indexes: Sequence[IndexSpec], filesystem: Any) -> IndexReport:
    version = version_of(path, filesystem)
    file = open_file(path, filesystem)
    with Workspace() as work:
        rewrite(file, compose(file, indexes, (), work), filesystem, version)
    return report_of(open_file(path, filesystem))


def rewrite(file: OpenedFile, what: Composed, filesystem: Any, version: Version) -> None:
    """Put a file composed of ``file``'s bytes and new ones in its place, if it is still there."""
    # The bytes come from the handle the footer came from: the file may be another one by now.
    with (
        replacing(file.name, filesystem, unless_changed_since=version) as create,
        create() as out,
    ):
        copy_into(WindowSource(file.source, 0, what.kept), out)
        for part in what.parts:
            if isinstance(part, tuple):
                copy_into(WindowSource(file.source, *part), out)
            else:
                out.write(part)


def report_of(file: OpenedFile) -> IndexReport:
    """What a file's indexes are."""
    directory = file.directory
    entries = directory.indexes if directory else ()
    return IndexReport(file.name, file.num_rows, file.source.size, entries, _standard(file))


def _standard(file: OpenedFile) -> tuple[StandardReport, ...]:
    groups = range(len(file.metadata.row_groups))
    found: dict[str, list[int]] = {}
    for leaf in file.schema.leaves:
        for group in groups:
            try:
                chunk = file.column_chunk(group, leaf.index)
            except FormatError:
                continue  # nothing can be said of it; ``verify`` says why
            if chunk.offset_index_offset is not None:
                lengths = (chunk.offset_index_length or 0) + (chunk.column_index_length or 0)
                found.setdefault(PageIndex.kind, []).append(lengths)
            if chunk.meta_data and chunk.meta_data.bloom_filter_offset is not None:
                name = index_name(leaf.name, Bloom.kind)
                found.setdefault(name, []).append(chunk.meta_data.bloom_filter_length or 0)
    own = [StandardReport(name, len(bytes_), sum(bytes_)) for name, bytes_ in found.items()]
    return (*own, *strays(file))


def strays(file: OpenedFile) -> tuple[StandardReport, ...]:
    """The list of distinct values that another writer left, where there is one to be read."""
    try:
        found = stray_list(file)
    except FormatError:
        return ()  # ``verify`` says what is wrong
    return (StandardReport(DistinctIDX1.kind, 0, found.place[1]),) if found else ()
