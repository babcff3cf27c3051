"""Brings the files of a data set in line with its policy, by Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow.dataset as pads
import pyarrow.fs as pafs

from intarsia.indexing.policy import Policy
from intarsia.io.storage import PathLike
from intarsia.maintenance.maintain import Executor, MaintenanceReport, maintain_by
from intarsia.parquet.value_display import plural
from intarsia.spark.catalog.build import build_catalog
from intarsia.spark.job_status import Progress
from intarsia.spark.optimize.optimize import optimize
from intarsia.spark.session import require_pyspark
from intarsia.spark.tasks import divided, results_of
from intarsia.tables.data_files import TableFormatOption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
_MAX_TASK_FILES = 16
"""Most files of one task. Files that are done stay done if the task is repeated."""


def maintain(
    spark: SparkSession,
    path: PathLike | pads.FileSystemDataset,
    *,
    dry_run: bool = False,
    filesystem: Any = None,
    progress: Progress | None = None,
    table_format: TableFormatOption = "auto",
) -> MaintenanceReport:
    """Brings the files of a folder in line with its policy, like ``intarsia.maintain``.

    Spark's tasks merge small files, look at files and change them, and refresh the catalog. A job
    that was killed is completed by the next one. A task that is repeated, or runs twice, does
    nothing to files that are done.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        The session.
    path, dry_run, table_format
        As for ``intarsia.maintain``.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        Where ``path`` is; it must be picklable.
    progress : callable, optional
        Called as for ``add_indexes``: first for the files that tasks look at, then for those that
        they change.

    Returns
    -------
    MaintenanceReport
        The files that were changed, and those that could not be.

    Raises
    ------
    PathError, FormatError
        As ``intarsia.maintain`` does.

    Examples
    --------
    ::

        ias.maintain(spark, "lake/logs")
    """
    require_pyspark()

    def on_all(work: Callable[[Sequence[T]], Iterable[R]], items: Sequence[T]) -> Iterable[R]:
        runs = divided(spark, items, _MAX_TASK_FILES)
        description = f"maintain, {plural(len(items), 'file')}"
        return [*chain(*results_of(spark, runs, partial(_all_of, work), description, progress))]

    executor = Executor(on_all, partial(_merge, spark), partial(_refresh, spark))
    return maintain_by(
        executor, path, dry_run=dry_run, filesystem=filesystem, table_format=table_format
    )


def _all_of(work: Callable[[Sequence[T]], Iterable[R]], items: Sequence[T]) -> list[R]:
    return list(work(items))


def _merge(spark: SparkSession, root: str, policy: Policy, filesystem: pafs.FileSystem) -> None:
    page_rows = policy.layout.get("rows_per_page")
    optimize(
        spark,
        root,
        target_file_size=policy.layout["target_file_size"],
        rows_per_page=None if page_rows is None else int(page_rows),
        filesystem=filesystem,
    )


def _refresh(spark: SparkSession, root: str, filesystem: pafs.FileSystem) -> None:
    build_catalog(spark, root, refresh=True, filesystem=filesystem, table_format="ignore")
