"""Publishing the files of a job: readers see all of them or none, and old rows or new ones.

::

    _temporary-<job>/…       files as tasks write them; readers ignore the folder
    _temporary-<job>/_keep   exists if unfinished files of the job can give rows back
    _lock-<job>              locked as long as the job's process lives, on a local disk
    _commit-<job>.json       the commit log, while files are published and old ones removed
    _commit-<job>-<n>.json   the commit log of a job's nth further commit
    _SUCCESS                 touched at the end of a commit
    _stream-<query>.json     the last batch that a streaming query has written

The commit log names the files to publish, the files to remove, and its phase. In the phase
``publishing``, the new files do not count. The phase ``published`` is the commit: from then on the
old files do not count. Intarsia's readers obey the log (``dataset.commit_log``), so they see
either the old or the new files, even if a driver died halfway. Other readers see both until
``recover`` or the next write finishes the commit. If the lock shows that the process has died, the
next write also undoes a commit that was not published, and removes the job's folder.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from intarsia.commit.storage import Place
from intarsia.dataset.commit_log import (
    ENTRY_PREFIX,
    PUBLISHED,
    PUBLISHING,
    SUCCESS,
    CommitEntry,
    StreamBatch,
    dataset_root,
    listed_with_commits,
    unfinished_commits,
)
from intarsia.errors import FormatError, PathError, warn
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.io.atomic_replace import alive, claimed_if_dead
from intarsia.io.retry import infos_of
from intarsia.io.storage import PathLike

TEMPORARY = "_temporary-"
"""The prefix of the folders in which jobs write."""
_MAX_LISTINGS = 20
"""Attempts at listing the files that an overwrite removes, while other writers change them."""
LOCK = "_lock-"
"""The prefix of the files that are locked as long as the process of a job lives."""
KEEP = "_keep"
"""The file that marks a job's folder for ``recover`` to keep."""


def has_data(place: Place) -> bool:
    """True if the data set has a file that counts."""
    files, under_way = listed_with_commits(place.filesystem, place.root, place.data_files)
    return not {file for entry in under_way for file in entry.hidden}.issuperset(files)


def replaced_in(place: Place, folders: Sequence[str]) -> list[str]:
    """Returns the files in ``folders`` that an overwrite removes, in the order of removal.

    There may be files that another commit is publishing. If its first file has been moved already,
    all its files are removed, the first one first. The other commit checks at its end whether all
    its files exist. Either that check came first and the commit succeeded, or it misses the file
    and publishes none. If its first file has not been moved, all its files stay, and that commit
    comes after the overwrite.
    """

    def listing() -> list[str]:
        return [file for folder in folders for file in place.data_files(folder)]

    if not folders:
        return []
    files, under_way = listed_with_commits(place.filesystem, place.root, listing)
    files_of_others, started = set[str](), list[str]()
    for entry in under_way:
        if entry.phase == PUBLISHING:
            group = [file for file in entry.publish if is_in(folders, file)]
            files_of_others |= set(group)
            started += [] if _has_unmoved(place, entry, group[:1]) else group
    return [*started, *(file for file in files if file not in files_of_others)]


def is_in(folders: Sequence[str], file: str) -> bool:
    """True if a file is in one of the folders, or below."""
    return any(PurePosixPath(file).is_relative_to(folder) for folder in folders)


def _has_unmoved(place: Place, entry: CommitEntry, files: Sequence[str]) -> bool:
    """True if one of a commit's files is still in the job's folder."""
    return any(is_there(place, f"{TEMPORARY}{entry.job}/{file}") for file in files)


def publish(
    place: Place,
    job: str,
    files: Sequence[str],
    remove: Sequence[str] = (),
    *,
    overwrites: Sequence[str] = (),
    stream: StreamBatch | None = None,
    number: int = 0,
    check: Callable[[], None] | None = None,
) -> None:
    """Moves ``files`` out of the job's folder, then removes the files that they replace.

    Replaced are the files in ``remove`` and all files in the folders ``overwrites``. A job with
    several commits gives each a ``number``. ``check`` is called just before the commit. If
    ``check`` raises, or a file cannot be moved, no new file stays and the old ones do. Raises
    ``PathError``, or the error of ``check``.
    """

    def removed() -> tuple[str, ...]:
        return (*remove, *replaced_in(place, overwrites))

    entry = CommitEntry(job, PUBLISHING, tuple(files), removed(), stream, number)
    is_simple = len(files) < 2 and not entry.remove and stream is None
    made_folders: list[str] = []
    try:
        if not is_simple:
            entry = _write_log(place, entry, removed)
        for folder in sorted(set(map(_folder_of, files))):
            made_folders = [*place.make(folder), *made_folders]
        for file in files:
            try:
                place.move(f"{TEMPORARY}{job}/{file}", file)
            except FileNotFoundError:  # another commit removed the folder while it was empty
                made_folders = [*place.make(_folder_of(file)), *made_folders]
                place.move(f"{TEMPORARY}{job}/{file}", file)
        if check is not None:
            check()
        if not is_simple:
            _check_moved(place, files)
    except BaseException as error:
        _roll_back(place, entry, made_folders)
        raise _as_path_error(place, error) from error
    if not is_simple:
        entry = _mark_published(place, entry, made_folders)
    try:
        _finish(place, entry)
    except OSError as error:
        raise PathError(
            f"{place.root}: the new files are published, but the clean-up failed; "
            f"recover() finishes it: {error}"
        ) from error


