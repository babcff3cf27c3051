"""The commit log of a data set: which files are visible while a job publishes others.

::

    _commit-<job>.json       the entry of a commit, while files are published and old ones removed
    _commit-<job>-<n>.json   the entry of the same job's nth further commit
    _SUCCESS                 touched when that is done

This module only reads these files; ``commit`` writes them.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow.dataset as pads
import pyarrow.fs as pafs

from intarsia.errors import FormatError, PathError, Where
from intarsia.io.glob import is_glob
from intarsia.io.retry import infos_of
from intarsia.io.storage import FileSource, NoDataError, as_list, list_files, resolve
from intarsia.io.table_format import Tables
from intarsia.limits import MAX_COMMIT_LOG_BYTES, check_claim
from intarsia.tables.data_files import (
    Data,
    Listed,
    Opener,
    TableFormatOption,
    check_table_format,
    data_files,
    plain_files,
)

ENTRY_PREFIX = "_commit-"
SUCCESS = "_SUCCESS"
PUBLISHING, PUBLISHED = "publishing", "published"
_MAX_ATTEMPTS = 20
"""Attempts to list files, or to read the commit log, between commits."""
_TICK_NS = 1_000_000_000
"""Resolution of the coarsest clock of a file system, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A batch of a streaming query. It is published once, even if Spark runs it again."""

    query: str
    batch: int


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """An entry of the commit log. Paths are relative to the data set's folder."""

    job: str
    phase: str
    publish: tuple[str, ...]
    remove: tuple[str, ...]
    stream: StreamBatch | None = None
    number: int = 0
    """Number of the commit among the job's commits, from 0.

    With it, a late process that finishes one commit cannot remove the entry of the next one.
    """

    @property
    def name(self) -> str:
        """The name of the entry's file."""
        return f"{ENTRY_PREFIX}{self.job}{f'-{self.number}' if self.number else ''}.json"

    @property
    def hidden(self) -> tuple[str, ...]:
        """The files that readers ignore as long as this entry exists."""
        return self.publish if self.phase == PUBLISHING else self.remove

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> CommitEntry:
        """Reads an entry.

        Raises ``FormatError`` if it is none, or if it names files outside the data set.
        """
        try:
            known: dict[str, Any] = json.loads(text)
            stream = known["stream"] and StreamBatch(**known["stream"])
            lists = {name: tuple(map(_below, known[name])) for name in ("publish", "remove")}
            number = int(known.get("number", 0))
            return cls(known["job"], known["phase"], **lists, stream=stream, number=number)
        except (ValueError, OverflowError, TypeError, KeyError, RecursionError) as error:
            raise FormatError(f"not an entry of a commit log: {error!r}") from error


