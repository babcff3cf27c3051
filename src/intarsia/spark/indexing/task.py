"""The work of tasks of an index job: they add indexes to a file, drop them, or gather parts.

Errors of a file go into its report, so that the job continues with the other files.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from intarsia.commit.commit import TEMPORARY
from intarsia.commit.storage import Place
from intarsia.errors import FormatError, IndexSpecError, IntarsiaError, OutOfMemoryError, quiet
from intarsia.file.file_view import OWN_VIEW, FileView
from intarsia.file.open_file import OpenedFile
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.parquet_indexes import Standard
from intarsia.index.registry import IndexSpec
from intarsia.indexing.add import add_chosen, change_indexes
from intarsia.indexing.build import Builder, new_file_id
from intarsia.indexing.drop import added_index_names, name_of, parquet_index_names
from intarsia.indexing.missing_indexes import Choice, due_in
from intarsia.indexing.partial_build import FromParts, FromSections, gather_part
from intarsia.io.atomic_replace import check_unchanged
from intarsia.io.external_sort import Workspace
from intarsia.io.file_handle import Version, version_of
from intarsia.scan.parquet_file import open_file

DONE, SKIPPED, FAILED = "done", "skipped", "failed"
MERGED = "merged"
"""The status of a file of which a section was made, but other sections are missing."""


@dataclass(frozen=True, slots=True)
class FileReport:
    """The outcome for one file. ``unfit`` are indexes that it cannot have or does not have."""

    path: str
    status: str
    why: str | None = None
    indexes: tuple[str, ...] = ()
    bytes_before: int | None = None
    bytes_added: int | None = None
    rows: int | None = None
    seconds: float = 0.0
    unfit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexAction:
    """The change to make to every file; picklable."""

    filesystem: pafs.FileSystem
    indexes: tuple[IndexSpec | str, ...] | None
    """Index objects to add, or names to drop. None drops all indexes."""
    sidecar: bool | str
    anew: bool = False
    """True if existing indexes are built again."""
    page_index: bool = False
    """True if files without a page index get one along, as in ``due_in``."""
    views: Mapping[str, FileView] = field(default_factory=dict)
    """The views of files that are in a table."""

    def opened(self, path: str) -> OpenedFile:
        """Opens a file, with its sidecar if indexes are in sidecars."""
        view = self.views.get(path, OWN_VIEW)
        return open_file(path, self.filesystem, sidecar=self.places, view=view)

    def choice_of(self, file: OpenedFile) -> Choice:
        """Returns which of the indexes a file is to get."""
        kinds = [index for index in self.indexes or () if not isinstance(index, str)]
        return due_in(file, kinds, self.places, replace=self.anew, page_index=self.page_index)

    @property
    def places(self) -> Sidecars | None:
        """The places of sidecars, or None if indexes are embedded."""
        return Sidecars.of_option(self.filesystem, self.sidecar)


@dataclass(frozen=True, slots=True)
class Split:
    """A large file that several tasks gather from; then one task merges each of its indexes."""

    path: str
    version: Version
    choice: Choice
    groups: tuple[range, ...]
    """The row groups of each part."""
    file_id: str
    """The id of the file in its sections."""
    refused: FileReport
    """The report if a part fails."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A large file whose parts are all gathered."""

    split: Split
    names: tuple[str, ...]
    """The names of the parts, relative to the data set's folder."""
    seconds: float
    """The seconds that gathering all parts took."""

    @property
    def sections(self) -> list[int]:
        """The numbers of the indexes that separate tasks make; empty if fewer than two."""
        due = self.split.choice.all_due
        sections = [number for number, index in enumerate(due) if not isinstance(index, Standard)]
        return sections if len(sections) > 1 else []


@dataclass(frozen=True, slots=True)
class SectionMerge:
    """One section of a large file."""

    merge: Merge
    number: int


@dataclass(slots=True)
class _Outcome:
    file: OpenedFile
    """The file as it is now."""
    indexes: Sequence[str] = ()
    why: str | None = None
    unfit: Sequence[str] = field(default_factory=tuple)
    is_last: bool = True
    """False if other tasks must finish the file."""


