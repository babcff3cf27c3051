"""Brings the files of a data set in line with its policy: their layout, indexes and catalog."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from intarsia.file.file_view import FileView
from intarsia.file.page_layout import page_layout
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.registry import spec_name
from intarsia.indexing.add import index_file
from intarsia.indexing.missing_indexes import due_in
from intarsia.indexing.policy import Policy, policy_folder, read_policy
from intarsia.io.atomic_replace import remove_leftovers_of
from intarsia.io.retry import infos_of
from intarsia.io.storage import PathLike
from intarsia.notebook import notebook_html
from intarsia.parquet.value_display import plural
from intarsia.redaction import shown_redacted
from intarsia.rewrite.rewrite import rewrite
from intarsia.rewrite.rewrite_plan import folders_of, small_runs
from intarsia.scan.parquet_file import open_file
from intarsia.tables.data_files import TableFormatOption, table_of, view_of
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


@dataclass(frozen=True, slots=True)
class _Item:
    """A file, the view of it, and what it lacks; ``is_long`` if its pages are too long."""

    path: str
    view: FileView
    state: MaintainedFile = MaintainedFile("")
    is_long: bool = False


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
    seconds : float
        The time it took.
    """

    path: str
    files: int
    changed: tuple[MaintainedFile, ...]
    failed: tuple[MaintainedFile, ...]
    catalog: str
    is_dry_run: bool
    rewritten: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Returns all attributes as values that JSON can represent."""
        return dataclasses.asdict(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        title, *lines = str(self).splitlines()
        return notebook_html(title, (("", ""), [line.strip().split(": ", 1) for line in lines]))

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
    return maintain_by(
        HERE,
        path,
        dry_run=dry_run,
        filesystem=filesystem,
        progress=progress,
        table_format=table_format,
    )


@dataclass(frozen=True, slots=True)
class Executor:
    """The functions by which the steps of ``maintain_by`` are done, here or in a cluster.

    ``on_all`` applies a function to a list: to all of it, or to parts of it at different places. It
    returns the results in order. ``merge`` merges the small files of a folder as its policy says.
    ``refresh`` refreshes the catalog of a folder.
    """

    on_all: Callable[[Callable[[Sequence[_Item]], Iterable[Any]], Sequence[_Item]], Iterable[Any]]
    merge: Callable[[str, Policy, pafs.FileSystem], object]
    refresh: Callable[[str, pafs.FileSystem], object]


def _merge_here(root: str, policy: Policy, filesystem: pafs.FileSystem) -> None:
    target = policy.layout["target_file_size"]
    rewrite(root, only_small=True, target_file_size=target, filesystem=filesystem)


def _refresh_here(root: str, filesystem: pafs.FileSystem) -> None:
    build_catalog(root, refresh=True, filesystem=filesystem, table_format="ignore")


HERE = Executor(lambda work, items: work(items), _merge_here, _refresh_here)
"""Does everything in this process."""


def maintain_by(
    executor: Executor,
    path: PathLike | pads.FileSystemDataset,
    *,
    dry_run: bool,
    filesystem: Any,
    progress: Progress | None = None,
    table_format: TableFormatOption,
) -> MaintenanceReport:
    """Does what ``maintain`` does, and raises what it raises."""
    start = time.perf_counter()
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
    small, failed = _merged(executor, file_system, root, paths, policy, dry_run=dry_run)
    rewritten, remaining = len(small), [file for file in paths if file not in small]
    if small and not dry_run:
        _, paths = visible(path, filesystem, table_format=table_format)
        remaining = paths
    view = view_of(path)
    items = [_Item(file, view(file)) for file in remaining]
    lacking = [
        item
        for item in executor.on_all(partial(_looked_at, file_system, policy), items)
        if item.state.indexes or item.state.error or item.is_long
    ]
    failed += [item.state for item in lacking if item.state.error]
    todo = [item for item in lacking if not item.state.error]
    changed: list[MaintainedFile] = []
    results: Iterable[MaintainedFile] = [item.state for item in todo]
    if not dry_run:
        remove_leftovers_of([item.path for item in todo], file_system)
        results = executor.on_all(partial(_maintained, file_system, policy), todo)
    results = iter(results)
    for number, item in enumerate(todo):
        if progress and not dry_run:
            progress(item.path, number, len(todo))
        done = next(results)
        if done.error:
            failed.append(done)
        elif item.is_long:
            rewritten += 1
        elif done.indexes:
            changed.append(done)
    catalog = _catalog(
        executor, file_system, root, will_change=bool(todo or rewritten), dry_run=dry_run
    )
    return MaintenanceReport(
        root,
        len(paths),
        tuple(changed),
        tuple(failed),
        catalog,
        dry_run,
        rewritten,
        time.perf_counter() - start,
    )


def _merged(
    executor: Executor,
    filesystem: pafs.FileSystem,
    root: str,
    paths: Sequence[str],
    policy: Policy,
    *,
    dry_run: bool,
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
            executor.merge(root, policy, filesystem)
    except (IntarsiaError, OutOfMemoryError, OSError) as error:
        return set(), [MaintainedFile(root, error=str(error))]
    return small, []


def _looked_at(
    filesystem: pafs.FileSystem, policy: Policy, items: Sequence[_Item]
) -> Iterable[_Item]:
    """Returns ``items`` with what each file lacks, or why it cannot be read."""
    specs, places = policy.specs, Sidecars.of_option(filesystem, policy.sidecar)
    page_rows = policy.layout.get("rows_per_page")

    def look(item: _Item) -> _Item:
        deadline.check()
        try:
            with quiet():
                file = open_file(item.path, filesystem, sidecar=places, view=item.view)
                choice = due_in(file, specs, places, replace=False, page_index=policy.page_index)
                layout = None if page_rows is None or places is not None else page_layout(file)
            names = tuple(map(spec_name, choice.all_due)) if file.num_rows else ()
            is_long = layout is not None and layout.page_rows > 2 * int(page_rows or 0)
            return _Item(item.path, item.view, MaintainedFile(item.path, names), is_long)
        except (IntarsiaError, OSError) as error:
            return _Item(item.path, item.view, MaintainedFile(item.path, error=str(error)))

    if isinstance(filesystem, pafs.LocalFileSystem):
        return map(look, items)
    return run_io_tasks(partial(look, item) for item in items)


def _maintained(
    filesystem: pafs.FileSystem, policy: Policy, items: Sequence[_Item]
) -> Iterator[MaintainedFile]:
    """Adds the indexes that files lack, or writes those with long pages anew, with them."""
    places = Sidecars.of_option(filesystem, policy.sidecar)
    for item in items:
        deadline.check()
        try:
            with quiet():
                done = MaintainedFile(item.path, _change(item, filesystem, policy, places))
        except (IntarsiaError, OutOfMemoryError, OSError) as error:
            done = MaintainedFile(item.path, error=str(error))
        yield done


def _change(
    item: _Item, filesystem: pafs.FileSystem, policy: Policy, places: Sidecars | None
) -> tuple[str, ...]:
    """Changes one file, and returns the names of the indexes that were added to it."""
    if item.is_long:
        rewrite(item.path, target_file_size=None, filesystem=filesystem)
        return ()
    report = index_file(
        item.path,
        policy.specs,
        filesystem,
        places,
        replace=False,
        page_index=policy.page_index,
        view=item.view,
    )
    return report.added


def _catalog(
    executor: Executor, filesystem: pafs.FileSystem, root: str, *, will_change: bool, dry_run: bool
) -> str:
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
    executor.refresh(root, filesystem)
    return "refreshed"
