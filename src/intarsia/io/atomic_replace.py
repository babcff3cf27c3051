"""Files that take another's place at once or not at all: temporary files, locks, and syncing."""

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

from intarsia import deadline
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
_CLEANED_SECONDS = 60
"""Seconds before a folder is looked at for leftovers again: listing it takes time."""
_CLEANED_FOLDERS = 10_000
"""Folders that are remembered to have been looked at."""
_cleaned: dict[str, float] = {}
_WITHOUT_FOLDERS = (pafs.S3FileSystem,)
"""What a folder is not made in before it holds something."""
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)
"""What disks that cannot sync folders say, or those whose folders cannot be opened."""
_END_BYTES = 64 * 1024
"""By these last bytes, and its length, an uploaded file is recognized."""
_WRITTEN_BYTES = 128 * 1024
"""Larger pieces take the system longer, which looks for as much room in one place for them."""


@contextlib.contextmanager
def replacing(
    path: str,
    filesystem: pafs.FileSystem,
    *,
    check: Callable[[], None] = lambda: None,
    keep_unfinished: bool = False,
    holds_rows: bool = False,
    like: str | None = None,
) -> Iterator[Callable[[], BinaryIO]]:
    """Write a file that takes the place of ``path`` at once, or not at all.

    Yields a function that opens the temporary file for writing. When the block ends without an
    error the file is synced and renamed over ``path``; otherwise it is removed and ``path`` is
    untouched, as it is where ``check``, which is called just before, raises ``PathError``. With
    ``keep_unfinished`` a local temporary file is left where it is after an error. What a process
    that was killed has left is removed by ``remove_leftovers``, unless it ``holds_rows`` that are
    nowhere else. A new local file that is made of another one, ``like``, is read by nobody who
    could not read that. Raises ``PathError`` where the file cannot be written.
    """
    local = local_path(path, filesystem)
    if local is None:
        replaced = _replacing_remote(path, filesystem, check)
    else:
        model = None if like is None else local_path(like, filesystem)
        replaced = _replacing_local(local, check, keep_unfinished, holds_rows, model)
    try:
        with replaced as create:
            yield create
    except PathError:
        raise
    except OSError as error:
        raise PathError(f"{path}: cannot be written: {error}") from error


def check_unchanged(path: str, filesystem: pafs.FileSystem, since: Version) -> None:
    """Raise ``PathError`` where the file at ``path`` is another one than ``since``, if known.

    And where storage does not say which it is.
    """
    if since not in (None, version_of(path, filesystem, is_sure=True)):
        raise changed(path)


def changed(path: str) -> PathError:
    """The error for a file that is not the one that was to be replaced."""
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
        _own_as(temporary, model, is_told=model == target)
        _sync(temporary)
        with locked(target):
            check()
            _forget_hadoop_checksum(target)  # before: a file without one is read as it is
            os.replace(temporary, target)
    except BaseException as error:
        # A writer that is forgotten, as at the end of a program, leaves what it wrote; in a process
        # that was forked, it has written there what the other one does not know of.
        is_forgotten = isinstance(error, GeneratorExit) and os.getpid() == process
        if not (keep_unfinished or is_forgotten):
            temporary.unlink(missing_ok=True)
        raise
    finally:
        for handle in locks:
            if os.getpid() == process:  # a forked process shares the lock, and has no part in it
                with contextlib.suppress(OSError):
                    fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)
    try:
        _sync(target.parent)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            message = f"{path}: was written, and may not outlive a crash of the machine: {error}"
            tell(message)


def _opener_like(target: Path) -> Callable[[str, int], int]:
    """Opens files that nobody can read who could not read ``target``, where there is one."""
    mode = 0o600 if target.exists() else 0o666
    return lambda path, flags: os.open(path, flags, mode)


def _own_as(path: Path, target: Path, *, is_told: bool) -> None:
    """Give ``path`` owner and permissions of ``target``, where there is one, as far as allowed.

    Of an owner that is not kept a warning says so, where that ``is_told``.
    """
    try:
        found = os.stat(target)
    except OSError:
        return
    mode = stat.S_IMODE(found.st_mode)
    try:
        os.chown(path, found.st_uid, found.st_gid)
    except OSError:
        with contextlib.suppress(OSError):
            os.chown(path, -1, found.st_gid)
        now = os.stat(path)
        if now.st_gid != found.st_gid:  # another group has no more rights than all others
            mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
        if is_told and (now.st_uid, now.st_gid) != (found.st_uid, found.st_gid):
            tell(
                f"{target}: its owner cannot be kept: it was {found.st_uid}:{found.st_gid}, and is "
                f"{now.st_uid}:{now.st_gid}"
            )
    with contextlib.suppress(OSError):
        os.chmod(path, mode)


