"""Recovery of a folder after interrupted writes: they are finished or undone, and cleared away."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from intarsia.commit.commit import (
    KEEP,
    LOCK,
    TEMPORARY,
    commit_entries,
    end,
    is_in,
    is_kept,
    is_there,
)
from intarsia.commit.storage import LocalPlace, Place
from intarsia.dataset.commit_log import ENTRY_PREFIX, PUBLISHING, CommitEntry, folders_above
from intarsia.errors import PathError, public, warn
from intarsia.io.atomic_replace import TEMPORARY_SUFFIX, remove_leftovers
from intarsia.io.glob import HIDDEN
from intarsia.io.retry import infos_of
from intarsia.io.storage import PathLike

_HALF_WRITTEN = re.compile(r"\._(commit-.+|stream-.+|SUCCESS)\.[0-9a-f]{8}")
"""The temporary files that ``LocalPlace.write_text`` leaves if its process is killed."""


@public
def recover_dataset(
    path: PathLike, *, keep_unfinished: bool = True, filesystem: Any = None
) -> list[str]:
    """Finishes or undoes the interrupted writes in a folder, and removes their remains.

    A commit whose new files were all in place is finished, any other is undone. Temporary folders
    of jobs are removed, and unfinished files whose rows are in other files. The same happens in
    folders below ``path``. In folders above, it happens for commits whose files are all below
    ``path``, such as an ``optimize`` of one Hive folder.

    Files of other writers stay. Call this only while nothing writes to the folder.

    Parameters
    ----------
    path : str or path
        The folder of the data set, or a folder in it.
    keep_unfinished : bool, default True
        Keeps the folders of jobs with checkpoints, and warns of them. ``intarsia.recover`` then
        gets rows back from files with temporary names, ``.NAME.….intarsia-tmp``; the other files in
        these folders are complete.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        Where ``path`` is, by default the local disk or the storage that a URI names.

    Returns
    -------
    list of str
        The removed files and folders, relative to ``path``.

    Raises
    ------
    PathError
        If ``path`` is not a folder.

    Examples
    --------
    >>> ia.recover_dataset("lake")
    []
    """
    place = Place.of(path, filesystem)
    kind = place.kind()
    if kind != pafs.FileType.Directory:
        problem = "a file, not a folder" if kind == pafs.FileType.File else "no such folder"
        raise PathError(f"{place.root}: there is {problem}")
    removed: list[str] = []
    kept_folders: list[str] = []
    for folder in (*folders_above(place.root)[:-1], *_interrupted(place)):
        current = replace(place, root=folder)
        entries, jobs = commit_entries(current), set(current.names(TEMPORARY))
        locks = set(current.names(LOCK))
        half_written = [name for name in current.names("._") if _HALF_WRITTEN.fullmatch(name)]
        if not PurePosixPath(folder).is_relative_to(place.root):
            half_written = []
            entries = [entry for entry in entries if _is_all_in(current, entry, place.root)]
            jobs &= {f"{TEMPORARY}{entry.job}" for entry in entries}
            locks &= {f"{LOCK}{entry.job}" for entry in entries}
        for entry in entries:
            removed += map(current.path, _end_commit(current, entry))
        for name in (*half_written, *sorted(locks)):
            current.remove(name)
            removed.append(current.path(name))
        if isinstance(current, LocalPlace) and PurePosixPath(folder).is_relative_to(place.root):
            removed += remove_leftovers(folder)
        for name in sorted(jobs):
            if keep_unfinished and _holds_rows(current, name):
                kept_folders.append(current.path(name))
            elif current.remove_tree(name):
                removed.append(current.path(name))
    if kept_folders:
        warn(
            f"rows of interrupted jobs are kept in {', '.join(kept_folders)}: intarsia.recover() "
            "gets back the rows of unfinished files; recover(…, keep_unfinished=False) removes "
            "them",
        )
    return [posixpath.relpath(path, place.root) for path in removed]


def _is_all_in(place: Place, entry: CommitEntry, folder: str) -> bool:
    """True if all files that a commit publishes or removes are below ``folder``."""
    return all(is_in([folder], place.path(file)) for file in (*entry.publish, *entry.remove))


def _end_commit(place: Place, entry: CommitEntry) -> list[str]:
    """Finishes or undoes a commit; returns the files that it removed."""
    is_moved = entry.phase == PUBLISHING and is_kept(place, f"{TEMPORARY}{entry.job}")
    removed = [] if is_moved else [name for name in entry.hidden if is_there(place, name)]
    end(place, entry)
    return removed


def _interrupted(place: Place) -> list[str]:
    """Returns the folder, and those below it that hold commit logs or folders of jobs."""
    selector = pafs.FileSelector(place.root, recursive=True)
    folders = {place.root}
    for info in infos_of(place.filesystem, selector):
        parts = info.path.removeprefix(f"{place.root}/").split("/")
        hidden = next((at for at, part in enumerate(parts) if part.startswith(HIDDEN)), None)
        if hidden is not None and _is_remains(parts[hidden]):
            folders.add("/".join([place.root, *parts[:hidden]]))
    return sorted(folders)


def _is_remains(name: str) -> bool:
    is_temporary = name.startswith((ENTRY_PREFIX, TEMPORARY, LOCK))
    is_half_written = name.endswith(TEMPORARY_SUFFIX) or _HALF_WRITTEN.fullmatch(name)
    return is_temporary or bool(is_half_written)


def _holds_rows(place: Place, folder: str) -> bool:
    """True if a job's folder is marked to be kept and has files in it."""
    if not is_kept(place, folder):
        return False
    selector = pafs.FileSelector(place.path(folder), recursive=True)
    infos = infos_of(place.filesystem, selector)
    return any(info.type == pafs.FileType.File and info.base_name != KEEP for info in infos)
