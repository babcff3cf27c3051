"""Builds, refreshes and drops the catalog of a data set.

A build writes new tables first and the pointer last. Readers see the new generation once the
pointer is replaced. A refresh reads only new and changed files and adds a segment for them. Many
segments, or segments with many deleted files, are merged into one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

import intarsia.deadline as deadline
from intarsia.catalog.catalog import list_folder, open_segments, pointer_path, versioned_pointer
from intarsia.catalog.file_facts import Facts, facts_of
from intarsia.catalog.location import Target, raising_path_errors
from intarsia.catalog.manifest import First, Pointer, Segment, encode_pointer
from intarsia.catalog.segment_reader import Identity, SegmentReader
from intarsia.catalog.segment_writer import SegmentWriter
from intarsia.deadline import time_limited
from intarsia.errors import IntarsiaError, PathError, public, quiet, warn
from intarsia.file.read_options import DEFAULTS
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.io.atomic_replace import remove_file
from intarsia.io.external_sort import Workspace
from intarsia.io.file_handle import Version, check_may_write, version_of
from intarsia.io.retry import infos_of
from intarsia.io.storage import FileSource, PathLike
from intarsia.limits import MAX_CATALOG_POINTER_BYTES
from intarsia.redaction import shown_redacted
from intarsia.scan.parquet_file import open_file, open_source
from intarsia.tables.data_files import TableFormatOption, data_files
from intarsia.threads import in_order, may_use_threads, run_io_tasks

_FINE_TICK_NS, _COARSE_TICK_NS = 50_000_000, 2_000_000_000
"""A file is settled this long after its last change. Two changes within one tick of the file
system's clock have the same time. The coarse tick is for clocks of whole seconds.
"""
_MAX_LISTINGS = 4
"""Listings that wait for files to settle. Files that change still are skipped after that."""
_MAX_SEGMENTS = 8
"""With this many segments they are merged, because a query opens all of them."""
_ORPHAN_AGE_NS = 24 * 3600 * 1_000_000_000
"""Unused files older than this cannot belong to a build that is running."""


@shown_redacted
@dataclass(frozen=True, slots=True)
class CatalogReport:
    """The result of building a catalog."""

    path: str
    """The data set's folder."""
    files: int
    """Files in the catalog."""
    read: int
    """Files of these that this build read."""
    gone: int
    """Files that the catalog had before and that were deleted or changed since."""
    skipped: int
    """Files that cannot be read or are being written. Queries open these themselves."""
    segments: int
    """Segments of the catalog."""
    keys: int
    """Index entries in the catalog."""
    bytes: int
    """Size of all files of the catalog."""
    seconds: float
    """The time that the build took."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A new listing of a data set, and the facts in its old catalog that are still true."""

    files: dict[str, Identity]
    """Settled data files by path relative to the folder, in the order of the data set."""
    num_unsettled: int
    """Number of data files that changed too recently to have a reliable identity."""
    old: Pointer | None
    """The pointer of the old catalog; None if there is none."""
    alive: list[tuple[SegmentReader, np.ndarray[Any, Any]]]
    """Old segments, and the numbers of the files in them that are unchanged."""
    version: Version
    """The version of the file with the pointer ``old``."""
    start: float
    """The time by ``time.perf_counter`` when the listing began."""

    @property
    def new(self) -> list[str]:
        """The files that a build has to read."""
        known_paths = {r.listed.paths[n] for r, numbers in self.alive for n in numbers.tolist()}
        return [path for path in self.files if path not in known_paths]

    @property
    def reusable_segments(self) -> list[Segment]:
        """The old segments with at least one unchanged file."""
        return [reader.segment for reader, numbers in self.alive if len(numbers)]

    @property
    def num_outdated(self) -> int:
        """Number of files in the old catalog that were deleted or changed."""
        return sum(reader.num_files - len(numbers) for reader, numbers in self.alive)

    @property
    def is_worn(self) -> bool:
        """True if merging pays, because segments or outdated files are many."""
        num_known = sum(len(numbers) for _, numbers in self.alive)
        return len(self.alive) >= _MAX_SEGMENTS or self.num_outdated * 3 > num_known > 0


