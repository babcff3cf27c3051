"""Replaces files by changed ones, with their sidecars, and says which must not be changed."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import Any

import pyarrow.fs as pafs

from intarsia.errors import FormatError, Where, warn
from intarsia.file.open_file import OpenedFile
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.indexing.sidecar_writer import carry_sidecar, check_can_carry
from intarsia.io.atomic_replace import (
    changed,
    check_unchanged,
    copied_by_system,
    copy_into,
    replacing,
    write_into,
)
from intarsia.io.file_handle import Version
from intarsia.io.file_parts import Composed
from intarsia.io.local_path import local_path
from intarsia.io.s3_copy import replaced_by_store
from intarsia.io.source import WindowSource
from intarsia.parquet.footer import check_editable
from intarsia.scan.parquet_file import open_file


def check_changeable(file: OpenedFile) -> None:
    """Raises ``FormatError`` for a file that must not be changed.

    That is a file with another footer than when indexes were added. If the footer is damaged, a new
    checksum would make it look valid. If another tool changed it, dropping indexes would undo that.
    """
    try:
        check_editable(file.footer)
        file.verify_footer()
    except FormatError as error:
        raise error.at(Where(file.name)) from error


def warn_of_names(path: str, filesystem: Any) -> None:
    """Warns of a local file with hard links: its other names keep the old file."""
    names, local = 1, local_path(path, filesystem)
    if local is not None:
        with contextlib.suppress(OSError):  # opening the file reports the error
            names = os.stat(local).st_nlink
    if names > 1:
        message = f"{path}: the file has {names} names (hard links)"
        warn(f"{message}; only this one is changed, the others keep the old file")


def rewrite(file: OpenedFile, composed: Composed, filesystem: Any, version: Version) -> None:
    """Replaces a file by one composed of its bytes and new ones, unless it has changed meanwhile.

    Its sidecar stays valid, as does the sidecar of the file that a symbolic link leads to. A file
    that stays the same is not touched. Raises ``PathError``, and changes nothing, if a sidecar
    cannot be read or rewritten.
    """
    if composed.is_all_of(file.source.size):
        return
    files_with_sidecars = [(file, Sidecars(filesystem))]
    link_target = _linked(file.name, filesystem)
    if link_target is not None:
        files_with_sidecars.append((link_target, Sidecars(pafs.LocalFileSystem())))
    for target, places in files_with_sidecars:
        check_can_carry(target, places)
        target.sections.check_sidecar()  # last, because another writer may make one at any time
    if not replaced_by_store(file.name, file.source, composed, filesystem, version):
        _replace(file, composed, filesystem, version)
    for target, places in files_with_sidecars:
        if target.sections.sidecar is not None:  # including one that another writer made meanwhile
            carry_sidecar(target, open_file(target.name, places.filesystem), places)


def _linked(path: str, filesystem: Any) -> OpenedFile | None:
    """Returns the file that a symbolic link leads to. Returns None if the path is not a link."""
    local = local_path(path, filesystem)
    if local is None or not os.path.islink(local):
        return None
    return open_file(os.path.realpath(local), pafs.LocalFileSystem())


def _replace(file: OpenedFile, composed: Composed, filesystem: Any, version: Version) -> None:
    # The bytes are read by the handle that read the footer: the path may be another file by now.
    check = partial(check_unchanged, file.name, filesystem, version)
    if version is None:
        check = partial(_check_same, file, filesystem)
    with replacing(file.name, filesystem, check=check) as create, create() as out:
        is_local = isinstance(filesystem, pafs.LocalFileSystem)
        copied = copied_by_system(file.name, version, out, composed.prefix_bytes) if is_local else 0
        copy_into(WindowSource(file.source, copied, composed.prefix_bytes - copied), out)
        for part in composed.parts:
            if isinstance(part, tuple):
                copy_into(WindowSource(file.source, *part), out)
            else:
                write_into(out, memoryview(part))


def _check_same(file: OpenedFile, filesystem: Any) -> None:
    """Raises ``PathError`` if a file without a version has another footer now."""
    current = open_file(file.name, filesystem)
    if (current.source.size, current.footer) != (file.source.size, file.footer):
        raise changed(file.name)
