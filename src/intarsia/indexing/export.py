"""Indexes taken out of their file, as Parquet files of their own that any tool reads."""

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
from intarsia.index.registry import IndexSpec
from intarsia.indexing.drop import name_of
from intarsia.io.atomic_replace import replacing
from intarsia.io.source import Source
from intarsia.io.storage import FileSource, PathLike, resolve
from intarsia.parquet.footer import MAGIC
from intarsia.scan.parquet_file import open_source

_PIECE_BYTES = 8 * 1024 * 1024


@public
def export_index(
    path: PathLike,
    index: IndexSpec | str,
    out: PathLike,
    *,
    filesystem: Any = None,
    sidecar: PathLike | None = None,
) -> None:
    """Write one index of a file to ``out``, a Parquet file.

    It has a row for each key and granule, or step to one (``section_write``), sorted; of a kind
    that sums up, a row for each granule.

    An index is named as it is listed, ``"trace_id:lookup"``, or given as for ``add_indexes``; those
    of kinds unknown here can be exported as well. ``filesystem`` is that of ``path`` and of
    ``out``, which takes the place of what is there at once. Where granules start is in the footer's
    key/values.

    Raises ``IndexSpecError`` where the file has no such index, or one that is no Parquet, as a list
    of DataFusion's; ``FormatError`` for one that is damaged, ``PathError`` where ``out`` cannot be
    written, or is the file itself.
    """
    found, place = resolve(path, filesystem)
    with contextlib.closing(FileSource(found, place)) as source:
        file = open_source(source, places=places_of(found, sidecar))
        target = resolve(out, filesystem)
        if target[0].equals(found) and _is_one(found, place, target[1]):
            raise PathError(f"{out}: the index is read from this file, which is not to be changed")
        entry = _entry(file, index)
        window = file.sections.holders[entry].window(entry)
        _check(file, entry, window)
        with replacing(target[1], target[0], like=place) as create, create() as written:
            for start in range(0, entry.length, _PIECE_BYTES):
                (piece,) = window.read([(start, min(_PIECE_BYTES, entry.length - start))])
                written.write(piece)
            written.write(MAGIC)


def _is_one(filesystem: pafs.FileSystem, one: str, other: str) -> bool:
    if isinstance(filesystem, pafs.LocalFileSystem):
        one, other = os.path.realpath(one), os.path.realpath(other)
    return one == other


def _entry(file: OpenedFile, index: IndexSpec | str) -> IndexEntry:
    """What the file's directory says of an index."""
    there = {entry.name: entry for entry in file.sections.entries}
    name = name_of(index, set(there), file)
    if name not in there:
        known = ", ".join(sorted(there)) or "none"
        raise IndexSpecError(
            f"{file.name}: there is no index {name} to be exported; those of our own are: {known}"
        )
    return there[name]


def _check(file: OpenedFile, entry: IndexEntry, section: Source) -> None:
    """Raise where a section is none that can be read by itself."""
    start, metadata = section.read(
        [(0, min(len(MAGIC), entry.length)), (entry.length - entry.meta_length, entry.meta_length)]
    )
    if start != MAGIC:
        raise IndexSpecError(f"{file.name}: index {entry.name} is no Parquet by itself")
    if zlib.crc32(metadata) != entry.meta_crc32:
        raise FormatError(f"{file.name}: index {entry.name} is damaged: its checksum is another")
