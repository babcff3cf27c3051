"""What globs mean: whole, or an error where a folder cannot be listed."""

from __future__ import annotations

import fnmatch
import itertools
import os
from collections.abc import Iterator

import pyarrow.fs as pafs

HIDDEN = ("_", ".")
"""What names begin with that readers pass over."""


def is_glob(path: str) -> bool:
    """Has a path, or a name in one, a character that stands for others?"""
    return not set("*?[").isdisjoint(path)


def matching(filesystem: pafs.FileSystem, pattern: str) -> list[str]:
    """The files and folders that a glob means, sorted; hidden ones only where it says so.

    Raises ``OSError`` where a folder cannot be listed.
    """
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    found = _here(pattern) if is_local else _elsewhere(filesystem, pattern)
    return [match for match in sorted(found) if not _is_hidden(match, pattern)]


def _here(pattern: str) -> list[str]:
    """The local files and folders that a glob means, folder by folder.

    As Python's ``glob``, but whole or an ``OSError``, and links that lead back up are not followed.
    """
    parts = pattern.split("/")
    named = list(itertools.takewhile(lambda part: not is_glob(part), parts))
    return list(dict.fromkeys(_below("/".join(named), parts[len(named) :], ())))


def _below(folder: str, parts: list[str], above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """What the ``parts`` of a glob mean below ``folder``; ``above`` are folders that it is in."""
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if not is_glob(part):
        path = f"{folder}/{part}"
        if os.path.lexists(path):
            yield from _below(path, rest, above)
        return
    if part == "**":
        found = os.stat(folder or "/")
        here = found.st_dev, found.st_ino
        if here in above:
            return
        above = *above, here
        yield from _below(folder, rest, above)
    for entry in _entries_of(folder):
        path, is_dir = f"{folder}/{entry.name}", entry.is_dir()
        if entry.name.startswith(".") and not part.startswith("."):
            continue
        if part == "**" and is_dir:
            yield from _below(path, parts, above)
        elif (part == "**" or fnmatch.fnmatchcase(entry.name, part)) and (is_dir or not rest):
            yield from _below(path, rest, above)


def _entries_of(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder or "/") as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _elsewhere(filesystem: pafs.FileSystem, pattern: str) -> list[str]:
    """The files and folders that a glob means, by one listing below the last folder it names."""
    parts = pattern.split("/")
    base = "/".join(itertools.takewhile(lambda part: not is_glob(part), parts))
    selector = pafs.FileSelector(base, recursive=True, allow_not_found=True)
    paths = [info.path for info in filesystem.get_file_info(selector)]
    return [path for path in paths if _fits(path.split("/"), parts)]


def _fits(parts: list[str], pattern: list[str]) -> bool:
    """Does a path match a glob? ``**`` stands for any number of folders."""
    if not pattern or not parts:
        return not parts and all(one == "**" for one in pattern)
    if pattern[0] == "**":
        return _fits(parts, pattern[1:]) or _fits(parts[1:], pattern)
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])


def _is_hidden(match: str, pattern: str) -> bool:
    """Is there a name in what a glob found that starts as hidden ones do, and not in the glob?"""
    parts = pattern.split("/")
    first = next(at for at, part in enumerate(parts) if is_glob(part))
    asked = [part for part in parts if part.startswith(HIDDEN)]
    return any(
        part.startswith(HIDDEN) and not any(fnmatch.fnmatchcase(part, one) for one in asked)
        for part in match.split("/")[first:]
    )
