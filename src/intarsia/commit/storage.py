"""The folder into which a data set is written: local, or on any storage that ``pyarrow.fs`` opens.

Paths are relative to this folder. On a local disk, tasks write files directly below it. Elsewhere,
tasks write to their own disk and upload whole files.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from intarsia.errors import PathError
from intarsia.io.atomic_replace import locked, make_folder, remove_file
from intarsia.io.retry import infos_of, retried
from intarsia.io.storage import NoDataError, PathLike, list_files, resolve
from intarsia.io.table_format import Tables
from intarsia.tables.data_files import tables_above

_MAX_REMOVALS = 100
_PAUSE_SECONDS = 0.1
"""Attempts at removing a folder, and the pause after each: 10 s for a failed job's tasks to end."""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a data set; picklable. Failed writes raise ``OSError``."""

    filesystem: pafs.FileSystem
    root: str

    @property
    def is_shared_disk(self) -> bool:
        """True if tasks write below this folder, so that unfinished files can be recovered."""
        return False

    @classmethod
    def of(cls, path: PathLike, filesystem: Any = None) -> Place:
        """Returns the folder at ``path``, which need not exist, on a local disk or elsewhere."""
        storage, root = resolve(path, filesystem)
        root = root.rstrip("/") or root
        if _is_local(storage):  # the driver's folder, wherever tasks run
            return LocalPlace(storage, os.path.abspath(root))
        return Place(storage, root)

    def path(self, name: str) -> str:
        """Returns the path of ``name`` below the folder, as the file system takes it."""
        return f"{self.root}/{name}" if name else self.root

    def kind(self) -> pafs.FileType:
        """Returns the type of what is at the folder's path: a folder, a file or nothing."""
        kind: pafs.FileType = infos_of(self.filesystem, self.root).type
        return kind

    def data_files(self, folder: str = "") -> list[str]:
        """Returns all files in ``folder`` that readers see, relative to the data set's folder.

        Raises ``PathError`` if it cannot be listed, or if some files belong to another table
        format.
        """
        try:
            tables: Tables = {}
            _, files = list_files(self.path(folder), self.filesystem, tables=tables)
        except NoDataError:
            return []
        self._check_none(tables)
        return [file.removeprefix(f"{self.root}/") for file in files]

    def check_own(self) -> None:
        """Raises ``PathError`` if the folder is a table of another format, or is in one."""
        self._check_none(tables_above(self.filesystem, [f"{self.root}/*"]))

    def _check_none(self, tables: Tables) -> None:
        for folder, kind in tables.items():
            place = "" if folder == self.root else f"{self.root}: "
            raise PathError(
                f"{place}{folder} is {kind.name}, whose log ({kind.log}) would not know of what is "
                "written here: write it with an engine of that format"
            )

    def names(self, prefix: str) -> dict[str, pafs.FileInfo]:
        """Returns the folder's direct entries whose names begin with ``prefix``, by name."""
        selector = pafs.FileSelector(self.root, allow_not_found=True)
        infos = infos_of(self.filesystem, selector)
        return {info.base_name: info for info in infos if info.base_name.startswith(prefix)}

    def make(self, folder: str) -> list[str]:
        """Makes a folder and its missing parents; returns the new folders, deepest first.

        On remote storage the result is empty: nothing says which folders are new.
        """
        make_folder(self.path(folder), self.filesystem)
        return []

    def remove_empty(self, folders: Sequence[str]) -> None:
        """Removes folders, deepest first, up to the first one that is not empty."""

    @contextlib.contextmanager
    def written(self, name: str) -> Iterator[Path]:
        """Yields a local path for a new file, which is at ``name`` once the block ends."""
        with tempfile.TemporaryDirectory(prefix="intarsia-") as scratch:
            local = Path(scratch, "part.parquet")
            yield local
            with open(local, "rb") as source, self._upload(name) as out:
                shutil.copyfileobj(source, out, 8 * 1024 * 1024)

    def _upload(self, name: str) -> Any:
        return self.filesystem.open_output_stream(self.path(name))

    def size(self, name: str) -> int:
        """Returns the length of a file in bytes."""
        return int(infos_of(self.filesystem, self.path(name)).size)

    def move(self, name: str, to: str) -> None:
        """Renames a file. Storage without rename copies it instead, on its own side.

        A move that failed may have succeeded on the storage, so a second try looks first.
        """
        tries = 0

        def request() -> None:
            nonlocal tries
            tries += 1
            paths = [self.path(name), self.path(to)]
            if tries > 1:
                old, new = (info.type for info in infos_of(self.filesystem, paths))
                if (old, new) == (pafs.FileType.NotFound, pafs.FileType.File):
                    return
            self.filesystem.move(*paths)

        retried(self.filesystem, request, is_write=True)

    def remove(self, name: str) -> None:
        """Deletes a file, if it exists."""
        remove_file(self.path(name), self.filesystem)

    def remove_tree(self, folder: str) -> bool:
        """Deletes a folder and its contents; returns whether it no longer exists.

        Tasks of a failed job may go on writing for a while.
        """
        with contextlib.suppress(FileNotFoundError):
            delete = partial(self.filesystem.delete_dir, self.path(folder))
            retried(self.filesystem, delete, is_write=True)
        return True

    def write_text(self, name: str, text: str) -> None:
        """Writes a small file that appears as a whole, and replaces an older one."""

        def request() -> None:
            with self._upload(name) as out:
                out.write(text.encode())

        retried(self.filesystem, request, is_write=True)

    def read_text(self, name: str) -> str | None:
        """Returns the text of a small file, or None if there is no such file."""

        def request() -> str:
            with self.filesystem.open_input_file(self.path(name)) as file:
                return str(file.read(), "utf-8")

        try:
            return retried(self.filesystem, request)
        except FileNotFoundError:
            return None


class LocalPlace(Place):
    """A folder on a local disk: new files are renamed into place, and empty folders removed."""

    __slots__ = ()

    @property
    def is_shared_disk(self) -> bool:
        return True

    def make(self, folder: str) -> list[str]:
        target = Path(self.path(folder))
        missing = [str(path) for path in (target, *target.parents) if not path.exists()]
        try:
            os.makedirs(target, exist_ok=True)
        except OSError:
            self.remove_empty(missing)
            raise
        return missing

    def remove_empty(self, folders: Sequence[str]) -> None:
        for folder in folders:
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError:
                return

    @contextlib.contextmanager
    def written(self, name: str) -> Iterator[Path]:
        # Only folders below the job's folder are made: if that is missing, the job has failed.
        job, *folders = Path(name).parent.parts
        path = Path(self.path(job))
        for folder in folders:
            path /= folder
            try:
                path.mkdir(exist_ok=True)
            except OSError as error:
                raise PathError(f"{path}: cannot be written to: {error}") from error
        yield path / Path(name).name

    def move(self, name: str, to: str) -> None:
        os.rename(self.path(name), self.path(to))

    def remove(self, name: str) -> None:
        path = Path(self.path(name))
        with locked(path):  # a writer that replaces the file then notices the removal
            for old in (path, path.with_name(f".{path.name}.crc")):  # the second is Hadoop's
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    old.unlink()

    def remove_tree(self, folder: str) -> bool:
        path = Path(self.path(folder))
        for _ in range(_MAX_REMOVALS):
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                return True
            time.sleep(_PAUSE_SECONDS)
        return False

    def write_text(self, name: str, text: str) -> None:
        path = Path(self.path(name))
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with open(temporary, "x", encoding="utf-8") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def _is_local(filesystem: pafs.FileSystem) -> bool:
    return isinstance(filesystem, pafs.LocalFileSystem)
