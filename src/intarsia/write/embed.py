"""Adding indexes to files that exist, and listing them.

::

    before    PAR1 … row groups … footer
    after     PAR1 … row groups … footer | sections | directory | footer'
              └──── not a byte moved ───┘
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from intarsia.errors import FormatError, IndexSpecError, Where
from intarsia.format.footer import check_editable, framed, with_key_values
from intarsia.index.directory import (
    FOOTER_KEY,
    Directory,
    IndexEntry,
    binding_of,
    encode_directory,
)
from intarsia.index.kind import InvertedKind
from intarsia.index.registry import kinds_of
from intarsia.read.file import open_file
from intarsia.read.opened import OpenedFile
from intarsia.storage import PathLike, copy_into, list_files, replacing, version_of
from intarsia.write.build import Built, build, check_indexes, new_file_id

Progress = Callable[[str, int, int], None]
"""Called with a file's path, how many files are done, and how many there are."""


@dataclasses.dataclass(frozen=True, slots=True)
class IndexReport:
    """What one file's indexes are and take: lengths in bytes."""

    path: str
    rows: int
    file_bytes: int
    indexes: tuple[IndexEntry, ...]


def add_indexes(
    path: PathLike | Sequence[PathLike],
    indexes: Sequence[InvertedKind | str],
    *,
    filesystem: Any = None,
    progress: Progress | None = None,
) -> list[IndexReport]:
    """Add ``indexes`` to every Parquet file under ``path``: a file, folder, glob or URI.

    An index is an object, ``Lookup("trace_id")``, or text, ``"trace_id:lookup"``.

    A file keeps all its bytes; what is new is appended to a copy that then takes its place at once.
    An index of the same name is replaced. Every file is checked before the first one is changed.
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
    return [_report(open_file(file, found)) for file in files]


def _check(file: OpenedFile, indexes: Sequence[InvertedKind]) -> None:
    try:
        check_editable(file.footer)
    except FormatError as error:
        raise error.at(Where(file.name)) from error
    check_indexes(file, indexes)


def _add_to_file(path: str, indexes: Sequence[InvertedKind], filesystem: Any) -> IndexReport:
    version = version_of(path, filesystem)
    file = open_file(path, filesystem)
    file_id = file.directory.file_id if file.directory else new_file_id()
    tail = appended(file, [build(file, kind, file_id) for kind in indexes], file_id)
    # The bytes come from the handle the footer came from: the file may be another one by now.
    with replacing(path, filesystem, unless_changed_since=version) as create, create() as out:
        copy_into(file.source, out)
        out.write(tail)
    return _report(open_file(path, filesystem))


def appended(file: OpenedFile, built: Sequence[Built], file_id: str) -> bytes:
    """What to write behind ``file`` to give it the ``built`` sections, up to the closing magic."""
    old = file.directory
    size = file.source.size
    replaced = {made.entry(0).name for made in built}
    kept = [entry for entry in (old.indexes if old else ()) if entry.name not in replaced]
    sections = bytearray()
    entries = list(kept)
    for made in built:
        entries.append(made.entry(size + len(sections)))
        sections += made.section.data
    directory = Directory(
        file_id,
        binding_of(file.metadata),
        old.base_length if old else size,
        tuple(entries),
    )
    document, pointer = encode_directory(directory, size + len(sections))
    footer = framed(with_key_values(file.footer, {FOOTER_KEY: pointer}))
    return bytes(sections) + document + footer


def _report(file: OpenedFile) -> IndexReport:
    directory = file.directory
    entries = directory.indexes if directory else ()
    return IndexReport(file.name, file.num_rows, file.source.size, entries)
