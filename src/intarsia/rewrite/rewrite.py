"""``rewrite``: makes the files of a data set anew.

::

    day=1/  a b c d ▇▇▇▇▇▇        a to d become one file, by a commit; ▇ is replaced under its name
    day=1/  ▇▇▇▇    ▇▇▇▇▇▇        or with ``sort_by``, all of a folder in another order

One unit of work is what is published at once: a file, files that are merged, a sorted folder, or
the whole data set if it gets other folders.
"""

from __future__ import annotations

import dataclasses
import itertools
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

import intarsia.deadline as deadline
from intarsia.commit.commit import TEMPORARY, publish, root_of, settle
from intarsia.commit.job import (
    Job,
    WrittenFile,
    bytes_of,
    check_count,
    check_place,
    job_folder,
    names_of,
    open_job_writer,
    replace_file,
    write_folder,
    write_group,
)
from intarsia.commit.storage import Place
from intarsia.dataset.commit_log import visible
from intarsia.dataset.partitioning import hive_types
from intarsia.deadline import time_limited
from intarsia.errors import PathError, PredicateError, public, unknown_column
from intarsia.expr.evaluate import evaluate
from intarsia.index.index import Index
from intarsia.index.registry import IndexSpec, parse_indexes, spec_name
from intarsia.indexing.policy import Policy, change_policy, policy_above, policy_folder
from intarsia.io.atomic_replace import remove_leftovers_of
from intarsia.io.external_sort import Workspace
from intarsia.io.storage import PathLike
from intarsia.notebook import notebook_html
from intarsia.process_state import ForkLock
from intarsia.rewrite.file_rows import Part, part_batches
from intarsia.rewrite.folder_commit import check_current, check_rows, replace_folder, sidecars_of
from intarsia.rewrite.rewrite_plan import (
    Folder,
    OvertakenError,
    changed_since,
    folder_values,
    folders_of,
    matching_folders,
    opened_folder,
    small_runs,
    with_missing,
)
from intarsia.scan.request import without_rows
from intarsia.sql.where_clause import parse_where
from intarsia.threads import in_order
from intarsia.writer.defaults import DEFAULT_ROW_GROUP_ROWS, default_page_rows
from intarsia.writer.empty_file import check_fit
from intarsia.writer.policy_settings import indexes_of
from intarsia.writer.row_buffer import Rows
from intarsia.writer.row_sorting import by_folder, sorted_tables, stated_order, with_sortable

Progress = Callable[[str, int, int], None]
"""Called with a file's path, the rows that have been read, and the rows of all files."""
_SPLIT_FACTOR = 1.25
"""Rows stay in one file if the old files have at most this multiple of the target size."""


@dataclass(frozen=True, slots=True)
class RewriteReport:
    """The files, rows and bytes of a call of ``rewrite``.

    Files that were left as they were do not count.

    Attributes
    ----------
    files_before, files_after : int
        The number of files that were replaced or copied, and of new files.
    rows : int
        The rows of the new files.
    bytes_before, bytes_after : int
        The lengths of these files in bytes.
    seconds : float
        The time it took.
    """

    files_before: int
    files_after: int
    rows: int
    bytes_before: int
    bytes_after: int
    seconds: float

    def _repr_html_(self) -> str:
        facts = [(name.replace("_", " "), value) for name, value in self.to_dict().items()]
        title = f"Rewrote {self.files_before:,} files in {self.seconds:.1f} s"
        return notebook_html(title, (("", ""), facts))

    def to_dict(self) -> dict[str, Any]:
        """Returns all attributes as values that JSON can represent."""
        return dataclasses.asdict(self)


