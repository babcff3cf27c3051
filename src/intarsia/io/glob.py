"""What globs mean: whole, or an error where a folder cannot be listed."""

from __future__ import annotations

import errno
import fnmatch
import itertools
import os
import stat
from collections.abc import Iterator

import pyarrow.fs as pafs

from intarsia.io.retry import infos_of

HIDDEN = ("_", ".")
"""What names begin with that readers pass over."""
_NOTHING = FileNotFoundError, NotADirectoryError


def is_glob(path: str) -> bool:
    """Has a path, or a name in one, a character that stands for others?"""
    return not set("*?[").isdisjoint(path)


def base_of(pattern: str) -> str:
    """The last folder that a glob names without a pattern."""
    return "/".join(itertools.takewhile(lambda part: not is_glob(part), pattern.split("/")))


def matching(
    filesystem: pafs.FileSystem, pattern: str, listed: list[pafs.FileInfo] | None = None
) -> list[str]:
    """The files and folders that a glob means, sorted; hidden ones only where it says so.

    ``listed`` receives all that remote storage lists for it, hidden names included. Raises
    ``OSError`` where a folder cannot be listed.
    """
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    found = _here(pattern) if is_local else _elsewhere(filesystem, pattern, listed)
    return [match for match in sorted(found) if not _is_hidden(match, pattern)]


def means(pattern: str, path: str) -> bool:
    """Would a glob mean what is at ``path``, if anything is?"""
    return _fits(path.split("/"), pattern.split("/")) and not _is_hidden(path, pattern)


def _here(pattern: str) -> list[str]:
    """The local files and folders that a glob means, folder by folder.

    As Python's ``glob``, but whole or an ``OSError``, and links that lead back up are not followed.
    """
    parts = pattern.split("/")
    named = list(itertools.takewhile(lambda part: not is_glob(part), parts))
    return list(dict.fromkeys(_below("/".join(named), parts[len(named) :])))


def _below(folder: str, parts: list[str], above: tuple[tuple[int, int], ...] = ()) -> Iterator[str]:
    """What the ``parts`` of a glob mean below ``folder``, to which ``**`` came by ``above``."""
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if not is_glob(part):
        path = f"{folder}/{part}"
        if _stat(path, follow=False) is not None:
            yield from _below(path, rest)
        return
    is_deep = part == "**"
    if is_deep:
        while rest[:1] == ["**"]:
            rest = rest[1:]
        found = _stat(folder or "/", follow=True)
        if found is None or (found.st_dev, found.st_ino) in above:
            return
        above = *above, (found.st_dev, found.st_ino)
        yield from _below(folder, rest)
    for name in _names_in(folder):
        if name.startswith(".") and not part.startswith("."):
            continue
        if not is_deep and not fnmatch.fnmatchcase(name, part):
            continue
        path = f"{folder}/{name}"
        if not is_deep and not rest:
            yield path
        elif _is_folder(path):
            yield from _below(path, parts if is_deep else rest, above if is_deep else ())
        elif is_deep and not rest:
            yield path


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder or "/")
    except _NOTHING:
        return []


def _is_folder(path: str) -> bool:
    found = _stat(path, follow=True)
    return found is not None and stat.S_ISDIR(found.st_mode)


def _stat(path: str, *, follow: bool) -> os.stat_result | None:
    """What is at ``path``; None where nothing is, nor where a link leads."""
    try:
        return os.stat(path, follow_symlinks=follow)
    except _NOTHING:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


def _elsewhere(
    filesystem: pafs.FileSystem, pattern: str, listed: list[pafs.FileInfo] | None
) -> list[str]:
    """The files and folders that a glob means, by one listing below the last folder it names."""
    parts = pattern.split("/")
    selector = pafs.FileSelector(base_of(pattern), recursive=True, allow_not_found=True)
    infos = infos_of(filesystem, selector)
    if listed is not None:
        listed += infos
    return [info.path for info in infos if _fits(info.path.split("/"), parts)]


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