@contextlib.contextmanager
def locked(target: PathLike) -> Iterator[None]:
    """Keep others that replace a local file, or its sidecar, from doing so meanwhile.

    The file itself is locked: who waited for it finds another one in its place.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # nothing to replace, or a disk without locks
            handle = os.open(target, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait
            held.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _open_locked(path: Path, opener: Callable[[str, int], int], locks: list[int]) -> BinaryIO:
    """Creates a temporary file, and locks it until the last of ``locks`` is closed.

    The lock says that the process is alive: ``remove_leftovers`` in another one looks for it.
    """
    while True:
        out = open(path, "xb", opener=opener)  # noqa: SIM115 # the caller closes it
        handle = os.dup(out.fileno())
        locks.append(handle)
        with contextlib.suppress(OSError):  # a disk without locks: nobody can remove it either
            fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_at(path, handle):
            return out
        out.close()  # it was removed between its creation and the lock


def _is_at(path: PathLike, handle: int) -> bool:
    """True if the file that is open is the one at ``path``."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def remove_leftovers(folder: PathLike) -> list[str]:
    """Removes temporary files that killed processes have left in a local folder.

    Returns their paths. A file is removed if all of these hold:

    - its name says that it was made of other files, so that no row is lost;
    - it is a regular file that belongs to this process's user;
    - no process has it locked, as the one that writes it does until it ends. The system lets go of
      the lock when that process ends, however it ends.

    A folder that was looked at within the last minute is not looked at again.
    """
    place, now = os.path.abspath(folder), time.monotonic()
    if now - _cleaned.get(place, -math.inf) < _CLEANED_SECONDS:
        return []
    if len(_cleaned) >= _CLEANED_FOLDERS:
        _cleaned.clear()
    _cleaned[place] = now
    removed = []
    with contextlib.suppress(OSError):  # nothing to look at, or nothing that may be looked at
        with os.scandir(place) as entries:
            found = [entry.path for entry in entries if _is_remade(entry.name)]
        removed = [path for path in found if _remove_if_dead(path)]
    return removed


def remove_leftovers_of(files: Iterable[str], filesystem: pafs.FileSystem) -> None:
    """Removes what killed processes have left beside local ``files``, and beside their sidecars."""
    found = (local_path(file, filesystem) for file in files)
    for folder in {os.path.dirname(os.path.realpath(path)) for path in found if path is not None}:
        remove_leftovers(folder)
        remove_leftovers(os.path.join(folder, SIDECAR_FOLDER))


@contextlib.contextmanager
def spared(path: str | None) -> Iterator[None]:
    """Keeps a local file, which may be a leftover, from being removed meanwhile."""
    with contextlib.ExitStack() as held:
        if path is not None:
            with contextlib.suppress(OSError):
                handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                held.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


def _remove_if_dead(path: str) -> bool:
    """Removes a file that nobody has locked. Returns False if it is there still."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as held:
        before = os.lstat(path)
        if not stat.S_ISREG(before.st_mode) or before.st_uid != os.geteuid():
            return False
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        held.callback(os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, handle):
            os.unlink(path)
            return True
    return False


def _temporary_name(name: str, *, holds_rows: bool = False) -> str:
    """A name that readers ignore, near enough to ``name`` for a person to tell what it was for.

    Unless the file ``holds_rows``, the last four of the eight digits are a checksum of the others.
    """
    start = os.fsencode(name)[:60].decode(errors="ignore")
    digits = secrets.token_hex(2)
    end = _checksum(digits)
    while holds_rows and end == _checksum(digits):
        end = secrets.token_hex(2)
    return f".{start}.{digits}{end}{TEMPORARY_SUFFIX}"


def _is_remade(name: str) -> bool:
    """True if a file's name says that it is temporary, and made of other files."""
    found = _TEMPORARY.fullmatch(name)
    return found is not None and _checksum(found[1]) == found[2]


def _checksum(digits: str) -> str:
    return f"{zlib.crc32(digits.encode()) & 0xFFFF:04x}"


