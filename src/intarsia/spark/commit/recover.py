"""What interrupted writes left in a folder: finished or undone, and cleared away."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from intarsia.dataset.commit_journal import JOURNAL, PUBLISHING, Journal, folders_above
from intarsia.errors import PathError, warn
from intarsia.io.glob import HIDDEN
from intarsia.io.storage import PathLike
from intarsia.spark.commit.commit import KEEP, TEMPORARY, end, is_in, is_kept, is_there, journals
from intarsia.spark.commit.storage import Place

_HALF_WRITTEN = re.compile(r"\._(commit-.+|stream-.+|SUCCESS)\.[0-9a-f]{8}")
"""What ``LocalPlace.write_text`` leaves where it is killed."""


def recover(path: PathLike, *, keep_unfinished: bool = True, filesystem: Any = None) -> list[str]:
    """Finish or undo what interrupted writes left at ``path``, a folder; returns what was removed.

    A commit whose new files were all there is finished, any other is undone, and temporary folders
    are deleted: all of them, or with ``keep_unfinished`` those of jobs without checkpoints. What
    others wrote stays where it is, and a warning says where that is: ``intarsia.recover`` makes
    files of those with temporary names, ``.NAME.….intarsia-tmp``; the rest are whole. Call it only
    while nothing is being written there.

    Folders below are looked at as well, and of those above the commits that are of files at
    ``path`` only: so it is where a Hive folder was optimized by itself.
    """
    place = Place.of(path, filesystem)
    kind = place.filesystem.get_file_info(place.root).type
    if kind != pafs.FileType.Directory:
        what = "a file, not a folder" if kind == pafs.FileType.File else "no such folder"
        raise PathError(f"{place.root}: there is {what}")
    removed: list[str] = []
    kept: list[str] = []
    for folder in (*folders_above(place.root)[:-1], *_interrupted(place)):
        at = replace(place, root=folder)
        begun, jobs = journals(at), set(at.names(TEMPORARY))
        torn = [name for name in at.names("._") if _HALF_WRITTEN.fullmatch(name)]
        if not PurePosixPath(folder).is_relative_to(place.root):
            torn = []
            begun = [journal for journal in begun if _is_all_in(at, journal, place.root)]
            jobs &= {f"{TEMPORARY}{journal.job}" for journal in begun}
        for journal in begun:
            removed += map(at.path, _ended(at, journal))
        for name in torn:
            at.remove(name)
            removed.append(at.path(name))
        for name in sorted(jobs):
            if keep_unfinished and _holds_rows(at, name):
                kept.append(at.path(name))
            elif at.remove_tree(name):
                removed.append(at.path(name))
    if kept:
        warn(
            f"rows of interrupted jobs are kept in {', '.join(kept)}: intarsia.recover() gets back "
            "what is in unfinished files; recover(…, keep_unfinished=False) removes them",
        )
    return [posixpath.relpath(path, place.root) for path in removed]


def _is_all_in(place: Place, journal: Journal, folder: str) -> bool:
    """Are all files that a commit publishes and removes below ``folder``?"""
    return all(is_in([folder], place.path(file)) for file in (*journal.publish, *journal.remove))


def _ended(place: Place, journal: Journal) -> list[str]:
    """Finish a commit, or undo it; gives the files that are gone for it."""
    is_moved = journal.phase == PUBLISHING and is_kept(place, f"{TEMPORARY}{journal.job}")
    gone = [] if is_moved else [name for name in journal.hidden if is_there(place, name)]
    end(place, journal)
    return gone


def _interrupted(place: Place) -> list[str]:
    """The folder, and those below it in which there are journals or folders of jobs."""
    selector = pafs.FileSelector(place.root, recursive=True)
    found = {place.root}
    for info in place.filesystem.get_file_info(selector):
        parts = info.path.removeprefix(f"{place.root}/").split("/")
        hidden = next((at for at, part in enumerate(parts) if part.startswith(HIDDEN)), None)
        if hidden is not None and _is_left(parts[hidden]):
            found.add("/".join([place.root, *parts[:hidden]]))
    return sorted(found)


def _is_left(name: str) -> bool:
    return name.startswith((JOURNAL, TEMPORARY)) or bool(_HALF_WRITTEN.fullmatch(name))


def _holds_rows(place: Place, folder: str) -> bool:
    """Is there anything in a job's folder that is worth keeping?"""
    if not is_kept(place, folder):
        return False
    selector = pafs.FileSelector(place.path(folder), recursive=True)
    found = place.filesystem.get_file_info(selector)
    return any(info.type == pafs.FileType.File and info.base_name != KEEP for info in found)
