"""Opened files, kept for later queries for as long as they are the same files."""

from __future__ import annotations

import contextlib
import weakref
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from intarsia.catalog.catalog import Catalog
from intarsia.errors import FormatError, PathError
from intarsia.file.health import Health
from intarsia.file.open_file import Lease, OpenedFile, lease_of, until_whole
from intarsia.file.read_options import DEFAULTS, ReadOptions
from intarsia.file.scan_profile import UNWATCHED, Unwatched
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.io.file_handle import Version, version_of
from intarsia.io.storage import FileSource
from intarsia.memory import share
from intarsia.process_state import ForkLock, SharedState
from intarsia.scan.parquet_file import open_source
from intarsia.threads import begin, result_of

KEPT_BYTES = 256 * 1024 * 1024
"""What the files that a cache keeps take in memory, by estimate."""


@dataclass(slots=True, eq=False)
class _Kept:
    path: str
    version: Version
    source: FileSource
    file: OpenedFile
    num_bytes: int = 0
    """What it was last estimated to take."""


class FileCache(SharedState):
    """The most recently used files of one file system, as many as fit in ``kept_bytes``.

    The files that were opened last, ``most_open()`` of them, keep their handles and tails. The
    others are opened again if more than their footers is needed. ``gap`` is that of ``FileSource``.
    """

    def __init__(
        self,
        filesystem: pafs.FileSystem,
        options: ReadOptions = DEFAULTS,
        gap: int | None = None,
        kept_bytes: int = KEPT_BYTES,
        places: Sidecars | None = None,
        health: Health | None = None,
    ) -> None:
        self._filesystem, self._gap = filesystem, gap
        self._limit, self._num_bytes = kept_bytes, 0
        self._options = options
        self.places = places or Sidecars(filesystem)
        """Where the sidecars of the files are."""
        self.health = health or Health()
        """What became of their indexes."""
        self.catalog: Catalog | None = None
        """What is known of the files without opening them."""
        self.is_local = isinstance(filesystem, pafs.LocalFileSystem)
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = ForkLock()
        super().__init__()

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._num_bytes = 0

    @classmethod
    def of(
        cls,
        filesystem: pafs.FileSystem,
        form: pads.ParquetFileFormat,
        places: Sidecars | None = None,
    ) -> FileCache:
        """A cache that opens files as the format's default scan options say."""
        scan = form.default_fragment_scan_options
        columns = tuple(sorted(form.read_options.dictionary_columns))
        is_told = scan.cache_options != pa.CacheOptions()
        gap = scan.cache_options.hole_size_limit if is_told else None
        options = ReadOptions(
            scan.page_checksum_verification,
            columns,
            coerce_int96_timestamp_unit=form.read_options.coerce_int96_timestamp_unit,
        )
        return cls(filesystem, options, gap, places=places)

    def anew(self, options: ReadOptions | None = None) -> FileCache:
        """An empty cache of the same files, opened as ``options`` say: by default, as here."""
        options = options or self._options
        made = FileCache(
            self._filesystem, options, self._gap, places=self.places, health=self.health
        )
        if not options.looks_for_damage:  # it tells what footers said, unchecked
            made.catalog = self.catalog
        return made

    @property
    def options(self) -> ReadOptions:
        """How files are read."""
        return self._options

    @property
    def num_kept(self) -> int:
        """How many files are open, or were and are still known."""
        return len(self._kept)

    def get(self, path: str) -> OpenedFile:
        """The file at ``path``; opened anew where it was replaced since, as far as that shows."""
        lease = self.lease(path)
        return lease.file if lease.is_current() else self.get(path)

    def as_opened(self, path: str) -> OpenedFile:
        """The file at ``path`` as it was when it was last opened, or is now."""
        found = self._find(path)
        return self._open(path) if found is None else found.file

    def lease(self, path: str) -> Lease:
        """As ``get``, without waiting to hear whether the file was replaced."""
        found = self._find(path)
        if found is None or found.file.sections.is_unsure:
            return lease_of(self._open(path))
        if self.is_local:
            return lease_of(found.file if self._is_current(found) else self._open(path))
        asked = begin(partial(self._is_current, found))
        is_current = partial(self._confirmed, found, asked)
        found.source.confirm(is_current)
        return Lease(found.file, is_current)

    def _find(self, path: str) -> _Kept | None:
        with self._lock:
            found = self._kept.get(path)
            if found is not None:
                self._kept.move_to_end(path)
            return found

    def _changed(self, path: str, *, is_rested: bool) -> None:
        """Estimate anew the size of a file that was opened again, or let go of."""
        with self._lock:
            found = self._kept.get(path)
            if found is not None:
                if is_rested:
                    found.file.release_tail()
                self._weigh(found)
                self._shrink()

    def _shrink(self) -> None:
        """Forget the files that were used least lately, while all together take too much."""
        while self._num_bytes > share(self._limit, 8) and len(self._kept) > 1:
            self._forget(next(iter(self._kept.values())))

    def _weigh(self, kept: _Kept) -> None:
        if self._kept.get(kept.path) is kept:
            before, kept.num_bytes = kept.num_bytes, kept.file.held_bytes
            self._num_bytes += kept.num_bytes - before

    def _forget(self, kept: _Kept) -> None:
        if self._kept.get(kept.path) is kept:
            del self._kept[kept.path]
            self._num_bytes -= kept.num_bytes

    def open_unshared(
        self, path: str, profile: Unwatched = UNWATCHED
    ) -> tuple[FileSource, OpenedFile]:
        """The file opened for one use, and its source, which counts what is read of it."""
        source = FileSource(self._filesystem, path, self._gap)
        return source, self._opened(source, profile)

    def _opened(self, source: FileSource, profile: Unwatched = UNWATCHED) -> OpenedFile:
        places, health = self.places, self.health
        opened = partial(open_source, source, self._options, profile, places=places, health=health)
        tail = None if self.catalog is None else self.catalog.tail(source)
        if tail is not None:
            with contextlib.suppress(FormatError):  # else the file itself says what is wrong
                return opened(tail=tail)
        return opened()

    def _open(self, path: str) -> OpenedFile:
        return until_whole(path, partial(self._open_now, path))

    def _open_now(self, path: str) -> OpenedFile:
        source = FileSource(self._filesystem, path, self._gap)
        try:
            version = source.version  # before anything is read: what changes later is noticed
        except PathError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                error.add_note("It was deleted since it was listed: open the data set again")
            raise
        file = self._opened(source)
        with self._lock:
            if path in self._kept:
                self._forget(self._kept[path])
                self.health.renew(path)
            kept = self._kept[path] = _Kept(path, version, source, file)
            self._weigh(kept)
            self._shrink()
        source.opened_again = partial(_changed, weakref.ref(self), path, is_rested=False)
        source.was_rested = partial(_changed, weakref.ref(self), path, is_rested=True)
        return file

    def _is_current(self, kept: _Kept) -> bool:
        known = kept.version
        if known is None or version_of(kept.path, self._filesystem) != known:
            return False
        return not self.is_local or kept.file.sidecar_is_current

    def _confirmed(self, kept: _Kept, asked: Future[bool]) -> bool:
        """The answer to whether the file is current, which is forgotten where it is not."""
        if result_of(asked):
            return True
        with self._lock:
            self._forget(kept)
        return False


def _changed(cache: weakref.ref[FileCache], path: str, *, is_rested: bool) -> None:
    """Sources are no reason to keep a cache, which keeps them."""
    found = cache()
    if found is not None:
        found._changed(path, is_rested=is_rested)
