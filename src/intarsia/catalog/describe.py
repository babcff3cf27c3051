"""What a catalog holds, beside what there is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs

from intarsia.catalog.build import look
from intarsia.catalog.catalog import pointer_path, read_pointer
from intarsia.catalog.location import Target, telling_storage
from intarsia.catalog.manifest import encode_pointer
from intarsia.errors import FormatError, PathError, public
from intarsia.io.retry import infos_of
from intarsia.io.storage import PathLike
from intarsia.redaction import shown_redacted


@dataclass(frozen=True, slots=True)
class CatalogIndex:
    """One index of a catalog: in how many files, how many entries, and their bytes."""

    name: str
    files: int
    keys: int
    bytes: int


@shown_redacted
@dataclass(frozen=True, slots=True)
class CatalogState:
    """A catalog as it is, beside the data set as it is: files as ``CatalogReport`` counts them.

    ``changed`` are new or were changed since; ``rows`` are those of the files that it knows.
    """

    path: str
    files: int
    changed: int
    gone: int
    rows: int
    segments: int
    bytes: int
    indexes: tuple[CatalogIndex, ...]


@public
@telling_storage
def show_catalog(path: PathLike, *, filesystem: Any = None) -> CatalogState:
    """What the catalog of the data set in the folder ``path`` holds.

    Raises ``PathError`` where there is none, ``FormatError`` where it is damaged.
    """
    target = Target.of(path, filesystem)
    if infos_of(target.filesystem, pointer_path(target.root)).type != pafs.FileType.File:
        raise PathError(f"{target.root}: there is no catalog; build_catalog makes one")
    pointer = read_pointer(target.filesystem, target.root)
    known = look(target, refresh=True)
    if len(known.alive) < len(pointer.segments):
        raise FormatError(f"{target.root}: some of the catalog's tables are missing or damaged")
    rows = sum(int(reader.listed.rows[numbers].sum()) for reader, numbers in known.alive)
    found: dict[str, CatalogIndex] = {}
    for reader, _ in known.alive:
        for number, index in enumerate(reader.segment.keys):
            name = f"{index.on}:{index.kind}"
            had = found.get(name, CatalogIndex(name, 0, 0, 0))
            files = had.files + len(reader.covered(number).files)
            keys = had.keys + sum(part.table.rows for part in index.parts)
            size = had.bytes + sum(part.table.size for part in index.parts)
            found[name] = CatalogIndex(name, files, keys, size)
    size = sum(t.size for s in pointer.segments for t in s.tables) + len(encode_pointer(pointer))
    held = sum(len(numbers) for _, numbers in known.alive)
    changed = len(known.new) + known.young
    return CatalogState(
        target.root,
        held,
        changed,
        known.gone,
        rows,
        len(pointer.segments),
        size,
        tuple(found.values()),
    )
