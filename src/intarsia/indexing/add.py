"""Adding indexes to files that exist, and listing them.

::

    before    PAR1 … row groups … footer
    after     PAR1 … row groups … footer | sections, page indexes, filters | directory | footer'
              └──── not a byte moved ───┘
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from intarsia.deadline import time_limited
from intarsia.errors import FormatError, IndexSpecError, Where, placed, public, quiet, warn
from intarsia.file.foreign_idx1 import stray_list
from intarsia.file.health import missing_in
from intarsia.file.open_file import OpenedFile
from intarsia.file.sidecar_discovery import Sidecars, places_of
from intarsia.index.base import index_name
from intarsia.index.directory import IndexEntry
from intarsia.index.kinds.distinct_idx1 import DistinctIDX1
from intarsia.index.parquet_indexes import Bloom, PageIndex, Standard
from intarsia.index.registry import IndexSpec, kinds_of, make
from intarsia.indexing.build import Builder, Told, names_of
from intarsia.indexing.file_layout import compose
from intarsia.indexing.missing_indexes import Choice, choose
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
from intarsia.tables.data_files import TableFormatOption, data_files

Progress = Callable[[str, int, int], None]
"""Called with a file's path, how many row groups are done, and how many there are in all files.

A file without any counts as one.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class StandardReport:
    """The format's own indexes of a name: on how many chunks, and their length in bytes.

    ``distinct_idx1`` is the list of distinct values that another writer left, of a column that the
    file does not name: on no chunk.
    """

    name: str
    chunks: int
    bytes: int


