"""Finds files of the local disk behind wrapped file systems.

Other processes read these files directly, so they are locked, replaced and owned like local files.
"""

from __future__ import annotations

from typing import Any

import pyarrow.fs as pafs

from intarsia.io.fsspec_listing import is_fsspec, wrapped


def local_path(path: str, filesystem: pafs.FileSystem) -> str | None:
    """Returns the path of a file on the local disk, or None if it is elsewhere.

    Looks through ``pyarrow.fs.SubTreeFileSystem``, and fsspec's ``LocalFileSystem`` and
    ``DirFileSystem``.
    """
    if isinstance(filesystem, pafs.LocalFileSystem):
        return path
    if isinstance(filesystem, pafs.SubTreeFileSystem):
        return local_path(_joined(filesystem.base_path, path), filesystem.base_fs)
    return _local_path(path, filesystem.handler.fs) if is_fsspec(filesystem) else None


def unwrapped(path: str, filesystem: pafs.FileSystem) -> tuple[pafs.FileSystem, str]:
    """Returns the innermost file system below known wrappers, and the path on it."""
    local = local_path(path, filesystem)
    if local is not None:
        return pafs.LocalFileSystem(), local
    while True:
        if isinstance(filesystem, pafs.SubTreeFileSystem):
            path, filesystem = _joined(filesystem.base_path, path), filesystem.base_fs
        elif is_fsspec(filesystem) and _is_dir_filesystem(filesystem.handler.fs):
            outer = filesystem.handler.fs
            path, filesystem = _joined(outer.path, path), wrapped(outer.fs)
        else:
            return filesystem, path


def _local_path(path: str, filesystem: Any) -> str | None:
    """Returns the local path on an fsspec file system of exactly a known class, or None."""
    if _is_class(filesystem, "local", "LocalFileSystem"):
        return str(filesystem._strip_protocol(path))
    if _is_dir_filesystem(filesystem):
        return _local_path(_joined(filesystem.path, path), filesystem.fs)
    return None


def _is_dir_filesystem(filesystem: Any) -> bool:
    return _is_class(filesystem, "dirfs", "DirFileSystem")


def _is_class(filesystem: Any, module: str, name: str) -> bool:
    own = type(filesystem)
    return (own.__module__, own.__name__) == (f"fsspec.implementations.{module}", name)


def _joined(folder: str, path: str) -> str:
    return f"{folder.rstrip('/')}/{path.lstrip('/')}"