def read_known_files(
    target: Target, *, refresh: bool, table_format: TableFormatOption = "ignore"
) -> Known:
    """Lists the data set. With ``refresh``, also reads its old catalog."""
    start = time.perf_counter()
    files, young = _settled(target, table_format)
    old, version, alive = None, None, []
    with contextlib.suppress(IntarsiaError, OSError):
        old, version = versioned_pointer(target.filesystem, target.root)
    if old is not None and refresh:
        seen_paths: set[str] = set()
        readers = open_segments(target.filesystem, target.root, old, DEFAULTS)
        with contextlib.suppress(IntarsiaError, OSError):
            for reader in reversed(readers):
                alive.append((reader, _unchanged_numbers(reader, files, seen_paths)))
    return Known(files, young, old, alive[::-1], version, start)


def _unchanged_numbers(
    reader: SegmentReader, files: dict[str, Identity], seen_paths: set[str]
) -> np.ndarray[Any, Any]:
    listed, numbers = reader.listed, []
    identities = zip(listed.paths, listed.sizes.tolist(), listed.mtimes.tolist(), strict=True)
    for number, (path, size, mtime) in enumerate(identities):
        if files.get(path) == (size, mtime) and path not in seen_paths:
            seen_paths.add(path)
            numbers.append(number)
    return np.array(numbers, dtype=np.int64)


def _settled(target: Target, table_format: TableFormatOption) -> tuple[dict[str, Identity], int]:
    """Returns settled data files, and how many changed within a tick of the file system's clock."""
    base = f"{target.root}/"
    for listings_left in reversed(range(_MAX_LISTINGS)):
        infos: dict[str, pafs.FileInfo] = {}
        _, listed = data_files(target.root, target.filesystem, table_format, infos)
        known, changed = list_folder(target.filesystem, target.root, infos.values())
        paths = [path.removeprefix(base) for path in listed if path.removeprefix(base) in known]
        times = [changed[path] for path in paths]
        tick = _FINE_TICK_NS if any(t % 1_000_000_000 for t in times) else _COARSE_TICK_NS
        latest = time.time_ns() - tick
        wait = max(times, default=0) - latest
        if wait <= 0 or not listings_left:
            break
        deadline.pause(min(wait, tick) / 1e9)
    settled = [path for path, when in zip(paths, times, strict=True) if when <= latest]
    return {path: known[path] for path in settled}, len(paths) - len(settled)


def facts_at(
    target: Target, path: str, identity: Identity, places: Sidecars, *, with_keys: bool = True
) -> Facts | None:
    """Reads the facts of one file. Returns None if it cannot be read or was changed."""
    source = FileSource(target.filesystem, f"{target.root}/{path}")
    size, mtime = identity
    if mtime is None:
        return None
    try:
        file = open_source(source, places=places)
        return facts_of(file, path, size, mtime, with_keys=with_keys)
    except (IntarsiaError, OSError):
        return None
    finally:
        source.close()


