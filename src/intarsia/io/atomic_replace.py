"""Replaces files atomically: temporary files, locks, syncing.

A reader sees the old file or the new one, never a part of either.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import re
import secrets
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pyarrow.fs as pafs

import intarsia.deadline as deadline
from intarsia.errors import PathError, tell
from intarsia.io.external_sort import Workspace, on_disk
from intarsia.io.file_handle import Version, check_may_write, version_of, version_of_open
from intarsia.io.local_path import local_path
from intarsia.io.retry import retried
from intarsia.io.source import Source
from intarsia.io.storage import SIDECAR_FOLDER, FileSource, PathLike

TEMPORARY_SUFFIX = ".intarsia-tmp"
_TEMPORARY = re.compile(
    rf"\..*\.([0-9a-f]{{4}})([0-9a-f]{{4}}){re.escape(TEMPORARY_SUFFIX)}", re.DOTALL
)
_CLEANUP_INTERVAL_SECONDS = 60
"""Seconds until ``remove_leftovers`` lists a folder again, as listing takes time."""
_MAX_CLEANED_FOLDERS = 10_000
"""Folders that are remembered as cleaned. Above this number all are forgotten."""
_cleaned: dict[str, float] = {}
_WITHOUT_FOLDERS = (pafs.S3FileSystem,)
"""File systems where a folder exists once it holds an object, so none is created."""
_FOLDER_SYNC_ERRORS = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)
"""Error numbers of disks that cannot sync folders, and of folders that cannot be opened."""
_COMPARED_TAIL_BYTES = 64 * 1024
"""Bytes at the end that, with the length, identify an uploaded file."""
_COPY_BYTES = 8 * 1024 * 1024
_WRITE_BYTES = 128 * 1024
"""Bytes of one write. Larger writes take longer, as the kernel looks for contiguous memory."""


@contextlib.contextmanager
def replacing(
    path: str,
    filesystem: pafs.FileSystem,
    *,
    check: Callable[[], None] = lambda: None,
    keep_unfinished: bool = False,
    holds_rows: bool = False,
    like: str | None = None,
    is_hidden: bool = False,
) -> Iterator[Callable[[], BinaryIO]]:
    """Writes a file that replaces ``path`` atomically, or not at all.

    Yields a function that opens the temporary file for writing. When the block ends without an
    error, the file is synced and renamed over ``path``. After an error it is removed, and ``path``
    stays as it was. ``check`` runs just before the rename and may raise ``PathError`` to prevent
    it.

    With ``keep_unfinished`` a local temporary file stays after an error. ``remove_leftovers``
    removes the temporary files of killed processes, except files that hold rows found nowhere else
    (``holds_rows``). ``like`` is the path of the file that a new local file derives from. If no
    file is at ``path`` yet, the new one gets the owner and permissions of ``like``. If
    ``is_hidden``, readers ignore the folder, and a remote file is uploaded under its own name.

    Raises ``PathError`` if the file cannot be written.
    """
    local = local_path(path, filesystem)
    if local is None:
        replacement = _replacing_remote(path, filesystem, check, is_hidden=is_hidden)
    else:
        model = None if like is None else local_path(like, filesystem)
        replacement = _replacing_local(local, check, keep_unfinished, holds_rows, model)
    try:
        with replacement as create:
            yield create
    except PathError:
        raise
    except OSError as error:
        raise PathError(f"{path}: cannot be written: {error}") from error


def check_unchanged(path: str, filesystem: pafs.FileSystem, since: Version) -> None:
    """Raises ``PathError`` unless the file is the version ``since``, or storage cannot tell."""
    if since is None:
        return
    current = version_of(path, filesystem, is_sure=True)
    if current is None:
        missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        raise PathError(f"{path}: the file was deleted meanwhile; nothing was written") from missing
    if current != since:
        raise changed(path)


def changed(path: str) -> PathError:
    """Returns the error for a file that another writer replaced."""
    return PathError(f"{path}: another writer changed the file; it was left as it is")


@contextlib.contextmanager
def _replacing_local(
    path: str,
    check: Callable[[], None],
    keep_unfinished: bool,
    holds_rows: bool,
    like: str | None,
) -> Iterator[Callable[[], BinaryIO]]:
    target = Path(os.path.realpath(path))
    _check_is_file(target, path)
    remove_leftovers(target.parent)
    temporary = target.with_name(_temporary_name(target.name, holds_rows=holds_rows))
    process = os.getpid()
    model = target if like is None or target.exists() else Path(like)
    locks: list[int] = []
    try:
        opener = _opener_like(model)
        yield lambda: _open_locked(temporary, opener, locks)
        _own_as(temporary, model, warns=model == target)
        _sync(temporary)
        with locked(target):
            check()
            _remove_hadoop_checksum(target)  # first: Hadoop reads a file without a checksum
            os.replace(temporary, target)
    except BaseException as error:
        # A generator that is never resumed, as at the end of a program, leaves its file. A forked
        # child removes it, as it may have written bytes that the parent does not know of.
        is_abandoned = isinstance(error, GeneratorExit) and os.getpid() == process
        if not (keep_unfinished or is_abandoned):
            temporary.unlink(missing_ok=True)
        raise
    finally:
        for handle in locks:
            _unlock(handle, process)
    try:
        _sync(target.parent)
    except OSError as error:
        if error.errno not in _FOLDER_SYNC_ERRORS:
            message = f"{path}: was written, but may be lost if the machine crashes: {error}"
            tell(message)


def _opener_like(target: Path) -> Callable[[str, int], int]:
    """Returns an opener of new files, which only the owner may read if ``target`` exists."""
    mode = 0o600 if target.exists() else 0o666
    return lambda path, flags: os.open(path, flags, mode)


def _own_as(path: Path, target: Path, *, warns: bool) -> None:
    """Gives ``path`` the owner and permissions of ``target``, if allowed, else may warn."""
    try:
        original = os.stat(target)
    except OSError:
        return
    mode = stat.S_IMODE(original.st_mode)
    try:
        os.chown(path, original.st_uid, original.st_gid)
    except OSError:
        with contextlib.suppress(OSError):
            os.chown(path, -1, original.st_gid)
        actual = os.stat(path)
        if actual.st_gid != original.st_gid:  # the new group gets the rights of all others
            mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
        if warns and (actual.st_uid, actual.st_gid) != (original.st_uid, original.st_gid):
            tell(
                f"{target}: its owner cannot be kept: it was {original.st_uid}:{original.st_gid}, "
                f"and is {actual.st_uid}:{actual.st_gid}"
            )
    with contextlib.suppress(OSError):
        os.chmod(path, mode)


@contextlib.contextmanager
def locked(target: PathLike) -> Iterator[None]:
    """Locks a local file, so that no other process replaces it or its sidecar in this block."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # nothing to replace, or a disk without locks
            handle = os.open(target, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _open_locked(path: Path, opener: Callable[[str, int], int], locks: list[int]) -> BinaryIO:
    """Creates a temporary file and locks it, so that ``remove_leftovers`` leaves it alone."""
    while True:
        out = open(path, "xb", opener=opener)  # noqa: SIM115 # the caller closes it
        handle = os.dup(out.fileno())
        locks.append(handle)
        with contextlib.suppress(OSError):  # a disk without locks, where nothing is removed
            fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_at(path, handle):
            return out
        out.close()  # another process removed it before it was locked


def _unlock(handle: int, process: int) -> None:
    """Closes a locked file. A forked child of ``process`` must not release its parent's lock."""
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


@contextlib.contextmanager
def alive(path: str) -> Iterator[None]:
    """Creates a local file that shows other processes that this one lives, while the block runs.

    The file is locked, so the system releases it even if the process is killed. ``claimed_if_dead``
    looks for that. Raises ``OSError`` if the file cannot be created.
    """
    process, locks = os.getpid(), list[int]()
    try:
        _open_locked(Path(path), _opener_like(Path(path)), locks).close()
        yield
    finally:
        if os.getpid() == process:
            Path(path).unlink(missing_ok=True)
        for handle in locks:
            _unlock(handle, process)


@contextlib.contextmanager
def claimed_if_dead(path: str) -> Iterator[bool]:
    """Locks a local file if no process has it locked, and removes it when the block has ended.

    Yields True if it is locked now. Yields False, and the file stays, if another process lives, and
    if the file is not a regular file of this process's user.
    """
    with contextlib.ExitStack() as stack:
        is_dead = False
        with contextlib.suppress(OSError):
            before = os.lstat(path)
            if stat.S_ISREG(before.st_mode) and before.st_uid == os.geteuid():
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                stack.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_dead = _is_at(path, handle)
        yield is_dead
        if is_dead:
            os.unlink(path)


def _is_at(path: PathLike, handle: int) -> bool:
    """True if the open file is still the one at ``path``."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def remove_leftovers(folder: PathLike) -> list[str]:
    """Removes temporary files that killed processes have left in a local folder.

    Returns their paths. A file is removed if all of these hold:

    - Its name says that it was made from other files, so that no row is lost.
    - It is a regular file that belongs to this process's user.
    - No process has it locked. The writer locks it until it ends, and the system releases the lock
      even if the writer is killed.

    A folder that was cleaned within the last 60 seconds is not listed again.
    """
    folder_path, now = os.path.abspath(folder), time.monotonic()
    if now - _cleaned.get(folder_path, -math.inf) < _CLEANUP_INTERVAL_SECONDS:
        return []
    if len(_cleaned) >= _MAX_CLEANED_FOLDERS:
        _cleaned.clear()
    _cleaned[folder_path] = now
    removed = []
    with contextlib.suppress(OSError):  # no such folder, or no permission to list it
        with os.scandir(folder_path) as entries:
            leftovers = [entry.path for entry in entries if _is_made_from_other_files(entry.name)]
        removed = [path for path in leftovers if _remove_if_dead(path)]
    return removed


def remove_leftovers_of(files: Iterable[str], filesystem: pafs.FileSystem) -> None:
    """Removes temporary files of killed processes beside local ``files`` and their sidecars."""
    local_paths = (local_path(file, filesystem) for file in files)
    for folder in {
        os.path.dirname(os.path.realpath(path)) for path in local_paths if path is not None
    }:
        remove_leftovers(folder)
        remove_leftovers(os.path.join(folder, SIDECAR_FOLDER))


@contextlib.contextmanager
def spared(path: str | None) -> Iterator[None]:
    """Protects a local file from ``remove_leftovers`` while the block runs."""
    with contextlib.ExitStack() as stack:
        if path is not None:
            with contextlib.suppress(OSError):
                handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                stack.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


def _remove_if_dead(path: str) -> bool:
    """Removes a file that no process has locked. Returns True if it was removed."""
    with contextlib.suppress(OSError):
        with claimed_if_dead(path) as is_dead:
            pass
        return is_dead
    return False


def _temporary_name(name: str, *, holds_rows: bool = False) -> str:
    """Returns a hidden name. Its last 4 digits check the others unless it ``holds_rows``."""
    start = os.fsencode(name)[:60].decode(errors="ignore")
    digits = secrets.token_hex(2)
    end = _checksum(digits)
    while holds_rows and end == _checksum(digits):
        end = secrets.token_hex(2)
    return f".{start}.{digits}{end}{TEMPORARY_SUFFIX}"


def _is_made_from_other_files(name: str) -> bool:
    """True if a name is that of a temporary file whose rows are in other files as well."""
    match = _TEMPORARY.fullmatch(name)
    return match is not None and _checksum(match[1]) == match[2]


def _checksum(digits: str) -> str:
    return f"{zlib.crc32(digits.encode()) & 0xFFFF:04x}"


def copied_by_system(path: str, version: Version, out: BinaryIO, length: int) -> int:
    """Lets the system copy or share ``length`` bytes of a file. Returns how many it copied."""
    copied = 0
    with contextlib.suppress(OSError, AttributeError), open(path, "rb") as old:
        while copied < length and version_of_open(old.fileno()) == version:
            step = os.copy_file_range(old.fileno(), out.fileno(), length - copied, copied, copied)
            if not step:
                break
            copied += step
    out.seek(copied)
    return copied


def copy_into(source: Source, out: BinaryIO) -> None:
    """Appends all bytes of ``source`` to ``out``, reading ``_COPY_BYTES`` at a time."""
    for offset in range(0, source.size, _COPY_BYTES):
        write_into(out, source.read([(offset, min(_COPY_BYTES, source.size - offset))])[0])


def write_into(out: BinaryIO, data: memoryview) -> None:
    """Appends ``data`` to ``out`` in small writes, which take a third of the processor time."""
    for start in range(0, data.nbytes, _WRITE_BYTES):
        out.write(data[start : start + _WRITE_BYTES])


@contextlib.contextmanager
def _replacing_remote(
    path: str, filesystem: pafs.FileSystem, check: Callable[[], None], *, is_hidden: bool
) -> Iterator[Callable[[], BinaryIO]]:
    """Replaces a remote file: uploads a temporary file from ``TMPDIR``, then moves it."""
    check_may_write(filesystem, path)
    parent, _, name = path.rpartition("/")
    temporary = path if is_hidden else f"{parent}/{_temporary_name(name)}"
    with Workspace() as work:
        with on_disk():
            local = str(work.new_path())
        yield lambda: open(local, "wb")  # noqa: SIM115 # the caller closes it
        make_folder(parent, filesystem)
        with contextlib.closing(FileSource(pafs.LocalFileSystem(), local)) as source:
            try:
                upload(source, temporary, filesystem)
                if not is_hidden:
                    _move(source, temporary, path, filesystem, check)
            except BaseException:
                with deadline.active(None), contextlib.suppress(OSError):
                    remove_file(temporary, filesystem)
                raise


def upload(source: Source, path: str, filesystem: pafs.FileSystem) -> None:
    """Writes all bytes of ``source`` to a file on any storage, retrying. Raises ``OSError``.

    The stream has a buffer, since only then pyarrow passes ``bytes``, which deltalake demands.
    """

    def request() -> None:
        out = filesystem.open_output_stream(path, buffer_size=_WRITE_BYTES)
        try:
            copy_into(source, out)
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is reported
                out.close()
            raise
        out.close()

    retried(filesystem, request, is_write=True)


def remove_file(path: str, filesystem: pafs.FileSystem) -> None:
    """Deletes a file if it exists. Raises ``OSError``."""

    def request() -> None:
        with contextlib.suppress(FileNotFoundError):
            _with_file(filesystem.delete_file, path, filesystem)

    retried(filesystem, request, is_write=True)


def _move(
    source: Source,
    temporary: str,
    path: str,
    filesystem: pafs.FileSystem,
    check: Callable[[], None],
) -> None:
    """Moves an upload to ``path``, unless ``check`` raises. A failed try may have succeeded."""
    tries = 0

    def request() -> None:
        nonlocal tries
        tries += 1
        if tries > 1 and filesystem.get_file_info(temporary).type == pafs.FileType.NotFound:
            return
        try:
            check()
        except PathError:
            if tries == 1 or not _is_at_path(source, path, filesystem):
                raise
            with contextlib.suppress(FileNotFoundError):
                _with_file(filesystem.delete_file, temporary, filesystem)
            return
        _with_file(lambda at: filesystem.move(at, path), temporary, filesystem)

    retried(filesystem, request, is_write=True)


def _with_file(request: Callable[[str], object], path: str, filesystem: pafs.FileSystem) -> None:
    """Makes a request about a file. fsspec takes any error for absence, so that is checked."""
    try:
        request(path)
    except FileNotFoundError:
        if filesystem.get_file_info(path).type == pafs.FileType.NotFound:
            raise
        raise ConnectionError(f"{path}: the file is there, and was not found") from None


def _is_at_path(source: Source, path: str, filesystem: pafs.FileSystem) -> bool:
    """True if the remote file at ``path`` has the length and the last bytes of ``source``."""
    start = max(source.size - _COMPARED_TAIL_BYTES, 0)
    end = [(start, source.size - start)]
    with contextlib.closing(FileSource(filesystem, path)) as there:
        return there.size == source.size and there.read(end) == source.read(end)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: str, filesystem: pafs.FileSystem) -> None:
    """Creates a folder, if needed, for a file that is written next. Raises ``OSError``."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        os.makedirs(folder, exist_ok=True)
    elif not isinstance(filesystem, _WITHOUT_FOLDERS):
        create = partial(filesystem.create_dir, folder, recursive=True)
        retried(filesystem, create, is_write=True)


def check_place(path: str) -> None:
    """Raises ``PathError`` if no local file can be written at ``path``."""
    place = Path(path)
    try:
        if not place.parent.is_dir():
            raise PathError(f"{place.parent}: there is no such folder to write to")
        if place.is_dir():
            raise PathError(f"{path}: there is a folder where the file is to be")
        _check_is_file(place, path)
    except PathError:
        raise
    except OSError as error:
        raise PathError(f"{path}: cannot be written: {error}") from error


def _check_is_file(place: Path, path: str) -> None:
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise PathError(f"{path}: it is a device or a pipe, which cannot be replaced by a file")


def sync_folder(path: str) -> None:
    """Syncs the folder of a local file, so that its name survives a crash of the machine."""
    _sync(Path(path).absolute().parent)


def _remove_hadoop_checksum(path: Path) -> None:
    """Removes ``.name.crc``: Hadoop refuses a file whose checksum is stale."""
    try:
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # a name too long for a checksum file
            raise
