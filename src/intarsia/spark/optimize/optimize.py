"""``optimize``: a data set's small files made into fewer, or all its rows put into another order.

::

    day=1/  a b c d ▇▇▇▇▇▇        a to d are read and written as one file, which is published in
    day=1/  ▇▇▇▇    ▇▇▇▇▇▇        their place; then comes day=2, by a commit of its own

Rows stay in their folders. Only files that were read are removed; where one has changed since,
its folder stays as it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from intarsia.dataset.commit_journal import visible
from intarsia.errors import FormatError, PathError, Where
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.registry import IndexSpec, kinds_of
from intarsia.io.storage import PathLike
from intarsia.spark.column_names import map_in_arrow
from intarsia.spark.commit.commit import TEMPORARY, journals, publish, root_of, settle
from intarsia.spark.commit.storage import Place
from intarsia.spark.optimize.rewrite_plan import (
    Folder,
    Form,
    changed_since,
    chosen,
    folders_of,
    opened_folder,
    small_runs,
)
from intarsia.spark.optimize.rewrite_task import Part, carried_schema, merger, parts_of, reader
from intarsia.spark.session import parallelism_of, require_pyspark
from intarsia.spark.task_error import as_told
from intarsia.spark.types import spark_schema
from intarsia.spark.write.clustering import arranged
from intarsia.spark.write.job_spec import (
    Job,
    Layout,
    bytes_of,
    check_place,
    job_of,
    names_of,
    stated_order,
)
from intarsia.spark.write.row_sorting import FOLDER
from intarsia.spark.write.task import WrittenFile
from intarsia.spark.write.write import MANIFEST, file_writer, make_job_folder, told_of
from intarsia.writer.defaults import PAGE_ROWS
from intarsia.writer.parquet_writer import check_fit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROUND = 4
"""Files of the target size that each core writes before what is written is published."""


@dataclass(frozen=True, slots=True)
class OptimizedFolder:
    """A folder in which files were rewritten: what it had and has, in files and bytes.

    ``rows`` are those rewritten, ``written`` the new files.
    """

    folder: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    written: tuple[WrittenFile, ...]


def optimize(
    spark: SparkSession,
    path: PathLike,
    *,
    cluster_by: Sequence[str] = (),
    curve: str | None = None,
    indexes: Sequence[IndexSpec | str] | None = None,
    where: pc.Expression | str | None = None,
    target_file_size: int | str = "128 MB",
    rows_per_page: int = PAGE_ROWS,
    filesystem: Any = None,
) -> list[OptimizedFolder]:
    """Compact the files of a data set, folder by folder, or put their rows into another order.

    Files smaller than ``target_file_size`` are merged, neighbours by name, their rows in the order
    they have, up to about that size; all others stay untouched. With ``cluster_by``, and a
    ``curve``, as for ``write``, all files are rewritten in that order. ``where``, a condition on
    the columns of folders, limits it to some of them, as does a ``path`` of one folder.

    New files have all columns of those they replace, types, metadata and the codec of most of their
    bytes included, and their indexes: all that any of them has, in it or beside it, or those of
    ``indexes`` instead; none where that is empty. A page holds ``rows_per_page`` rows at most.

    Each folder is published at once: readers here see its old files or its new ones. A folder in
    which another writer changed or removed one of the files meanwhile stays as it is; files that
    appeared are not touched. Returns the folders in which anything was rewritten. Raises
    ``PathError`` at the end where some had to be left, ``UnsupportedError`` for files that must not
    or cannot be rewritten, before any is; for arguments as ``write`` does.
    """
    require_pyspark()
    target = bytes_of(target_file_size)
    if target is None:
        raise ValueError("target_file_size is bytes, or text such as '128 MB', not None")
    place = root_of(path, filesystem)
    check_place(place)
    kinds = None if indexes is None else kinds_of(indexes)
    layout = Layout(
        partition_by=(FOLDER,),
        cluster_by=names_of(cluster_by),
        curve=curve,
        rows_per_page=rows_per_page,
        target_file_size=target,
    )
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    settle(place)
    _, files = visible(path, filesystem)
    sizes = folders_of(place, [file.removeprefix(f"{place.root}/") for file in files])
    folders = []
    for name in chosen(sizes, where):
        runs = [sorted(sizes[name])] if cluster_by else small_runs(sizes[name], target)
        folder = opened_folder(place, name, sizes[name], runs, kinds) if runs else None
        if folder is not None:
            check_fit(folder.form.schema, folder.form.indexes, place.path(name))
            folders.append(folder)
    run = partial(_ordered, spark, layout, zone) if cluster_by else partial(_merged, spark, layout)
    if cluster_by or curve is not None:  # before anything is rewritten
        for folder in folders:
            _checked(place, folder.form, layout, zone)
    done = _Done()
    limit = target * parallelism_of(spark) * _ROUND
    for together in _rounds(folders, limit):
        _carry_out(place, together, run, layout, done)
    if done.given_up:
        left = "; ".join(f"{name or 'the data set'}: {why}" for name, why in done.given_up.items())
        raise PathError(
            f"{place.root}: {len(done.given_up)} of {len(folders)} folders were left as they "
            f"were, the others are done: {left}"
        )
    return done.reports


class _Done:
    """What became of folders so far."""

    def __init__(self) -> None:
        self.reports: list[OptimizedFolder] = []
        self.given_up: dict[str, str] = {}


Run = Callable[[Place, str, Sequence[Folder]], list[WrittenFile]]


class _OvertakenError(PathError):
    """Another writer was there in between."""


def _rounds(folders: Sequence[Folder], limit: int) -> Iterator[list[Folder]]:
    """Folders whose files are of one form, for one job each: up to about ``limit`` bytes."""
    together: list[Folder] = []
    for folder in folders:
        held = sum(file.bytes for one in together for file in one.files)
        if together and (held >= limit or not folder.form.is_as(together[0].form)):
            yield together
            together = []
        together.append(folder)
    if together:
        yield together


def _carry_out(
    place: Place, folders: Sequence[Folder], run: Run, layout: Layout, done: _Done
) -> None:
    """Rewrite and publish; folders that others have changed are left, and the rest tried again."""
    while folders:
        name = secrets.token_hex(8)
        make_job_folder(_job(place, name, folders[0].form, layout))
        try:
            try:
                with as_told():
                    written = run(place, name, folders)
            except Exception:  # whatever Spark made of it, the reason may be that a file is gone
                now = {folder.name: changed_since(place, folder.files) for folder in folders}
                changed = {name: why for name, why in now.items() if why}
                if not changed:
                    raise
                done.given_up |= changed
                folders = [folder for folder in folders if folder.name not in changed]
                continue
            for number, folder in enumerate(folders):
                _publish(place, name, number, folder, written, done)
            return
        finally:
            place.remove_tree(TEMPORARY + name)


def _publish(
    place: Place,
    job: str,
    number: int,
    folder: Folder,
    written: Sequence[WrittenFile],
    done: _Done,
) -> None:
    """Publish what was written of a folder, as the job's commit of that ``number``."""
    new = [file for file in written if file.path.rpartition("/")[0] == folder.name]
    rows = sum(file.rows for file in folder.files)
    if sum(file.rows for file in new) != rows:
        raise FormatError(f"{rows} rows were read, not as many written", Where(folder.name))
    old = [file.path for file in folder.files]
    places = Sidecars(place.filesystem)
    beside = [side for path in old for side in places.paths(place.path(path))]
    for path in old:
        places.check_listed(place.path(path))  # whose sidecar would be left behind
    beside = [path.removeprefix(f"{place.root}/") for path in beside]
    check = partial(_check, place, job, folder)
    try:
        remove = [*old, *beside]
        publish(place, job, [file.path for file in new], remove, number=number, check=check)
    except _OvertakenError as error:
        done.given_up[folder.name] = str(error)
        return
    before, after = sum(file.bytes for file in folder.files), sum(file.bytes for file in new)
    done.reports.append(
        OptimizedFolder(
            folder.name,
            folder.num_files,
            folder.num_files - len(old) + len(new),
            folder.num_bytes,
            folder.num_bytes - before + after,
            rows,
            tuple(new),
        )
    )


