"""The state of a data set on one screen: coverage of indexes, layout, catalog and policy."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow.dataset as pads
import pyarrow.fs as pafs

import intarsia.deadline as deadline
from intarsia.catalog.catalog import pointer_path
from intarsia.catalog.describe import CatalogState, show_catalog
from intarsia.dataset.commit_log import ENTRY_PREFIX, SUCCESS, visible
from intarsia.deadline import time_limited
from intarsia.errors import FormatError, IndexSpecError, IntarsiaError, public, quiet
from intarsia.file.file_footer import ColumnTypes
from intarsia.file.file_view import FileView
from intarsia.file.index_subjects import subject_of
from intarsia.file.page_layout import LONG_PAGES, page_layout
from intarsia.file.sidecar_discovery import Sidecars, places_of
from intarsia.index.base import index_name
from intarsia.index.index import Index
from intarsia.index.literal_encoding import unfit_for_hashing
from intarsia.index.parquet_indexes import Bloom, PageIndex
from intarsia.index.registry import IndexSpec, make, parse_indexes, spec_name, spec_text
from intarsia.indexing.add import parquet_index_reports
from intarsia.indexing.build import indexed_expression
from intarsia.indexing.policy import Policy, read_policy
from intarsia.io.retry import infos_of
from intarsia.io.storage import FileSource, PathLike, as_list
from intarsia.notebook import notebook_html
from intarsia.parquet.value_display import plural
from intarsia.redaction import shown_redacted
from intarsia.report.lake_page import LakeFile
from intarsia.scan.parquet_file import open_source
from intarsia.tables.data_files import (
    Data,
    TableFormatOption,
    ViewOf,
    data_folder,
    table_of,
    view_of,
)
from intarsia.threads import run_io_tasks
from intarsia.usage_counts.usage_file import UsageReport, usage_of

SMALL_FILE_BYTES = 16 * 1024 * 1024
"""A smaller file counts as small if its folder has another one that it could be merged with."""
_MAX_PROBLEMS = 5
"""Problems that the text shows; the dictionary has all."""


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """One index in the files of a data set. Sizes are in bytes.

    Files without rows, and files that cannot have the index, do not count.

    Attributes
    ----------
    name : str
        The name in the files, such as ``"trace_id:lookup"``.
    index : str
        The index as ``add_indexes`` takes it. Empty if its kind is not known here.
    files, rows, bytes : int
        The files that have the index, their rows and their size.
    all_files, all_rows, all_bytes : int
        The files that can have the index, their rows and their size.
    index_bytes : int
        The size of the index in all files.
    stale : int
        The number of files whose index is from before a rewrite, as far as its name can be read.
    unfit : int
        The number of files that cannot have the index.
    is_wanted : bool
        True if the policy names the index. Other parameters than the policy's then do not count.
    """

    name: str
    index: str
    files: int
    all_files: int
    rows: int
    all_rows: int
    bytes: int
    all_bytes: int
    index_bytes: int
    stale: int
    unfit: int
    is_wanted: bool

    @property
    def share(self) -> float:
        """The share of rows, from 0.0 to 1.0, in files with the index. 0.0 if none can have it."""
        return self.rows / self.all_rows if self.all_rows else 0.0


@shown_redacted
@dataclass(frozen=True, slots=True)
class Status:
    """The state of a data set. Printed, it is one screen of text. Sizes are in bytes.

    Attributes
    ----------
    path : str
        The path that was given, or the first one.
    files, rows, bytes, row_groups : int
        The size of the data set, without files that cannot be opened.
    page_rows : int
        The median over the files of the mean rows of a page.
    coarse_files : int
        The files whose pages have 32,768 rows or more, so that indexes help little.
    small_files : int
        The files below 16 MiB in folders with more than one of them.
    index_bytes : int
        The size of all indexes, page indexes and bloom filters included.
    stale_files : int
        The files with an index, or a sidecar, from before a rewrite.
    indexes : tuple of IndexCoverage
        The coverage of each index, those of the policy first.
    policy : Policy or None
        The policy of the data set's folder.
    catalog : CatalogState or None
        The catalog of the data set's folder.
    last_commit : str
        When a commit was last finished, as ISO 8601 in UTC. Empty if the commit log does not say.
    unfinished_commits : int
        The commits that are under way, or were interrupted.
    problems : tuple of str
        The errors of files that cannot be opened, and of a damaged policy or catalog.
    usage : UsageReport or None
        The savings by indexes in the last 30 days. None if nothing was counted in the data set's
        folder; ``intarsia.usage.enable()`` begins.
    lake_files : tuple of LakeFile
        The files, as ``intarsia status --html`` draws them. ``to_dict`` leaves them out.
    """

    path: str
    files: int
    rows: int
    bytes: int
    row_groups: int
    page_rows: int
    coarse_files: int
    small_files: int
    index_bytes: int
    stale_files: int
    indexes: tuple[IndexCoverage, ...]
    policy: Policy | None
    catalog: CatalogState | None
    last_commit: str
    unfinished_commits: int
    problems: tuple[str, ...]
    usage: UsageReport | None = None
    lake_files: tuple[LakeFile, ...] = ()

    def coverage(self, index: Index | str) -> IndexCoverage | None:
        """Returns the coverage of an index. None if no file has it and nothing asked for it."""
        (spec,) = parse_indexes(index)
        text = spec_text(spec)
        same = [one for one in self.indexes if text in (one.index, one.name)]
        same += [one for one in self.indexes if one.name == spec_name(spec)]
        return same[0] if same else None

    def to_dict(self) -> dict[str, Any]:
        """Returns all attributes as values that JSON can represent."""
        shares = [{**dataclasses.asdict(one), "share": one.share} for one in self.indexes]
        document = dataclasses.asdict(dataclasses.replace(self, lake_files=()))
        del document["lake_files"]
        return document | {"indexes": shares}

    def __repr__(self) -> str:
        return str(self)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The state without the indexes, as names and strings."""
        return [
            (
                "size",
                f"{plural(self.files, 'file')}, {plural(self.rows, 'row')}, {self.bytes:,} bytes",
            ),
            ("layout", self._layout()),
            ("policy", self._policy()),
            ("catalog", self._catalog()),
            ("commits", self._commits()),
            *(("problem", problem) for problem in self.problems[:_MAX_PROBLEMS]),
        ]

    def _repr_html_(self) -> str:
        indexes = [
            (one.name, f"{int(one.share * 1000) / 10:.1f}%", one.files, one.index_bytes, one.stale)
            for one in self.indexes
        ]
        heads = ("index", "covered", "files", "bytes", "stale")
        return notebook_html(self.path, (("", ""), self.facts), (heads, indexes), text=str(self))

    def __str__(self) -> str:
        share = self.index_bytes / max(self.bytes, 1)
        lines = [
            f"{self.path}: {plural(self.files, 'file')}, {plural(self.rows, 'row')}, "
            f"{self.bytes:,} bytes, {plural(self.row_groups, 'row group')}",
            f"layout   {self._layout()}",
            f"policy   {self._policy()}",
            f"catalog  {self._catalog()}",
            f"commits  {self._commits()}",
            f"indexes  {self.index_bytes:,} bytes, {share:.1%} of the files; "
            f"{plural(self.stale_files, 'file')} with stale indexes",
        ]
        cells = [("", "covered", "files", "rows", "index bytes", "")]
        for one in self.indexes:
            remarks = ["wanted"] * one.is_wanted + [f"{one.stale:,} stale"] * bool(one.stale)
            remarks += [f"{one.unfit:,} cannot have it"] * bool(one.unfit)
            remarks += [] if self.usage is None else [self.usage.of_index(one.name)]
            files, rows = f"{one.files:,} of {one.all_files:,}", f"{one.rows:,} of {one.all_rows:,}"
            covered = f"{int(one.share * 1000) / 10:.1f}%"  # 100 % only if nothing is missing
            cells.append(
                (one.name, covered, files, rows, f"{one.index_bytes:,}", ", ".join(remarks))
            )
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells[bool(not self.indexes) :]:
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            lines.append(f"  {'  '.join(padded)}".rstrip())
        lines += [f"problem  {problem}" for problem in self.problems[:_MAX_PROBLEMS]]
        if len(self.problems) > _MAX_PROBLEMS:
            lines.append(f"problem  … and {len(self.problems) - _MAX_PROBLEMS:,} more")
        return "\n".join(lines)

    def _layout(self) -> str:
        parts = [f"pages of {self.page_rows:,} rows"]
        if self.coarse_files:
            files = f"{self.coarse_files:,} of {plural(self.files, 'file')}"
            parts.append(f"{files} with pages of {LONG_PAGES:,} rows or more: rewrite them")
        if self.small_files:
            parts.append(f"{plural(self.small_files, 'file')} below {SMALL_FILE_BYTES >> 20} MiB")
        return "; ".join(parts)

    def _policy(self) -> str:
        if self.policy is None:
            return "none"
        settings = [f"{name}={value}" for name, value in self.policy.layout.items()]
        settings += [f"sorted by {', '.join(self.policy.sort_by)}"] * bool(self.policy.sort_by)
        return "; ".join([", ".join(self.policy.indexes) or "no indexes", *settings])

    def _catalog(self) -> str:
        known = self.catalog
        if known is None:
            return "none"
        return (
            f"{known.files:,} of {plural(self.files, 'file')}, {known.changed:,} new or changed, "
            f"{known.gone:,} gone, {known.bytes:,} bytes"
        )

    def _commits(self) -> str:
        last = f"last at {self.last_commit}" if self.last_commit else "none finished"
        if not self.unfinished_commits:
            return last
        return f"{last}; {self.unfinished_commits:,} under way or interrupted"


