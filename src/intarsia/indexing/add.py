"""Adds indexes to existing files, and lists the indexes of files.

::

    before    PAR1 … row groups … footer
    after     PAR1 … row groups … footer | sections, page indexes, filters | directory | footer'
              └── no byte is moved ───┘
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow.dataset as pads

from intarsia.deadline import time_limited
from intarsia.errors import (
    FormatError,
    IndexSpecError,
    OutOfMemoryError,
    Where,
    placed,
    public,
    quiet,
    warn,
)
from intarsia.file.file_view import OWN_VIEW, FileView
from intarsia.file.health import missing_in
from intarsia.file.open_file import OpenedFile
from intarsia.file.page_layout import PageLayout, page_layout
from intarsia.file.sidecar_discovery import Sidecars, places_of
from intarsia.index.base import index_name
from intarsia.index.directory import IndexEntry
from intarsia.index.index import Index
from intarsia.index.kinds.distinct_idx1 import DistinctIDX1
from intarsia.index.parquet_indexes import Bloom, PageIndex, Standard
from intarsia.index.registry import IndexSpec, make, parse_indexes
from intarsia.indexing.build import Builder, GroupProgress, names_of
from intarsia.indexing.file_layout import compose
from intarsia.indexing.missing_indexes import Choice, choose, due_in
from intarsia.indexing.policy import change_policy, policy_folder
from intarsia.indexing.rewrite import check_changeable, rewrite, warn_of_names
from intarsia.indexing.sidecar_writer import only_embedded, write_sidecar
from intarsia.io.atomic_replace import check_unchanged, remove_leftovers_of
from intarsia.io.external_sort import Workspace
from intarsia.io.file_handle import Version, check_may_write, version_of
from intarsia.io.storage import PathLike
from intarsia.parquet.metadata import ColumnChunk, IndexPlaces
from intarsia.parquet.thrift import all_as
from intarsia.redaction import shown_redacted
from intarsia.scan.parquet_file import open_file
from intarsia.tables.data_files import (
    Data,
    TableFormatOption,
    data_files,
    takes_data_sets,
    view_of,
)

Progress = Callable[[str, int, int], None]
"""Called with a file's path, the row groups that are done, and the row groups of all files.

A file without row groups counts as one.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class StandardReport:
    """Parquet's own indexes of one name in a file: the number of chunks and the length in bytes.

    A list of distinct values that another writer left is reported with 0 chunks: the file does not
    say which column it belongs to.
    """

    name: str
    chunks: int
    bytes: int


@shown_redacted
@dataclasses.dataclass(frozen=True, slots=True)
class IndexReport:
    """The indexes of one file. Lengths are in bytes.

    Attributes
    ----------
    path : str
        The file.
    rows, file_bytes : int
        The file's number of rows and its length.
    indexes : tuple of IndexEntry
        The user-defined indexes embedded in the file.
    standard : tuple of StandardReport
        Parquet's own indexes: page indexes and bloom filters.
    sidecar : tuple of IndexEntry
        The indexes in the file's sidecar.
    problems : tuple of str
        Why all embedded indexes, or all of the sidecar, are ignored: they are damaged, or belong to
        an earlier version of the file.
    added, dropped : tuple of str
        The names of indexes that this call added or dropped.
    kept : tuple of str
        The names of requested indexes that this call left as they were.
    unfit : tuple of str
        The names of indexes that the file cannot have. They were requested, or other files have
        them.
    reasons : tuple of str
        Why the file cannot have them, one reason for each name in ``unfit``.
    """

    path: str
    rows: int
    file_bytes: int
    indexes: tuple[IndexEntry, ...]
    standard: tuple[StandardReport, ...]
    sidecar: tuple[IndexEntry, ...] = ()
    problems: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def __repr__(self) -> str:
        embedded = [entry.name for entry in self.indexes] + [kind.name for kind in self.standard]
        in_sidecar = [f"{entry.name} in its sidecar" for entry in self.sidecar]
        names = ", ".join([*embedded, *in_sidecar]) or "no index"
        return f"<IndexReport of {self.path}: {self.rows:,} rows; {names}>"

    @property
    def entries(self) -> tuple[IndexEntry, ...]:
        """The user-defined indexes, embedded and in the sidecar."""
        return (*self.indexes, *self.sidecar)

    def to_dict(self) -> dict[str, Any]:
        """Returns all attributes as values that JSON can represent."""
        entries = {
            place: [{"name": entry.name, **dataclasses.asdict(entry)} for entry in place_entries]
            for place, place_entries in (("indexes", self.indexes), ("sidecar", self.sidecar))
        }
        return dataclasses.asdict(self) | entries