def _below(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise ValueError(f"{path!r} is not below the data set's folder")
    return path


def unfinished_commits(filesystem: pafs.FileSystem, root: str) -> list[CommitEntry]:
    """Returns the commits in the folder ``root`` that are under way or were interrupted."""
    return _state(filesystem, root)[0]


def dataset_root(path: str, *, is_folder: bool = False) -> str:
    """Returns the data set's folder for a path in it: of a file, or of a Hive folder."""
    root = PurePosixPath(path)
    while len(root.parts) > 1 and (
        "=" in root.name or is_glob(root.name) or (root.suffix == ".parquet" and not is_folder)
    ):
        root = root.parent
    return str(root)


def folders_above(path: str) -> list[str]:
    """Returns the folders whose commit logs may concern ``path``, the outermost first.

    ``path`` itself is the last, if it is a folder. A job that writes to a Hive folder, or to a
    folder called ``.parquet``, has its log there or above.
    """
    root, own = dataset_root(path), PurePosixPath(path)
    above = [str(folder) for folder in (own, *own.parents)]
    return [one for one in reversed(above[: above.index(root) + 1]) if not is_glob(one)] or [root]


def visible(
    path: Data,
    filesystem: Any = None,
    seen: dict[str, pafs.FileInfo] | None = None,
    *,
    table_format: TableFormatOption = "auto",
    opened: Opener | None = None,
) -> tuple[pafs.FileSystem, list[str]]:
    """Lists files as ``list_files`` does, without those that a commit under way hides.

    All that was listed in folders is added to ``seen``, by path, hidden files included.
    ``table_format`` and ``opened`` are as for ``plain_files``, which leaves out what is no data.
    Raises ``PathError`` if commits follow each other too fast to list files between them.
    """
    if isinstance(path, pads.FileSystemDataset):
        return data_files(path)
    given = as_list(path)
    if not given:
        raise PathError("no path was given")
    check_table_format(table_format)
    resolved = [resolve(one, filesystem) for one in given]
    filesystems: list[pafs.FileSystem] = []
    seen = {} if seen is None else seen
    tables: Tables = {}

    def listing() -> list[str]:
        seen.clear()  # of the attempt before
        listed_on, files = list_files(path, filesystem, seen=seen, tables=tables)
        filesystems[:] = [listed_on]
        return files

    folders = {folder: listed_on for listed_on, at in resolved for folder in folders_above(at)}
    files = _counting(folders, listing, seen)
    listed = Listed(filesystems[0], [at for _, at in resolved], files, tables)
    return filesystems[0], plain_files(listed, table_format, opened=opened)


def list_visible_under(
    filesystem: pafs.FileSystem,
    path: str,
    listings: dict[str, list[pafs.FileInfo]] | None = None,
    seen: dict[str, pafs.FileInfo] | None = None,
    *,
    table_format: TableFormatOption = "auto",
    opened: Opener | None = None,
) -> list[str]:
    """Lists one folder or glob as ``visible`` does. The path of a file gives that file in any case.

    ``listings`` and ``seen`` are filled as by ``list_files``. If no commit was ever finished there,
    remote storage gets one request for the commit log.
    """
    tables: Tables = {}
    files = _visible_under(filesystem, path, listings, {} if seen is None else seen, tables)
    return plain_files(Listed(filesystem, [path], files, tables), table_format, opened=opened)


def _visible_under(
    filesystem: pafs.FileSystem,
    path: str,
    listings: dict[str, list[pafs.FileInfo]] | None,
    seen: dict[str, pafs.FileInfo],
    tables: Tables,
) -> list[str]:
    def listing() -> list[str]:
        seen.clear()
        return list_files(path, filesystem, listings, seen, tables)[1]

    if PurePosixPath(path).suffix == ".parquet" and not is_glob(path):
        files = listing()
        if files == [path]:
            return files
    folders = dict.fromkeys(folders_above(path), filesystem)
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    if not is_local and all(_state(filesystem, one) == ([], 0) for one in folders):
        files = listing()
        if not _marked(filesystem, seen):
            return files
    return _counting(folders, listing, seen)


def _marked(filesystem: pafs.FileSystem, seen: Iterable[str]) -> set[str]:
    """Returns the listed folders with a commit that is under way or, on local disks, finished.

    On remote storage, the commit log of each folder with a finished commit would take a request.
    """
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    split = (path.rpartition("/") for path in seen)
    return {
        folder
        for folder, _, name in split
        if name.startswith(ENTRY_PREFIX) or (is_local and name == SUCCESS)
    }


def _begun_since(local: pafs.LocalFileSystem, seen: Iterable[pafs.FileInfo]) -> set[str]:
    """Returns the folders that have a commit and have changed since they were listed."""
    changed = set()
    for info in seen:
        if info.type != pafs.FileType.Directory or info.mtime_ns is None:
            continue
        with contextlib.suppress(OSError):
            now = os.stat(info.path).st_mtime_ns
            is_touched = now != info.mtime_ns or time.time_ns() - now < _TICK_NS
            if is_touched and _names(local, info.path) != ([], 0):
                changed.add(info.path)
    return changed


def _counting(
    folders: dict[str, pafs.FileSystem],
    listing: Callable[[], list[str]],
    seen: Mapping[str, pafs.FileInfo],
) -> list[str]:
    """Returns the visible files of a listing during which no commit began or ended.

    Reads the commit logs of ``folders``, and adds to them the folders of other commits in ``seen``.
    On local disks it also adds folders in which a commit began since they were listed. Folders of a
    glob's files, which were not listed, are added too. Raises ``NoDataError`` if no file is
    visible.
    """
    on = next(iter(folders.values()))
    is_local = isinstance(on, pafs.LocalFileSystem)
    while True:
        files, states = _settled(folders, listing)
        more = _marked(on, seen)
        if is_local:
            more |= {file.rpartition("/")[0] for file in files if file not in seen}
            more |= _begun_since(on, seen.values())
        known = {folder.strip("/") for folder in folders}  # storage spells them in its own way
        more = {folder for folder in more if folder.strip("/") not in known}
        if not more:
            break
        folders |= dict.fromkeys(sorted(more), on)
    hidden = {
        f"{folder}/{file}".lstrip("/")
        for folder, (under_way, _) in zip(folders, states, strict=True)
        for entry in under_way
        for file in entry.hidden
    }
    if not hidden:
        return files
    counting = [file for file in files if file.lstrip("/") not in hidden]
    if files and not counting:
        raise NoDataError(
            f"{files[0]}: it does not count while a commit is under way, nor does any other file: "
            "try again after the commit"
        )
    return counting


def listed_with_commits(
    filesystem: pafs.FileSystem, root: str, listing: Callable[[], list[str]]
) -> tuple[list[str], list[CommitEntry]]:
    """Returns a listing, and the commits that were under way from its beginning to its end.

    Raises ``PathError`` if commits follow each other too fast to list files between them.
    """
    files, ((under_way, _),) = _settled({root: filesystem}, listing)
    return files, under_way


def _settled(
    roots: dict[str, pafs.FileSystem], listing: Callable[[], list[str]]
) -> tuple[list[str], list[tuple[list[CommitEntry], int]]]:
    """Returns a listing during which no commit began or ended, and the states of the roots."""
    for _ in range(_MAX_ATTEMPTS):
        before = [_state(on, root) for root, on in roots.items()]
        files = listing()
        if before == [_state(on, root) for root, on in roots.items()]:
            return files, before
    raise PathError(f"{next(iter(roots))}: files are replaced faster than they can be listed")


def _state(filesystem: pafs.FileSystem, root: str) -> tuple[list[CommitEntry], int]:
    """Returns what every commit changes: the entries, and the time of the last success (ns).

    If an entry has been removed before it is read, its commit has ended, and all is read again.
    Raises ``PathError`` if that happens every time.
    """
    for _ in range(_MAX_ATTEMPTS):
        try:
            names, success = _names(filesystem, root)
        except OSError:  # not a folder
            return [], 0
        entries = [_read_entry(filesystem, f"{root}/{name}") for name in sorted(names)]
        present = [entry for entry in entries if entry is not None]
        if len(present) == len(entries):
            return present, success
    raise PathError(f"{root}: commits end faster than they can be read")


def _names(filesystem: pafs.FileSystem, root: str) -> tuple[list[str], int]:
    """Returns the names of the entries, and when ``_SUCCESS`` was touched (ns), 0 without one."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        with os.scandir(root) as entries:
            hidden = {entry.name: entry for entry in entries if entry.name.startswith("_")}
        entries_by_name = {
            n: e for n, e in hidden.items() if n.startswith(ENTRY_PREFIX) or n == SUCCESS
        }
        success = entries_by_name.pop(SUCCESS, None)
        return list(entries_by_name), success.stat().st_mtime_ns if success else 0
    selector = pafs.FileSelector(root, allow_not_found=True)
    infos = {info.base_name: info for info in infos_of(filesystem, selector)}
    touched = infos[SUCCESS].mtime_ns if SUCCESS in infos else None
    return [name for name in infos if name.startswith(ENTRY_PREFIX)], touched or 0


def _read_entry(filesystem: pafs.FileSystem, path: str) -> CommitEntry | None:
    """Reads an entry. Returns None if it has been removed.

    Raises ``PathError`` if it exists and cannot be read, ``FormatError`` if it is none.
    """
    try:
        source = FileSource(filesystem, path)
        check_claim("the commit log", source.size, MAX_COMMIT_LOG_BYTES)
        return CommitEntry.decode(bytes(source.read([(0, source.size)])[0]).decode())
    except PathError:
        if infos_of(filesystem, path).type == pafs.FileType.NotFound:
            return None
        raise
    except (FormatError, UnicodeDecodeError) as error:
        raise FormatError(str(error), Where(path)) from error
