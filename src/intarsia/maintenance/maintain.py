"""Brings the files of a data set in line with its policy: their layout, indexes and catalog."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow.dataset as pads
import pyarrow.fs as pafs

import intarsia.deadline as deadline
from intarsia.catalog.build import build_catalog
from intarsia.catalog.catalog import pointer_path
from intarsia.catalog.describe import show_catalog
from intarsia.commit.commit import settle
from intarsia.commit.storage import Place
from intarsia.dataset.commit_log import visible
from intarsia.deadline import time_limited
from intarsia.errors import IntarsiaError, OutOfMemoryError, PathError, public, quiet
from intarsia.file.file_view import OWN_VIEW, FileView
from intarsia.file.page_layout import page_layout
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.registry import spec_name
from intarsia.indexing.add import index_file
from intarsia.indexing.missing_indexes import due_in
from intarsia.indexing.policy import Policy, policy_folder, read_policy
from intarsia.io.atomic_replace import remove_leftovers_of
from intarsia.io.retry import infos_of
from intarsia.io.storage import PathLike
from intarsia.parquet.value_display import plural
from intarsia.redaction import shown_redacted
from intarsia.rewrite.rewrite import rewrite
from intarsia.rewrite.rewrite_plan import folders_of, small_runs
from intarsia.scan.parquet_file import open_file
from intarsia.tables.data_files import TableFormatOption, table_of, views_of
from intarsia.threads import run_io_tasks

Progress = Callable[[str, int, int], None]
"""Called with a file's path, the files that are done, and the files that lack something."""
_MAX_FAILURES = 5
"""Failures that the text shows; the dictionary has all."""


@dataclass(frozen=True, slots=True)
class MaintainedFile:
    """A file that lacked something.

    Attributes
    ----------
    path : str
        The file.
    indexes : tuple of str
        The names of the indexes that were added or, in a dry run, would be.
    error : str
        Why the file could not be read or changed. Empty if it was.
    """

    path: str
    indexes: tuple[str, ...] = ()
    error: str = ""