def index_file(path: str, action: IndexAction) -> FileReport:
    """Adds the missing indexes to a file, like ``intarsia.add_indexes``."""

    def act(file: OpenedFile, version: Version, places: Sidecars | None) -> _Outcome:
        return _add(file, version, action, action.choice_of(file), Builder())

    return _report_on(path, action, act)


def merge_file(merge: Merge, action: IndexAction, place: Place) -> FileReport:
    """Adds the gathered indexes to a large file. A file replaced meanwhile is read anew."""
    split = merge.split

    def act(file: OpenedFile, version: Version, places: Sidecars | None) -> _Outcome:
        if version != split.version:
            return _add(file, version, action, action.choice_of(file), Builder())
        return _add(file, version, action, split.choice, _parts(merge, place))

    return _report_on(split.path, action, act)


def merge_section(section: SectionMerge, action: IndexAction, place: Place) -> FileReport:
    """Makes one section of a large file from its parts, and adds all sections once they exist.

    Each task writes a small marker file that names its section, and only then looks for the markers
    of the others. So the last task sees all of them. If several tasks do, the first one replaces
    the file.
    """
    merge, split = section.merge, section.merge.split
    markers = {number: f"{merge.names[0]}-of-{number}" for number in merge.sections}

    def fetch(number: int, work: Workspace) -> Path:
        name = place.path(place.read_text(markers[number]) or "")
        if place.is_shared_disk:
            return Path(name)
        path = work.new_path()
        with place.filesystem.open_input_file(name) as source, open(path, "wb") as out:
            shutil.copyfileobj(source, out, 8 * 1024 * 1024)
        return path

    def act(file: OpenedFile, version: Version, places: Sidecars | None) -> _Outcome:
        if version != split.version:
            return _add(file, version, action, action.choice_of(file), Builder())
        parts = _parts(merge, place)
        if place.read_text(markers[section.number]) is None:
            name = f"{merge.names[0]}-{secrets.token_hex(8)}"
            with place.written(name) as path:
                parts.write_one(file, section.number, split.file_id, path)
            place.write_text(markers[section.number], name)
        if any(place.read_text(marker) is None for marker in markers.values()):
            return _Outcome(file, is_last=False)
        builder = FromSections(parts, fetch, split.file_id)
        return _add(file, version, action, split.choice, builder)

    return _report_on(split.path, action, act)


def _parts(merge: Merge, place: Place) -> FromParts:
    @contextlib.contextmanager
    def reopen(part: int, number: int) -> Iterator[Any]:
        name = f"{merge.names[part]}-{number}"
        with place.filesystem.open_input_file(place.path(name)) as file:
            yield file

    return FromParts(merge.split.choice.all_due, len(merge.names), reopen, merge.split.file_id)


@dataclass(frozen=True, slots=True)
class Part:
    """A gathered part: the common name of its files, and the seconds that it took."""

    name: str
    seconds: float
    error: str | None = None
    extra_error: str | None = None
    """Why the part lacks the page index that the file was to get along."""


def gather_from(split: Split, part: int, action: IndexAction, place: Place, job: str) -> Part:
    """Gathers one part."""
    start = time.perf_counter()
    name = f"{TEMPORARY}{job}/{secrets.token_hex(8)}"

    def gather(indexes: Sequence[IndexSpec]) -> None:
        groups = split.groups[part]
        gather_part(file, indexes, groups, lambda number: place.written(f"{name}-{number}"))

    error, extra_error = None, None
    try:
        with quiet():
            check_unchanged(split.path, action.filesystem, split.version)
            file = replace(action, sidecar=False).opened(split.path)
            try:
                gather(split.choice.all_due)
            except (FormatError, OutOfMemoryError) as refusal:
                if not split.choice.extra:
                    raise
                extra_error = _text(split.path, refusal)
                name += "-again"
                gather(split.choice.due)
    except Exception as refusal:  # noqa: BLE001 # any error goes into the file's report
        error = _text(split.path, refusal)
    return Part(name, time.perf_counter() - start, error, extra_error)


