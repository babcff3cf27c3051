"""Which files of a data set count while a job publishes others: what the journals of commits say.

::

    _commit-<job>.json       the journal, while files are published and old ones removed
    _commit-<job>-<n>.json   the journal of a job's nth further commit
    _SUCCESS                 touched when that is done

Only read here; ``spark.commit`` writes them.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from intarsia.errors import FormatError, PathError, Where
from intarsia.io.glob import is_glob
from intarsia.io.retry import infos_of
from intarsia.io.storage import FileSource, NoDataError, PathLike, list_files, resolve, several
from intarsia.io.table_format import Tables
from intarsia.limits import MAX_COMMIT_LOG_BYTES, check_claim
from intarsia.tables.data_files import (
    Listed,
    Opener,
    TableFormatOption,
    check_table_format,
    plain_files,
)

JOURNAL = "_commit-"
SUCCESS = "_SUCCESS"
PUBLISHING, PUBLISHED = "publishing", "published"
_LOOKS = 20
_TICK_NS = 1_000_000_000
"""What clocks of file systems may be coarser by."""


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A batch of a streaming query, which is published once however often it is run."""

    query: str
    batch: int


@dataclass(frozen=True, slots=True)
class Journal:
    """What a commit does; paths are below the data set's folder."""

    job: str
    phase: str
    publish: tuple[str, ...]
    remove: tuple[str, ...]
    stream: StreamBatch | None = None
    number: int = 0
    """Of the job's commits, from 0: who finishes one may be late, and is not to remove the next."""

    @property
    def name(self) -> str:
        """Its file's name."""
        return f"{JOURNAL}{self.job}{f'-{self.number}' if self.number else ''}.json"

    @property
    def hidden(self) -> tuple[str, ...]:
        """The files that do not count, as long as there is this journal."""
        return self.publish if self.phase == PUBLISHING else self.remove

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Journal:
        """Raises ``FormatError`` for what is none, or names files outside the data set."""
        try:
            known: dict[str, Any] = json.loads(text)
            stream = known["stream"] and StreamBatch(**known["stream"])
            lists = {name: tuple(map(_below, known[name])) for name in ("publish", "remove")}
            number = int(known.get("number", 0))
            return cls(known["job"], known["phase"], **lists, stream=stream, number=number)
        except (ValueError, OverflowError, TypeError, KeyError, RecursionError) as error:
            raise FormatError(f"not the journal of a commit: {error!r}") from error


def _below(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise ValueError(f"{path!r} is not below the data set's folder")
    return path


def journals_at(filesystem: pafs.FileSystem, root: str) -> list[Journal]:
    """The commits that are under way in the data set's folder ``root``, or were interrupted."""
    return _state(filesystem, root)[0]


def root_at(path: str, *, is_folder: bool = False) -> str:
    """The folder of the data set that a path, be it of a file or a Hive folder, is part of."""
    root = PurePosixPath(path)
    while len(root.parts) > 1 and (
        "=" in root.name or is_glob(root.name) or (root.suffix == ".parquet" and not is_folder)
    ):
        root = root.parent
    return str(root)


def folders_above(path: str) -> list[str]:
    """The folders whose journals may be about what is at ``path``, itself the last, if it is one.

    Who writes to a Hive folder, or to one called ``.parquet``, has the journal there or above.
    """
    root, own = root_at(path), PurePosixPath(path)
    above = [str(folder) for folder in (own, *own.parents)]
    return [one for one in reversed(above[: above.index(root) + 1]) if not is_glob(one)] or [root]


def visible(
    path: PathLike | Sequence[PathLike],
    filesystem: Any = None,
    seen: dict[str, pafs.FileInfo] | None = None,
    *,
    table_format: TableFormatOption = "auto",
    opened: Opener | None = None,
) -> tuple[pafs.FileSystem, list[str]]:
    """As ``list_files``, without the files that commits under way say do not count.

    ``seen`` is told all that was listed in folders, those files included, by their paths.
    ``table_format`` and ``opened`` are as for ``plain_files``, which says what is no data.
    Raises ``PathError`` where commits follow each other too closely to get a listing in between.
    """
    given = several(path)
    if not given:
        raise PathError("no path was given")
    check_table_format(table_format)
    resolved = [resolve(one, filesystem) for one in given]
    found: list[pafs.FileSystem] = []
    seen = {} if seen is None else seen
    tables: Tables = {}

    def listing() -> list[str]:
        seen.clear()  # what an earlier look has seen
        on, files = list_files(path, filesystem, seen=seen, tables=tables)
        found[:] = [on]
        return files

    folders = {folder: on for on, at in resolved for folder in folders_above(at)}
    files = _counting(folders, listing, seen)
    listed = Listed(found[0], [at for _, at in resolved], files, tables)
    return found[0], plain_files(listed, table_format, opened=opened)


def visible_under(
    filesystem: pafs.FileSystem,
    path: str,
    listings: dict[str, list[pafs.FileInfo]] | None = None,
    seen: dict[str, pafs.FileInfo] | None = None,
    *,
    table_format: TableFormatOption = "auto",
    opened: Opener | None = None,
) -> list[str]:
    """As ``visible``, of one folder or glob; a file that is named counts whatever journals say.

    ``listings`` and ``seen`` are told what ``list_files`` tells them.

    Far storage is asked once for journals where no commit has ever been finished.
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
    """Of the folders that were listed, those of commits: under way or, on local disks, finished.

    Far storage is not asked of each folder in which a commit was ever finished.
    """
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    split = (path.rpartition("/") for path in seen)
    return {
        folder
        for folder, _, name in split
        if name.startswith(JOURNAL) or (is_local and name == SUCCESS)
    }


def _begun_since(local: pafs.LocalFileSystem, seen: Iterable[pafs.FileInfo]) -> set[str]:
    """Folders that have changed since they were listed, and in which there is a commit."""
    found = set()
    for info in seen:
        if info.type != pafs.FileType.Directory or info.mtime_ns is None:
            continue
        with contextlib.suppress(OSError):
            now = os.stat(info.path).st_mtime_ns
            is_touched = now != info.mtime_ns or time.time_ns() - now < _TICK_NS
            if is_touched and _names(local, info.path) != ([], 0):
                found.add(info.path)
    return found


def _counting(
    folders: dict[str, pafs.FileSystem],
    listing: Callable[[], list[str]],
    seen: Mapping[str, pafs.FileInfo],
) -> list[str]:
    """The files of a listing between whose beginning and end no commit went on, that count.

    ``folders`` are those whose journals are looked at, and those of commits that the listing, as
    ``seen`` tells, came upon; on local disks also those in which one began since they were listed,
    and those of files that a glob found, whose folders were not listed. Raises ``NoDataError``
    where no file counts.
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
        for journal in under_way
        for file in journal.hidden
    }
    if not hidden:
        return files
    counting = [file for file in files if file.lstrip("/") not in hidden]
    if files and not counting:
        raise NoDataError(
            f"{files[0]}: it does not count while a commit is under way, nor do others"
        )
    return counting


