"""Where a data set is written: a local folder, or one on whatever ``pyarrow.fs`` opens.

Paths are relative to the data set's folder. Local files are written where they are to be; others
on the task's own disk, and uploaded whole.
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
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from intarsia.errors import PathError
from intarsia.io.atomic_replace import locked
from intarsia.io.storage import NoDataError, PathLike, list_files, resolve
from intarsia.io.table_format import Tables
from intarsia.tables.data_files import tables_above

_TRIES = 100
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Place:
    """A data set's folder; picklable. What cannot be written raises ``OSError``."""

    filesystem: pafs.FileSystem
    root: str

    @property
    def is_shared_disk(self) -> bool:
        """Do tasks write files where they are to be, so that unfinished ones can be found there?"""
        return False

    @classmethod
    def of(cls, path: PathLike, filesystem: Any = None) -> Place:
        """The folder at ``path``, which need not be there, on a local disk or elsewhere."""
        found, root = resolve(path, filesystem)
        root = root.rstrip("/") or root
        if _is_local(found):  # the driver's folder, wherever tasks run
            return LocalPlace(found, os.path.abspath(root))
        return Place(found, root)

    def path(self, name: str) -> str:
        """``name`` below the folder, as its file system calls it."""
        return f"{self.root}/{name}" if name else self.root

    def kind(self) -> pafs.FileType:
        """What is at the folder's path."""
        return self.filesystem.get_file_info(self.root).type

    def data_files(self, folder: str = "") -> list[str]:
        """All files that readers see in ``folder``.

        Raises ``PathError`` where it is not told, and if some are in a table of another format.
        """
        try:
            tables: Tables = {}
            _, files = list_files(self.path(folder), self.filesystem, tables=tables)
        except NoDataError:
            return []
        self._check_none(tables)
        return [file.removeprefix(f"{self.root}/") for file in files]

    def check_own(self) -> None:
        """Raise ``PathError`` if the folder is a table of another format, or is in one."""
        self._check_none(tables_above(self.filesystem, [f"{self.root}/*"]))

    def _check_none(self, tables: Tables) -> None:
        for folder, kind in tables.items():
            raise PathError(
                f"{self.root}: {folder} is {kind.name}, whose log ({kind.log}) would not know of "
                "what is written here"
            )

    def names(self, prefix: str) -> dict[str, pafs.FileInfo]:
        """What is right in the folder, its name beginning with ``prefix``."""
        selector = pafs.FileSelector(self.root, allow_not_found=True)
        found = self.filesystem.get_file_info(selector)
        return {info.base_name: info for info in found if info.base_name.startswith(prefix)}

    def make(self, folder: str) -> list[str]:
        """Make a folder and what is missing above it; returns what was made, deepest first."""
        return []

    def remove_empty(self, folders: Sequence[str]) -> None:
        """Remove folders, deepest first, up to the first that holds something of another's."""

    @contextlib.contextmanager
    def written(self, name: str) -> Iterator[Path]:
        """A local path to write a new file at, which is at ``name`` when the block ends."""
        with tempfile.TemporaryDirectory(prefix="intarsia-") as scratch:
            local = Path(scratch, "part.parquet")
            yield local
            with open(local, "rb") as source, self._upload(name) as out:
                shutil.copyfileobj(source, out, 8 * 1024 * 1024)

    def _upload(self, name: str) -> Any:
        return self.filesystem.open_output_stream(self.path(name))

    def size(self, name: str) -> int:
        """The length of a file in bytes."""
        return int(self.filesystem.get_file_info(self.path(name)).size)

    def move(self, name: str, to: str) -> None:
        """Rename a file; where storage has no rename, a copy on its side."""
        self.filesystem.move(self.path(name), self.path(to))

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(self.path(name))

    def remove_tree(self, folder: str) -> bool:
        """Delete a folder and all in it; is it gone?

        Tasks of a failed job may go on writing for a while.
        """
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_dir(self.path(folder))
        return True

    def write_text(self, name: str, text: str) -> None:
        """Write a small file that appears whole, in place of one that is there."""
        with self._upload(name) as out:
            out.write(text.encode())

    def read_text(self, name: str) -> str | None:
        """A small file's text; None where there is no such file."""
        try:
            with self.filesystem.open_input_file(self.path(name)) as file:
                text: str = file.read().decode()
                return text
        except FileNotFoundError:
            return None


class LocalPlace(Place):
    """A folder on a local disk: new files are renamed into place, folders tidied up."""

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
        # Only folders below the job's are made: where that is gone, the job has failed.
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
        with locked(path):  # who replaces it then finds that it is gone
            for old in (path, path.with_name(f".{path.name}.crc")):  # the second is Hadoop's
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    old.unlink()

    def remove_tree(self, folder: str) -> bool:
        path = Path(self.path(folder))
        for _ in range(_TRIES):
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