@public
@time_limited("building the catalog of")
@raising_path_errors
def build_catalog(
    path: PathLike,
    *,
    refresh: bool = False,
    filesystem: Any = None,
    table_format: TableFormatOption = "auto",
    timeout: float | None = None,
) -> CatalogReport:
    """Builds or refreshes the catalog of the data set in a folder.

    A catalog holds the footers and column bounds of all files. It also holds the keys of all
    ``Lookup``, ``Elements`` and similar indexes, in one sorted table each. A query then opens only
    the files that might match. The catalog is in ``_intarsia/`` and may be deleted at any time,
    because no answer depends on it. Queries open files that are new or changed since the build.

    Parameters
    ----------
    path : str or path
        The folder or URI of the data set.
    refresh : bool, default False
        Reads only new and changed files, and keeps the facts of the others.
    filesystem : pyarrow or fsspec file system, optional
        The file system of ``path``. By default it follows from ``path``.
    table_format : str, default "auto"
        As for ``intarsia.dataset``.
    timeout : float, optional
        Seconds after which the build stops.

    Returns
    -------
    CatalogReport
        The content of the catalog, and how many files were read and skipped.

    Raises
    ------
    PathError
        If ``path`` is no folder with data files, or cannot be written to.
    QueryTimeoutError
        After ``timeout`` seconds. The old catalog stays.

    Examples
    --------
    >>> report = ia.build_catalog("lake")
    >>> report.files, report.read
    (2, 2)
    >>> ia.build_catalog("lake", refresh=True).read
    0
    """
    target = Target.of(path, filesystem)
    known = read_known_files(target, refresh=refresh, table_format=table_format)
    with new_generation(target) as generation, quiet(), Workspace() as work:
        writer = SegmentWriter(target.put_table, generation, work)
        kept_segments, num_read = known.reusable_segments, 0
        if known.is_worn:
            try:
                for reader, numbers in known.alive:
                    writer.absorb(reader, numbers)
                kept_segments = []
            except (IntarsiaError, OSError):
                return build_catalog(path, filesystem=filesystem, table_format=table_format)
        unread = []
        each_facts = read_facts(target, known.new, known.files)
        for path_below, facts in zip(known.new, each_facts, strict=True):
            deadline.check()
            if facts is None:
                unread.append(path_below)
            else:
                writer.add(facts)
                num_read += 1
        added = [writer.finish()] if num_read or not kept_segments else []
        report = published(target, known, generation, [*kept_segments, *added], num_read)
    if report is None:
        return build_catalog(
            path, refresh=refresh, filesystem=filesystem, table_format=table_format
        )
    if unread:
        _warn_of_unread(target, unread, len(known.files))
    return report


def _warn_of_unread(target: Target, unread: Sequence[str], num_files: int) -> None:
    """Warns that files are not in the catalog, with the reason for the first one."""
    first = f"{target.root}/{unread[0]}"
    try:
        open_file(first, target.filesystem)
        reason = f"{first} is being written"
    except (IntarsiaError, OSError) as error:
        reason = str(error)
    verb = "is" if len(unread) == 1 else "are"
    warn(f"{len(unread):,} of {num_files:,} files {verb} not in the catalog: {reason}")


@contextlib.contextmanager
def new_generation(target: Target) -> Iterator[str]:
    """Yields the name of a new generation. If the build fails, removes its unused tables."""
    generation = secrets.token_hex(8)
    try:
        yield generation
    except BaseException:
        with deadline.active(None), contextlib.suppress(IntarsiaError, OSError):
            if not target.points_to(generation):
                target.remove_of(generation)
        raise


def read_facts(
    target: Target,
    paths: Sequence[str],
    files: dict[str, Identity],
    *,
    with_keys: bool = True,
) -> Iterator[Facts | None]:
    """Reads the facts of files in threads, and yields them in order."""
    places = Sidecars(target.filesystem)
    tasks: Iterator[Callable[[], Facts | None]] = (
        partial(facts_at, target, path, files[path], places, with_keys=with_keys) for path in paths
    )
    if not isinstance(target.filesystem, pafs.LocalFileSystem):
        return run_io_tasks(tasks)
    return in_order(tasks, pa.cpu_count() - 1 if may_use_threads() else 0)