def listed_with_commits(
    filesystem: pafs.FileSystem, root: str, listing: Callable[[], list[str]]
) -> tuple[list[str], list[Journal]]:
    """A listing, and the commits that were under way from its beginning to its end.

    Raises ``PathError`` where commits follow each other too closely to get a listing in between.
    """
    files, ((under_way, _),) = _settled({root: filesystem}, listing)
    return files, under_way


def _settled(
    roots: dict[str, pafs.FileSystem], listing: Callable[[], list[str]]
) -> tuple[list[str], list[tuple[list[Journal], int]]]:
    """A listing between whose beginning and end no commit went on, and the roots' states."""
    for _ in range(_LOOKS):
        before = [_state(on, root) for root, on in roots.items()]
        files = listing()
        if before == [_state(on, root) for root, on in roots.items()]:
            return files, before
    raise PathError(f"{next(iter(roots))}: files are replaced faster than they can be listed")


def _state(filesystem: pafs.FileSystem, root: str) -> tuple[list[Journal], int]:
    """What every commit changes: the journals, and the time of the last success (ns).

    Where a journal is gone by the time it is read, its commit has ended, and the whole is looked at
    anew. Raises ``PathError`` where that goes on.
    """
    for _ in range(_LOOKS):
        try:
            names, success = _names(filesystem, root)
        except OSError:  # not a folder
            return [], 0
        found = [_journal(filesystem, f"{root}/{name}") for name in sorted(names)]
        there = [journal for journal in found if journal is not None]
        if len(there) == len(found):
            return there, success
    raise PathError(f"{root}: commits end faster than they can be looked at")


def _names(filesystem: pafs.FileSystem, root: str) -> tuple[list[str], int]:
    """The journals' names, and when ``_SUCCESS`` was touched; 0 where there is none."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        with os.scandir(root) as entries:
            hidden = {entry.name: entry for entry in entries if entry.name.startswith("_")}
        found = {n: e for n, e in hidden.items() if n.startswith(JOURNAL) or n == SUCCESS}
        mark = found.pop(SUCCESS, None)
        return list(found), mark.stat().st_mtime_ns if mark else 0
    selector = pafs.FileSelector(root, allow_not_found=True)
    infos = {info.base_name: info for info in infos_of(filesystem, selector)}
    touched = infos[SUCCESS].mtime_ns if SUCCESS in infos else None
    return [name for name in infos if name.startswith(JOURNAL)], touched or 0


def _journal(filesystem: pafs.FileSystem, path: str) -> Journal | None:
    """None where it is gone by now. Raises ``PathError`` where it is there and cannot be read."""
    try:
        source = FileSource(filesystem, path)
        check_claim("the commit log", source.size, MAX_COMMIT_LOG_BYTES)
        return Journal.decode(bytes(source.read([(0, source.size)])[0]).decode())
    except PathError:
        if infos_of(filesystem, path).type == pafs.FileType.NotFound:
            return None
        raise
    except (FormatError, UnicodeDecodeError) as error:
        raise FormatError(str(error), Where(path)) from error
