"""Building, refreshing and dropping the catalog of a data set.

Tables are written first, under names of their own, and the pointer last, which is when the new
generation is there for readers. A refresh reads the files that are new or were changed, and adds a
segment about them; segments that are many, or about many files that are gone, are made one.
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

from intarsia import deadline
from intarsia.catalog.catalog import (
    Identity,
    list_folder,
    open_segments,
    pointer_path,
    versioned_pointer,
)
from intarsia.catalog.file_facts import Facts, facts_of
from intarsia.catalog.location import Target, telling_storage
from intarsia.catalog.manifest import First, Pointer, Segment, encode_pointer
from intarsia.catalog.segment_reader import SegmentReader
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
from intarsia.threads import in_order, may_divide, waited_for

_FINE_TICK, _COARSE_TICK = 50_000_000, 2_000_000_000
"""Nanoseconds that a file has to be left alone before its time of change tells it from the next."""
_LOOKS = 4
_MOST_SEGMENTS = 8
_ORPHANED_AFTER = 24 * 3600 * 1_000_000_000


@shown_redacted
@dataclass(frozen=True, slots=True)
class CatalogReport:
    """What a catalog holds now, and what making it took.

    ``files`` are known to it, of which ``read`` were read just now; ``gone`` were known before and
    are not there any more, or were changed. ``skipped`` could not be read, or are being written:
    queries ask these themselves. ``keys`` are entries, ``bytes`` those of all of its files.
    """

    path: str
    files: int
    read: int
    gone: int
    skipped: int
    segments: int
    keys: int
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A data set as listed now, and what its catalog so far still holds of it."""

    files: dict[str, Identity]
    """Data files by their paths below the folder, in the order of the data set."""
    young: int
    """How many of all are too young to tell them from what they may become."""
    old: Pointer | None
    alive: list[tuple[SegmentReader, np.ndarray[Any, Any]]]
    """Segments, and the numbers of the files in them that are as they were."""
    version: Version
    """The version of the file that holds the pointer ``old``."""

    @property
    def new(self) -> list[str]:
        """The files to be read."""
        held = {r.listed.paths[n] for r, numbers in self.alive for n in numbers.tolist()}
        return [path for path in self.files if path not in held]

    @property
    def kept(self) -> list[Segment]:
        """The segments that go on to serve as they are."""
        return [reader.segment for reader, numbers in self.alive if len(numbers)]

    @property
    def gone(self) -> int:
        """Files that were known and are not there as they were."""
        return sum(reader.num_files - len(numbers) for reader, numbers in self.alive)

    @property
    def is_worn(self) -> bool:
        """Are there so many segments, or so many files gone, that one new segment pays?"""
        held = sum(len(numbers) for _, numbers in self.alive)
        return len(self.alive) >= _MOST_SEGMENTS or self.gone * 3 > held > 0


def look(target: Target, *, refresh: bool, table_format: TableFormatOption = "ignore") -> Known:
    """List the data set, and with ``refresh`` read what its catalog knows already."""
    files, young = _settled(target, table_format)
    old, version, alive = None, None, []
    with contextlib.suppress(IntarsiaError, OSError):
        old, version = versioned_pointer(target.filesystem, target.root)
    if old is not None and refresh:
        taken: set[str] = set()
        readers = open_segments(target.filesystem, target.root, old, DEFAULTS)
        with contextlib.suppress(IntarsiaError, OSError):
            for reader in reversed(readers):
                alive.append((reader, _alive(reader, files, taken)))
    return Known(files, young, old, alive[::-1], version)


def _alive(
    reader: SegmentReader, files: dict[str, Identity], taken: set[str]
) -> np.ndarray[Any, Any]:
    listed, found = reader.listed, []
    known = zip(listed.paths, listed.sizes.tolist(), listed.mtimes.tolist(), strict=True)
    for number, (path, size, mtime) in enumerate(known):
        if files.get(path) == (size, mtime) and path not in taken:
            taken.add(path)
            found.append(number)
    return np.array(found, dtype=np.int64)


