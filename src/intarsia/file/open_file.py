"""An opened file: its footer, and everything else about it, fetched once and cached.

A page index or an embedded index that proves damaged is ignored, and a warning is issued.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from intarsia.decode.row_groups import read_pyarrow_metadata
from intarsia.decode.synthetic_footer import SchemaTemplates
from intarsia.errors import CorruptDataWarning, FormatError, IntarsiaError, PathError, Where, tell
from intarsia.file.chunk_layout import Layout
from intarsia.file.column_chunks import ColumnBounds, ColumnChunks
from intarsia.file.corrupt_data import CorruptData
from intarsia.file.embedded_indexes import Sections
from intarsia.file.file_footer import ChunkId, ColumnTypes, FileFooter
from intarsia.file.file_view import OWN_VIEW, FileView
from intarsia.file.file_warnings import FileWarnings
from intarsia.file.health import Damage, Health
from intarsia.file.page_index_cache import PageIndexes
from intarsia.file.read_options import DEFAULTS, ReadOptions
from intarsia.file.scan_profile import NO_PROFILE, NoProfile
from intarsia.file.sidecar_discovery import SidecarFinder
from intarsia.index.directory import Checksums, Directory, IndexEntry, verify_footer
from intarsia.io.source import CachedRangeSource, PrefetchSource, Source
from intarsia.io.storage import FileReplaced
from intarsia.parquet.footer import TAIL_BYTES, read_footer
from intarsia.parquet.footer_cache import FooterLayout
from intarsia.parquet.metadata import ColumnMetaData, FileMetaData
from intarsia.parquet.page_index import ColumnIndex
from intarsia.parquet.schema import Schema
from intarsia.parquet.statistics import Bounds
from intarsia.parquet.value_order import ValueOrder
from intarsia.process_state import cached_property
from intarsia.row_ranges import Int64Array, RowRanges

T = TypeVar("T")

_OBJECT_BYTES, _OBJECTS_PER_BYTE = 3000, 4
"""Estimated memory of an opened file: bytes for the object, and bytes per decoded byte."""


class OpenedFile:
    """One file's footer, and the parts that read everything else when it is first needed.

    Threads may share it: each fact is stored once it is complete, and at worst computed twice.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        tail_bytes: int = TAIL_BYTES,
        *,
        options: ReadOptions = DEFAULTS,
        request_bytes: int = 0,
        profile: NoProfile = NO_PROFILE,
        sidecar_finder: SidecarFinder | None = None,
        health: Health | None = None,
        view: FileView = OWN_VIEW,
    ) -> None:
        """Reads the footer. Raises ``FormatError`` if there is none, or if it contradicts itself.

        Reading ``request_bytes`` more costs about as much as one more request. ``profile`` counts
        what is read. ``health`` records for the data set which indexes the file has, and which of
        them are stale. ``view`` says how the file is read as part of a table.
        """
        self.name, self.view = name, view
        self.pin: Callable[[], object] = _no_handle
        """Returns an object that keeps the file's handle open, as ``FileSource.pin`` does."""
        self.sidecar_finder = sidecar_finder
        self._health = health
        self.profile = profile
        self.request_bytes = request_bytes
        self.options = options
        try:
            footer = read_footer(profile.watched(source), tail_bytes)
            self._tail: CachedRangeSource = footer.source
            self.file_footer = FileFooter.of(footer, name, options, view.columns)
            self.metadata: FileMetaData = self.file_footer.metadata
            self.schema: Schema = self.file_footer.schema
            self.shape: FooterLayout = self.file_footer.shape
            """The parts that this footer shares with those of other files."""
            self._chunks = chunks = ColumnChunks(self.file_footer)
            self.row_group_starts: Int64Array = self.file_footer.row_group_starts
            """First row of each row group, then the number of rows. Shape ``(groups + 1,)``."""
            self.num_rows = int(self.row_group_starts[-1])
            """Rows of all row groups. The footer's own total is ignored: it is wrong in some."""
            is_checked = self.options.looks_for_damage
            self._checksums = self.verify_footer() if is_checked else None
        except FormatError as error:
            raise error.at(Where(name)) from error
        self.num_rows_in = self.file_footer.num_rows_in
        self.arrow_type = self.file_footer.arrow_type
        self.column_chunk, self.chunk, self.chunks = (
            chunks.column_chunk,
            chunks.chunk,
            chunks.of_leaf,
        )
        self.outlines, self.decoded_bytes = chunks.outlines, chunks.decoded_bytes
        self.repaired_chunks: Mapping[ChunkId, ColumnMetaData] = chunks.repaired_chunks
        """Chunks whose footer entry is wrong, with their repaired metadata."""
        self.pages_read = 0
        """Data pages decoded so far; a chunk without an offset index counts as one."""
        self.groups_read: set[int] = set()
        """Row groups of which at least one page has been decoded."""
        self.unrepairable_chunks: set[ChunkId] = set()
        """Chunks whose footer entry could not be repaired. Emptied when another one's is."""
        self.without_dictionary_indices: set[tuple[int, int]] = set()
        """Row groups and leaves whose strings cannot be read as dictionary indices."""

    # --- parts that many queries do not need ------------------------------------------------------

    @cached_property
    def source(self) -> PrefetchSource:
        """The file's bytes."""
        return PrefetchSource(self._tail, self._tail.holds)

    @cached_property
    def _warnings(self) -> FileWarnings:
        return FileWarnings(self.name, in_data_set=self._health is not None)

    @property
    def ignored(self) -> dict[str, None]:
        """The warnings so far, in order: damaged or stale indexes, and lost rows."""
        return self._warnings.ignored

    @cached_property
    def damage(self) -> Damage:
        """The damaged places that were found so far."""
        return Damage(self.name, self._health)

    @cached_property
    def column_bounds(self) -> ColumnBounds:
        """The bounds of columns that statistics and page indexes state."""
        return ColumnBounds(self.file_footer, self._chunks)

    @cached_property
    def page_indexes(self) -> PageIndexes:
        """The page indexes that were read so far."""
        return PageIndexes(
            self.file_footer,
            self.source,
            self._chunks,
            self.column_bounds,
            self._warnings,
            self._checksums,
        )

    @cached_property
    def sections(self) -> Sections:
        """The embedded indexes, and those of the sidecar."""
        return Sections(
            self.file_footer,
            self.source,
            self._chunks,
            self._warnings,
            self.sidecar_finder,
            self._health,
        )

    @property
    def is_retry_due(self) -> bool:
        """True if storage failed to deliver an index, and it is time to open the file again."""
        return "sections" in self.__dict__ and self.sections.is_retry_due

    # --- the footer -----------------------------------------------------------------------------

    @property
    def footer(self) -> bytes:
        """The footer's thrift bytes."""
        return self.file_footer.raw

    @property
    def footer_offset(self) -> int:
        """Where the footer begins in the file, in bytes."""
        return self.file_footer.offset

    @property
    def binding(self) -> str:
        """The hash that ties embedded indexes to this file."""
        return self.file_footer.binding

    @property
    def templates(self) -> SchemaTemplates:
        """Synthetic footers that have pyarrow decode single columns."""
        return self.file_footer.templates

    @property
    def columns(self) -> ColumnTypes:
        """The types of the columns, and how their values compare."""
        return self.file_footer.columns

    @property
    def schema_arrow(self) -> pa.Schema:
        """The schema as pyarrow reads it. Raises ``FormatError`` if pyarrow cannot read it."""
        return self.file_footer.schema_arrow

    def order(self, leaf: int) -> ValueOrder:
        """Returns how a column's values compare."""
        return self.columns.order(leaf)

    @cached_property
    def pyarrow_metadata(self) -> pq.FileMetaData:
        """The footer as pyarrow decodes it. Raises one of ``FAILURES``."""
        return read_pyarrow_metadata(self.file_footer.named_raw)

    # --- rows -----------------------------------------------------------------------------------

    @property
    def rows(self) -> RowRanges:
        """The rows of the file, without those that its view deletes."""
        rows, deleted = RowRanges.all(self.num_rows), self.view.deleted_rows
        return rows - deleted if deleted else rows

    def missing_value(self, column: pa.Field) -> pa.Scalar:
        """Returns the value of a column that the file lacks: the view's default, or NULL."""
        default = self.view.defaults.get(column.name)
        return pa.scalar(None, column.type) if default is None else default.cast(column.type)

    # --- chunks ---------------------------------------------------------------------------------

    @cached_property
    def layout(self) -> Layout:
        """The places of all chunks."""
        return Layout(self.file_footer, self._chunks)

    def repair_chunk(
        self, row_group: int, leaf: int, chunk: ColumnMetaData, wrong: Sequence[str]
    ) -> None:
        """Replaces the metadata of a chunk, and warns of the ``wrong`` fields."""
        self._chunks.mend(row_group, leaf, chunk)
        self.layout.move(row_group, leaf, chunk)
        self.unrepairable_chunks.clear()
        self.page_indexes.forget(row_group, leaf)
        where = Where(row_group=row_group, column=self.schema.leaves[leaf].name)
        self.warn(f"the footer is wrong, as pages show: {where}: {', '.join(wrong)}")

    # --- statistics -----------------------------------------------------------------------------

    def row_group_bounds(self, leaf: int) -> Bounds:
        """Returns the bounds of a column in each row group, by the chunks' statistics."""
        return self.column_bounds.of_row_groups(leaf)

    def bounds_of(self, leaf: int, statistics: Sequence[ColumnMetaData] | ColumnIndex) -> Bounds:
        """Returns the bounds that the statistics of chunks, or a ColumnIndex, state of a column."""
        return self.column_bounds.of(leaf, statistics)

    @property
    def trusts_bounds(self) -> bool:
        """True if statistics are used. While looking for damage, only checksummed ones are."""
        return not self.options.looks_for_damage or self._checksums is not None

    def verify_footer(self) -> Checksums | None:
        """Returns the checksums, or None. Raises ``FormatError`` for a wrong footer."""
        footer = self.file_footer
        return verify_footer(footer.metadata, footer.raw, self._tail, footer.offset)

    # --- embedded indexes -----------------------------------------------------------------------

    @property
    def directory(self) -> Directory | None:
        """The directory of embedded indexes, or None if there is none that fits this file."""
        return self.sections.directory

    def expect_metadata(
        self, entries: Iterable[IndexEntry], offsets: Iterable[ChunkId], columns: Iterable[ChunkId]
    ) -> None:
        """Fetches metadata of sections and page indexes with the next read."""
        ranges = [
            (entry.offset + entry.length - entry.meta_length, entry.meta_length)
            for entry in entries
            if not (self.sections.is_opened(entry) or self.sections.is_in_sidecar(entry))
        ]
        ranges += self.page_indexes.ranges(offsets, columns)
        ranges = [(offset, length) for offset, length in ranges if length > 0]
        if sum(length for _, length in ranges) <= self.request_bytes:
            self.source.expect(ranges)

    # --- warnings and damage --------------------------------------------------------------------

    def warn(self, message: str, *, counted: bool = False) -> None:
        """Warns, and keeps it for ``explain``. The data set warns if it is ``counted``."""
        self._warnings.warn(message, counted=counted)

    def note_damage(self, row_group: int, leaf: int, places: Sequence[CorruptData]) -> bool:
        """Leaves the damaged rows of a chunk out from now on, and warns once of each place.

        Returns True if any place is new. Raises ``FormatError``, for the first place, unless
        ``on_corrupt="skip"``.
        """
        if not self.options.skips_corrupt:
            raise FormatError(places[0].message, places[0].where)
        new = self.damage.add(row_group, leaf, places)
        for one in new:
            self.ignored[str(one)] = None
            tell(str(one), CorruptDataWarning)
        return bool(new)

    # --- memory ---------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Estimated bytes of memory of the footer, the indexes, the tail and the sidecar."""
        raw = len(self.footer)
        decoded = raw + (self.page_indexes.num_bytes if "page_indexes" in self.__dict__ else 0)
        decoded += raw if "pyarrow_metadata" in self.__dict__ else 0
        own = _OBJECT_BYTES + _OBJECTS_PER_BYTE * decoded
        sidecar_bytes = 0 if self.sidecar_finder is None else self.sidecar_finder.held_bytes
        return own + self._tail.held_bytes + sidecar_bytes

    def release_tail(self) -> None:
        """Frees the bytes that were read along with the footer, and the sidecar's handle."""
        self._tail.release()
        if self.sidecar_finder is not None:
            self.sidecar_finder.suspend()


