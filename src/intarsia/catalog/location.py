"""Where the catalog of a data set is written: one folder, and the files of it."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

import pyarrow.fs as pafs

from intarsia.catalog.catalog import pointer_path, read_pointer
from intarsia.catalog.manifest import is_table_name
from intarsia.catalog.tables import BuiltTable
from intarsia.errors import PathError
from intarsia.io.atomic_replace import (
    TEMPORARY_SUFFIX,
    check_unchanged,
    make_folder,
    remove_file,
    replacing,
    upload,
)
from intarsia.io.file_handle import Version, check_may_write
from intarsia.io.file_parts import Composed
from intarsia.io.local_path import local_path
from intarsia.io.retry import infos_of
from intarsia.io.s3_copy import replaced_by_store
from intarsia.io.source import BufferSource
from intarsia.io.storage import SIDECAR_FOLDER, PathLike, resolve

_UNFINISHED = re.compile(rf"\.catalog.*\.[0-9a-f]{{8}}{re.escape(TEMPORARY_SUFFIX)}", re.DOTALL)
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """A data set's folder; picklable."""

    filesystem: pafs.FileSystem
    root: str

    @classmethod
    def of(cls, path: PathLike, filesystem: Any = None) -> Target:
        """Raises ``PathError`` where there is no folder."""
        found, at = resolve(path, filesystem)
        if infos_of(found, at).type != pafs.FileType.Directory:
            raise PathError(f"{at}: a catalog is of a folder, and here is none")
        return cls(found, at.rstrip("/"))

    @property
    def folder(self) -> str:
        """The folder the catalog is in."""
        return f"{self.root}/{SIDECAR_FOLDER}"

    def put(self, name: str, data: memoryview | bytes, since: Version = None) -> None:
        """Write a file of the catalog, which appears whole. Raises ``PathError``.

        It does so, too, if there is another file than the version ``since``, unless that is None.
        """
        path = f"{self.folder}/{name}"
        check_may_write(self.filesystem, path)
        try:
            make_folder(self.folder, self.filesystem)
            if local_path(path, self.filesystem) is not None:
                check = partial(check_unchanged, path, self.filesystem, since)
                with replacing(path, self.filesystem, check=check) as create, create() as out:
                    out.write(data)
                return
            what = Composed(0, (memoryview(data),))
            if not replaced_by_store(path, BufferSource(b""), what, self.filesystem, since):
                check_unchanged(path, self.filesystem, since)
                upload(BufferSource(data), path, self.filesystem)
        except OSError as error:
            raise PathError(f"{path}: cannot be written: {error}") from error

    def put_table(self, built: BuiltTable) -> None:
        """Write a table."""
        self.put(built.table.name, built.data)

    def remove(self, names: Iterable[str]) -> None:
        """Delete tables, as far as they are there."""
        for name in names:
            with contextlib.suppress(OSError):
                remove_file(f"{self.folder}/{name}", self.filesystem)

    def points_to(self, generation: str) -> bool:
        """Is that the generation in use? Raises what reading the pointer does."""
        info = infos_of(self.filesystem, pointer_path(self.root))
        is_there = info.type == pafs.FileType.File
        return is_there and read_pointer(self.filesystem, self.root).generation == generation

    def remove_of(self, generation: str, besides: Iterable[str] = ()) -> None:
        """Delete the tables of a generation that was not published, or that it does not use."""
        made = {name for name in self.tables() if name.startswith(f"catalog-{generation}-")}
        self.remove(made - set(besides))

    def tables(self) -> dict[str, pafs.FileInfo]:
        """All files in the folder that might be tables of a catalog, whether in use or not."""
        return {name: info for name, info in self._files().items() if is_table_name(name)}

    def unfinished(self) -> dict[str, pafs.FileInfo]:
        """Files of a catalog that are being written, or that a killed process has left."""
        return {name: info for name, info in self._files().items() if _UNFINISHED.fullmatch(name)}

    def _files(self) -> dict[str, pafs.FileInfo]:
        selector = pafs.FileSelector(self.folder, allow_not_found=True)
        infos = infos_of(self.filesystem, selector)
        return {info.base_name: info for info in infos if info.is_file}


def telling_storage(function: Callable[P, T]) -> Callable[P, T]:
    """``function``, whose errors of storage are ``PathError``s."""

    @functools.wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except PathError:
            raise
        except OSError as error:
            raise PathError(f"{args[0] if args else kwargs['path']}: {error}") from error

    return told
