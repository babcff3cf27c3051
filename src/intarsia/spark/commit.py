"""Publishing the files of a job: readers see all of them or none, and old rows or new ones.

::

    _temporary-<job>/…       files as tasks write them; readers ignore the folder
    _temporary-<job>/_keep   there, where rows of the job can be got back from unfinished files
    _commit-<job>.json       the journal, while files are published and old ones removed
    _SUCCESS                 touched when that is done
    _stream-<query>.json     the last batch that a streaming query has written

The journal names the files to publish and those to remove, and its phase. While that is
``publishing``, the new files do not count; from ``published`` on, which is the commit, the old ones
do not. Readers here go by that (``visible``), so that they see the one or the other even where a
driver died in the middle; other readers see both sorts of rows until ``recover``, or the next
write, has finished what was begun.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from intarsia.errors import IntarsiaWarning, PathError
from intarsia.spark.place import Place
from intarsia.storage import PathLike, list_files

TEMPORARY = "_temporary-"
_JOURNAL = "_commit-"
_SUCCESS = "_SUCCESS"
_PUBLISHING, _PUBLISHED = "publishing", "published"
_KEEP = "_keep"
_LOOKS = 20


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A batch of a streaming query, which is published once however often it is run."""

    query: str
    batch: int


@dataclass(frozen=True, slots=True)
class Journal:
    """What a commit does; paths are below the data set's folder."""

    job: str
    phase: str
    publish: tuple[str, ...]
    remove: tuple[str, ...]
    stream: StreamBatch | None = None

    @property
    def name(self) -> str:
        """Its file's name."""
        return f"{_JOURNAL}{self.job}.json"

    @property
    def hidden(self) -> tuple[str, ...]:
        """The files that do not count, as long as there is this journal."""
        return self.publish if self.phase == _PUBLISHING else self.remove

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Journal:
        known: dict[str, Any] = json.loads(text)
        stream = known["stream"] and StreamBatch(**known["stream"])
        lists = {name: tuple(known[name]) for name in ("publish", "remove")}
        return cls(job=known["job"], phase=known["phase"], stream=stream, **lists)


def publish(
    place: Place,
    job: str,
    files: Sequence[str],
    remove: Sequence[str] = (),
    stream: StreamBatch | None = None,
) -> None:
    """Move ``files`` out of the job's folder, then remove files that are there already.

    Where a file cannot be moved, none stays and the old ones do. Raises ``PathError``.
    """
    journal = Journal(job, _PUBLISHING, tuple(files), tuple(remove), stream)
    is_simple = len(files) < 2 and not remove and stream is None
    made: list[str] = []
    try:
        if not is_simple:
            place.write_text(journal.name, journal.encode())
        for folder in sorted({str(PurePosixPath(file).parent) for file in files}):
            made = [*place.make("" if folder == "." else folder), *made]
        for file in files:
            place.move(f"{TEMPORARY}{job}/{file}", file)
        if not is_simple:
            journal = replace(journal, phase=_PUBLISHED)
            place.write_text(journal.name, journal.encode())
    except BaseException as error:
        with contextlib.suppress(OSError):  # as long as the journal is there, its files don't count
            _undo(place, journal)
            place.remove_empty(made)
        raise _described(place, error) from error
    try:
        _finish(place, journal)
    except OSError as error:
        raise PathError(
            f"{place.root}: the new files are published, but what comes after failed; "
            f"recover() finishes it: {error}"
        ) from error


def _described(place: Place, error: BaseException) -> BaseException:
    if isinstance(error, OSError) and not isinstance(error, PathError):
        return PathError(f"{place.root}: cannot be written to: {error}")
    return error


def _undo(place: Place, journal: Journal) -> None:
    folder = f"{TEMPORARY}{journal.job}"
    is_kept = _is_kept(place, folder)
    for file in journal.publish:
        if is_kept:
            with contextlib.suppress(FileNotFoundError):
                place.move(file, f"{folder}/{file}")
        else:
            place.remove(file)
    place.remove(journal.name)


def keep_job(place: Place, job: str) -> None:
    """Have ``recover`` leave the job's folder, should it come to that."""
    place.write_text(f"{TEMPORARY}{job}/{_KEEP}", "")


def _is_kept(place: Place, folder: str) -> bool:
    return place.is_shared_disk and place.read_text(f"{folder}/{_KEEP}") is not None


def _finish(place: Place, journal: Journal) -> None:
    """What comes after the commit; may be done twice."""
    for file in journal.remove:
        place.remove(file)
    folders = {str(parent) for file in journal.remove for parent in PurePosixPath(file).parents}
    for folder in sorted(folders - {"."}, key=lambda folder: -folder.count("/")):
        place.remove_empty([place.path(folder)])
    for other in journals(place) if journal.remove else ():
        if other.phase == _PUBLISHING and set(other.publish) <= set(journal.remove):
            place.remove(other.name)  # of a dead writer: none of its files is there any more
    if journal.stream is not None:
        place.write_text(_mark(journal.stream.query), json.dumps(asdict(journal.stream)))
    # Touched before the journal goes: who looked before that sees that something has happened.
    place.write_text(_SUCCESS, "")
    place.remove(journal.name)