@public
@time_limited("rewriting")
def rewrite(
    path: PathLike,
    *,
    indexes: Sequence[Index | str] | None = None,
    sort_by: Sequence[str] = (),
    rows_per_page: int | None = None,
    row_group_rows: int | None = None,
    target_file_size: int | str | None = "128 MB",
    partition_by: Sequence[str] | None = None,
    compression: str | None = None,
    where: pc.Expression | str | None = None,
    output: PathLike | None = None,
    only_small: bool = False,
    keep: bool = False,
    filesystem: Any = None,
    progress: Progress | None = None,
    timeout: float | None = None,
    memory_limit: int | str | None = None,
) -> RewriteReport:
    """Makes the files of a data set anew: in small pages, with indexes, merged, sorted.

    Every file is replaced by one with the same rows. Files smaller than ``target_file_size`` are
    merged with their neighbors by name in the same folder. New files have all columns of the files
    they replace, with types, field ids and metadata. They have the codec that most of the old bytes
    have. Indexes that old files have, embedded or in sidecars, are built anew and embedded.

    Readers see the old files or the new ones. A file is replaced under its name. Merged and sorted
    files get new names, by an entry of the commit log that Intarsia's readers obey. If the process
    is killed, no row is lost or doubled: the next call, or ``recover_dataset``, finishes or undoes
    the commit. If another writer changes a file meanwhile, that file stays as it is.

    A folder may have a policy (``keep``). Where an argument is not given, new files in the folder
    follow it. They get its indexes in addition to those of the old files.

    Parameters
    ----------
    path : str or path-like
        The folder of the data set, one of its Hive folders, or a file.
    indexes : sequence of Index or str, optional
        The indexes of the new files, as for ``add_indexes``. An empty sequence is for none. By
        default all indexes that an old file has.
    sort_by : sequence of str, default ()
        The columns by which the rows of each folder are sorted, NULL last. Equal rows stay in
        order. Rows that do not fit into memory are sorted in ``TMPDIR``.
    rows_per_page : int, optional
        The most rows of a page: by default 2,048 in files with indexes, else 8,192.
    row_group_rows : int, optional
        The most rows of a row group. By default 1,048,576, or fewer that take 256 MB.
    target_file_size : int or str or None, default "128 MB"
        In bytes, or text such as ``"128 MB"`` (units are powers of 1,024). Smaller files are
        merged up to this size. Sorted rows, and those that get other folders, are divided into
        files of about this size. None replaces each file by one file, which is sorted by itself.
    partition_by : sequence of str, optional
        Makes the folders anew, named after the values of these columns. All files are then
        published at once. Columns of the old folders become columns of the files. By default
        files stay in their folders.
    compression : str, optional
        The codec: ``"zstd"``, ``"snappy"``, ``"gzip"``, ``"brotli"``, ``"lz4"`` or ``"none"``.
    where : pyarrow.compute.Expression or str, optional
        A condition on partition columns; only files in folders for which it is true are rewritten.
        With ``output`` it may be on any column, and only rows for which it is true are written.
    output : str or path-like, optional
        A folder for the new files, which must be empty or not exist. The old files then stay.
    only_small : bool, default False
        Only merges small files. Files that have no small neighbor stay as they are.
    keep : bool, default False
        Writes the arguments to the policy of the folder ``path``: ``indexes``, ``sort_by``, and as
        its layout ``rows_per_page``, ``row_group_rows``, ``target_file_size``, ``compression``.
        ``maintain`` then merges small files, and rewrites files with longer pages.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        The file system of ``path`` and ``output``. By default it is taken from each URI; other
        paths are local.
    progress : callable, optional
        Called with a file's path, the rows that have been read, and the rows of all files.
    timeout : float, optional
        Seconds after which ``QueryTimeoutError`` is raised. Files that are done stay new.
    memory_limit : int or str, optional
        The memory limit in bytes, or a string such as ``"2GB"``, as for
        ``intarsia.set_memory_limit``.

    Returns
    -------
    RewriteReport
        Files, rows and bytes before and after.

    Raises
    ------
    PathError
        If there is no file, ``output`` is not empty, or files cannot be written. Also, at the end,
        if files were left as they were because another writer changed them.
    UnsupportedError
        Before any file is replaced, if one must not or cannot be.
    IndexSpecError, PredicateError
        If an index cannot be built, or a column does not exist or cannot be used so.
    ValueError
        If another argument is wrong.
    QueryTimeoutError
        If ``timeout`` has passed.
    OutOfMemoryError
        If memory is short.

    Examples
    --------
    >>> report = ia.rewrite("lake", sort_by=["trace_id"], indexes=["trace_id:lookup"])
    >>> report.files_before, report.files_after
    (2, 2)
    """
    start = time.monotonic()
    target, columns = bytes_of(target_file_size), names_of(sort_by)
    folder_columns = None if partition_by is None else names_of(partition_by)
    if only_small and (target is None or partition_by is not None or output is not None):
        raise ValueError("only_small needs target_file_size, without partition_by and output")
    moves_files = partition_by is not None and output is None
    if moves_files and where is not None:
        raise ValueError("partition_by with where needs output: the other files would stay")
    if keep:
        if output is not None:
            raise ValueError("keep is about the folder path, and output is another one")
        policy_folder(path, filesystem)
    for name, count in (("rows_per_page", rows_per_page), ("row_group_rows", row_group_rows)):
        if count is not None:
            check_count(name, count)
    index_objects = None if indexes is None else tuple(parse_indexes(indexes))
    source, out, files = _places(path, output, filesystem)
    if moves_files and Place.of(path, filesystem).root != source.root:
        raise ValueError(f"partition_by needs the whole data set, {source.root}, or output")
    folders, row_filter = _matching(folders_of(source, files), where, is_copy=output is not None)
    arguments = {
        "rows_per_page": rows_per_page,
        "row_group_rows": row_group_rows,
        "target_file_size": target,
        "compression": compression,
    }
    given = {name: value for name, value in arguments.items() if value is not None}
    policy = (policy_above(source.filesystem, source.root) if output is None else None) or Policy()
    settings: Mapping[str, Any] = {**policy.layout, **given}
    layout = _Layout(
        sort_by=columns or policy.sort_by,
        partition_by=folder_columns,
        keys=hive_types([f"/{file}" for file in files], None, "hive"),
        rows_per_page=settings.get("rows_per_page"),
        row_group_rows=settings.get("row_group_rows", DEFAULT_ROW_GROUP_ROWS),
        target_bytes=target,
        options={name: settings[name] for name in ("compression",) if name in settings},
        row_filter=row_filter,
        only_small=only_small,
    )
    units = _planned_units(source, folders, layout, index_objects)
    if policy.indexes and index_objects is None:
        units = [_with_policy_indexes(unit, policy) for unit in units]
    work = _Rewriting(source, out, layout, units, progress)
    reports = work.run()
    if work.given_up:
        raise PathError(
            f"{source.root}: {len(work.given_up):,} of {len(units):,} groups of files were left "
            f"as they were, the others are done: {'; '.join(work.given_up)}"
        )
    if keep:
        order = {"sort_by": columns} if columns else {}
        change_policy(source.filesystem, source.root, indexes or (), given, **order)
    before = [file for unit in units for file in unit.files]
    return RewriteReport(
        len(before),
        len(reports),
        sum(file.rows for file in reports),
        sum(file.bytes for file in before),
        sum(file.bytes for file in reports),
        time.monotonic() - start,
    )