class VersionedFile(NamedTuple):
    """An opened file, and a pending check that it is still the file at its path.

    On remote storage the check takes a request, which runs in the background.
    """

    file: OpenedFile
    is_current: Callable[[], bool]
    """Waits for the check, and returns True if the file has not been replaced."""


READ_ERRORS = (IntarsiaError, OSError, pa.ArrowException)
"""The errors that reading a file may raise. An optional step ignores them: reading the file later
raises the error again, or reads the file's new version."""
MAX_VERSIONS_TRIED = 20
"""A query starts again this many times if its file is replaced meanwhile, and then gives up."""


class ChangesTooOften(PathError):  # noqa: N818 # as FileReplaced
    """The error that a file was replaced ``MAX_VERSIONS_TRIED`` times before it could be read."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: the file was replaced {MAX_VERSIONS_TRIED} times, each time before it was "
            "read: ask again when it is changed less often"
        )
        self._path = path

    def __reduce__(self) -> tuple[type[ChangesTooOften], tuple[str]]:
        return type(self), (self._path,)


def read_one_version(get: Callable[[], VersionedFile], action: Callable[[OpenedFile], T]) -> T:
    """Returns the result of ``action`` on the file that ``get`` returns, read from one version.

    Keeps the file's handle open meanwhile, and repeats ``action`` if the file was replaced. Raises
    ``ChangesTooOften``, or ``FileReplaced`` if ``get`` returns the replaced file again.
    """
    before = None
    for _ in range(MAX_VERSIONS_TRIED):
        lease = get()
        try:
            pinned = lease.file.pin()
            result = action(lease.file)
            del pinned
        except FileReplaced:
            if lease.file is before:
                raise
        else:
            if lease.is_current():
                return result
        before = lease.file
    raise ChangesTooOften(lease.file.name)


def retry_while_replaced(path: str, action: Callable[[], T]) -> T:
    """Repeats ``action`` while it raises ``FileReplaced``. Raises ``ChangesTooOften``."""
    for _ in range(MAX_VERSIONS_TRIED):
        with contextlib.suppress(FileReplaced):
            return action()
    raise ChangesTooOften(path)


def _no_handle() -> None:
    return None


def as_current_version(file: OpenedFile) -> VersionedFile:
    """Returns a file that is opened for one use, with a check that is always True."""
    return VersionedFile(file, is_always_current)


def is_always_current() -> bool:
    """Returns True: the check of a file that is known to be current."""
    return True