def journals(place: Place) -> list[Journal]:
    """The commits that are under way, or were interrupted."""
    texts = (place.read_text(name) for name in sorted(place.names(_JOURNAL)))
    return [Journal.decode(text) for text in texts if text is not None]


def settle(place: Place) -> None:
    """Finish the removals that another writer did not; warn of files it left half published."""
    for journal in journals(place):
        if journal.phase == _PUBLISHED:
            _finish(place, journal)
        else:
            warnings.warn(
                f"{place.root}: another write is under way, or was interrupted ({journal.name}): "
                "its files do not count; if it was interrupted, recover() removes them",
                IntarsiaWarning,
                stacklevel=4,
            )


def recover(path: PathLike, *, keep_unfinished: bool = True, filesystem: Any = None) -> list[str]:
    """Finish or undo what interrupted writes left at ``path``; returns what was removed.

    A commit whose new files were all there is finished, any other is undone, and temporary folders
    are deleted: all of them, or with ``keep_unfinished`` those of jobs without checkpoints. What
    others wrote stays where it is, and a warning says where that is: ``intarsia.recover`` makes
    files of those with temporary names, ``.NAME.….intarsia-tmp``; the rest are whole. Call it only
    while nothing is being written there.
    """
    place = Place.of(path, filesystem)
    removed: list[str] = []
    for journal in journals(place):
        is_moved = journal.phase == _PUBLISHING and _is_kept(place, f"{TEMPORARY}{journal.job}")
        removed += [name for name in journal.hidden if not is_moved and _is_there(place, name)]
        (_finish if journal.phase == _PUBLISHED else _undo)(place, journal)
    kept: list[str] = []
    for name in sorted(place.names(TEMPORARY)):
        if keep_unfinished and _holds_rows(place, name):
            kept.append(place.path(name))
            continue
        place.remove_tree(name)
        removed.append(name)
    if kept:
        warnings.warn(
            f"rows of interrupted jobs are kept in {', '.join(kept)}: intarsia.recover() gets back "
            "what is in unfinished files; recover(…, keep_unfinished=False) removes them",
            IntarsiaWarning,
            stacklevel=2,
        )
    return removed


def _holds_rows(place: Place, folder: str) -> bool:
    """Is there anything in a job's folder that is worth keeping?"""
    if not _is_kept(place, folder):
        return False
    selector = pafs.FileSelector(place.path(folder), recursive=True)
    found = place.filesystem.get_file_info(selector)
    return any(info.type == pafs.FileType.File and info.base_name != _KEEP for info in found)


def _is_there(place: Place, name: str) -> bool:
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
    place: Place, job: str, files: Sequence[str], remove: Sequence[str], batch: StreamBatch
) -> None:
    """Publish the files of a batch, unless it has been; what a dead driver left is cleared."""
    for journal in journals(place):
        if journal.stream is not None and journal.stream.query == batch.query:
            (_finish if journal.phase == _PUBLISHED else _undo)(place, journal)
    if not is_done(place, batch):
        publish(place, job, files, remove, batch)
    for name in place.names(f"{TEMPORARY}{batch.query}-"):
        place.remove_tree(name)


# --- for readers --------------------------------------------------------------------------------


def visible(
    path: PathLike | Sequence[PathLike], filesystem: Any = None
) -> tuple[pafs.FileSystem, list[str]]:
    """As ``list_files``, without the files that commits under way say do not count.

    Raises ``PathError`` where commits follow each other too closely to get a listing in between.
    """
    given = [path] if isinstance(path, str | os.PathLike) else list(path)
    places = {place.root: place for place in (_root(one, filesystem) for one in given)}
    for _ in range(_LOOKS):
        before = [_state(place) for place in places.values()]
        found, files = list_files(path, filesystem)
        if before == [_state(place) for place in places.values()]:
            break
    else:
        raise PathError(f"{path}: files are being replaced faster than they can be listed")
    hidden = {
        place.path(file)
        for place, (under_way, _) in zip(places.values(), before, strict=True)
        for journal in under_way
        for file in journal.hidden
    }
    return found, [file for file in files if file not in hidden] if hidden else files


def _root(path: PathLike, filesystem: Any) -> Place:
    """The folder of the data set that a path, be it of a file or a Hive folder, is part of."""
    place = Place.of(path, filesystem)
    root = PurePosixPath(place.root)
    while len(root.parts) > 1 and (set("=*?[") & set(root.name) or root.suffix == ".parquet"):
        root = root.parent
    return replace(place, root=str(root))


def _state(place: Place) -> tuple[list[Journal], int]:
    """What every commit changes: the journals, and the time of the last success (ns)."""
    try:
        names = place.names("_")
    except OSError:  # not a folder
        return [], 0
    success = names[_SUCCESS].mtime_ns if _SUCCESS in names else None
    return (journals(place) if any(n.startswith(_JOURNAL) for n in names) else []), success or 0