def _places(
    path: PathLike, output: PathLike | None, filesystem: Any
) -> tuple[Place, Place, list[str]]:
    """Returns the data set's folder, that of new files, and the old files below the first.

    Finishes or undoes writes that were interrupted.
    """
    source = root_of(path, filesystem)
    if source.kind() == pafs.FileType.File:  # a file whose name does not end with .parquet
        source = dataclasses.replace(source, root=source.root.rpartition("/")[0])
    check_place(source)
    settle(source)
    _, files = visible(path, filesystem)
    out = source
    if output is not None:
        given = Place.of(path, filesystem)
        out = _output_place(output, filesystem, given if files == [given.root] else source)
    files = [file.removeprefix(f"{source.root}/") for file in files]
    remove_leftovers_of([out.path(file) for file in files], out.filesystem)
    return source, out, files


def _matching(
    folders: Mapping[str, Mapping[str, int]], where: pc.Expression | str | None, *, is_copy: bool
) -> tuple[dict[str, Mapping[str, int]], pc.Expression | str | None]:
    """Returns the folders that ``where`` is about, and the filter of rows.

    Only the rows of a copy are filtered, if ``where`` has other columns than those of folders.
    """
    try:
        return {name: folders[name] for name in matching_folders(folders, where, "hive")}, None
    except PredicateError as error:
        if not is_copy:
            raise PredicateError(
                f"where can use only partition columns, unless output is given: {error}"
            ) from error
    return {name: folders[name] for name in sorted(folders)}, where


