"""Expands globs completely, or raises an error if a folder cannot be listed."""

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
"""Names that start with one of these are hidden: readers skip them, as Spark does."""
_ABSENT = FileNotFoundError, NotADirectoryError


def is_glob(path: str) -> bool:
    """True if a path, or a part of one, contains a wildcard: ``*``, ``?`` or ``[``."""
    return not set("*?[").isdisjoint(path)


def base_of(pattern: str) -> str:
    """Returns the leading folders of a glob, up to the first part with a wildcard."""
    return "/".join(itertools.takewhile(lambda part: not is_glob(part), pattern.split("/")))


def matching(
    filesystem: pafs.FileSystem, pattern: str, listed: list[pafs.FileInfo] | None = None
) -> list[str]:
    """Returns the files and folders that match a glob, sorted.

    Hidden ones match only if the glob names them. On remote storage, everything listed, hidden
    names included, is appended to ``listed``. Raises ``OSError`` if a folder cannot be listed.
    """
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    paths = _local_matches(pattern) if is_local else _remote_matches(filesystem, pattern, listed)
    return [path for path in sorted(paths) if not _is_hidden(path, pattern)]


def means(pattern: str, path: str) -> bool:
    """True if the glob would match ``path``, whether or not something is there."""
    return _matches_parts(path.split("/"), pattern.split("/")) and not _is_hidden(path, pattern)


def _local_matches(pattern: str) -> list[str]:
    """Returns the local files and folders that match a glob, folder by folder.

    Like Python's ``glob``, but an unreadable folder raises ``OSError``, and ``**`` does not follow
    links back up.
    """
    parts = pattern.split("/")
    base = list(itertools.takewhile(lambda part: not is_glob(part), parts))
    return list(dict.fromkeys(_matches_below("/".join(base), parts[len(base) :])))


def _matches_below(
    folder: str, parts: list[str], above: tuple[tuple[int, int], ...] = ()
) -> Iterator[str]:
    """Yields the matches of ``parts`` below ``folder``, and in no folder ``above`` again."""
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if not is_glob(part):
        path = f"{folder}/{part}"
        if _stat(path, follow=False) is not None:
            yield from _matches_below(path, rest)
        return
    is_deep = part == "**"
    if is_deep:
        while rest[:1] == ["**"]:
            rest = rest[1:]
        info = _stat(folder or "/", follow=True)
        if info is None or (info.st_dev, info.st_ino) in above:
            return
        above = *above, (info.st_dev, info.st_ino)
        yield from _matches_below(folder, rest)
    for name in _names_in(folder):
        if name.startswith(".") and not part.startswith("."):
            continue
        if not is_deep and not fnmatch.fnmatchcase(name, part):
            continue
        path = f"{folder}/{name}"
        if not is_deep and not rest:
            yield path
        elif _is_folder(path):
            yield from _matches_below(path, parts if is_deep else rest, above if is_deep else ())
        elif is_deep and not rest:
            yield path


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder or "/")
    except _ABSENT:
        return []


def _is_folder(path: str) -> bool:
    info = _stat(path, follow=True)
    return info is not None and stat.S_ISDIR(info.st_mode)


def _stat(path: str, *, follow: bool) -> os.stat_result | None:
    """Returns the status of ``path``. None if nothing is there, or a link is broken or circular."""
    try:
        return os.stat(path, follow_symlinks=follow)
    except _ABSENT:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


def _remote_matches(
    filesystem: pafs.FileSystem, pattern: str, listed: list[pafs.FileInfo] | None
) -> list[str]:
    """Returns the matches of a glob from one recursive listing below its base folder."""
    parts = pattern.split("/")
    selector = pafs.FileSelector(base_of(pattern), recursive=True, allow_not_found=True)
    infos = infos_of(filesystem, selector)
    if listed is not None:
        listed += infos
    return [info.path for info in infos if _matches_parts(info.path.split("/"), parts)]


def _matches_parts(parts: list[str], pattern: list[str]) -> bool:
    """True if the parts of a path match those of a glob; ``**`` matches any number."""
    if not pattern or not parts:
        return not parts and all(part == "**" for part in pattern)
    if pattern[0] == "**":
        return _matches_parts(parts, pattern[1:]) or _matches_parts(parts[1:], pattern)
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches_parts(parts[1:], pattern[1:])


def _is_hidden(match: str, pattern: str) -> bool:
    """True if a matched path has a hidden part that no hidden part of the glob names."""
    parts = pattern.split("/")
    first_wildcard = next(position for position, part in enumerate(parts) if is_glob(part))
    hidden_patterns = [part for part in parts if part.startswith(HIDDEN)]
    return any(
        part.startswith(HIDDEN)
        and not any(fnmatch.fnmatchcase(part, hidden) for hidden in hidden_patterns)
        for part in match.split("/")[first_wildcard:]
    )
