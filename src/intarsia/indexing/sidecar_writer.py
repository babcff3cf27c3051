"""Writing sidecars: the same sections, in a file beside the one they are of."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

from intarsia.errors import IndexSpecError, PathError
from intarsia.file.embedded_indexes import Holder
from intarsia.file.open_file import OpenedFile
from intarsia.file.sidecar_discovery import Sidecars, kept_under
from intarsia.index.directory import Directory, IndexEntry, binding_of
from intarsia.index.parquet_indexes import Standard
from intarsia.index.registry import EmbeddedIndex, IndexSpec, spec_name
from intarsia.index.sidecar import MAGIC, encode_end
from intarsia.indexing.build import Builder, Built, FromPages, Told, names_of, new_file_id
from intarsia.io.atomic_replace import copy_into, locked, make_folder, remove_file, replacing
from intarsia.io.external_sort import Workspace
from intarsia.io.file_handle import check_may_write
from intarsia.io.local_path import local_path
from intarsia.io.source import ByteRange, WindowSource

_TRIES = 10
"""How often it is tried again where another writer changed the sidecar."""


class SidecarReplaced(PathError):  # noqa: N818 # a signal to look again, while that is possible
    """A sidecar is not the one that was read."""


def only_embedded(indexes: Sequence[IndexSpec]) -> list[EmbeddedIndex]:
    """All ``indexes``. Raises ``IndexSpecError`` for the format's own, which files hold."""
    found: list[EmbeddedIndex] = []
    for index in indexes:
        if isinstance(index, Standard):
            raise IndexSpecError(
                f"{spec_name(index)} is one of the format's own indexes: only the file itself can "
                "hold it, no sidecar"
            )
        found.append(index)
    return found


def write_sidecar(
    file: OpenedFile,
    add: Sequence[EmbeddedIndex],
    drop: Collection[str],
    places: Sidecars,
    check: Callable[[], None],
    told: Told | None = None,
    builder: Builder | None = None,
) -> None:
    """Have a sidecar of ``file`` hold ``add`` and what it holds already, less names in ``drop``.

    A stale or damaged one is replaced; one that would hold nothing is removed. Raises ``PathError``
    where its folder cannot be written to; ``check`` does where another file is at the path by now.
    """
    assert file.beside is not None
    builder = builder or FromPages()
    gone = {*drop, *names_of(file, add)}
    new_id, built_for = builder.file_id or new_file_id(), ""
    built: Sequence[Built] = ()
    with Workspace() as work:
        for tries_left in reversed(range(_TRIES)):
            file.sections.check_beside()
            old = file.sections.beside_now()
            file_id = new_id if old is None else old.directory.file_id
            if file_id != built_for:  # sections carry the id of the sidecar they are in
                built_for, built = file_id, builder.sections(file, add, file_id, work, told)
            kept = [] if old is None else [e for e in old.directory.indexes if e.name not in gone]
            try:
                _replace(file, file.beside.found, old, kept, built, file_id, places, check)
                return
            except SidecarReplaced:
                if not tries_left:
                    raise
                file.beside.forget()


def check_can_carry(file: OpenedFile, places: Sidecars) -> None:
    """Raise ``PathError`` where a local file has a sidecar that could not be written anew."""
    folder = local_path(places.folder_of(file.name), places.filesystem)
    if file.sections.beside is None or folder is None:
        return
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise PathError(f"{folder}: {file.name} has a sidecar there: {error}") from error


def carry_sidecar(old: OpenedFile, new: OpenedFile, places: Sidecars) -> None:
    """Have the sidecar of ``old``, if it has one by now, serve what that became: the same rows."""
    held = old.sections.beside
    if held is None:
        return
    assert old.beside is not None
    known = held.directory
    try:
        held = old.sections.beside_now()
        if held is not None:
            known = held.directory
            _replace(new, old.beside.found, held, known.indexes, (), known.file_id, places)
    except SidecarReplaced:
        old.beside.forget()
        carry_sidecar(old, new, places)
    except PathError as error:
        names = ", ".join(entry.name for entry in known.indexes)
        raise PathError(
            f"{error}. The file itself was changed: to be added beside it again are {names}"
        ) from error


def _replace(
    file: OpenedFile,
    before: Sequence[str],
    old: Holder | None,
    kept: Sequence[IndexEntry],
    built: Sequence[Built],
    file_id: str,
    places: Sidecars,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Put a sidecar of ``file`` in the place of those ``before``: of what is kept and what is new.

    One that would hold nothing is not written.
    """
    assert file.beside is not None
    parts: list[ByteRange | memoryview] = []
    entries, at = [], len(MAGIC)
    for entry in kept:
        parts.append((entry.offset, entry.length))
        entries.append(replace(entry, offset=at))
        at += entry.length
    for one in built:
        parts.append(one.section.data)
        entries.append(one.entry(at))
        at += len(one.section.data)
    with _alone(file.name, before, places):
        check()
        if entries:
            binding = binding_of(file.metadata)
            directory = Directory(file_id, binding, file.source.size, tuple(entries))
            with _new_file(file.name, places) as out:
                out.write(MAGIC)
                for part in parts:
                    if isinstance(part, tuple):
                        assert old is not None
                        copy_into(WindowSource(old.source, *part), out)
                    else:
                        out.write(part)
                out.write(encode_end(directory, file.beside.owner(file.footer), at))
        for path in before:
            check_may_write(places.filesystem, path)
            try:
                remove_file(path, places.filesystem)
            except OSError as error:
                if not entries:  # otherwise the new one counts
                    raise PathError(f"{path}: cannot be removed: {error}") from error
        places.forget(file.name)


@contextlib.contextmanager
def _alone(path: str, before: Sequence[str], places: Sidecars) -> Iterator[None]:
    """Nobody else writes the sidecar of the file at ``path`` meanwhile, where disks have locks.

    Raises ``PathError`` where the sidecars are no longer those ``before``.
    """
    local = local_path(path, places.filesystem)
    with contextlib.nullcontext() if local is None else locked(local):
        places.forget(path)
        now = [*places.paths(path)]
        places.check_listed(path)
        if now != [*before]:
            raise SidecarReplaced(
                f"{path}: another writer changed its sidecar; it was left as it is"
            )
        yield


@contextlib.contextmanager
def _new_file(path: str, places: Sidecars) -> Iterator[BinaryIO]:
    """A sidecar of the file at ``path`` to be written, which appears at the end, whole."""
    folder = places.folder_of(path)
    name = f"{kept_under(path.rpartition('/')[2])}.{secrets.token_hex(4)}.intarsia"
    try:
        make_folder(folder, places.filesystem)
        new = replacing(f"{folder}/{name}", places.filesystem, like=path)
        with new as create, create() as out:
            yield out
    except (OSError, PathError) as error:
        raise PathError(
            f"{folder}: no sidecar can be written: {error}; sidecar='another/folder' has it there"
        ) from error