@dataclass(frozen=True, slots=True)
class _Layout:
    """The layout of new files, with the arguments of ``rewrite``."""

    sort_by: tuple[str, ...]
    partition_by: tuple[str, ...] | None
    keys: pa.Schema
    """The partition columns of the old folders."""
    rows_per_page: int | None
    row_group_rows: int
    target_bytes: int | None
    options: Mapping[str, Any]
    row_filter: pc.Expression | str | None
    only_small: bool

    @property
    def order(self) -> tuple[str, ...]:
        """The columns by which the rows of a unit are sorted."""
        partition_by = self.partition_by or ()
        return (*partition_by, *(name for name in self.sort_by if name not in partition_by))

    def job(self, place: Place, name: str, unit: Folder, groups_at_once: int) -> Job:
        """Returns the job that writes the files of a unit."""
        file_format = unit.file_format
        target = self.target_bytes if self.order else None
        num_bytes = sum(file.bytes for file in unit.files)
        if target is not None and self.partition_by is None and num_bytes < target * _SPLIT_FACTOR:
            target = None
        order = tuple(name for name in self.order if name in file_format.schema.names)
        return Job(
            place=place,
            name=name,
            schema=file_format.schema,
            indexes=file_format.indexes,
            partition_by=self.partition_by or (),
            sorted_by=order,
            stated_order=stated_order(order, file_format.schema),
            rows_per_page=self.rows_per_page or default_page_rows(file_format.indexes),
            target_bytes=target,
            time_zone="UTC",
            options={**file_format.options, **self.options},
            annotations=file_format.annotations,
            row_group_rows=self.row_group_rows,
            groups_at_once=groups_at_once,
            nulls_first=False,
        )

    def replaces_one(self, unit: Folder, job: Job) -> bool:
        """True if one new file takes the place of one old file."""
        return len(unit.files) == 1 and job.target_bytes is None and self.partition_by is None


def _output_place(output: PathLike, filesystem: Any, source: Place) -> Place:
    """Returns the folder of new files. Raises ``PathError`` unless it is empty or missing."""
    place = Place.of(output, filesystem)
    if place.root.endswith(".parquet"):
        raise ValueError(f"output is a folder, not a file: {place.root}; write_table makes a file")
    check_place(place)
    if place.kind() == pafs.FileType.Directory and place.names(""):
        raise PathError(f"{place.root}: the folder for new files is not empty")
    if place.filesystem.equals(source.filesystem) and place.root.startswith(f"{source.root}/"):
        raise PathError(f"{place.root}: the folder for new files is in that of the old files")
    return place