@public
@takes_data_sets
@time_limited("adding indexes to")
def add_indexes(
    path: Data,
    indexes: Sequence[Index | str],
    *,
    filesystem: Any = None,
    sidecar: bool | PathLike = False,
    replace: bool = True,
    page_index: bool = True,
    keep: bool = False,
    progress: Progress | None = None,
    table_format: TableFormatOption = "auto",
    timeout: float | None = None,
    memory_limit: int | str | None = None,
) -> list[IndexReport]:
    """Adds indexes to every Parquet file under a path.

    All indexes of a file are built in one pass over it, in bounded memory. No byte of the file is
    moved: the new parts are appended to a copy, which then replaces the file in one step. On S3 the
    store itself makes the copy if boto3 is installed (extra ``s3``). Otherwise the bytes are
    downloaded and uploaded again.

    The footers of all files are checked before the first file is changed. A file that lacks a
    column goes without its index, and a warning is issued. If an index cannot be built because of a
    file's values, the files before it keep their new indexes.

    Page indexes and bloom filters are Parquet's own ("Page Index" and "Bloom Filter" in the
    specification): other readers use them as well. A file without a page index gets one along with
    an index that finds rows, as readers need it to read single pages. A chunk that has a page index
    keeps it. A chunk gets none if one of its pages begins within a row. It gets no bounds if its
    values have no order or include a NaN.

    Parameters
    ----------
    path : str, path-like, sequence of them or Dataset
        Files, folders, globs or URIs. A data set stands for its files: of a table, these are the
        files of its version, and indexes are on columns by their names in the table.
    indexes : sequence of Index or str
        Indexes such as ``Lookup("trace_id")``, ``Bloom("user_id")`` or ``PageIndex()``, or strings
        such as ``"trace_id:lookup"``.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        The file system of ``path``. By default it is taken from the URI; other paths are local.
    sidecar : bool or path-like, default False
        True writes the indexes to sidecars in a folder ``_intarsia`` beside the files, which are
        not changed. Readers discover these sidecars automatically. A folder puts the sidecars
        there; pass the same folder to readers. A sidecar is used until the file changes: its
        length, its footer, or its entity tag or time of last change. An index embedded in the file
        is preferred to one of the same name in the sidecar.
    replace : bool, default True
        True builds an index anew if the file has one of that name, and frees the space of the old
        one. False leaves an index that has the same parameters, is whole and is not stale. A bloom
        filter counts with any parameters. Files that have all indexes are then not touched.
    page_index : bool, default True
        True also adds the page index of all columns to files that have none and at most 10,000
        column chunks. False adds it only if ``indexes`` ask for it. Sidecars cannot hold it. With
        bloom filters alone it is not added.
    keep : bool, default False
        True also adds the indexes to the policy of the data set in the folder ``path``:
        ``write_table``, ``write_dataset`` and Spark's writers then give them to new files there,
        and ``maintain`` adds them to files of other writers.
    progress : callable, optional
        Called with a file's path, the row groups that are done, and the row groups of all files.
    table_format : {"auto", "ignore"}, default "auto"
        Files of a Delta Lake, Iceberg or Hudi table are changed only if their own paths are given,
        or with ``"ignore"``: the table's log records their lengths.
    timeout : float, optional
        Seconds after which ``QueryTimeoutError`` is raised. Files that are done keep their indexes;
        the current file stays as it was.
    memory_limit : int or str, optional
        The memory limit in bytes, or a string such as ``"2GB"``, as for
        ``intarsia.set_memory_limit``.

    Returns
    -------
    list of IndexReport
        One report per file, in order.

    Raises
    ------
    IndexSpecError
        If no index is given, or one cannot be built, or no file can have it.
    FormatError
        If a file is not Parquet or must not be changed.
    PathError
        If there is no file, or one cannot be written.
    QueryTimeoutError
        If ``timeout`` has passed.
    OutOfMemoryError
        If a page does not fit into ``memory_limit``.

    Examples
    --------
    >>> reports = ia.add_indexes("lake", [ia.Lookup("trace_id"), "status:bloom"])
    >>> [report.added for report in reports]
    [('trace_id:lookup', 'status:bloom'), ('trace_id:lookup', 'status:bloom')]
    >>> ia.add_indexes("lake", ["trace_id:lookup"], replace=False)[0].kept
    ('trace_id:lookup',)
    """
    addition = Addition(path, indexes, filesystem, sidecar, table_format, keep=keep)
    addition.warn_of_coarse_pages()
    return addition.run(replace=replace, page_index=page_index, progress=progress)


