"""Reads small files of Intarsia's own, such as a policy, and replaces them in one step."""

from __future__ import annotations

import contextlib
from functools import partial

import pyarrow.fs as pafs

from intarsia.errors import PathError
from intarsia.io.atomic_replace import check_unchanged, make_folder, replacing, upload
from intarsia.io.file_handle import Version, check_may_write
from intarsia.io.file_parts import Composed
from intarsia.io.local_path import local_path
from intarsia.io.retry import infos_of
from intarsia.io.s3_copy import replaced_by_store
from intarsia.io.source import BufferSource
from intarsia.io.storage import FileSource
from intarsia.limits import check_claim


def read_small_file(
    filesystem: pafs.FileSystem, path: str, name: str, max_bytes: int
) -> bytes | None:
    """Returns the bytes of a file. None if there is no file.

    Raises ``FormatError`` if it is longer than ``max_bytes``, calling it ``name``, and
    ``PathError`` if it cannot be read.
    """
    try:
        with contextlib.closing(FileSource(filesystem, path)) as source:
            check_claim(name, source.size, max_bytes)
            return bytes(source.read([(0, source.size)])[0])
    except PathError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        try:
            if infos_of(filesystem, path).type == pafs.FileType.NotFound:
                return None
        except OSError:  # a part of the path is no folder
            return None
        raise


def write_small_file(
    filesystem: pafs.FileSystem, path: str, data: memoryview | bytes, since: Version = None
) -> None:
    """Writes a file atomically. Raises ``PathError`` if it is not the version ``since``."""
    check_may_write(filesystem, path)
    try:
        make_folder(path.rpartition("/")[0], filesystem)
        if local_path(path, filesystem) is not None:
            check = partial(check_unchanged, path, filesystem, since)
            with replacing(path, filesystem, check=check) as create, create() as out:
                out.write(data)
            return
        parts = Composed(0, (memoryview(data),))
        if not replaced_by_store(path, BufferSource(b""), parts, filesystem, since):
            check_unchanged(path, filesystem, since)
            upload(BufferSource(data), path, filesystem)
    except OSError as error:
        raise PathError(f"{path}: cannot be written: {error}") from error