def _roll_back(place: Place, entry: CommitEntry, made_folders: Sequence[str]) -> None:
    """Undoes what it can. While the commit log exists, its files do not count."""
    with contextlib.suppress(OSError):
        _undo(place, entry)
        place.remove_empty(made_folders)


def _mark_published(place: Place, entry: CommitEntry, made_folders: Sequence[str]) -> CommitEntry:
    """Writes the phase ``published`` into the commit log; returns the new log.

    An error or an interrupt can come although the log was written. The commit is undone only if the
    log surely was not.
    """
    published = replace(entry, phase=PUBLISHED)
    try:
        place.write_text(published.name, published.encode())
    except BaseException as error:
        if _is_surely_unpublished(place, entry):
            _roll_back(place, entry, made_folders)
            raise _as_path_error(place, error) from error
        if not isinstance(error, OSError):
            raise
        message = f"the new files may be published; recover() finishes or undoes it: {error}"
        raise PathError(f"{place.root}: {message}") from error
    return published


def _is_surely_unpublished(place: Place, entry: CommitEntry) -> bool:
    """True if the commit log can be read and its files do not count yet."""
    try:
        text = place.read_text(entry.name)
        return text is not None and CommitEntry.decode(text).phase == PUBLISHING
    except (OSError, FormatError):
        return False


def _folder_of(file: str) -> str:
    folder = str(PurePosixPath(file).parent)
    return "" if folder == "." else folder


def _write_log(
    place: Place, entry: CommitEntry, removed: Callable[[], tuple[str, ...]]
) -> CommitEntry:
    """Writes the commit log and returns it in its final state.

    The files to remove are listed again once the log exists. A writer that replaces some of these
    files has either done so by then, or sees in the log that they will be removed.
    """
    for _ in range(_MAX_LISTINGS):
        place.write_text(entry.name, entry.encode())
        files = removed()
        if set(files) == set(entry.remove):
            return entry
        entry = replace(entry, remove=files)
    raise PathError(f"{place.root}: its files change too often to be replaced; nothing was written")


def _check_moved(place: Place, files: Sequence[str]) -> None:
    """Raises ``PathError`` if another writer, who overwrites the data set, removed a file."""
    infos = infos_of(place.filesystem, [place.path(file) for file in files])
    for file, info in zip(files, infos, strict=True):
        if info.type != pafs.FileType.File:
            raise PathError(
                f"{place.root}: another write removed {file} before all files were in place; "
                "nothing was written"
            )


def _as_path_error(place: Place, error: BaseException) -> BaseException:
    if isinstance(error, OSError) and not isinstance(error, PathError):
        return PathError(f"{place.root}: cannot be written to: {error}")
    return error


def _undo(place: Place, entry: CommitEntry) -> None:
    folder = f"{TEMPORARY}{entry.job}"
    is_job_kept = is_kept(place, folder)
    for file in entry.publish:
        if is_job_kept:
            with contextlib.suppress(FileNotFoundError):
                place.move(file, f"{folder}/{file}")
        else:
            place.remove(file)
    _remove_empty_folders(place, entry.publish)
    with contextlib.suppress(OSError):  # a reader that listed files meanwhile notices the change
        if place.read_text(SUCCESS) is not None:
            place.write_text(SUCCESS, "")
    place.remove(entry.name)


def keep_job(place: Place, job: str) -> None:
    """Marks the job's folder for ``recover`` to keep."""
    place.write_text(f"{TEMPORARY}{job}/{KEEP}", "")


def is_kept(place: Place, folder: str) -> bool:
    """True if ``recover`` must keep a job's folder, as it may hold rows."""
    return place.is_shared_disk and place.read_text(f"{folder}/{KEEP}") is not None


def _finish(place: Place, entry: CommitEntry) -> None:
    """Does what follows the commit: removes old files and the log. May be done twice.

    Raises ``PathError`` if an old file cannot be removed. The commit log and that file then stay.
    """
    if entry.stream is not None and not is_done(place, entry.stream):
        place.write_text(_stream_file(entry.stream.query), json.dumps(asdict(entry.stream)))
    failures: list[PathError] = []
    sidecars = _sidecars_of(place, entry.remove)
    for file in entry.remove:
        try:
            place.remove(file)
        except OSError as error:
            failures.append(PathError(f"{place.path(file)}: cannot be removed: {error}"))
    for sidecar in sidecars:
        with contextlib.suppress(OSError):  # nobody reads a sidecar without its file
            place.remove(sidecar)
    _remove_empty_folders(place, [*entry.remove, *sidecars])
    if failures:
        raise failures[0]
    for other in commit_entries(place) if entry.remove else ():
        is_replaced = other.phase == PUBLISHING and set(other.publish) <= set(entry.remove)
        if is_replaced and not _has_unmoved(place, other, other.publish):
            place.remove(other.name)  # The writer has died, and its files are all removed.
    # Touched before the log is removed, so that a reader of the old state notices the change.
    place.write_text(SUCCESS, "")
    place.remove(entry.name)


