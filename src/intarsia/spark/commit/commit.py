"""Publishing the files of a job: readers see all of them or none, and old rows or new ones.

::

    _temporary-<job>/…       files as tasks write them; readers ignore the folder
    _temporary-<job>/_keep   there, where rows of the job can be got back from unfinished files
    _commit-<job>.json       the journal, while files are published and old ones removed
    _commit-<job>-<n>.json   the journal of a job's nth further commit
    _SUCCESS                 touched when that is done
    _stream-<query>.json     the last batch that a streaming query has written

The journal names the files to publish and those to remove, and its phase. While that is
``publishing``, the new files do not count; from ``published`` on, which is the commit, the old ones
do not. Readers here go by that (``data.journal``), so that they see the one or the other even where
a driver died in the middle; other readers see both sorts of rows until ``recover``, or the next
write, has finished what was begun.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from intarsia.dataset.commit_journal import (
    JOURNAL,
    PUBLISHED,
    PUBLISHING,
    SUCCESS,
    Journal,
    StreamBatch,
    journals_at,
    listed_with_commits,
    root_at,
)
from intarsia.errors import FormatError, PathError, warn
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.io.storage import PathLike
from intarsia.spark.commit.storage import Place

TEMPORARY = "_temporary-"
_LOOKS = 20
"""For the files that an overwrite is to remove."""
KEEP = "_keep"
"""A file in the folders of jobs that ``recover`` leaves."""


def has_data(place: Place) -> bool:
    """Is there a file that counts?"""
    files, under_way = listed_with_commits(place.filesystem, place.root, place.data_files)
    return not {file for journal in under_way for file in journal.hidden}.issuperset(files)


def replaced_in(place: Place, folders: Sequence[str]) -> list[str]:
    """The files in ``folders`` that an overwrite is to remove, in the order in which it has to.

    Where there are no folders, none.

    What another commit is publishing there goes as a whole, the first file first, once that has
    been moved: the other has then either looked whether all are there, and was first, or misses it
    when it looks, and publishes none. Before that all of it stays, and comes after the overwrite.
    """

    def listing() -> list[str]:
        return [file for folder in folders for file in place.data_files(folder)]

    if not folders:
        return []
    files, under_way = listed_with_commits(place.filesystem, place.root, listing)
    theirs, begun = set[str](), list[str]()
    for journal in under_way:
        if journal.phase == PUBLISHING:
            group = [file for file in journal.publish if is_in(folders, file)]
            theirs |= set(group)
            begun += [] if _is_waiting(place, journal, group[:1]) else group
    return [*begun, *(file for file in files if file not in theirs)]


def is_in(folders: Sequence[str], file: str) -> bool:
    """Is a file in one of the folders, or below?"""
    return any(PurePosixPath(file).is_relative_to(folder) for folder in folders)


def _is_waiting(place: Place, journal: Journal, files: Sequence[str]) -> bool:
    """Is one of a commit's files still where it is to be moved from?"""
    return any(is_there(place, f"{TEMPORARY}{journal.job}/{file}") for file in files)


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
    """Move ``files`` out of the job's folder, then remove files that are there already.

    Those are ``remove``, and all in the folders that it ``overwrites``. A job that commits several
    times gives each a ``number``. Where a file cannot be moved, or ``check``, which is called just
    before the commit, raises, none stays and the old ones do. Raises ``PathError``, or what
    ``check`` does.
    """

    def removed() -> tuple[str, ...]:
        return (*remove, *replaced_in(place, overwrites))

    journal = Journal(job, PUBLISHING, tuple(files), removed(), stream, number)
    is_simple = len(files) < 2 and not journal.remove and stream is None
    made: list[str] = []
    try:
        if not is_simple:
            journal = _begun(place, journal, removed)
        for folder in sorted(set(map(_folder_of, files))):
            made = [*place.make(folder), *made]
        for file in files:
            try:
                place.move(f"{TEMPORARY}{job}/{file}", file)
            except FileNotFoundError:  # its folder was empty, and another commit has tidied it up
                made = [*place.make(_folder_of(file)), *made]
                place.move(f"{TEMPORARY}{job}/{file}", file)
        if check is not None:
            check()
        if not is_simple:
            _check_moved(place, files)
    except BaseException as error:
        _give_up(place, journal, made)
        raise _described(place, error) from error
    if not is_simple:
        journal = _marked(place, journal, made)
    try:
        _finish(place, journal)
    except OSError as error:
        raise PathError(
            f"{place.root}: the new files are published, but what comes after failed; "
            f"recover() finishes it: {error}"
        ) from error