class Addition:
    """Indexes that are to be added to files. Making one checks the footers of all files.

    Parameters and errors are those of ``add_indexes``.
    """

    def __init__(
        self,
        path: Data,
        indexes: Sequence[Index | str],
        filesystem: Any = None,
        sidecar: bool | PathLike = False,
        table_format: TableFormatOption = "auto",
        *,
        keep: bool = False,
    ) -> None:
        self._indexes, self._sidecar = parse_indexes(indexes), sidecar
        if not self._indexes:
            raise IndexSpecError("no index was asked for")
        self._policy_place = policy_folder(path, filesystem) if keep else None
        self.filesystem, self._files = data_files(path, filesystem, table_format)
        self._view = view_of(path)
        self._places = Sidecars.of_option(self.filesystem, sidecar)
        if self._places is not None:
            only_embedded(self._indexes)
            if not isinstance(path, pads.FileSystemDataset):
                self._places.check_apart(path, filesystem)
        remove_leftovers_of(self._files, self.filesystem)
        self.coarse_files: dict[str, PageLayout] = {}
        """The files whose pages are so long that an index saves little."""
        self._steps: list[int] = []
        _check_unfit({file: self._checked(file) for file in self._files})

    def _checked(self, file: str) -> Mapping[str, str]:
        """Checks that a file may be changed. Returns why it cannot have indexes, by name."""
        opened = open_file(file, self.filesystem, view=self._view(file))
        choice = choose(opened, self._indexes, anew=True, in_sidecar=False)
        check_may_write(self.filesystem, file)
        if self._places is None:
            check_changeable(opened)
        self._steps.append(max(1, len(opened.metadata.row_groups)))
        layout = None if all(isinstance(i, Standard) for i in choice.due) else page_layout(opened)
        if layout is not None and layout.is_coarse:
            self.coarse_files[file] = layout
        return choice.unfit

    def warn_of_coarse_pages(self) -> None:
        """Warns of files whose pages are so long that an index saves little."""
        if self.coarse_files:
            file, layout = max(self.coarse_files.items(), key=lambda one: one[1].lookup_share)
            counts = f"{len(self.coarse_files):,} of {len(self._files):,} files"
            warn(f"{file}: {layout}" + (f" ({counts})" if len(self._files) > 1 else ""))

    def run(
        self, *, replace: bool, page_index: bool, progress: Progress | None
    ) -> list[IndexReport]:
        """Adds the indexes. Returns a report of each file."""
        steps_done = _Steps(progress, self._files, self._steps)
        reports = []
        for number, file in enumerate(self._files):
            steps_done.begin(number)
            reports.append(
                index_file(
                    file,
                    self._indexes,
                    self.filesystem,
                    self._places,
                    replace=replace,
                    page_index=page_index,
                    on_group_done=steps_done,
                    view=self._view(file),
                )
            )
        steps_done.end()
        if self._policy_place is not None:
            place = self._sidecar if isinstance(self._sidecar, bool) else os.fspath(self._sidecar)
            change_policy(*self._policy_place, self._indexes, sidecar=place, page_index=page_index)
        return reports