@shown_redacted
@dataclasses.dataclass(frozen=True, slots=True)
class IndexReport:
    """What one file's indexes are and take: lengths in bytes.

    ``sidecar`` are those beside the file. ``problems`` say which are ignored as a whole, and why:
    those in the file, or in its sidecar, where they are damaged or belong to what the file was
    before it was rewritten. ``added`` are the names of those that it has just been given,
    ``dropped`` of those just taken off, ``kept`` of those that were asked for and left as they
    were: they were there before. ``unfit`` are those that were asked for, or that other files of a
    list have, and that it cannot have; ``reasons`` say why, one for each of them.
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
        held = [entry.name for entry in self.indexes] + [kind.name for kind in self.standard]
        beside = [f"{entry.name} beside it" for entry in self.sidecar]
        names = ", ".join([*held, *beside]) or "no index"
        return f"<IndexReport of {self.path}: {self.rows:,} rows; {names}>"

    @property
    def entries(self) -> tuple[IndexEntry, ...]:
        """The indexes of our own, in the file and beside it."""
        return (*self.indexes, *self.sidecar)

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        entries = {
            place: [{"name": entry.name, **dataclasses.asdict(entry)} for entry in held]
            for place, held in (("indexes", self.indexes), ("sidecar", self.sidecar))
        }
        return dataclasses.asdict(self) | entries


@public
@time_limited("adding indexes to")
def add_indexes(
    path: PathLike | Sequence[PathLike],
    indexes: Sequence[IndexSpec | str],
    *,
    filesystem: Any = None,
    sidecar: bool | PathLike = False,
    replace: bool = True,
    progress: Progress | None = None,
    table_format: TableFormatOption = "auto",
    timeout: float | None = None,
    memory_limit: int | str | None = None,
) -> list[IndexReport]:
    """Add ``indexes`` to every Parquet file under ``path``: a file, folder, glob or URI.

    An index is an object, ``Lookup("trace_id")``, ``Bloom("user_id")``, ``PageIndex()``, or text,
    ``"trace_id:lookup"``. Page indexes and bloom filters are the format's own: other readers use
    them as well. A chunk that has a page index keeps it; one with pages that begin within a row can
    have none, nor bounds where its values have no order, or a NaN among them.

    All indexes of a file are built in one pass over it, in bounded memory. A file keeps all its
    bytes; what is new is appended to a copy that then takes its place at once. On S3 the store
    makes the copy, where boto3 is installed (the extra ``s3``); elsewhere what is kept is
    downloaded and uploaded. An index of the same name is replaced, and its space returned; with
    ``replace=False`` one that is there with the same parameters (a bloom filter with any), whole
    and not stale, stays, and a file that has them all is left alone: so are files indexed that are
    new in a folder. ``progress`` is called with a path, and how many of its row groups are done, of
    how many. A file that cannot have an index, as it lacks the column, goes without, which is
    warned of. Every file's footer is checked before the first file is changed; where values turn
    out to be such that an index cannot be built, files before theirs keep what they were given.

    With ``sidecar=True`` no file is changed: the indexes go into a file beside each, in a folder
    ``_intarsia`` that other readers pass over, and are found there by whatever reads it; with a
    folder, a path or URI, they go there, and whatever reads is told so. They serve as long as the
    file stays as it is: its length, its footer, and its entity tag or time of last change. Where
    the file has an index of the same name in itself, that one is used.

    Files of a table of another format are changed if their own paths are given, or with
    ``table_format="ignore"``, as for ``intarsia.dataset``: its log says how long they are.

    After ``timeout`` seconds ``QueryTimeoutError`` is raised, and ``OutOfMemoryError`` if a page
    does not fit into ``memory_limit``, which is as for ``intarsia.set_memory_limit``: files that
    are done keep their indexes, the one that was being worked on is as it was.

    Raises ``IndexSpecError`` for an index that cannot be built or no file can have, ``FormatError``
    for a file that is not Parquet or must not be changed, ``PathError`` where there is none, or
    none can be written.
    """
    indexes = kinds_of(indexes)
    if not indexes:
        raise IndexSpecError("no index was asked for")
    found, files = data_files(path, filesystem, table_format)
    places = None if sidecar is False else Sidecars(found, None if sidecar is True else sidecar)
    if places is not None:
        only_embedded(indexes)
        places.check_apart(path, filesystem)
    remove_leftovers_of(files, found)
    steps, unfit = [], {}
    for file in files:
        opened = open_file(file, found)
        choice = choose(opened, indexes, anew=True, beside=False)
        check_may_write(found, file)
        if places is None:
            check_changeable(opened)
        steps.append(max(1, len(opened.metadata.row_groups)))
        unfit[file] = choice.unfit
    _check_unfit(unfit)
    told = _Steps(progress, files, steps)
    reports = []
    for at, file in enumerate(files):
        told.begin(at)
        version = version_of(file, found)
        with quiet(), _naming(file):
            opened = open_file(file, found, sidecar=places)
            choice = choose(opened, indexes, anew=replace, beside=places is not None)
            names = names_of(opened, choice.due)
            has_standard = any(isinstance(index, Standard) for index in choice.due)
            before = _of_format(opened) if has_standard else []
        if choice.due:
            if places is None:
                warn_of_names(file, found)
            with quiet(), _naming(file):
                add_to(opened, choice.due, found, version, places, told)
        now = report_of(open_file(file, found, sidecar=places))
        added = _added(names, before, now.standard)
        there = {one.name for one in now.standard} - {*added}
        kept = (*choice.there, *(name for name in names if name in there))
        reports.append(_with_unfit(dataclasses.replace(now, added=added, kept=kept), choice))
    told.end()
    return reports


def _with_unfit(report: IndexReport, choice: Choice) -> IndexReport:
    """The report of a file that cannot have some of the indexes, and why."""
    reasons = tuple(map(choice.reason, choice.unfit))
    return dataclasses.replace(report, unfit=tuple(choice.unfit), reasons=reasons)


def _added(
    names: Iterable[str], before: Sequence[StandardReport], now: Sequence[StandardReport]
) -> tuple[str, ...]:
    """Those of ``names`` that a file has now and had not, of which the format's own are told.

    One without rows gets none of these; page indexes that are there stay.
    """
    there = {one.name for one in now}
    kept = {one.name for one in before if one.name == PageIndex.kind and one in now}
    of_format = (PageIndex.kind, Bloom.kind)
    own = {name for name in names if name.rpartition(":")[2] in of_format}
    return tuple(name for name in names if name not in own or name in there - kept)


def _check_unfit(unfit: Mapping[str, Mapping[str, str]]) -> None:
    """Warn of indexes that some files cannot have, which are given with the reasons.

    Raises ``IndexSpecError`` where that is all files.
    """
    messages = []
    for name in dict.fromkeys(name for whys in unfit.values() for name in whys):
        (first, why), *others = [(file, whys[name]) for file, whys in unfit.items() if name in whys]
        if len(others) + 1 == len(unfit):
            raise IndexSpecError(f"{first}: {why}")
        share = f"{len(others) + 1:,} of {len(unfit):,} files"
        messages.append(f"index {name}: {share} cannot have it; {first}: {why}")
    for message in messages:
        warn(message)


def add_to(
    file: OpenedFile,
    indexes: Sequence[IndexSpec],
    filesystem: Any,
    version: Version,
    places: Sidecars | None = None,
    told: Told | None = None,
    builder: Builder | None = None,
) -> None:
    """Add ``indexes`` to one file of that ``version``, or to its sidecar, if told of ``places``."""
    if places is not None:
        check = partial(check_unchanged, file.name, filesystem, version)
        write_sidecar(file, only_embedded(indexes), (), places, check, told, builder)
        return
    with Workspace() as work:
        rewrite(file, compose(file, indexes, (), work, told, builder), filesystem, version)


@public
def list_indexes(
    path: PathLike | Sequence[PathLike],
    *,
    filesystem: Any = None,
    sidecar: PathLike | None = None,
    table_format: TableFormatOption = "auto",
) -> list[IndexReport]:
    """The indexes of every Parquet file under ``path``, in it and beside it, or in ``sidecar``.

    A report's ``unfit`` are the indexes that other files have and this one cannot have.
    ``table_format`` is as for ``intarsia.dataset``. Raises as
    ``add_indexes`` does.
    """
    found, files = data_files(path, filesystem, table_format)
    places = places_of(found, sidecar)
    reports = [report_of(open_file(file, found, sidecar=places)) for file in files]
    known = {entry.name: entry for report in reports for entry in report.entries}
    names = {report.path: frozenset(entry.name for entry in report.entries) for report in reports}
    lacking = {path for paths in missing_in(names).values() for path in paths}
    specs = {name: spec for name, entry in known.items() if (spec := _spec(entry)) is not None}
    for at, report in enumerate(reports):
        if report.path in lacking:
            others = [spec for name, spec in specs.items() if name not in names[report.path]]
            with quiet():
                file = open_file(report.path, found, sidecar=places)
                choice = choose(file, others, anew=True, beside=False)
            unknown = known.keys() - specs.keys() - names[report.path]
            reports[at] = _with_unfit(report, choice.without(unknown))
    return reports


def _spec(entry: IndexEntry) -> IndexSpec | None:
    """The index that a directory describes; None if its kind is not known here."""
    try:
        return make(entry.kind, entry.on, entry.params)
    except IndexSpecError:
        return None


class _Steps:
    """Tells ``Progress`` of the steps of all files, given those of the file that is under way."""

    def __init__(
        self, progress: Progress | None, files: Sequence[str], steps: Sequence[int]
    ) -> None:
        self._progress, self._files = progress, files
        self._before = [0, *itertools.accumulate(steps)]
        self._at = self._last = -1

    def begin(self, at: int) -> None:
        """The next file, whose number is ``at``, is begun."""
        self._at = at
        self(0)

    def __call__(self, done: int) -> None:
        """So many steps of the file are done; the last one is when the file is."""
        now = min(self._before[self._at] + done, self._before[self._at + 1] - (done > 0))
        if self._progress and now != self._last:
            self._last = now
            self._progress(self._files[self._at], now, self._before[-1])

    def end(self) -> None:
        """All files are done."""
        if self._progress:
            self._progress(self._files[-1], self._before[-1], self._before[-1])


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """A context whose errors say which file they are of."""
    try:
        with placed(Where(path)):
            yield
    except IndexSpecError as error:
        if str(error).startswith(f"{path}: "):
            raise
        raise IndexSpecError(f"{path}: {error}") from error


def report_of(file: OpenedFile) -> IndexReport:
    """What a file's indexes are."""
    with quiet():
        directory, beside = file.directory, file.sections.beside
    entries = directory.indexes if directory else ()
    others = beside.directory.indexes if beside else ()
    size, problems = file.source.size, tuple(file.ignored)
    return IndexReport(file.name, file.num_rows, size, entries, standard_of(file), others, problems)


