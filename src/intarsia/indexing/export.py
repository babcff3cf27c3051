"""Exports an index as a Parquet file of its own, which any tool can read."""

from __future__ import annotations

import contextlib
import os
import zlib
from typing import Any

import pyarrow.fs as pafs

from intarsia.errors import FormatError, IndexSpecError, PathError, public
from intarsia.file.open_file import OpenedFile
from intarsia.file.sidecar_discovery import places_of
from intarsia.index.directory import IndexEntry
from intarsia.index.index import Index
from intarsia.indexing.drop import name_of
from intarsia.io.atomic_replace import replacing
from intarsia.io.source import Source
from intarsia.io.storage import FileSource, PathLike, resolve
from intarsia.parquet.footer import MAGIC
from intarsia.scan.parquet_file import open_source

_PIECE_BYTES = 8 * 1024 * 1024
"""Bytes that are copied at a time."""


@public
def export_index(
    path: PathLike,
    index: Index | str,
    out: PathLike,
    *,
    filesystem: Any = None,
    sidecar: PathLike | None = None,
) -> None:
    """Writes one index of a file as a Parquet file of its own.

    The file has a row for each pair of key and granule, sorted, or for each step from one pair to
    the next (see ``index.section.writer``). For a kind that stores summaries, it has a row for each
    granule. The footer's key/value metadata says where granules start. Indexes of unregistered
    kinds can be exported as well.

    Parameters
    ----------
    path : str or path-like
        The Parquet file that has the index.
    index : Index or str
        The index by the name that ``list_indexes`` gives, such as ``"trace_id:lookup"``, or as for
        ``add_indexes``.
    out : str or path-like
        The file to write. An existing file is replaced in one step.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        The file system of ``path`` and ``out``. By default it is taken from the URIs; other paths
        are local.
    sidecar : path-like, optional
        The folder of the sidecar, if it is not the usual ``_intarsia`` beside the file.

    Raises
    ------
    IndexSpecError
        If the file has no such index, or the index is not stored as Parquet, as ``DistinctIDX1``.
    FormatError
        If the index is damaged.
    PathError
        If ``out`` cannot be written, or is the file itself.

    Examples
    --------
    >>> ia.export_index("logs.parquet", "trace_id:lookup", "index.parquet")
    >>> ia.ParquetFile("index.parquet").num_rows
    1000
    """
    file_system, file_path = resolve(path, filesystem)
    with contextlib.closing(FileSource(file_system, file_path)) as source:
        file = open_source(source, places=places_of(file_system, sidecar))
        target = resolve(out, filesystem)
        if target[0].equals(file_system) and _is_same_file(file_system, file_path, target[1]):
            raise PathError(f"{out}: the index is read from this file; write it to another one")
        entry = _entry(file, index)
        window = file.sections.index_files[entry].window(entry)
        _check(file, entry, window)
        with replacing(target[1], target[0], like=file_path) as create, create() as sink:
            for start in range(0, entry.length, _PIECE_BYTES):
                (piece,) = window.read([(start, min(_PIECE_BYTES, entry.length - start))])
                sink.write(piece)
            sink.write(MAGIC)


def _is_same_file(filesystem: pafs.FileSystem, path: str, other_path: str) -> bool:
    if isinstance(filesystem, pafs.LocalFileSystem):
        path, other_path = os.path.realpath(path), os.path.realpath(other_path)
    return path == other_path


def _entry(file: OpenedFile, index: Index | str) -> IndexEntry:
    """Returns the directory entry of an index."""
    entries = {entry.name: entry for entry in file.sections.entries}
    name = name_of(index, set(entries), file)
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise IndexSpecError(
            f"{file.name}: there is no index {name} to export; these can be exported: {known}"
        )
    return entries[name]


def _check(file: OpenedFile, entry: IndexEntry, section: Source) -> None:
    """Raises an error if a section is not a Parquet file that can be read by itself."""
    start, metadata = section.read(
        [(0, min(len(MAGIC), entry.length)), (entry.length - entry.meta_length, entry.meta_length)]
    )
    if start != MAGIC:
        raise IndexSpecError(
            f"{file.name}: index {entry.name} is not stored as Parquet, so it cannot be exported"
        )
    if zlib.crc32(metadata) != entry.meta_crc32:
        raise FormatError(
            f"{file.name}: index {entry.name} is damaged: its checksum does not match"
        )