def index_file(
    path: str,
    indexes: Sequence[IndexSpec],
    filesystem: Any,
    places: Sidecars | None,
    *,
    replace: bool,
    page_index: bool,
    on_group_done: GroupProgress | None = None,
    view: FileView = OWN_VIEW,
) -> IndexReport:
    """Adds indexes to one file, or to its sidecar given ``places``, as ``add_indexes`` does.

    ``view`` has the names of its columns in a table.
    """
    version = version_of(path, filesystem)
    with quiet(), _naming(path):
        opened = open_file(path, filesystem, sidecar=places, view=view)
        choice = due_in(opened, indexes, places, replace=replace, page_index=page_index)
    change = add_chosen(opened, filesystem, version, places, choice, Builder(on_group_done))
    if change.choice.extra_problem is not None:
        warn(f"{path}: {change.choice.extra_problem}")
    report = report_of(change.file)
    report = dataclasses.replace(report, added=change.added, kept=change.present)
    return _with_unfit(report, choice)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """The file as ``add_chosen`` left it, and the names of added and of present indexes."""

    file: OpenedFile
    added: tuple[str, ...]
    present: tuple[str, ...]
    choice: Choice
    """The choice, without a page index that could not be built."""


def add_chosen(
    file: OpenedFile,
    filesystem: Any,
    version: Version,
    places: Sidecars | None,
    choice: Choice,
    builder: Builder,
) -> Change:
    """Adds the indexes of ``choice`` to a file of that ``version``, or to its sidecar.

    If the page index that it was to get along cannot be built, the file gets the others.
    """
    if not choice.all_due:
        return Change(file, (), choice.present, choice)
    path = file.name
    check_may_write(filesystem, path)
    if places is None:
        check_changeable(file)
        warn_of_names(path, filesystem)
    change = partial(change_indexes, file, filesystem, version, places, builder=builder)
    with quiet(), _naming(path):
        names = names_of(file, choice.all_due)
        has_standard = any(isinstance(index, Standard) for index in choice.all_due)
        reports_before = _parquet_reports(file) if has_standard else []
        try:
            change(add=choice.all_due)
        except (FormatError, OutOfMemoryError) as error:
            if not choice.extra:
                raise
            choice = choice.without_extra(str(error).removeprefix(path).lstrip(",: "))
            change(add=choice.due)
        changed = open_file(path, filesystem, sidecar=places, view=file.view)
        reports_now = _parquet_reports(changed) if has_standard else []
    added = _added(names, reports_before, reports_now)
    unchanged = {report.name for report in reports_now} - {*added}
    present = (*choice.present, *(name for name in names if name in unchanged))
    return Change(changed, added, present, choice)


def _with_unfit(report: IndexReport, choice: Choice) -> IndexReport:
    """Returns the report with the names of indexes that the file cannot have, and the reasons."""
    reasons = tuple(map(choice.reason, choice.unfit))
    return dataclasses.replace(report, unfit=tuple(choice.unfit), reasons=reasons)


def _added(
    names: Iterable[str],
    reports_before: Sequence[StandardReport],
    reports_now: Sequence[StandardReport],
) -> tuple[str, ...]:
    """Returns the ``names`` that were added. Parquet's own count only if the file has them now."""
    names_now = {report.name for report in reports_now}
    unchanged = {
        report.name
        for report in reports_before
        if report.name == PageIndex.kind and report in reports_now
    }
    parquet_kinds = (PageIndex.kind, Bloom.kind)
    parquet_names = {name for name in names if name.rpartition(":")[2] in parquet_kinds}
    return tuple(
        name for name in names if name not in parquet_names or name in names_now - unchanged
    )


