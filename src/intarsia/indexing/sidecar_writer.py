"""Writes sidecars: the same sections as in a file, in another file beside it."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

from intarsia.errors import IndexSpecError, PathError
from intarsia.file.embedded_indexes import IndexFile
from intarsia.file.open_file import OpenedFile
from intarsia.file.sidecar_discovery import Sidecars, sidecar_stem
from intarsia.index.directory import Directory, IndexEntry, binding_of
from intarsia.index.parquet_indexes import Standard
from intarsia.index.registry import EmbeddedIndex, IndexSpec, spec_name
from intarsia.index.sidecar import MAGIC, encode_end
from intarsia.indexing.build import Builder, Built, names_of, new_file_id
from intarsia.io.atomic_replace import copy_into, locked, make_folder, remove_file, replacing
from intarsia.io.external_sort import Workspace
from intarsia.io.file_handle import check_may_write
from intarsia.io.local_path import local_path
from intarsia.io.source import ByteRange, WindowSource

_TRIES = 10
"""Number of attempts while other writers change the sidecar."""


class SidecarReplaced(PathError):  # noqa: N818 # a signal to try again
    """Raised if the sidecar is not the one that was read. The write is then tried again."""


def only_embedded(indexes: Sequence[IndexSpec]) -> list[EmbeddedIndex]:
    """Returns all ``indexes``. Raises ``IndexSpecError`` for those that only files can hold."""
    embedded: list[EmbeddedIndex] = []
    for index in indexes:
        if isinstance(index, Standard):
            raise IndexSpecError(
                f"{spec_name(index)} is one of Parquet's own indexes: only the file itself "
                "can hold it, not a sidecar"
            )
        embedded.append(index)
    return embedded


def write_sidecar(
    file: OpenedFile,
    add: Sequence[EmbeddedIndex],
    drop: Collection[str],
    places: Sidecars,
    check: Callable[[], None],
    builder: Builder,
) -> None:
    """Writes a sidecar of ``file`` with ``add`` and its present indexes, without those in ``drop``.

    A stale or damaged sidecar is replaced. One that would hold no index is removed. Raises
    ``PathError`` if its folder cannot be written to. ``check`` raises it if the file at the path
    has changed.
    """
    assert file.sidecar_finder is not None
    dropped_names = {*drop, *names_of(file, add)}
    new_id, built_for = builder.file_id or new_file_id(), ""
    built: Sequence[Built] = ()
    with Workspace() as work:
        for tries_left in reversed(range(_TRIES)):
            file.sections.check_sidecar()
            old = file.sections.current_sidecar()
            file_id = new_id if old is None else old.directory.file_id
            if file_id != built_for:  # sections carry the id of the sidecar they are in
                built_for, built = file_id, builder.sections(file, add, file_id, work)
            kept_entries = (
                []
                if old is None
                else [e for e in old.directory.indexes if e.name not in dropped_names]
            )
            try:
                _replace(
                    file,
                    file.sidecar_finder.opened_paths,
                    old,
                    kept_entries,
                    built,
                    file_id,
                    places,
                    check,
                )
                return
            except SidecarReplaced:
                if not tries_left:
                    raise
                file.sidecar_finder.forget()


def check_can_carry(file: OpenedFile, places: Sidecars) -> None:
    """Raises ``PathError`` if a local file has a sidecar that could not be written again."""
    folder = local_path(places.folder_of(file.name), places.filesystem)
    if file.sections.sidecar is None or folder is None:
        return
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise PathError(
            f"{folder}: the sidecar of {file.name} in it could not be rewritten: {error}"
        ) from error


def carry_sidecar(old: OpenedFile, new: OpenedFile, places: Sidecars) -> None:
    """Rewrites the sidecar of ``old``, if there is one, for ``new``, which has the same rows."""
    index_file = old.sections.sidecar
    if index_file is None:
        return
    assert old.sidecar_finder is not None
    directory = index_file.directory
    try:
        index_file = old.sections.current_sidecar()
        if index_file is not None:
            directory = index_file.directory
            _replace(
                new,
                old.sidecar_finder.opened_paths,
                index_file,
                directory.indexes,
                (),
                directory.file_id,
                places,
            )
    except SidecarReplaced:
        old.sidecar_finder.forget()
        carry_sidecar(old, new, places)
    except PathError as error:
        names = ", ".join(entry.name for entry in directory.indexes)
        raise PathError(
            f"{error}. The file itself was changed. Add these to its sidecar again: {names}"
        ) from error


def _replace(
    file: OpenedFile,
    before: Sequence[str],
    old: IndexFile | None,
    kept_entries: Sequence[IndexEntry],
    built: Sequence[Built],
    file_id: str,
    places: Sidecars,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Replaces the sidecars ``before`` by one of these sections, or by none without sections."""
    assert file.sidecar_finder is not None
    parts: list[ByteRange | memoryview] = []
    entries, offset = [], len(MAGIC)
    for entry in kept_entries:
        parts.append((entry.offset, entry.length))
        entries.append(replace(entry, offset=offset))
        offset += entry.length
    for built_index in built:
        parts.append(built_index.section.data)
        entries.append(built_index.entry(offset))
        offset += len(built_index.section.data)
    with _exclusive(file.name, before, places):
        check()
        if entries:
            binding = binding_of(file.metadata)
            stored = tuple(map(file.sections.stored, entries))
            directory = Directory(file_id, binding, file.source.size, stored)
            with _new_file(file.name, places) as out:
                out.write(MAGIC)
                for part in parts:
                    if isinstance(part, tuple):
                        assert old is not None
                        copy_into(WindowSource(old.source, *part), out)
                    else:
                        out.write(part)
                out.write(encode_end(directory, file.sidecar_finder.owner(file.footer), offset))
        for path in before:
            check_may_write(places.filesystem, path)
            try:
                remove_file(path, places.filesystem)
            except OSError as error:
                if not entries:  # otherwise the new sidecar is used
                    raise PathError(f"{path}: cannot be removed: {error}") from error
        places.forget(file.name)


@contextlib.contextmanager
def _exclusive(path: str, before: Sequence[str], places: Sidecars) -> Iterator[None]:
    """Locks the sidecar, if possible. Raises ``PathError`` if it is no longer ``before``."""
    local = local_path(path, places.filesystem)
    with contextlib.nullcontext() if local is None else locked(local):
        places.forget(path)
        current_paths = [*places.paths(path)]
        places.check_listed(path)
        if current_paths != [*before]:
            raise SidecarReplaced(
                f"{path}: another writer changed its sidecar, which was left as it is"
            )
        yield


@contextlib.contextmanager
def _new_file(path: str, places: Sidecars) -> Iterator[BinaryIO]:
    """Yields a new sidecar to write. It appears at its path at the end, whole."""
    folder = places.folder_of(path)
    name = f"{sidecar_stem(path.rpartition('/')[2])}.{secrets.token_hex(4)}.intarsia"
    try:
        make_folder(folder, places.filesystem)
        new = replacing(f"{folder}/{name}", places.filesystem, like=path)
        with new as create, create() as out:
            yield out
    except (OSError, PathError) as error:
        raise PathError(
            f"{folder}: no sidecar can be written: {error}; "
            "give another folder with sidecar='another/folder'"
        ) from error
