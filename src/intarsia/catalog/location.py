"""The folder that holds the catalog of a data set: its files are written and removed here."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import pyarrow.fs as pafs

from intarsia.catalog.catalog import pointer_path, read_pointer
from intarsia.catalog.manifest import is_table_name
from intarsia.catalog.tables import BuiltTable
from intarsia.errors import PathError
from intarsia.io.atomic_replace import TEMPORARY_SUFFIX, remove_file
from intarsia.io.file_handle import Version
from intarsia.io.retry import infos_of
from intarsia.io.small_file import write_small_file
from intarsia.io.storage import SIDECAR_FOLDER, PathLike, resolve

_UNFINISHED = re.compile(rf"\.catalog.*\.[0-9a-f]{{8}}{re.escape(TEMPORARY_SUFFIX)}", re.DOTALL)
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """The folder of a data set. Picklable."""

    filesystem: pafs.FileSystem
    root: str

    @classmethod
    def of(cls, path: PathLike, filesystem: Any = None) -> Target:
        """Returns the target for the folder ``path``. Raises ``PathError`` if it is no folder."""
        storage, root = resolve(path, filesystem)
        if infos_of(storage, root).type != pafs.FileType.Directory:
            raise PathError(f"{root}: a catalog needs a folder, and this is not one")
        return cls(storage, root.rstrip("/"))

    @property
    def folder(self) -> str:
        """The folder that holds the catalog's files."""
        return f"{self.root}/{SIDECAR_FOLDER}"

    def put(self, name: str, data: memoryview | bytes, since: Version = None) -> None:
        """Writes a file atomically. Raises ``PathError`` if it is not of version ``since``."""
        write_small_file(self.filesystem, f"{self.folder}/{name}", data, since)

    def put_table(self, built: BuiltTable) -> None:
        """Writes a table."""
        self.put(built.table.name, built.data)

    def remove(self, names: Iterable[str]) -> None:
        """Deletes files by name; files that are missing or cannot be deleted are skipped."""
        for name in names:
            with contextlib.suppress(OSError):
                remove_file(f"{self.folder}/{name}", self.filesystem)

    def points_to(self, generation: str) -> bool:
        """True if the pointer names this generation. Raises the same errors as ``read_pointer``."""
        info = infos_of(self.filesystem, pointer_path(self.root))
        exists = info.type == pafs.FileType.File
        return exists and read_pointer(self.filesystem, self.root).generation == generation

    def remove_of(self, generation: str, besides: Iterable[str] = ()) -> None:
        """Deletes the tables of a generation, except those named in ``besides``."""
        built = {name for name in self.tables() if name.startswith(f"catalog-{generation}-")}
        self.remove(built - set(besides))

    def tables(self) -> dict[str, pafs.FileInfo]:
        """Returns all files named like catalog tables, in use or not, by name."""
        return {name: info for name, info in self._files().items() if is_table_name(name)}

    def unfinished(self) -> dict[str, pafs.FileInfo]:
        """Returns temporary files of catalog writers, running or killed, by name."""
        return {name: info for name, info in self._files().items() if _UNFINISHED.fullmatch(name)}

    def _files(self) -> dict[str, pafs.FileInfo]:
        selector = pafs.FileSelector(self.folder, allow_not_found=True)
        infos = infos_of(self.filesystem, selector)
        return {info.base_name: info for info in infos if info.is_file}


def raising_path_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Wraps ``function`` so that an ``OSError`` becomes a ``PathError`` naming the path."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except PathError:
            raise
        except OSError as error:
            raise PathError(f"{args[0] if args else kwargs['path']}: {error}") from error

    return wrapper