def copied_by_system(path: str, version: Version, out: BinaryIO, length: int) -> int:
    """Have the system begin the empty file ``out`` with the first ``length`` bytes of another.

    Disks that can let both files share them. Gives how many it copied: fewer, or none, where it
    cannot, or the file at ``path``, of a local disk, is not that ``version``.
    """
    copied = 0
    with contextlib.suppress(OSError, AttributeError), open(path, "rb") as old:
        while copied < length and version_of_open(old.fileno()) == version:
            step = os.copy_file_range(old.fileno(), out.fileno(), length - copied, copied, copied)
            if not step:
                break
            copied += step
    out.seek(copied)
    return copied


def copy_into(source: Source, out: BinaryIO, block: int = 8 * 1024 * 1024) -> None:
    """Append all bytes of ``source`` to ``out``, ``block`` bytes at a time."""
    for offset in range(0, source.size, block):
        write_into(out, source.read([(offset, min(block, source.size - offset))])[0])


def write_into(out: BinaryIO, data: memoryview) -> None:
    """Append ``data`` to ``out`` in small pieces, a third of the processor's time of large ones."""
    for start in range(0, data.nbytes, _WRITTEN_BYTES):
        out.write(data[start : start + _WRITTEN_BYTES])


@contextlib.contextmanager
def _replacing_remote(
    path: str, filesystem: pafs.FileSystem, check: Callable[[], None]
) -> Iterator[Callable[[], BinaryIO]]:
    """As ``_replacing_local``. A temporary file in ``TMPDIR`` is uploaded and then moved."""
    check_may_write(filesystem, path)
    parent, _, name = path.rpartition("/")
    temporary = f"{parent}/{_temporary_name(name)}"
    with Workspace() as work:
        with on_disk():
            local = str(work.new_path())
        yield lambda: open(local, "wb")  # noqa: SIM115 # the caller closes it
        make_folder(parent, filesystem)
        with contextlib.closing(FileSource(pafs.LocalFileSystem(), local)) as source:
            try:
                upload(source, temporary, filesystem)
                _move(source, temporary, path, filesystem, check)
            except BaseException:
                with deadline.active(None), contextlib.suppress(OSError):
                    remove_file(temporary, filesystem)
                raise


def upload(source: Source, path: str, filesystem: pafs.FileSystem) -> None:
    """Write all bytes of ``source`` to a file on any storage. Raises ``OSError``.

    On remote storage an upload that fails for a moment is begun anew.
    """

    def request() -> None:
        out = filesystem.open_output_stream(path)
        try:
            copy_into(source, out)
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one to tell
                out.close()
            raise
        out.close()

    retried(filesystem, request, is_write=True)


def remove_file(path: str, filesystem: pafs.FileSystem) -> None:
    """Delete a file, if it is there. Raises ``OSError``."""

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
    """Move an upload of ``source`` to ``path``, unless ``check`` raises ``PathError``.

    A move that failed may have been made all the same, or copied the file and not removed it.
    """
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
    """Make a request about a file. Raises ``FileNotFoundError`` only if the file is not there.

    fsspec looks for files first, and takes any error for an answer.
    """
    try:
        request(path)
    except FileNotFoundError:
        if filesystem.get_file_info(path).type == pafs.FileType.NotFound:
            raise
        raise ConnectionError(f"{path}: the file is there, and was not found") from None


def _is_at_path(source: Source, path: str, filesystem: pafs.FileSystem) -> bool:
    """True if the remote file at ``path`` has the length of ``source`` and ends as it does."""
    start = max(source.size - _END_BYTES, 0)
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
    """Have a folder be there for a file that is to be written. Raises ``OSError``."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        os.makedirs(folder, exist_ok=True)
    elif not isinstance(filesystem, _WITHOUT_FOLDERS):
        create = partial(filesystem.create_dir, folder, recursive=True)
        retried(filesystem, create, is_write=True)


def check_place(path: str) -> None:
    """Raise ``PathError`` where no local file can be at ``path``."""
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
        raise PathError(f"{path}: it is a device or a pipe, which no file can take the place of")


def sync_folder(path: str) -> None:
    """Have the name of a local file survive what becomes of the machine."""
    _sync(Path(path).absolute().parent)


def _forget_hadoop_checksum(path: Path) -> None:
    """Hadoop keeps ``.name.crc`` beside a local file, and refuses the file when it is stale."""
    try:
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # then there is none
            raise