def _give_up(place: Place, journal: Journal, made: Sequence[str]) -> None:
    """Undo what can be: as long as the journal is there, its files don't count."""
    with contextlib.suppress(OSError):
        _undo(place, journal)
        place.remove_empty(made)


def _marked(place: Place, journal: Journal, made: Sequence[str]) -> Journal:
    """Say that the files count.

    That may be said although an error comes, or an interrupt: nothing is undone unless it is not.
    """
    published = replace(journal, phase=PUBLISHED)
    try:
        place.write_text(published.name, published.encode())
    except BaseException as error:
        if _is_unmarked(place, journal):
            _give_up(place, journal, made)
            raise _described(place, error) from error
        if not isinstance(error, OSError):
            raise
        message = f"the new files may be published; recover() finishes or undoes it: {error}"
        raise PathError(f"{place.root}: {message}") from error
    return published


def _is_unmarked(place: Place, journal: Journal) -> bool:
    """Is it certain that the files of a commit that was begun do not count?"""
    try:
        text = place.read_text(journal.name)
        return text is not None and Journal.decode(text).phase == PUBLISHING
    except (OSError, FormatError):
        return False


def _folder_of(file: str) -> str:
    folder = str(PurePosixPath(file).parent)
    return "" if folder == "." else folder


def _begun(place: Place, journal: Journal, removed: Callable[[], tuple[str, ...]]) -> Journal:
    """Write the journal; returns it as it is then.

    What is to be ``removed`` is looked for again once it is there: who puts other files in the
    place of some has either done so by then, or sees that they are to go.
    """
    for _ in range(_LOOKS):
        place.write_text(journal.name, journal.encode())
        found = removed()
        if set(found) == set(journal.remove):
            return journal
        journal = replace(journal, remove=found)
    raise PathError(f"{place.root}: its files change too often to be replaced; nothing was written")


def _check_moved(place: Place, files: Sequence[str]) -> None:
    """Raise ``PathError`` where another writer, who replaces what there is, took a file away."""
    infos = place.filesystem.get_file_info([place.path(file) for file in files])
    for file, info in zip(files, infos, strict=True):
        if info.type != pafs.FileType.File:
            raise PathError(
                f"{place.root}: another write removed {file} before all files were in place; "
                "nothing was written"
            )


def _described(place: Place, error: BaseException) -> BaseException:
    if isinstance(error, OSError) and not isinstance(error, PathError):
        return PathError(f"{place.root}: cannot be written to: {error}")
    return error


def _undo(place: Place, journal: Journal) -> None:
    folder = f"{TEMPORARY}{journal.job}"
    keeps = is_kept(place, folder)
    for file in journal.publish:
        if keeps:
            with contextlib.suppress(FileNotFoundError):
                place.move(file, f"{folder}/{file}")
        else:
            place.remove(file)
    _tidy(place, journal.publish)
    with contextlib.suppress(OSError):  # who listed files meanwhile is to see that something was
        if place.read_text(SUCCESS) is not None:
            place.write_text(SUCCESS, "")
    place.remove(journal.name)


def keep_job(place: Place, job: str) -> None:
    """Have ``recover`` leave the job's folder, should it come to that."""
    place.write_text(f"{TEMPORARY}{job}/{KEEP}", "")


def is_kept(place: Place, folder: str) -> bool:
    """Is a job's folder to be left by ``recover``, as it may hold rows?"""
    return place.is_shared_disk and place.read_text(f"{folder}/{KEEP}") is not None