def _settled(target: Target, table_format: TableFormatOption) -> tuple[dict[str, Identity], int]:
    """Data files, and how many more there are that were changed a moment ago.

    A change within one tick of the clock that stamps files would not show.
    """
    base = f"{target.root}/"
    for left in reversed(range(_LOOKS)):
        seen: dict[str, pafs.FileInfo] = {}
        _, listed = data_files(target.root, target.filesystem, table_format, seen)
        known, changed = list_folder(target.filesystem, target.root, seen.values())
        paths = [path.removeprefix(base) for path in listed if path.removeprefix(base) in known]
        times = [changed[path] for path in paths]
        tick = _FINE_TICK if any(t % 1_000_000_000 for t in times) else _COARSE_TICK
        latest = time.time_ns() - tick
        wait = max(times, default=0) - latest
        if wait <= 0 or not left:
            break
        deadline.pause(min(wait, tick) / 1e9)
    settled = [path for path, when in zip(paths, times, strict=True) if when <= latest]
    return {path: known[path] for path in settled}, len(paths) - len(settled)


def facts_at(
    target: Target, path: str, identity: Identity, places: Sidecars, *, with_keys: bool = True
) -> Facts | None:
    """What a catalog keeps of one file; None where it cannot be read, or changes."""
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
@telling_storage
def build_catalog(
    path: PathLike,
    *,
    refresh: bool = False,
    filesystem: Any = None,
    table_format: TableFormatOption = "auto",
    timeout: float | None = None,
) -> CatalogReport:
    """Build the catalog of the data set in the folder ``path``, or bring it up to date.

    A catalog holds what planning needs of many files in a few: their footers, bounds of columns,
    and the keys of all ``Lookup``, ``Elements`` and similar indexes in one sorted table each. A
    query then opens the files only that hold what it looks for. It lies in ``_intarsia/``, and may
    be deleted at any time: no answer depends on it. Files that are new or were changed since are
    asked themselves; with ``refresh`` only these are read, and what is known of the others is kept.
    ``table_format`` is as for ``intarsia.dataset``.

    Raises ``PathError`` where there is no folder with data files, or it cannot be written to, and
    ``QueryTimeoutError`` after ``timeout`` seconds: then the catalog that was there stays.
    """
    target = Target.of(path, filesystem)
    known = look(target, refresh=refresh, table_format=table_format)
    with generation_of(target) as generation, quiet(), Workspace() as work:
        writer = SegmentWriter(target.put_table, generation, work)
        kept, read = known.kept, 0
        if known.is_worn:
            try:
                for reader, numbers in known.alive:
                    writer.absorb(reader, numbers)
                kept = []
            except (IntarsiaError, OSError):
                return build_catalog(path, filesystem=filesystem, table_format=table_format)
        unread = []
        each = each_fact(target, known.new, known.files)
        for path_below, facts in zip(known.new, each, strict=True):
            deadline.check()
            if facts is None:
                unread.append(path_below)
            else:
                writer.add(facts)
                read += 1
        added = [writer.finish()] if read or not kept else []
        report = published(target, known, generation, [*kept, *added], read)
    if report is None:
        return build_catalog(
            path, refresh=refresh, filesystem=filesystem, table_format=table_format
        )
    if unread:
        _warn_of(target, unread, len(known.files))
    return report


def _warn_of(target: Target, unread: Sequence[str], num_files: int) -> None:
    """Say of which files a catalog was built that are not in it, and of the first why."""
    first = f"{target.root}/{unread[0]}"
    try:
        open_file(first, target.filesystem)
        why = f"{first} is being written"
    except (IntarsiaError, OSError) as error:
        why = str(error)
    verb = "is" if len(unread) == 1 else "are"
    warn(f"{len(unread):,} of {num_files:,} files {verb} not in the catalog: {why}")


@contextlib.contextmanager
def generation_of(target: Target) -> Iterator[str]:
    """The name of a new generation, whose tables are removed again where it comes to nothing.

    Where it cannot be told whether it did, they stay: later builds remove what nobody points to.
    """
    generation = secrets.token_hex(8)
    try:
        yield generation
    except BaseException:
        with deadline.active(None), contextlib.suppress(IntarsiaError, OSError):
            if not target.points_to(generation):
                target.remove_of(generation)
        raise


