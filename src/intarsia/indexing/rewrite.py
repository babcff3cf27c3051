"""Files that are changed: what must not be, and others that take their place, sidecars and all."""

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
    """Raise ``FormatError`` for a file that must not be changed.

    So it is where the footer is not what it was when indexes were added: it is damaged, which a new
    checksum would vouch for, or another tool changed it, which taking indexes away would undo.
    """
    try:
        check_editable(file.footer)
        file.checked_footer()
    except FormatError as error:
        raise error.at(Where(file.name)) from error


def warn_of_names(path: str, filesystem: Any) -> None:
    """Warn of a local file that has other names (hard links): these keep the file as it was."""
    names, local = 1, local_path(path, filesystem)
    if local is not None:
        with contextlib.suppress(OSError):  # what opens it tells of it
            names = os.stat(local).st_nlink
    if names > 1:
        message = f"{path}: of its {names} names (hard links) only this one"
        warn(f"{message} changes: what is left keeps what it was")


def rewrite(file: OpenedFile, what: Composed, filesystem: Any, version: Version) -> None:
    """Put a file composed of ``file``'s bytes and new ones in its place, if it is still there.

    Its sidecar, where it has one beside it, goes on to serve; so does the one of a file that was
    named by a link. A file that stays as it is is not touched, nor is one of which it cannot be
    told what its sidecar holds: ``PathError``.
    """
    if what.is_all_of(file.source.size):
        return
    named = [(file, Sidecars(filesystem))]
    linked = _linked(file.name, filesystem)
    if linked is not None:
        named.append((linked, Sidecars(pafs.LocalFileSystem())))
    for one, places in named:
        check_can_carry(one, places)
        one.sections.check_beside()  # last, as another writer may make one from now on
    if not replaced_by_store(file.name, file.source, what, filesystem, version):
        _replace(file, what, filesystem, version)
    for one, places in named:
        if one.sections.beside is not None:  # or has one by now, of another writer
            carry_sidecar(one, open_file(one.name, places.filesystem), places)


def _linked(path: str, filesystem: Any) -> OpenedFile | None:
    """The file that a path is a symbolic link to, if it is one."""
    local = local_path(path, filesystem)
    if local is None or not os.path.islink(local):
        return None
    return open_file(os.path.realpath(local), pafs.LocalFileSystem())


def _replace(file: OpenedFile, what: Composed, filesystem: Any, version: Version) -> None:
    # The bytes come from the handle the footer came from: the file may be another one by now.
    check = partial(check_unchanged, file.name, filesystem, version)
    if version is None:
        check = partial(_check_same, file, filesystem)
    with replacing(file.name, filesystem, check=check) as create, create() as out:
        is_local = isinstance(filesystem, pafs.LocalFileSystem)
        copied = copied_by_system(file.name, version, out, what.kept) if is_local else 0
        copy_into(WindowSource(file.source, copied, what.kept - copied), out)
        for part in what.parts:
            if isinstance(part, tuple):
                copy_into(WindowSource(file.source, *part), out)
            else:
                write_into(out, memoryview(part))


def _check_same(file: OpenedFile, filesystem: Any) -> None:
    """Raise ``PathError`` where a file has another footer by now: storage tells nothing more."""
    now = open_file(file.name, filesystem)
    if (now.source.size, now.footer) != (file.source.size, file.footer):
        raise changed(file.name)
