"""Files of the local disk, whatever file system they are reached by.

Other processes read these as they are, so that they are to be locked, replaced and owned as such.
"""

from __future__ import annotations

from typing import Any

import pyarrow.fs as pafs

from intarsia.io.fsspec_listing import is_fsspec, wrapped


def local_path(path: str, filesystem: pafs.FileSystem) -> str | None:
    """Where a file is on the local disk, in whatever that is wrapped; None where it is elsewhere.

    ``pyarrow.fs.SubTreeFileSystem`` wraps it, and fsspec's local and ``DirFileSystem``.
    """
    if isinstance(filesystem, pafs.LocalFileSystem):
        return path
    if isinstance(filesystem, pafs.SubTreeFileSystem):
        return local_path(_joined(filesystem.base_path, path), filesystem.base_fs)
    return _local_path(path, filesystem.handler.fs) if is_fsspec(filesystem) else None


def unwrapped(path: str, filesystem: pafs.FileSystem) -> tuple[pafs.FileSystem, str]:
    """The file system that others wrap, as far as they tell, and a path on it."""
    local = local_path(path, filesystem)
    if local is not None:
        return pafs.LocalFileSystem(), local
    while True:
        if isinstance(filesystem, pafs.SubTreeFileSystem):
            path, filesystem = _joined(filesystem.base_path, path), filesystem.base_fs
        elif is_fsspec(filesystem) and _is_folder_of_another(filesystem.handler.fs):
            outer = filesystem.handler.fs
            path, filesystem = _joined(outer.path, path), wrapped(outer.fs)
        else:
            return filesystem, path


def _local_path(path: str, filesystem: Any) -> str | None:
    """As ``local_path``, on a file system of fsspec's; by its name, as fsspec may not be there.

    Other classes may derive from these, and do something else with what they are given.
    """
    if _is_of(filesystem, "local", "LocalFileSystem"):
        return str(filesystem._strip_protocol(path))
    if _is_folder_of_another(filesystem):
        return _local_path(_joined(filesystem.path, path), filesystem.fs)
    return None


def _is_folder_of_another(filesystem: Any) -> bool:
    return _is_of(filesystem, "dirfs", "DirFileSystem")


def _is_of(filesystem: Any, module: str, name: str) -> bool:
    own = type(filesystem)
    return (own.__module__, own.__name__) == (f"fsspec.implementations.{module}", name)


def _joined(folder: str, path: str) -> str:
    return f"{folder.rstrip('/')}/{path.lstrip('/')}"
