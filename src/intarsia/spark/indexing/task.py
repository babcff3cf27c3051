"""What the tasks of an index job do: add indexes to a file, or drop them, or gather a part of them.

Whatever is wrong with a file is told in its report, so that the others go on.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from intarsia.errors import FormatError, IndexSpecError, IntarsiaError, PathError, quiet
from intarsia.file.open_file import OpenedFile
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.parquet_indexes import Standard
from intarsia.index.registry import IndexSpec, spec_name
from intarsia.indexing.add import add_to
from intarsia.indexing.build import Builder, new_file_id
from intarsia.indexing.drop import drop_from, held_names, name_of, own_names
from intarsia.indexing.missing_indexes import Choice, choose
from intarsia.indexing.partial_build import FromParts, FromSections, gather_part
from intarsia.indexing.rewrite import check_changeable
from intarsia.io.external_sort import Workspace
from intarsia.io.file_handle import Version, version_of
from intarsia.scan.parquet_file import open_file
from intarsia.spark.commit.commit import TEMPORARY
from intarsia.spark.commit.storage import Place

DONE, SKIPPED, FAILED = "done", "skipped", "failed"
MERGED = "merged"
"""A section was made, and others are still to come: no file's last word."""
REPORT = pa.schema(
    [
        ("path", pa.string()),
        ("status", pa.string()),
        ("why", pa.string()),
        ("indexes", pa.list_(pa.string())),
        ("bytes_before", pa.int64()),
        ("bytes_added", pa.int64()),
        ("rows", pa.int64()),
        ("seconds", pa.float64()),
        ("unfit", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True, slots=True)
class FileReport:
    """What became of a file: a row of ``REPORT``.

    ``unfit`` are the indexes that it cannot have, or had not when they were to be dropped.
    """

    path: str
    status: str
    why: str | None = None
    indexes: tuple[str, ...] = ()
    bytes_before: int | None = None
    bytes_added: int | None = None
    rows: int | None = None
    seconds: float = 0.0
    unfit: tuple[str, ...] = ()

    @property
    def batch(self) -> pa.RecordBatch:
        """As Spark takes it."""
        return pa.RecordBatch.from_pylist([asdict(self)], schema=REPORT)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be done to every file; picklable."""

    filesystem: pafs.FileSystem
    indexes: tuple[IndexSpec | str, ...] | None
    """Objects where they are added; None, where they are dropped, if all are."""
    sidecar: bool | str
    anew: bool = False
    """Are those built again that are there already?"""

    def choice_of(self, file: OpenedFile) -> Choice:
        """Which of the indexes a file is given."""
        kinds = [index for index in self.indexes or () if not isinstance(index, str)]
        return choose(file, kinds, anew=self.anew, beside=self.sidecar is not False)

    @property
    def places(self) -> Sidecars | None:
        """Where sidecars are, if they are to hold the indexes."""
        if self.sidecar is False:
            return None
        return Sidecars(self.filesystem, None if self.sidecar is True else self.sidecar)


@dataclass(frozen=True, slots=True)
class Split:
    """A large file that several tasks gather from, before each of its indexes is merged by one."""

    path: str
    version: Version
    choice: Choice
    groups: tuple[range, ...]
    """The row groups of each part."""
    file_id: str
    """What sections call it."""
    refused: FileReport
    """What is to be reported where a part fails."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A large file of which all parts are gathered."""

    split: Split
    names: tuple[str, ...]
    """Of the parts, below the job's folder."""
    seconds: float
    """What the parts took."""

    @property
    def sections(self) -> list[int]:
        """The numbers of those indexes that are sections, where tasks can make one each."""
        due = self.split.choice.due
        found = [at for at, index in enumerate(due) if not isinstance(index, Standard)]
        return found if len(found) > 1 else []


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the sections of a large file."""

    merge: Merge
    number: int


@dataclass(slots=True)
class _Outcome:
    indexes: Sequence[str] = ()
    why: str | None = None
    unfit: Sequence[str] = field(default_factory=tuple)
    is_last: bool = True
    """Else others finish what was begun."""


def index_file(path: str, wanted: Wanted) -> FileReport:
    """Add to a file the indexes that it has not; as the library's own ``add_indexes`` does."""

    def act(file: OpenedFile, version: Version, places: Sidecars | None) -> _Outcome:
        return _added(file, version, places, wanted, wanted.choice_of(file), None)

    return _reported(path, wanted, act)


def merge_file(merge: Merge, wanted: Wanted, place: Place) -> FileReport:
    """Add to a large file what its parts have gathered; to another one by now, what it needs."""
    split = merge.split

    def act(file: OpenedFile, version: Version, places: Sidecars | None) -> _Outcome:
        if version != split.version:
            return _added(file, version, places, wanted, wanted.choice_of(file), None)
        return _added(file, version, places, wanted, split.choice, _parts(merge, place))

    return _reported(split.path, wanted, act)


def merge_section(one: OneOf, wanted: Wanted, place: Place) -> FileReport:
    """Make one section of a large file of its parts; who sees that all are there adds them.

    Each is named, by a small text that appears whole, before its maker looks for the others: so
    the last of them sees all, or several do, of whom the first puts the file in place.
    """
    merge, split = one.merge, one.merge.split
    marks = {number: f"{merge.names[0]}-of-{number}" for number in merge.sections}

    def fetch(number: int, work: Workspace) -> Path:
        name = place.path(place.read_text(marks[number]) or "")
        if place.is_shared_disk:
            return Path(name)
        path = work.new_path()
        with place.filesystem.open_input_file(name) as found, open(path, "wb") as out:
            shutil.copyfileobj(found, out, 8 * 1024 * 1024)
        return path

    def act(file: OpenedFile, version: Version, places: Sidecars | None) -> _Outcome:
        if version != split.version:
            return _added(file, version, places, wanted, wanted.choice_of(file), None)
        parts = _parts(merge, place)
        if place.read_text(marks[one.number]) is None:
            name = f"{merge.names[0]}-{secrets.token_hex(8)}"
            with place.written(name) as path:
                parts.write_one(file, one.number, split.file_id, path)
            place.write_text(marks[one.number], name)
        if any(place.read_text(mark) is None for mark in marks.values()):
            return _Outcome(is_last=False)
        builder = FromSections(parts, split.file_id, fetch)
        return _added(file, version, places, wanted, split.choice, builder)

    return _reported(split.path, wanted, act)


def _parts(merge: Merge, place: Place) -> FromParts:
    @contextlib.contextmanager
    def reopen(part: int, number: int) -> Iterator[Any]:
        name = f"{merge.names[part]}-{number}"
        with place.filesystem.open_input_file(place.path(name)) as file:
            yield file

    return FromParts(merge.split.choice.due, len(merge.names), reopen, merge.split.file_id)


def gather_from(
    split: Split, part: int, wanted: Wanted, place: Place, job: str
) -> tuple[str, float, str | None]:
    """Gather a part; returns its files' common name, the seconds it took, and what went wrong."""
    start = time.perf_counter()
    name = f"{TEMPORARY}{job}/{secrets.token_hex(8)}"
    try:
        with quiet():
            if version_of(split.path, wanted.filesystem) != split.version:
                raise PathError("another writer changed the file; it was left as it is")
            file = open_file(split.path, wanted.filesystem)
            gather_part(
                file,
                split.choice.due,
                split.groups[part],
                lambda number: place.written(f"{name}-{number}"),
            )
    except Exception as error:  # noqa: BLE001 # whatever it is, it is this file's
        return name, time.perf_counter() - start, _text(split.path, error)
    return name, time.perf_counter() - start, None


def drop_from_file(path: str, wanted: Wanted) -> FileReport:
    """Take off a file those of the indexes that were added to it."""

    def act(file: OpenedFile, version: Version, places: Sidecars | None) -> _Outcome:
        held = held_names(file, places)
        names = [_named(index, held, file) for index in wanted.indexes or ()]
        if wanted.indexes is None:
            names = sorted(held)
        gone = [name for name in names if name in held]
        own = set() if places is not None else own_names(file)
        kept = [name for name in names if name in own - held]
        unfit = [name for name in names if name not in held | own]
        if gone:
            drop_from(file, gone, wanted.filesystem, version, places)
        why = [f"it was written with {', '.join(kept)}"] if kept else []
        why += [f"it has no {', '.join(unfit)}"] if unfit else []
        return _Outcome(gone, "; ".join(why) or None, unfit)

    return _reported(path, wanted, act)


def _named(index: IndexSpec | str, held: set[str], file: OpenedFile) -> str:
    try:
        return name_of(index, held, file)
    except IndexSpecError:  # of a kind unknown here, and not in this file
        return str(index)


def _added(
    file: OpenedFile,
    version: Version,
    places: Sidecars | None,
    wanted: Wanted,
    choice: Choice,
    builder: Builder | None,
) -> _Outcome:
    if choice.due:
        if places is None:
            check_changeable(file)
        add_to(file, choice.due, wanted.filesystem, version, places, builder=builder)
    return _Outcome([spec_name(index) for index in choice.due], choice.why, tuple(choice.unfit))


Act = Callable[[OpenedFile, Version, Sidecars | None], _Outcome]
"""Does something to a file of a version, or to its sidecar."""


def _reported(path: str, wanted: Wanted, act: Act) -> FileReport:
    """Do something to a file, and say what became of it.

    Once more where somebody changed the file meanwhile: that may have been this very task, which
    Spark runs twice where it is slow.
    """
    start = time.perf_counter()
    report, is_changed = _tried(path, wanted, act)
    if is_changed:
        report, _ = _tried(path, wanted, act)
    return replace(report, seconds=time.perf_counter() - start)


def _tried(path: str, wanted: Wanted, act: Act) -> tuple[FileReport, bool]:
    """What became of a file, and whether that failed and there is another one by now."""
    report = FileReport(path, FAILED)
    places, version = wanted.places, None
    try:
        with quiet():
            version = version_of(path, wanted.filesystem)
            file = open_file(path, wanted.filesystem, sidecar=places)
            before = held_bytes(file, places)
            report = replace(report, bytes_before=before, rows=file.num_rows)
            outcome = act(file, version, places)
            if not outcome.is_last:
                return replace(report, status=MERGED), False
            after = before
            if outcome.indexes:
                after = held_bytes(open_file(path, wanted.filesystem, sidecar=places), places)
        done = replace(
            report,
            status=DONE if outcome.indexes else SKIPPED,
            why=outcome.why,
            indexes=tuple(outcome.indexes),
            bytes_added=after - before,
            unfit=tuple(outcome.unfit),
        )
        return done, False
    except Exception as error:  # noqa: BLE001 # whatever it is, it is this file's
        now = version_of(path, wanted.filesystem)
        return replace(report, why=_text(path, error)), None not in (
            now,
            version,
        ) and now != version


def held_bytes(file: OpenedFile, places: Sidecars | None) -> int:
    """The length of a file, or of its sidecar, if told of ``places``."""
    if places is None:
        return file.source.size
    beside = file.sections.beside
    return 0 if beside is None else beside.source.size


def id_of(file: OpenedFile, places: Sidecars | None) -> str:
    """What sections of a file, or of its sidecar, if told of ``places``, call it."""
    beside = file.sections.beside
    held = file.directory if places is None else beside.directory if beside else None
    return held.file_id if held else new_file_id()


def _text(path: str, error: Exception) -> str:
    """What went wrong; the path is told already."""
    if isinstance(error, FormatError) and error.where.file == path:
        error = type(error)(error.message, replace(error.where, file=None))
    text = str(error).removeprefix(f"{path}: ")
    return text if isinstance(error, IntarsiaError) else f"{type(error).__name__}: {text}"