def _check(place: Place, job: str, folder: Folder) -> None:
    """Raise unless the old files are all there, unchanged, and nobody else's to replace.

    Journals come first: one that is gone by then has removed what it was to remove.
    """
    old = {file.path for file in folder.files}
    for journal in journals(place):
        if journal.job != job and not old.isdisjoint(journal.remove):
            raise _OvertakenError(
                f"another write is replacing its files, or was cut off: {journal.name}"
            )
    changed = changed_since(place, folder.files)
    if changed:
        raise _OvertakenError(changed)


# --- jobs ---------------------------------------------------------------------------------------


def _job(place: Place, name: str, form: Form, layout: Layout) -> Job:
    order = () if layout.curve else tuple(layout.cluster_by)
    return Job(
        place=place,
        name=name,
        schema=form.schema,
        indexes=form.indexes,
        partition_by=(FOLDER,),
        sorted_by=order,
        stated_order=stated_order(order, form.schema),
        rows_per_page=layout.rows_per_page,
        target_bytes=bytes_of(layout.target_file_size) if layout.cluster_by else None,
        time_zone="UTC",
        options=form.options,
        annotations=form.annotations,
    )


def _checked(place: Place, form: Form, layout: Layout, zone: str) -> Any:
    """The columns that travel through Spark. Raises as ``write`` does for what cannot be sorted."""
    carried = carried_schema(form.schema, place.root)
    job_of(place, "", spark_schema(carried), layout, zone, carries_folder=True)
    return carried


def _merged(
    spark: SparkSession, layout: Layout, place: Place, name: str, folders: Sequence[Folder]
) -> list[WrittenFile]:
    """Each run of files becomes one file, in a task of its own."""
    runs = []
    for folder in folders:
        job = _job(place, name, folder.form, layout)
        for run in folder.runs:
            parts = [Part(folder.name, file, tuple(range(len(file.group_bytes)))) for file in run]
            runs.append((job, folder.form, parts))
    ids = spark.range(len(runs), numPartitions=len(runs))
    return told_of(ids.mapInArrow(merger(runs), MANIFEST))


def _ordered(
    spark: SparkSession,
    layout: Layout,
    zone: str,
    place: Place,
    name: str,
    folders: Sequence[Folder],
) -> list[WrittenFile]:
    """All rows go through Spark's sort."""
    form = folders[0].form
    carried = _checked(place, form, layout, zone)
    tasks = [task for folder in folders for task in parts_of(folder)]
    ids = spark.range(len(tasks), numPartitions=len(tasks))
    rows = ids.mapInArrow(reader(place, form, tasks, carried), spark_schema(carried))
    job = _job(place, name, form, layout)
    return told_of(map_in_arrow(arranged(rows, layout, job), file_writer(job), MANIFEST))