def _check_unfit(unfit: Mapping[str, Mapping[str, str]]) -> None:
    """Warns of indexes that some files cannot have. Raises ``IndexSpecError`` if none can."""
    messages = []
    for name in dict.fromkeys(name for reasons in unfit.values() for name in reasons):
        (first, reason), *others = [
            (file, reasons[name]) for file, reasons in unfit.items() if name in reasons
        ]
        if len(others) + 1 == len(unfit):
            raise IndexSpecError(f"{first}: {reason}")
        share = f"{len(others) + 1:,} of {len(unfit):,} files"
        messages.append(f"index {name}: {share} cannot have it; {first}: {reason}")
    for message in messages:
        warn(message)


def change_indexes(
    file: OpenedFile,
    filesystem: Any,
    version: Version,
    places: Sidecars | None,
    *,
    add: Sequence[IndexSpec] = (),
    drop: Collection[str] = (),
    builder: Builder | None = None,
) -> None:
    """Changes the indexes of one file of that ``version``, or of its sidecar, given ``places``."""
    builder = builder or Builder()
    if places is not None:
        check = partial(check_unchanged, file.name, filesystem, version)
        write_sidecar(file, only_embedded(add), drop, places, check, builder)
        return
    with Workspace() as work:
        rewrite(file, compose(file, add, drop, work, builder), filesystem, version)


@public
@takes_data_sets
def list_indexes(
    path: Data,
    *,
    filesystem: Any = None,
    sidecar: PathLike | None = None,
    table_format: TableFormatOption = "auto",
) -> list[IndexReport]:
    """Lists the indexes of every Parquet file under a path.

    Parameters
    ----------
    path : str, path-like, sequence of them or Dataset
        Files, folders, globs or URIs, or a data set, which stands for its files.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        The file system of ``path``. By default it is taken from the URI; other paths are local.
    sidecar : path-like, optional
        The folder of the sidecars, if it is not the usual ``_intarsia`` beside the files.
    table_format : {"auto", "ignore"}, default "auto"
        How files of Delta Lake, Iceberg and Hudi tables are treated, as for ``intarsia.dataset``.

    Returns
    -------
    list of IndexReport
        One report per file, in order. ``unfit`` names the indexes that other files have and this
        one cannot have.

    Raises
    ------
    FormatError
        If a file is not Parquet.
    PathError
        If there is no file.

    Examples
    --------
    >>> (report,) = ia.list_indexes("logs.parquet")
    >>> [entry.name for entry in report.indexes]
    ['trace_id:lookup']
    >>> [index.name for index in report.standard]
    ['page_index']
    """
    file_system, files = data_files(path, filesystem, table_format)
    places = places_of(file_system, sidecar)
    view = view_of(path)

    def opened(file: str) -> OpenedFile:
        return open_file(file, file_system, sidecar=places, view=view(file))

    reports = [report_of(opened(file)) for file in files]
    known = {entry.name: entry for report in reports for entry in report.entries}
    names = {report.path: frozenset(entry.name for entry in report.entries) for report in reports}
    lacking = {path for paths in missing_in(names).values() for path in paths}
    specs = {name: spec for name, entry in known.items() if (spec := _spec(entry)) is not None}
    for position, report in enumerate(reports):
        if report.path in lacking:
            others = [spec for name, spec in specs.items() if name not in names[report.path]]
            with quiet():
                choice = choose(opened(report.path), others, anew=True, in_sidecar=False)
            unknown = known.keys() - specs.keys() - names[report.path]
            reports[position] = _with_unfit(report, choice.without(unknown))
    return reports