@dataclass(frozen=True, slots=True)
class _File:
    """The facts of one file. ``error`` is set if it cannot be opened."""

    path: str
    size: int = 0
    rows: int = 0
    row_groups: int = 0
    page_rows: int | None = None
    columns: ColumnTypes | None = None
    indexes: Mapping[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    """The bytes and the parameters of each index, by name."""
    specs: Mapping[str, IndexSpec] = dataclasses.field(default_factory=dict)
    stale: frozenset[str] = frozenset()
    """The names of stale indexes, as far as they can be read."""
    is_stale: bool = False
    error: str = ""


@public
@time_limited("reading the status of")
def status(
    path: Data,
    *,
    indexes: Sequence[Index | str] = (),
    filesystem: Any = None,
    sidecar: PathLike | None = None,
    table_format: TableFormatOption = "auto",
    timeout: float | None = None,
) -> Status:
    """Returns the state of a data set: which files have which indexes, and how they are laid out.

    Reads the footers of all files, those on remote storage concurrently, and no pages. Files that
    cannot be opened are reported as problems.

    Parameters
    ----------
    path : str, path-like, sequence of them or Dataset
        Files, folders, globs or URIs, or a data set, which stands for its files. The policy and the
        catalog are those of a single folder or table.
    indexes : sequence of Index or str, optional
        Indexes to report on, besides those that files have and those of the policy.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        The file system of ``path``. By default it is taken from the URI; other paths are local.
    sidecar : path-like, optional
        The folder of the sidecars, if it is not the usual ``_intarsia`` beside the files.
    table_format : {"auto", "ignore"}, default "auto"
        How files of Delta Lake, Iceberg and Hudi tables are treated, as for ``intarsia.dataset``.
    timeout : float, optional
        Seconds after which ``QueryTimeoutError`` is raised.

    Returns
    -------
    Status
        The state, which prints as text.

    Raises
    ------
    IndexSpecError
        If one of ``indexes`` is invalid.
    PathError
        If there is no file.
    QueryTimeoutError
        If ``timeout`` has passed.

    Examples
    --------
    >>> _ = ia.add_indexes("lake", ["trace_id:lookup"])
    >>> ia.status("lake").coverage("trace_id:lookup").share
    1.0
    """
    requested = parse_indexes(indexes)
    seen: dict[str, pafs.FileInfo] = {}
    file_system, paths = visible(path, filesystem, seen, table_format=table_format)
    places = places_of(file_system, sidecar)
    problems: list[str] = []
    table = table_of(path)
    shown = repr(path) if isinstance(path, pads.FileSystemDataset) else str(as_list(path)[0])
    root = data_folder(path, filesystem)
    policy = catalog = None
    with quiet():
        files = list(_facts(file_system, paths, places, view_of(path)))
        try:
            policy = read_policy(file_system, root) if root else None
        except (IntarsiaError, OSError) as error:
            problems.append(str(error))
        try:
            if root and infos_of(file_system, pointer_path(root)).type == pafs.FileType.File:
                catalog = show_catalog(root, filesystem=file_system)
        except (IntarsiaError, OSError) as error:
            problems.append(str(error))
        used, problem = usage_of(root, file_system)
        problems += [problem] * bool(problem)
    opened = [file for file in files if not file.error]
    problems = [file.error for file in files if file.error] + problems
    page_rows = sorted(file.page_rows for file in opened if file.page_rows is not None)
    names = [name.rpartition("/")[2] for name in seen]
    commits = [info.mtime for name, info in seen.items() if name.rpartition("/")[2] == SUCCESS]
    last = max((one for one in commits if one is not None), default=None)
    coverage = tuple(_coverage(opened, [] if policy is None else policy.specs, requested))
    return Status(
        shown if table is None else table.name,
        len(opened),
        sum(file.rows for file in opened),
        sum(file.size for file in opened),
        sum(file.row_groups for file in opened),
        page_rows[len(page_rows) // 2] if page_rows else 0,
        sum(rows >= LONG_PAGES for rows in page_rows),
        _num_small(opened),
        sum(size for file in opened for size, _ in file.indexes.values()),
        sum(file.is_stale for file in opened),
        coverage,
        policy,
        catalog,
        "" if last is None else _utc(last),
        sum(name.startswith(ENTRY_PREFIX) for name in names),
        tuple(problems),
        used,
        tuple(_lake_files(opened, coverage, seen)),
    )


def _lake_files(
    files: Sequence[_File], coverage: Sequence[IndexCoverage], seen: Mapping[str, pafs.FileInfo]
) -> Iterator[LakeFile]:
    """Yields what the map draws: coverage by the policy's indexes, or if none, by all others."""
    names = {one.name for one in coverage if one.is_wanted} or {one.name for one in coverage}
    for file in files:
        covered = len(names & file.indexes.keys()) / max(len(names), 1)
        changed = seen[file.path].mtime if file.path in seen else None
        yield LakeFile(file.path, file.size, file.rows, file.page_rows or 0, changed, covered)


def _utc(when: datetime) -> str:
    """Returns a time as ISO 8601 in UTC, to the second."""
    return when.astimezone(UTC).replace(microsecond=0).isoformat()


def _num_small(files: Sequence[_File]) -> int:
    """Returns the number of small files in folders that have more than one."""
    small = (file.path.rpartition("/")[0] for file in files if file.size < SMALL_FILE_BYTES)
    return sum(count for count in Counter(small).values() if count > 1)


def _facts(
    filesystem: pafs.FileSystem,
    paths: Sequence[str],
    places: Sidecars,
    view: ViewOf,
) -> Iterator[_File]:
    """Yields the facts of files, in order. Files on remote storage are read concurrently."""
    tasks = (partial(_facts_of, filesystem, path, places, view(path)) for path in paths)
    if isinstance(filesystem, pafs.LocalFileSystem):
        yield from (task() for task in tasks)
    else:
        yield from run_io_tasks(tasks)


def _facts_of(filesystem: pafs.FileSystem, path: str, places: Sidecars, view: FileView) -> _File:
    deadline.check()
    try:
        with contextlib.closing(FileSource(filesystem, path)) as source:
            file = open_source(source, places=places, view=view)
            layout = page_layout(file)
            indexes: dict[str, tuple[int, str]] = {}
            specs: dict[str, IndexSpec] = {}
            for entry in file.sections.entries:
                indexes[entry.name] = entry.length, _text(entry.params)
                with contextlib.suppress(IndexSpecError):
                    specs[entry.name] = make(entry.kind, entry.on, entry.params)
            for report in parquet_index_reports(file):
                if report.chunks:  # else a list of another writer
                    indexes[report.name] = report.bytes, ""
                    is_bloom = report.name.endswith(f":{Bloom.kind}")
                    on = report.name.removesuffix(f":{Bloom.kind}")
                    specs[report.name] = Bloom(on) if is_bloom else PageIndex()
            stale = {entry.name for entries in file.sections.stale.values() for entry in entries}
            return _File(
                path,
                source.size,
                file.num_rows,
                len(file.metadata.row_groups),
                None if layout is None else layout.page_rows,
                file.columns,
                indexes,
                specs,
                frozenset(stale - indexes.keys()),
                bool(file.sections.stale),
            )
    except (IntarsiaError, OSError) as error:
        return _File(path, error=str(error))


def _text(params: Mapping[str, Any]) -> str:
    return json.dumps(dict(params), sort_keys=True)


def _coverage(
    files: Sequence[_File], policy: Sequence[IndexSpec], requested: Sequence[IndexSpec]
) -> Iterator[IndexCoverage]:
    """Yields the coverage of the indexes of the policy, those requested, and those in a file."""
    with_rows = [file for file in files if file.rows]
    column_types = list(dict.fromkeys(f.columns for f in with_rows if f.columns is not None))
    known = {name: spec for file in files for name, spec in file.specs.items()}
    specs: dict[str, IndexSpec | None] = {}
    wanted_names = set()
    for spec in (*policy, *requested):
        names = (_name_in(columns, spec) for columns in column_types)
        name = next((name for name in names if name is not None), spec_name(spec))
        specs.setdefault(name, spec)
        if spec in policy:
            wanted_names.add(name)
    for file in files:
        for name in (*file.indexes, *sorted(file.stale)):
            specs.setdefault(name, known.get(name))
    for name, one in specs.items():
        able = {c: one is None or _name_in(c, one) is not None for c in column_types}
        fitting = [f for f in with_rows if f.columns is not None and able[f.columns]]
        params = None
        if name in wanted_names and not isinstance(one, Bloom | PageIndex | None):
            params = _text(one.params)
        having = [
            file
            for file in fitting
            if name in file.indexes and params in (None, file.indexes[name][1])
        ]
        yield IndexCoverage(
            name,
            "" if one is None else spec_text(one),
            len(having),
            len(fitting),
            sum(file.rows for file in having),
            sum(file.rows for file in fitting),
            sum(file.size for file in having),
            sum(file.size for file in fitting),
            sum(file.indexes[name][0] for file in files if name in file.indexes),
            sum(name in file.stale for file in fitting),
            len(with_rows) - len(fitting),
            name in wanted_names,
        )


def _name_in(columns: ColumnTypes, index: IndexSpec) -> str | None:
    """Returns the name of an index in files with these columns. None if they cannot have it."""
    if isinstance(index, PageIndex):
        return index.kind
    if isinstance(index, Bloom):
        leaf = columns.schema.leaf(index.on)
        unfit = leaf is None or unfit_for_hashing(columns.order(leaf.index))
        return None if unfit else spec_name(index)
    try:
        term = subject_of(columns, index).term
    except (IndexSpecError, FormatError):
        return None
    return index_name(indexed_expression(index, term), index.kind)