def each_fact(
    target: Target,
    paths: Sequence[str],
    files: dict[str, Identity],
    *,
    with_keys: bool = True,
) -> Iterator[Facts | None]:
    """Facts of files, in their order, read in threads."""
    places = Sidecars(target.filesystem)
    tasks: Iterator[Callable[[], Facts | None]] = (
        partial(facts_at, target, path, files[path], places, with_keys=with_keys) for path in paths
    )
    if not isinstance(target.filesystem, pafs.LocalFileSystem):
        return waited_for(tasks)
    return in_order(tasks, pa.cpu_count() - 1 if may_divide() else 0)


def publish(
    target: Target, known: Known, generation: str, segments: Sequence[Segment], read: int
) -> CatalogReport:
    """Put a pointer to ``segments`` in the place of the one there is, and tidy up.

    A pointer to segments that are kept replaces the one that they were read by and no other: a
    build at the same time may have retired them. Raises ``PathError``.
    """
    old = known.old
    pointer = Pointer(generation, tuple(segments))
    in_use, tables = set(pointer.names), target.tables()
    former_names = set() if old is None else set(old.names)
    former = former_names - in_use
    now = time.time_ns()
    orphans, unfinished = (
        {name for name, info in files.items() if now - (info.mtime_ns or now) > _ORPHANED_AFTER}
        for files in (tables, target.unfinished())
    )
    retired = tuple(sorted((former | orphans) & tables.keys() - in_use))
    first = _first(target, pointer, known.files)
    pointer = Pointer(generation, tuple(segments), retired, first)
    data = encode_pointer(pointer)
    if len(data) > MAX_CATALOG_POINTER_BYTES:
        most = MAX_CATALOG_POINTER_BYTES
        message = f"its pointer would take {len(data):,} bytes; {most:,} are the most"
        raise PathError(f"{target.root}: no catalog of so much: {message}")
    since = known.version if in_use & former_names else None
    target.put(pointer_path("").rpartition("/")[2], data, since)
    if old is not None:  # nobody has read by these since the pointer before
        target.remove(set(old.retired) - in_use - former)
    target.remove(unfinished)
    with contextlib.suppress(OSError):
        target.remove_of(generation, in_use)
    num_files = sum(len(numbers) for _, numbers in known.alive) + read
    listed = sum(t.size for segment in segments for t in segment.tables)
    keys = sum(p.table.rows for s in segments for index in s.keys for p in index.parts)
    skipped = len(known.new) - read + known.young
    return CatalogReport(
        target.root, num_files, read, known.gone, skipped, len(segments), keys, listed + len(data)
    )


def published(
    target: Target, known: Known, generation: str, segments: Sequence[Segment], read: int
) -> CatalogReport | None:
    """As ``publish``; None where another build has removed segments that were to be kept, or has
    published.
    """
    try:
        return publish(target, known, generation, segments, read)
    except PathError:
        with contextlib.suppress(OSError):
            tables = target.tables()
            now = version_of(pointer_path(target.root), target.filesystem)
            kept = {table.name for segment in known.kept for table in segment.tables}
            if kept - tables.keys() or (kept and now != known.version):
                target.remove_of(generation)
                return None
        raise


def _first(target: Target, pointer: Pointer, files: dict[str, Identity]) -> First | None:
    """The first file of the data set, if it is known."""
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
@telling_storage
def drop_catalog(path: PathLike, *, filesystem: Any = None) -> int:
    """Remove the catalog of the data set in the folder ``path``.

    Returns how many files of its own were removed; 0 where there was none. Sidecars stay. Raises
    ``PathError`` where there is no folder, or the pointer cannot be removed.
    """
    target = Target.of(path, filesystem)
    at, removed = pointer_path(target.root), 0
    check_may_write(target.filesystem, at)
    try:
        if infos_of(target.filesystem, at).type == pafs.FileType.File:
            remove_file(at, target.filesystem)
            removed = 1
    except OSError as error:
        raise PathError(f"{at}: cannot be removed: {error}") from error
    names = [*target.tables(), *target.unfinished()]
    target.remove(names)
    if isinstance(target.filesystem, pafs.LocalFileSystem):
        with contextlib.suppress(OSError):  # sidecars are in it
            os.rmdir(target.folder)
    return removed + len(names)