def _spec(entry: IndexEntry) -> IndexSpec | None:
    """Returns the index that a directory entry describes, or None if its kind is unknown."""
    try:
        return make(entry.kind, entry.on, entry.params)
    except IndexSpecError:
        return None


class _Steps:
    """Calls ``Progress`` with the row groups done in all files, given those in the current file."""

    def __init__(
        self, progress: Progress | None, files: Sequence[str], steps: Sequence[int]
    ) -> None:
        self._progress, self._files = progress, files
        self._before = [0, *itertools.accumulate(steps)]
        self._number = self._last_reported = -1

    def begin(self, number: int) -> None:
        """Starts the file with this number."""
        self._number = number
        self(0)

    def __call__(self, done: int) -> None:
        """Reports row groups of the current file as done, the last one with the next file."""
        total_done = min(
            self._before[self._number] + done, self._before[self._number + 1] - (done > 0)
        )
        if self._progress and total_done != self._last_reported:
            self._last_reported = total_done
            self._progress(self._files[self._number], total_done, self._before[-1])

    def end(self) -> None:
        """Reports that all files are done."""
        if self._progress:
            self._progress(self._files[-1], self._before[-1], self._before[-1])


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Adds the file to the errors of a ``with`` block."""
    try:
        with placed(Where(path)):
            yield
    except IndexSpecError as error:
        if str(error).startswith(f"{path}: "):
            raise
        raise IndexSpecError(f"{path}: {error}") from error


def report_of(file: OpenedFile) -> IndexReport:
    """Returns the report of a file's indexes."""
    with quiet():
        directory, sidecar = file.directory, file.sections.sidecar
    entries = directory.indexes if directory else ()
    sidecar_entries = sidecar.directory.indexes if sidecar else ()
    size, problems = file.source.size, tuple(file.ignored)
    return IndexReport(
        file.name,
        file.num_rows,
        size,
        entries,
        parquet_index_reports(file),
        sidecar_entries,
        problems,
    )


def parquet_index_reports(file: OpenedFile) -> tuple[StandardReport, ...]:
    """Returns reports of Parquet's own indexes and of another writer's list of values."""
    return (*_parquet_reports(file), *strays(file))


def _parquet_reports(file: OpenedFile) -> list[StandardReport]:
    columns = [_index_places(group.columns) for group in file.metadata.row_groups]
    lengths_of: dict[str, list[int]] = {}
    for leaf in file.schema.leaves:
        for group in columns:
            chunk = group[leaf.index]
            if chunk is None:
                continue
            if chunk.offset_index_offset is not None:
                num_bytes = (chunk.offset_index_length or 0) + (chunk.column_index_length or 0)
                lengths_of.setdefault(PageIndex.kind, []).append(num_bytes)
            if chunk.meta_data and chunk.meta_data.bloom_filter_offset is not None:
                name = index_name(leaf.name, Bloom.kind)
                lengths_of.setdefault(name, []).append(chunk.meta_data.bloom_filter_length or 0)
    return [StandardReport(name, len(bytes_), sum(bytes_)) for name, bytes_ in lengths_of.items()]


def _index_places(
    columns: Sequence[ColumnChunk],
) -> Sequence[ColumnChunk | IndexPlaces | None]:
    """Returns where the indexes of chunks are; None for a chunk that cannot be decoded."""
    with contextlib.suppress(FormatError):
        return all_as(columns, IndexPlaces)
    decoded: list[ColumnChunk | None] = []
    for position in range(len(columns)):
        decoded.append(None)
        with contextlib.suppress(FormatError):
            decoded[position] = columns[position]
    return decoded


def strays(file: OpenedFile) -> tuple[StandardReport, ...]:
    """Returns the report of another writer's list of distinct values, if it is readable."""
    try:
        value_list = file.sections.foreign_list()
    except FormatError:
        return ()  # ``verify`` says what is wrong
    return (StandardReport(DistinctIDX1.kind, 0, value_list.place[1]),) if value_list else ()