def standard_of(file: OpenedFile) -> tuple[StandardReport, ...]:
    """The format's own indexes of a file, by their names, and the list that another writer left."""
    return (*_of_format(file), *strays(file))


def _of_format(file: OpenedFile) -> list[StandardReport]:
    columns = [_index_places(group.columns) for group in file.metadata.row_groups]
    found: dict[str, list[int]] = {}
    for leaf in file.schema.leaves:
        for group in columns:
            chunk = group[leaf.index]
            if chunk is None:
                continue
            if chunk.offset_index_offset is not None:
                lengths = (chunk.offset_index_length or 0) + (chunk.column_index_length or 0)
                found.setdefault(PageIndex.kind, []).append(lengths)
            if chunk.meta_data and chunk.meta_data.bloom_filter_offset is not None:
                name = index_name(leaf.name, Bloom.kind)
                found.setdefault(name, []).append(chunk.meta_data.bloom_filter_length or 0)
    return [StandardReport(name, len(bytes_), sum(bytes_)) for name, bytes_ in found.items()]


def _index_places(
    columns: Sequence[ColumnChunk],
) -> Sequence[ColumnChunk | IndexPlaces | None]:
    """Where the indexes of a row group's chunks are; None for a chunk that cannot be decoded.

    ``verify`` says why it cannot.
    """
    with contextlib.suppress(FormatError):
        return all_as(columns, IndexPlaces)
    found: list[ColumnChunk | None] = []
    for at in range(len(columns)):
        found.append(None)
        with contextlib.suppress(FormatError):
            found[at] = columns[at]
    return found


def strays(file: OpenedFile) -> tuple[StandardReport, ...]:
    """The list of distinct values that another writer left, where there is one to be read."""
    try:
        found = stray_list(file)
    except FormatError:
        return ()  # ``verify`` says what is wrong
    return (StandardReport(DistinctIDX1.kind, 0, found.place[1]),) if found else ()