def _planned_units(
    place: Place,
    sizes: Mapping[str, Mapping[str, int]],
    layout: _Layout,
    indexes: Sequence[IndexSpec] | None,
) -> list[Folder]:
    """Returns the units of work, after a look at all footers.

    Raises ``PredicateError`` or ``IndexSpecError`` for columns that a file lacks.
    """
    runs: list[tuple[str, Mapping[str, int], list[str]]] = []
    if layout.partition_by is not None:
        whole = {path: size for files in sizes.values() for path, size in files.items()}
        runs.append(("", whole, sorted(whole)))
    else:
        for name, files in sizes.items():
            runs += [(name, files, run) for run in _runs(files, layout)]
    opened = partial(
        opened_folder,
        place,
        indexes=indexes,
        keeps_empty=True,
        keys=None if layout.partition_by is None else layout.keys,
        partition_by=layout.partition_by or (),
    )
    units = [unit for name, files, run in runs if (unit := opened(name, files, [run])) is not None]
    for unit in units:
        file_format = unit.file_format
        for column in layout.order:
            if column not in file_format.read_schema.names:
                raise unknown_column(column, file_format.read_schema.names)
        for column in layout.partition_by or ():
            kind = file_format.read_schema.field(column).type
            if pa.types.is_nested(kind) or pa.types.is_duration(kind):
                raise PredicateError(f"column {column!r} cannot be in partition_by: it is {kind}")
        if not file_format.schema.names:
            raise PredicateError("every column is in partition_by; nothing is left to write")
        check_fit(file_format.schema, file_format.indexes, place.path(unit.name))
    return units


def _with_policy_indexes(unit: Folder, policy: Policy) -> Folder:
    """Returns a unit whose new files also have the indexes of the policy."""
    file_format = unit.file_format
    added = indexes_of(policy, unit.name, file_format.schema, {})
    indexes = {spec_name(index): index for index in (*file_format.indexes, *added)}
    changed = dataclasses.replace(file_format, indexes=tuple(indexes.values()))
    return dataclasses.replace(unit, file_format=changed)


def _runs(files: Mapping[str, int], layout: _Layout) -> list[list[str]]:
    """Returns which files of a folder are rewritten together."""
    if layout.target_bytes is None:
        return [[path] for path in sorted(files)]
    if layout.only_small:
        return small_runs(files, layout.target_bytes)
    if layout.sort_by:
        return [sorted(files)]
    merged = small_runs(files, layout.target_bytes)
    alone = files.keys() - {path for run in merged for path in run}
    return sorted([*merged, *([path] for path in alone)])