def drop_from_file(path: str, action: IndexAction) -> FileReport:
    """Removes from a file those of the indexes that were added to it."""

    def act(file: OpenedFile, version: Version, places: Sidecars | None) -> _Outcome:
        added_names = added_index_names(file, places)
        requested = [_named(index, added_names, file) for index in action.indexes or ()]
        if action.indexes is None:
            requested = sorted(added_names)
        dropped = [name for name in requested if name in added_names]
        written_names = set() if places is not None else parquet_index_names(file)
        written_requested = [name for name in requested if name in written_names - added_names]
        unfit = [name for name in requested if name not in added_names | written_names]
        if dropped:
            change_indexes(file, action.filesystem, version, places, drop=dropped)
        why = [f"it was written with {', '.join(written_requested)}"] if written_requested else []
        why += [f"it has no {', '.join(unfit)}"] if unfit else []
        now = action.opened(path) if dropped else file
        return _Outcome(now, dropped, "; ".join(why) or None, unfit)

    return _report_on(path, action, act)


def _named(index: IndexSpec | str, added_names: set[str], file: OpenedFile) -> str:
    try:
        return name_of(index, added_names, file)
    except IndexSpecError:  # an unknown kind that is not in this file
        return str(index)


def _add(
    file: OpenedFile, version: Version, action: IndexAction, choice: Choice, builder: Builder
) -> _Outcome:
    change = add_chosen(file, action.filesystem, version, action.places, choice, builder)
    return _Outcome(change.file, change.added, change.choice.why, tuple(choice.unfit))


Act = Callable[[OpenedFile, Version, Sidecars | None], _Outcome]
"""A function that changes a file of the given version, or its sidecar."""


def _report_on(path: str, action: IndexAction, act: Act) -> FileReport:
    """Changes a file and returns its report. Tries twice, as Spark runs slow tasks twice."""
    start = time.perf_counter()
    report, is_changed = _try_on(path, action, act)
    if is_changed:
        report, _ = _try_on(path, action, act)
    return replace(report, seconds=time.perf_counter() - start)


def _try_on(path: str, action: IndexAction, act: Act) -> tuple[FileReport, bool]:
    """Returns a file's report, and whether the change failed because the file was replaced."""
    report = FileReport(path, FAILED)
    places, version = action.places, None
    try:
        with quiet():
            version = version_of(path, action.filesystem)
            file = action.opened(path)
            size_before = size_of(file, places)
            report = replace(report, bytes_before=size_before, rows=file.num_rows)
            outcome = act(file, version, places)
            if not outcome.is_last:
                return replace(report, status=MERGED), False
        done = replace(
            report,
            status=DONE if outcome.indexes else SKIPPED,
            why=outcome.why,
            indexes=tuple(outcome.indexes),
            bytes_added=size_of(outcome.file, places) - size_before,
            unfit=tuple(outcome.unfit),
        )
        return done, False
    except Exception as error:  # noqa: BLE001 # any error goes into the file's report
        current_version = version_of(path, action.filesystem)
        return replace(report, why=_text(path, error)), None not in (
            current_version,
            version,
        ) and current_version != version


def size_of(file: OpenedFile, places: Sidecars | None) -> int:
    """Returns the bytes of a file, or of its sidecar if ``places`` is set."""
    if places is None:
        return file.source.size
    sidecar = file.sections.sidecar
    return 0 if sidecar is None else sidecar.source.size


def file_id_of(file: OpenedFile, places: Sidecars | None) -> str:
    """Returns the id of a file in its sections, or in those of its sidecar if ``places`` is set."""
    sidecar = file.sections.sidecar
    directory = file.directory if places is None else sidecar.directory if sidecar else None
    return directory.file_id if directory else new_file_id()


def _text(path: str, error: Exception) -> str:
    """Returns the text of an error without the file's path, which the report has already."""
    if isinstance(error, FormatError) and error.where.file == path:
        error = type(error)(error.message, replace(error.where, file=None))
    text = str(error).removeprefix(f"{path}: ")
    return text if isinstance(error, IntarsiaError) else f"{type(error).__name__}: {text}"