def publish(
    target: Target, known: Known, generation: str, segments: Sequence[Segment], read: int
) -> CatalogReport:
    """Replaces the pointer by one to ``segments``, and removes unused tables.

    A new pointer that uses tables of the old generation replaces only that generation's pointer.
    A concurrent build may have retired those tables. Raises ``PathError``.
    """
    old = known.old
    pointer = Pointer(generation, tuple(segments))
    in_use, tables = set(pointer.names), target.tables()
    former_names = set() if old is None else set(old.names)
    unused_now = former_names - in_use
    now = time.time_ns()
    orphans, unfinished = (
        {name for name, info in files.items() if now - (info.mtime_ns or now) > _ORPHAN_AGE_NS}
        for files in (tables, target.unfinished())
    )
    retired = tuple(sorted((unused_now | orphans) & tables.keys() - in_use))
    first = _first(target, pointer, known.files)
    pointer = Pointer(generation, tuple(segments), retired, first)
    data = encode_pointer(pointer)
    if len(data) > MAX_CATALOG_POINTER_BYTES:
        limit = MAX_CATALOG_POINTER_BYTES
        message = f"its pointer would take {len(data):,} bytes; {limit:,} are the most"
        raise PathError(f"{target.root}: the catalog is too large: {message}")
    since = known.version if in_use & former_names else None
    target.put(pointer_path("").rpartition("/")[2], data, since)
    if old is not None:  # no reader has used these since the generation before the last
        target.remove(set(old.retired) - in_use - unused_now)
    target.remove(unfinished)
    with contextlib.suppress(OSError):
        target.remove_of(generation, in_use)
    num_files = sum(len(numbers) for _, numbers in known.alive) + read
    listed = sum(t.size for segment in segments for t in segment.tables)
    keys = sum(p.table.rows for s in segments for index in s.keys for p in index.parts)
    skipped = len(known.new) - read + known.num_unsettled
    return CatalogReport(
        target.root,
        num_files,
        read,
        known.num_outdated,
        skipped,
        len(segments),
        keys,
        listed + len(data),
        time.perf_counter() - known.start,
    )


def published(
    target: Target, known: Known, generation: str, segments: Sequence[Segment], read: int
) -> CatalogReport | None:
    """Publishes. Returns None if another build removed the tables or replaced the pointer."""
    try:
        return publish(target, known, generation, segments, read)
    except PathError:
        with contextlib.suppress(OSError):
            tables = target.tables()
            version_now = version_of(pointer_path(target.root), target.filesystem)
            needed_tables = {
                table.name for segment in known.reusable_segments for table in segment.tables
            }
            if needed_tables - tables.keys() or (needed_tables and version_now != known.version):
                target.remove_of(generation)
                return None
        raise


def _first(target: Target, pointer: Pointer, files: dict[str, Identity]) -> First | None:
    """Returns the data set's first file; None if the catalog does not have its end."""
    path = next(iter(files), None)
    readers = open_segments(target.filesystem, target.root, pointer, DEFAULTS)
    for reader in reversed(readers):
        listed = reader.listed
        if path in listed.paths:
            number = listed.paths.index(path)
            size, mtime = int(listed.sizes[number]), int(listed.mtimes[number])
            tail = reader.tail(number)
            if files[path] == (size, mtime) and tail:
                return First(path, size, mtime, tail)
    return None


@public
@raising_path_errors
def drop_catalog(path: PathLike, *, filesystem: Any = None) -> int:
    """Removes the catalog of the data set in a folder. Sidecars stay.

    Parameters
    ----------
    path : str or path
        The folder or URI of the data set.
    filesystem : pyarrow or fsspec file system, optional
        The file system of ``path``. By default it follows from ``path``.

    Returns
    -------
    int
        The number of files removed; 0 if there was no catalog.

    Raises
    ------
    PathError
        If ``path`` is no folder, or the catalog's pointer cannot be removed.

    Examples
    --------
    >>> _ = ia.build_catalog("lake")
    >>> ia.drop_catalog("lake") > 0
    True
    """
    target = Target.of(path, filesystem)
    pointer, removed = pointer_path(target.root), 0
    check_may_write(target.filesystem, pointer)
    try:
        if infos_of(target.filesystem, pointer).type == pafs.FileType.File:
            remove_file(pointer, target.filesystem)
            removed = 1
    except OSError as error:
        raise PathError(f"{pointer}: cannot be removed: {error}") from error
    names = [*target.tables(), *target.unfinished()]
    target.remove(names)
    if isinstance(target.filesystem, pafs.LocalFileSystem):
        with contextlib.suppress(OSError):  # fails if sidecars are in it
            os.rmdir(target.folder)
    return removed + len(names)