@shown_redacted
@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """The files that ``maintain`` changed. Printed, it is a few lines of text.

    Attributes
    ----------
    path : str
        The data set's folder.
    files : int
        The number of its files.
    changed : tuple of MaintainedFile
        The files that got indexes or, in a dry run, would get them.
    failed : tuple of MaintainedFile
        The files that could not be read or changed.
    catalog : str
        ``"refreshed"``, ``"current"``, ``"outdated"`` in a dry run, or ``"none"``.
    is_dry_run : bool
        True if nothing was changed.
    rewritten : int
        The number of files that were merged or got shorter pages or, in a dry run, would be.
    """

    path: str
    files: int
    changed: tuple[MaintainedFile, ...]
    failed: tuple[MaintainedFile, ...]
    catalog: str
    is_dry_run: bool
    rewritten: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Returns all attributes as values that JSON can represent."""
        return dataclasses.asdict(self)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        verb = "would change" if self.is_dry_run else "changed"
        files = f"{len(self.changed):,} of {plural(self.files, 'file')}"
        lines = [f"{self.path}: {verb} {files}; catalog: {self.catalog}"]
        counts = Counter(name for file in self.changed for name in file.indexes)
        lines += [f"  {name}: {plural(count, 'file')}" for name, count in counts.items()]
        if self.rewritten:
            lines.append(f"  rewritten: {plural(self.rewritten, 'file')}")
        lines += [f"  failed: {file.error}" for file in self.failed[:_MAX_FAILURES]]
        if len(self.failed) > _MAX_FAILURES:
            lines.append(f"  failed: … and {len(self.failed) - _MAX_FAILURES:,} more")
        return "\n".join(lines)


@public
@time_limited("maintaining")
def maintain(
    path: PathLike | pads.FileSystemDataset,
    *,
    dry_run: bool = False,
    filesystem: Any = None,
    progress: Progress | None = None,
    table_format: TableFormatOption = "auto",
    timeout: float | None = None,
    memory_limit: int | str | None = None,
) -> MaintenanceReport:
    """Brings the files of a folder in line with its policy, and refreshes its catalog.

    ``add_indexes(…, keep=True)`` and ``rewrite(…, keep=True)`` write the policy.

    1. Small files are merged up to the ``target_file_size`` of its layout.
    2. Files with pages of more than twice its ``rows_per_page`` are written anew.
    3. Files get the indexes that they lack. An index counts if it has the policy's parameters, is
       whole and not stale.
    4. The catalog is refreshed if there is one and it is outdated.

    Other files are not touched, and all rows stay. Readers see the old files or the new ones. A run
    that was killed is completed by the next one. Only on remote storage, if merged files were being
    published, the report says that ``recover_dataset`` has to finish or undo that. An error in one
    file does not stop the others. With a policy of sidecars no file is changed, so the first two
    steps are left out.

    Parameters
    ----------
    path : str, path-like or Dataset
        The folder or URI of the data set, or a table such as ``intarsia.delta`` opens. The files of
        a table only get indexes: its log would not know of files that are written.
    dry_run : bool, default False
        Only reports what would be done.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        The file system of ``path``. By default it is taken from the URI; other paths are local.
    progress : callable, optional
        Called with a file's path, the files that are done, and the files that lack something.
    table_format : {"auto", "ignore"}, default "auto"
        How files of Delta Lake, Iceberg and Hudi tables are treated, as for ``intarsia.dataset``.
    timeout : float, optional
        Seconds after which ``QueryTimeoutError`` is raised. Files that are done keep their indexes.
    memory_limit : int or str, optional
        The memory limit in bytes, or a string such as ``"2GB"``.

    Returns
    -------
    MaintenanceReport
        The files that were changed, and those that could not be.

    Raises
    ------
    PathError
        If ``path`` is no folder with data files, or has no policy.
    FormatError
        If the policy is damaged.
    QueryTimeoutError
        If ``timeout`` has passed.

    Examples
    --------
    >>> _ = ia.add_indexes("lake", ["trace_id:lookup"], keep=True)
    >>> ia.maintain("lake").changed
    ()
    """
    _, root = policy_folder(path, filesystem)
    file_system, paths = visible(path, filesystem, table_format=table_format)
    policy = read_policy(file_system, root)
    if policy is None:
        raise PathError(
            f"{root}: the folder has no policy; add_indexes(path, indexes, keep=True) writes one"
        )
    if table_of(path) is not None:
        policy = dataclasses.replace(policy, layout={})
    elif not dry_run:
        settle(Place.of(root, file_system))
    small, failed = _merged(file_system, root, paths, policy, dry_run=dry_run)
    rewritten, remaining = len(small), [file for file in paths if file not in small]
    if small and not dry_run:
        _, paths = visible(path, filesystem, table_format=table_format)
        remaining = paths
    views = views_of(path)
    looked_at = _looked_at(file_system, remaining, policy, views)
    failed += [file for file, _ in looked_at if file.error]
    todo = [(file, is_long) for file, is_long in looked_at if not file.error]
    changed: list[MaintainedFile] = []
    if not dry_run:
        remove_leftovers_of([file.path for file, _ in todo], file_system)
    for number, (file, is_long) in enumerate(todo):
        deadline.check()
        if progress and not dry_run:
            progress(file.path, number, len(todo))
        if dry_run:
            done = file
        else:
            view = views.get(file.path, OWN_VIEW)
            done = _maintained(file_system, file.path, policy, view, is_long=is_long)
        if done.error:
            failed.append(done)
        elif is_long:
            rewritten += 1
        elif done.indexes:
            changed.append(done)
    catalog = _catalog(file_system, root, will_change=bool(todo or rewritten), dry_run=dry_run)
    return MaintenanceReport(
        root, len(paths), tuple(changed), tuple(failed), catalog, dry_run, rewritten
    )


def _merged(
    filesystem: pafs.FileSystem, root: str, paths: Sequence[str], policy: Policy, *, dry_run: bool
) -> tuple[set[str], list[MaintainedFile]]:
    """Merges small files as the policy says.

    Returns the files that were, or would be, merged, and the folder if it failed.
    """
    target = policy.layout.get("target_file_size")
    if target is None or policy.sidecar is not False:
        return set(), []
    place = Place.of(root, filesystem)
    folders = folders_of(place, [path.removeprefix(f"{place.root}/") for path in paths])
    runs = [run for sizes in folders.values() for run in small_runs(sizes, int(target))]
    small = {place.path(path) for run in runs for path in run}
    try:
        if small and not dry_run:
            rewrite(root, only_small=True, target_file_size=target, filesystem=filesystem)
    except (IntarsiaError, OutOfMemoryError, OSError) as error:
        return set(), [MaintainedFile(root, error=str(error))]
    return small, []


def _places(filesystem: pafs.FileSystem, policy: Policy) -> Sidecars | None:
    """Returns the places of sidecars, or None if the policy embeds indexes."""
    if policy.sidecar is False:
        return None
    return Sidecars(filesystem, None if policy.sidecar is True else policy.sidecar)


def _looked_at(
    filesystem: pafs.FileSystem,
    paths: Sequence[str],
    policy: Policy,
    views: Mapping[str, FileView],
) -> list[tuple[MaintainedFile, bool]]:
    """Returns the files that lack something, and those that cannot be read.

    Comes with True if a file's pages are more than twice as long as the policy says.
    """
    specs, places = policy.specs, _places(filesystem, policy)
    page_rows = policy.layout.get("rows_per_page")

    def look(path: str) -> tuple[MaintainedFile, bool]:
        deadline.check()
        try:
            with quiet():
                view = views.get(path, OWN_VIEW)
                file = open_file(path, filesystem, sidecar=places, view=view)
                choice = due_in(file, specs, places, replace=False, page_index=policy.page_index)
                layout = None if page_rows is None or places is not None else page_layout(file)
            names = tuple(map(spec_name, choice.all_due)) if file.num_rows else ()
            is_long = layout is not None and layout.page_rows > 2 * int(page_rows or 0)
            return MaintainedFile(path, names), is_long
        except (IntarsiaError, OSError) as error:
            return MaintainedFile(path, error=str(error)), False

    if isinstance(filesystem, pafs.LocalFileSystem):
        looked_at = [look(path) for path in paths]
    else:
        looked_at = list(run_io_tasks(partial(look, path) for path in paths))
    return [(file, is_long) for file, is_long in looked_at if file.indexes or file.error or is_long]


def _maintained(
    filesystem: pafs.FileSystem, path: str, policy: Policy, view: FileView, *, is_long: bool
) -> MaintainedFile:
    """Adds the indexes that a file lacks, or writes a file with long pages anew, with them."""
    places = _places(filesystem, policy)
    try:
        with quiet():
            if is_long:
                rewrite(path, target_file_size=None, filesystem=filesystem)
                return MaintainedFile(path)
            report = index_file(
                path,
                policy.specs,
                filesystem,
                places,
                replace=False,
                page_index=policy.page_index,
                view=view,
            )
        return MaintainedFile(path, report.added)
    except (IntarsiaError, OutOfMemoryError, OSError) as error:
        return MaintainedFile(path, error=str(error))


def _catalog(filesystem: pafs.FileSystem, root: str, *, will_change: bool, dry_run: bool) -> str:
    """Refreshes the catalog if it is outdated, and returns its state."""
    if infos_of(filesystem, pointer_path(root)).type != pafs.FileType.File:
        return "none"
    try:
        state = show_catalog(root, filesystem=filesystem)
        is_outdated = bool(state.changed or state.gone)
    except IntarsiaError:  # a damaged one is replaced
        is_outdated = True
    if not is_outdated and not (dry_run and will_change):
        return "current"
    if dry_run:
        return "outdated"
    build_catalog(root, refresh=True, filesystem=filesystem, table_format="ignore")
    return "refreshed"
