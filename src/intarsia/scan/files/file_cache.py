"""A cache of opened files for later queries, used until a file changes."""

from __future__ import annotations

import contextlib
import weakref
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from intarsia.catalog.catalog import Catalog
from intarsia.errors import FormatError
from intarsia.file.file_view import OWN_VIEW, FileView, TableSnapshot
from intarsia.file.health import Health
from intarsia.file.open_file import (
    OpenedFile,
    VersionedFile,
    as_current_version,
    is_always_current,
    retry_while_replaced,
)
from intarsia.file.read_options import DEFAULTS, ReadOptions
from intarsia.file.scan_profile import NO_PROFILE, NoProfile, Profile
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.io.file_handle import Version, version_of
from intarsia.io.storage import FileSource
from intarsia.memory import share
from intarsia.parquet.footer_cache import FooterLayout
from intarsia.plan.file_account import Activity
from intarsia.plan.plan import ENGINE
from intarsia.process_state import ForkLock, SharedState
from intarsia.scan.parquet_file import open_source
from intarsia.scan.request import Request
from intarsia.tables.data_files import explaining_removed_files
from intarsia.threads import begin, result_of

CACHE_BYTES = 256 * 1024 * 1024
"""Default estimated memory of the files in a cache."""


@dataclass(slots=True, eq=False)
class _CachedFile:
    path: str
    version: Version
    source: FileSource
    file: OpenedFile
    num_bytes: int = 0
    """Last estimate of the memory that the file takes."""


class ProfiledFile(NamedTuple):
    """A file that was opened with a profile, for ``explain``."""

    source: FileSource
    file: OpenedFile
    profile: Profile