class _Rewriting:
    """The work on all units: it writes new files, and publishes those of each unit."""

    def __init__(
        self,
        source: Place,
        out: Place,
        layout: _Layout,
        units: Sequence[Folder],
        progress: Progress | None,
    ) -> None:
        self.given_up: list[str] = []
        """Why units were left as they were."""
        self._source, self._out, self._layout, self._units = source, out, layout, units
        self._progress, self._lock, self._rows_read = progress, ForkLock(), 0
        self._total = sum(file.rows for unit in units for file in unit.files)
        self._name = secrets.token_hex(8)
        self._is_copy = out != source
        groups_at_once = pa.cpu_count() if len(units) == 1 else 1  # else threads work on units
        self._jobs = [layout.job(out, self._name, unit, groups_at_once) for unit in units]

    def run(self) -> list[WrittenFile]:
        """Returns the new files. An error leaves units that are not published as they were."""
        if not self._jobs:
            return []
        written: list[WrittenFile] = []
        tasks = (partial(self._written, number) for number in range(len(self._units)))
        with job_folder(self._jobs[0]):
            for number, new in enumerate(in_order(tasks, pa.cpu_count() - 1)):
                if new is not None and self._published(number, new):
                    written += new
            if self._is_copy:
                if not written and self._layout.partition_by is None:
                    written = [self._empty_file()]
                publish(self._out, self._name, [file.path for file in written])
        return written

    def _written(self, number: int) -> list[WrittenFile] | None:
        """Writes the files of a unit. Returns None if another writer changed an old file.

        An error of a copy ends it, as no old file can stay in the place of a new one.
        """
        unit, job = self._units[number], self._jobs[number]
        try:
            with Workspace() as work:
                if not self._is_copy and self._layout.replaces_one(unit, job):
                    return [self._replaced(unit, job, work)]
                return list(self._new_files(number, unit, job, work))
        except Exception as error:  # any error may come from a removed file
            problem = str(error)
            if not isinstance(error, OvertakenError):
                problem = changed_since(self._source, unit.files) or ""
            if self._is_copy or not problem:
                raise
        self.given_up.append(problem)
        return None

    def _replaced(self, unit: Folder, job: Job, work: Workspace) -> WrittenFile:
        """Replaces a file under its name, and removes its sidecars, which are of the old file."""
        (old,) = unit.files

        def check(written: int) -> None:
            check_rows(unit, written)
            check_current(self._source, self._name, unit.files)

        sidecars = sidecars_of(job.place, [old.path])
        new = replace_file(job, old.path, Rows(self._tables(unit, work)), check)
        for sidecar in sidecars:
            job.place.remove(sidecar)
        return new

    def _new_files(
        self, number: int, unit: Folder, job: Job, work: Workspace
    ) -> Iterator[WrittenFile]:
        """Writes new files of a unit into the job's folder."""
        tables, stem = self._tables(unit, work), f"part-{number:05}"
        if self._layout.partition_by is None:
            yield from write_folder(job, unit.name, stem, Rows(tables))
            return
        plain = (with_sortable(table, job.partition_by) for table in tables)
        batches = (batch for table in plain for batch in table.to_batches())
        for folder, rows in by_folder(batches, job.partition_by, job.time_zone):
            yield from write_folder(job, folder, stem, Rows(rows))

    def _tables(self, unit: Folder, work: Workspace) -> Iterator[pa.Table]:
        """Yields the rows of new files in their order."""
        tables = itertools.chain.from_iterable(
            self._part_tables(unit, Part(file.path.rpartition("/")[0], file, groups))
            for file in unit.files
            if (groups := tuple(range(len(file.group_bytes))))
        )
        order = self._layout.order
        return sorted_tables(tables, order, work) if order else tables

    def _part_tables(self, unit: Folder, part: Part) -> Iterator[pa.Table]:
        """Yields the rows of a file that are written, with the columns of its folder."""
        filter_, file_format = self._layout.row_filter, unit.file_format
        names, path = file_format.read_schema.names, self._source.path(part.file.path)
        if filter_ is not None or self._layout.partition_by is not None:
            wide = with_missing(file_format.read_schema, self._layout.keys)
            file_format = dataclasses.replace(file_format, read_schema=wide)
            filter_ = parse_where(filter_, wide) if isinstance(filter_, str) else filter_
        (values,) = folder_values([part.folder], self._layout.keys)
        for batch in part_batches(self._source, file_format, part, values):
            deadline.check()
            table = pa.Table.from_batches([batch])
            yield (table if filter_ is None else evaluate(filter_, table)).select(names)
            self._advance(path, len(batch))

    def _advance(self, path: str, rows: int) -> None:
        if self._progress is not None:
            with self._lock:
                self._rows_read += rows
                self._progress(path, self._rows_read, self._total)

    def _published(self, number: int, new: Sequence[WrittenFile]) -> bool:
        """Publishes the new files of a unit. Returns False if the old ones stay instead."""
        unit = self._units[number]
        if self._is_copy or self._layout.replaces_one(unit, self._jobs[number]):
            return True
        try:
            replace_folder(self._source, self._name, unit, new, number)
        except OvertakenError as error:
            self.given_up.append(str(error))
            return False
        return True

    def _empty_file(self) -> WrittenFile:
        """Writes a file without rows, which gives the new data set its schema."""
        job = self._jobs[0]
        name = f"part-empty-{secrets.token_hex(8)}.parquet"
        temporary = f"{TEMPORARY}{job.name}/{name}"
        with job.place.written(temporary) as path, open_job_writer(job, path) as writer:
            write_group(writer, without_rows(job.schema), job)
        return WrittenFile(name, 0, job.place.size(temporary))