def _finish(place: Place, journal: Journal) -> None:
    """What comes after the commit; may be done twice.

    Raises ``PathError`` where an old file cannot be removed: the journal stays then, all others go.
    """
    if journal.stream is not None and not is_done(place, journal.stream):
        place.write_text(_mark(journal.stream.query), json.dumps(asdict(journal.stream)))
    failed: list[PathError] = []
    beside = _sidecars_of(place, journal.remove)
    for file in journal.remove:
        try:
            place.remove(file)
        except OSError as error:
            failed.append(PathError(f"{place.path(file)}: cannot be removed: {error}"))
    for sidecar in beside:
        with contextlib.suppress(OSError):  # it is of no file, and nobody reads it
            place.remove(sidecar)
    _tidy(place, [*journal.remove, *beside])
    if failed:
        raise failed[0]
    for other in journals(place) if journal.remove else ():
        is_gone = other.phase == PUBLISHING and set(other.publish) <= set(journal.remove)
        if is_gone and not _is_waiting(place, other, other.publish):
            place.remove(other.name)  # of a dead writer: it has no file any more
    # Touched before the journal goes: who looked before that sees that something has happened.
    place.write_text(SUCCESS, "")
    place.remove(journal.name)


def _sidecars_of(place: Place, files: Sequence[str]) -> list[str]:
    places = Sidecars(place.filesystem)
    paths = [place.path(file) for file in files]
    for path in paths:
        places.expect(path)
    found = (sidecar for path in paths for sidecar in places.paths(path))
    return [sidecar.removeprefix(f"{place.root}/") for sidecar in found]


def _tidy(place: Place, files: Sequence[str]) -> None:
    """Remove the folders of files that are gone, where nothing else is in them."""
    folders = {str(parent) for file in files for parent in PurePosixPath(file).parents}
    for folder in sorted(folders - {"."}, key=lambda folder: -folder.count("/")):
        place.remove_empty([place.path(folder)])


def end(place: Place, journal: Journal) -> None:
    """Finish a commit that was interrupted, or undo it where its files do not count yet."""
    (_finish if journal.phase == PUBLISHED else _undo)(place, journal)


def end_job(place: Place, job: str) -> None:
    """Finish or undo what a job has begun to publish: who did is no more."""
    for journal in journals(place):
        if journal.job == job:
            end(place, journal)


def journals(place: Place) -> list[Journal]:
    """The commits that are under way, or were interrupted."""
    return journals_at(place.filesystem, place.root)


def root_of(path: PathLike, filesystem: Any = None) -> Place:
    """The folder of the data set that a path, be it of a file or a Hive folder, is part of."""
    place = Place.of(path, filesystem)
    is_folder = place.filesystem.get_file_info(place.root).type == pafs.FileType.Directory
    return replace(place, root=root_at(place.root, is_folder=is_folder))


def settle(place: Place) -> None:
    """Finish the removals that another writer did not; warn of what it left half published, and of
    old files that stay, though they do not count.
    """
    for journal in journals(place):
        if journal.phase == PUBLISHED:
            try:
                _finish(place, journal)
            except OSError as error:
                warn(
                    f"{place.root}: what another write replaced is still there, and does not count "
                    f"({journal.name}); recover() removes it: {error}",
                )
        else:
            warn(
                f"{place.root}: another write is under way, or was interrupted ({journal.name}): "
                "its files do not count; if it was interrupted, recover() removes them",
            )


def is_there(place: Place, name: str) -> bool:
    """Is there a file of that name?"""
    return bool(place.filesystem.get_file_info(place.path(name)).type == pafs.FileType.File)


# --- streaming ----------------------------------------------------------------------------------


def _mark(query: str) -> str:
    return f"_stream-{query}.json"


def is_done(place: Place, batch: StreamBatch) -> bool:
    """Has a batch been published already?"""
    text = place.read_text(_mark(batch.query))
    last = -1 if text is None else int(json.loads(text)["batch"])
    return last >= batch.batch


def publish_batch(
    place: Place, job: str, files: Sequence[str], overwrites: Sequence[str], batch: StreamBatch
) -> None:
    """Publish the files of a batch, unless it has been; what a dead driver left is cleared."""
    for journal in journals(place):
        if journal.stream is not None and journal.stream.query == batch.query:
            end(place, journal)
    if not is_done(place, batch):
        publish(place, job, files, overwrites=overwrites, stream=batch)
    for name in place.names(f"{TEMPORARY}{batch.query}-"):
        place.remove_tree(name)
    for name in place.names(f".{JOURNAL}{batch.query}-"):  # journals that were half written
        place.remove(name)
