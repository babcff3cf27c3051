"""Replaces small files of Intarsia's own, such as a catalog's pointer, in one step."""

from __future__ import annotations

from functools import partial

import pyarrow.fs as pafs

from intarsia.errors import PathError
from intarsia.io.atomic_replace import check_unchanged, make_folder, replacing, upload
from intarsia.io.file_handle import Version, check_may_write
from intarsia.io.file_parts import Composed
from intarsia.io.local_path import local_path
from intarsia.io.s3_copy import replaced_by_store
from intarsia.io.source import BufferSource


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