class FileCache(SharedState):
    """The most recently used files of one file system, as many as fit in ``kept_bytes``.

    The files that were opened last, ``max_open_local_files()`` of them, keep their handles and
    tails. The others are opened again if more than their footers is needed. ``gap`` is that of
    ``FileSource``. If ``is_profiled``, ``profiled`` has all files that were opened, by path,
    and ``requests`` those of all scans.
    """

    def __init__(
        self,
        filesystem: pafs.FileSystem,
        options: ReadOptions = DEFAULTS,
        gap: int | None = None,
        kept_bytes: int = CACHE_BYTES,
        places: Sidecars | None = None,
        health: Health | None = None,
        is_profiled: bool = False,
        table: TableSnapshot | None = None,
    ) -> None:
        self.table = table
        """The table that the files are part of, at one version, if they are."""
        self.profiled: dict[str, list[ProfiledFile]] = {}
        self.requests: list[Request] = []
        self.is_profiled = is_profiled
        self._filesystem, self._gap = filesystem, gap
        self._limit, self._num_bytes = kept_bytes, 0
        self._options = options
        self.places = places or Sidecars(filesystem)
        """Where the sidecars of the files are."""
        self.health = health or Health()
        """Problems with the files' indexes."""
        self.catalog: Catalog | None = None
        """The data set's catalog, if it has one."""
        self.is_local = isinstance(filesystem, pafs.LocalFileSystem)
        self.size_factors: dict[FooterLayout, dict[tuple[int, ...], float]] = {}
        """``FileGroup.size_factors`` of files that were decoded together."""
        self._files: OrderedDict[str, _CachedFile] = OrderedDict()
        self._lock = ForkLock()
        super().__init__()

    def clear(self) -> None:
        with self._lock:
            self._files.clear()
            self._num_bytes = 0

    @classmethod
    def of(
        cls,
        filesystem: pafs.FileSystem,
        format_: pads.ParquetFileFormat,
        places: Sidecars | None = None,
    ) -> FileCache:
        """Returns a cache that opens files with the format's default scan options."""
        scan = format_.default_fragment_scan_options
        columns = tuple(sorted(format_.read_options.dictionary_columns))
        is_configured = scan.cache_options != pa.CacheOptions()
        gap = scan.cache_options.hole_size_limit if is_configured else None
        options = ReadOptions(
            scan.page_checksum_verification,
            columns,
            coerce_int96_timestamp_unit=format_.read_options.coerce_int96_timestamp_unit,
        )
        return cls(filesystem, options, gap, places=places)

    def anew(self, options: ReadOptions | None = None, *, is_profiled: bool = False) -> FileCache:
        """Returns an empty cache for the same files, with other ``options`` if they are given."""
        options = options or self._options
        cache = FileCache(
            self._filesystem,
            options,
            self._gap,
            places=self.places,
            health=self.health,
            is_profiled=is_profiled,
            table=self.table,
        )
        if not options.looks_for_damage:  # a catalog repeats footers, which are not checked
            cache.catalog = self.catalog
        if is_profiled and cache.catalog is not None:
            cache.catalog = cache.catalog.anew()
        return cache

    @property
    def engine_files(self) -> set[str]:
        """Paths of the profiled files that an engine reads."""
        plans = {path: opened[-1].profile.plan for path, opened in self.profiled.items()}
        return {path for path, plan in plans.items() if plan and plan.reader == ENGINE}

    @property
    def options(self) -> ReadOptions:
        """How files are read."""
        return self._options

    def view(self, path: str) -> FileView:
        """Returns how the file at ``path`` is read as part of its table."""
        return OWN_VIEW if self.table is None else self.table.views[path]

    @property
    def table_view(self) -> str | None:
        """The name of the table, if readers that know the files alone give other rows. Else None.

        The table deletes rows of its files, or gives columns other names or defaults.
        """
        return None if self.table is None or self.table.is_plain else self.table.name

    @property
    def num_kept(self) -> int:
        """Number of files in the cache, with open handles or without."""
        return len(self._files)

    def get(self, path: str) -> OpenedFile:
        """Returns the file at ``path``; opens it again if it was replaced."""
        lease = self.lease(path)
        return lease.file if lease.is_current() else self.get(path)

    def as_opened(self, path: str) -> OpenedFile:
        """Returns the cached file at ``path`` without checking for changes, or opens it."""
        cached = self._find(path)
        return self._open(path) if cached is None else cached.file

    def lease(self, path: str) -> VersionedFile:
        """Returns a handle of the file at ``path`` that checks later whether it was replaced."""
        cached = self._find(path)
        if cached is None or cached.file.is_retry_due:
            return as_current_version(self._open(path))
        if self.is_local:
            file = cached.file if self._is_current(cached) else self._open(path)
            return VersionedFile(file, is_always_current)
        check = begin(partial(self._is_current, cached))
        is_current = partial(self._confirmed, cached, check)
        cached.source.confirm(is_current)
        return VersionedFile(cached.file, is_current)

    def _find(self, path: str) -> _CachedFile | None:
        """Returns the cached file, which is then the one that was used last. Needs no lock."""
        cached = self._files.get(path)
        if cached is not None:
            try:
                self._files.move_to_end(path)
            except KeyError:  # another thread removed it
                return None
        return cached

    def _changed(self, path: str, *, is_suspended: bool) -> None:
        """Updates the size estimate of a file whose handle was opened or closed."""
        with self._lock:
            cached = self._files.get(path)
            if cached is not None:
                if is_suspended:
                    cached.file.release_tail()
                self._weigh(cached)
                self._shrink()

    def _shrink(self) -> None:
        """Removes the least recently used files while the cache is too large."""
        while self._num_bytes > share(self._limit, 8) and len(self._files) > 1:
            self._num_bytes -= self._files.popitem(last=False)[1].num_bytes

    def _weigh(self, cached: _CachedFile) -> None:
        if self._files.get(cached.path) is cached:
            old_bytes, cached.num_bytes = cached.num_bytes, cached.file.held_bytes
            self._num_bytes += cached.num_bytes - old_bytes

    def _forget(self, cached: _CachedFile) -> None:
        if self._files.get(cached.path) is cached:
            del self._files[cached.path]
            self._num_bytes -= cached.num_bytes

    def _opened(self, source: FileSource, profile: NoProfile) -> OpenedFile:
        places, health, view = self.places, self.health, self.view(source.path)
        opened = partial(
            open_source, source, self._options, profile, places=places, health=health, view=view
        )
        tail = None if self.catalog is None else self.catalog.tail(source)
        if tail is not None:
            with contextlib.suppress(FormatError):  # opening the file itself reports the error
                return opened(tail=tail)
        return opened()

    def _open(self, path: str) -> OpenedFile:
        return retry_while_replaced(path, partial(self._open_now, path))

    def _open_now(self, path: str) -> OpenedFile:
        source = FileSource(self._filesystem, path, self._gap)
        with explaining_removed_files(self.table):
            version = source.version  # before anything is read: what changes later is noticed
        profile = Profile() if self.is_profiled else NO_PROFILE
        with profile.during(Activity.PLANNING):
            file = self._opened(source, profile)
        with self._lock:
            if isinstance(profile, Profile):
                self.profiled.setdefault(path, []).append(ProfiledFile(source, file, profile))
            if path in self._files:
                self._forget(self._files[path])
                self.health.renew(path)
            cached = self._files[path] = _CachedFile(path, version, source, file)
            self._weigh(cached)
            self._shrink()
        source.on_reopen = partial(_changed, weakref.ref(self), path, is_suspended=False)
        source.on_suspend = partial(_changed, weakref.ref(self), path, is_suspended=True)
        return file

    def _is_current(self, cached: _CachedFile) -> bool:
        version = cached.version
        if version is None or version_of(cached.path, self._filesystem) != version:
            return False
        sidecar = cached.file.sidecar_finder if self.is_local else None
        return sidecar is None or sidecar.is_current

    def _confirmed(self, cached: _CachedFile, check: Future[bool]) -> bool:
        """Returns the check's result, and removes the file from the cache if it was replaced."""
        if result_of(check):
            return True
        with self._lock:
            self._forget(cached)
        return False


def _changed(cache: weakref.ref[FileCache], path: str, *, is_suspended: bool) -> None:
    """Calls the cache's method if the cache still exists. Sources refer to it weakly."""
    existing = cache()
    if existing is not None:
        existing._changed(path, is_suspended=is_suspended)