def _sidecars_of(place: Place, files: Sequence[str]) -> list[str]:
    places = Sidecars(place.filesystem)
    paths = [place.path(file) for file in files]
    for path in paths:
        places.expect(path)
    sidecars = (sidecar for path in paths for sidecar in places.paths(path))
    return [sidecar.removeprefix(f"{place.root}/") for sidecar in sidecars]


def _remove_empty_folders(place: Place, files: Sequence[str]) -> None:
    """Removes the folders of removed files, if nothing else is in them."""
    folders = {str(parent) for file in files for parent in PurePosixPath(file).parents}
    for folder in sorted(folders - {"."}, key=lambda folder: -folder.count("/")):
        place.remove_empty([place.path(folder)])


def end(place: Place, entry: CommitEntry) -> None:
    """Finishes an interrupted commit, or undoes it if its files do not count yet."""
    (_finish if entry.phase == PUBLISHED else _undo)(place, entry)


def end_job(place: Place, job: str) -> None:
    """Finishes or undoes the commits of a job whose driver has ended."""
    for entry in commit_entries(place):
        if entry.job == job:
            end(place, entry)


def commit_entries(place: Place) -> list[CommitEntry]:
    """Returns the logs of commits that are under way or were interrupted."""
    return unfinished_commits(place.filesystem, place.root)


def root_of(path: PathLike, filesystem: Any = None) -> Place:
    """Returns the data set's folder for a path, which may be a file or a Hive folder in it."""
    place = Place.of(path, filesystem)
    is_folder = place.kind() == pafs.FileType.Directory
    return replace(place, root=dataset_root(place.root, is_folder=is_folder))


def running(place: Place, job: str) -> contextlib.AbstractContextManager[None]:
    """Shows other processes that the job's process lives while the block runs.

    On remote storage nothing can show that.
    """
    return alive(place.path(LOCK + job)) if place.is_shared_disk else contextlib.nullcontext()


def _end_dead_jobs(place: Place) -> None:
    """Finishes or undoes the commits of local jobs whose process was killed.

    The folders of these jobs are removed, unless they are marked to be kept.
    """
    for name in place.names(LOCK) if place.is_shared_disk else ():
        with contextlib.suppress(OSError), claimed_if_dead(place.path(name)) as is_dead:
            if is_dead:  # and its commit log is read only now, as it was alive before
                job = name.removeprefix(LOCK)
                end_job(place, job)
                for half_written in place.names(f".{ENTRY_PREFIX}{job}"):
                    place.remove(half_written)
                if not is_kept(place, TEMPORARY + job):
                    place.remove_tree(TEMPORARY + job)


def settle(place: Place) -> None:
    """Finishes or undoes what killed processes left, and finishes removals of other writers.

    Warns of half-published commits whose process may live, and of old files that cannot be removed
    but do not count.
    """
    _end_dead_jobs(place)
    for entry in commit_entries(place):
        if entry.phase == PUBLISHED:
            try:
                _finish(place, entry)
            except OSError as error:
                warn(
                    f"{place.root}: files that another write replaced are still there, but do not "
                    f"count ({entry.name}); recover() removes them: {error}",
                )
        else:
            warn(
                f"{place.root}: another write is under way, or was interrupted ({entry.name}): "
                "its files do not count; if it was interrupted, recover() removes them",
            )


def is_there(place: Place, name: str) -> bool:
    """True if a file of that name exists."""
    return bool(infos_of(place.filesystem, place.path(name)).type == pafs.FileType.File)


# --- streaming ----------------------------------------------------------------------------------


def _stream_file(query: str) -> str:
    return f"_stream-{query}.json"


def is_done(place: Place, batch: StreamBatch) -> bool:
    """True if a batch has been published already."""
    text = place.read_text(_stream_file(batch.query))
    last = -1 if text is None else int(json.loads(text)["batch"])
    return last >= batch.batch


def publish_batch(
    place: Place, job: str, files: Sequence[str], overwrites: Sequence[str], batch: StreamBatch
) -> None:
    """Publishes the files of a batch unless it has been, and removes what a dead driver left."""
    for entry in commit_entries(place):
        if entry.stream is not None and entry.stream.query == batch.query:
            end(place, entry)
    if not is_done(place, batch):
        publish(place, job, files, overwrites=overwrites, stream=batch)
    for name in place.names(f"{TEMPORARY}{batch.query}-"):
        place.remove_tree(name)
    for name in place.names(f".{ENTRY_PREFIX}{batch.query}-"):  # half-written entries
        place.remove(name)
