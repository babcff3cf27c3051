"""Describes a catalog, compared with the data set as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs

from intarsia.catalog.build import read_known_files
from intarsia.catalog.catalog import pointer_path, read_pointer
from intarsia.catalog.location import Target, raising_path_errors
from intarsia.catalog.manifest import encode_pointer
from intarsia.errors import FormatError, PathError, public
from intarsia.io.retry import infos_of
from intarsia.io.storage import PathLike
from intarsia.redaction import shown_redacted


@dataclass(frozen=True, slots=True)
class CatalogIndex:
    """One index in a catalog."""

    name: str
    """The indexed column and the kind, for example ``trace_id:lookup``."""
    files: int
    """Files that have the index."""
    keys: int
    """Entries of the index in all files."""
    bytes: int
    """Size of the tables with these entries."""


@shown_redacted
@dataclass(frozen=True, slots=True)
class CatalogState:
    """A catalog, compared with the data set as it is now."""

    path: str
    """The data set's folder."""
    files: int
    """Files in the catalog that are unchanged."""
    changed: int
    """Files that are new or changed since the catalog was built."""
    gone: int
    """Files in the catalog that were deleted or changed since."""
    rows: int
    """Rows of the unchanged files."""
    segments: int
    """Segments of the catalog."""
    bytes: int
    """Size of all files of the catalog."""
    indexes: tuple[CatalogIndex, ...]
    """The indexes whose keys the catalog holds."""


@public
@raising_path_errors
def show_catalog(path: PathLike, *, filesystem: Any = None) -> CatalogState:
    """Describes the catalog of the data set in a folder.

    Parameters
    ----------
    path : str or path
        The folder or URI of the data set.
    filesystem : pyarrow or fsspec file system, optional
        The file system of ``path``. By default it follows from ``path``.

    Returns
    -------
    CatalogState
        The content of the catalog, and how many files have changed since it was built.

    Raises
    ------
    PathError
        If ``path`` is no folder, or has no catalog.
    FormatError
        If the catalog is damaged.

    Examples
    --------
    >>> _ = ia.build_catalog("lake")
    >>> state = ia.show_catalog("lake")
    >>> state.files, state.rows, state.changed
    (2, 1000, 0)
    """
    target = Target.of(path, filesystem)
    if infos_of(target.filesystem, pointer_path(target.root)).type != pafs.FileType.File:
        raise PathError(f"{target.root}: there is no catalog; build_catalog makes one")
    pointer = read_pointer(target.filesystem, target.root)
    listed = read_known_files(target, refresh=True)
    if len(listed.alive) < len(pointer.segments):
        raise FormatError(f"{target.root}: some of the catalog's tables are missing or damaged")
    rows = sum(int(reader.listed.rows[numbers].sum()) for reader, numbers in listed.alive)
    totals: dict[str, CatalogIndex] = {}
    for reader, _ in listed.alive:
        for number, index in enumerate(reader.segment.keys):
            name = f"{index.on}:{index.kind}"
            total = totals.get(name, CatalogIndex(name, 0, 0, 0))
            files = total.files + len(reader.covered(number).files)
            keys = total.keys + sum(part.table.rows for part in index.parts)
            size = total.bytes + sum(part.table.size for part in index.parts)
            totals[name] = CatalogIndex(name, files, keys, size)
    size = sum(t.size for s in pointer.segments for t in s.tables) + len(encode_pointer(pointer))
    num_known = sum(len(numbers) for _, numbers in listed.alive)
    changed = len(listed.new) + listed.num_unsettled
    return CatalogState(
        target.root,
        num_known,
        changed,
        listed.num_outdated,
        rows,
        len(pointer.segments),
        size,
        tuple(totals.values()),
    )
