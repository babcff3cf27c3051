"""An opened file: its footer, and everything else about it fetched once and kept.

Whatever proves untrustworthy, a page index or an embedded index, is reported by a warning and from
then on treated as if it were not there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from intarsia.decode.row_groups import read_by_pyarrow
from intarsia.decode.synthetic_footer import SchemaTemplates
from intarsia.errors import (
    CorruptDataWarning,
    FormatError,
    IntarsiaError,
    PathError,
    Where,
    tell,
    warn,
)
from intarsia.file.chunk_layout import Layout
from intarsia.file.column_chunks import ColumnChunks
from intarsia.file.column_types import ColumnTypes
from intarsia.file.corrupt_rows import CorruptData
from intarsia.file.damage import Damage
from intarsia.file.embedded_indexes import Sections
from intarsia.file.health import Health
from intarsia.file.page_index_cache import ChunkId, PageIndexes
from intarsia.file.read_options import DEFAULTS, ReadOptions
from intarsia.file.scan_profile import UNWATCHED, Unwatched
from intarsia.file.sidecar_discovery import Beside
from intarsia.file.writer_quirks import miscounts_nulls
from intarsia.index.directory import (
    Checksums,
    Directory,
    IndexEntry,
    binding_of,
    checked_footer,
    page_index_places,
)
from intarsia.index.sidecar import Sidecar
from intarsia.io.source import AheadSource, Source
from intarsia.io.storage import FileReplaced
from intarsia.parquet.footer import TAIL_BYTES, Footer, read_footer
from intarsia.parquet.footer_cache import Shape
from intarsia.parquet.metadata import ColumnChunk, ColumnMetaData, FileMetaData, Outline
from intarsia.parquet.page_index import ColumnIndex
from intarsia.parquet.schema import Root, Schema, read_schema
from intarsia.parquet.statistics import (
    Bounds,
    chunk_bounds,
    order_is_declared,
    page_bounds,
    recounted,
)
from intarsia.parquet.value_order import ValueOrder
from intarsia.process_state import cached_property
from intarsia.row_ranges import Int64Array

T = TypeVar("T")

_OBJECT_BYTES, _OBJECTS_PER_BYTE = 3000, 4
"""What an opened file takes in memory: in itself, and for each byte that was decoded."""


class OpenedFile:
    """Facts about one file, read when first asked for.

    Scans in several threads may share it: each fact is kept once it is whole, and at worst found
    twice.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        tail_bytes: int = TAIL_BYTES,
        *,
        options: ReadOptions = DEFAULTS,
        request_bytes: int = 0,
        profile: Unwatched = UNWATCHED,
        beside: Beside | None = None,
        health: Health | None = None,
    ) -> None:
        """Reads the footer. Raises ``FormatError`` where there is none.

        ``request_bytes`` is what costs about as much to read as one more request. ``profile`` is
        told what reading takes, ``health`` which indexes there are, and whether some are stale.
        ``beside`` finds the file's sidecar.
        """
        self.name = name
        self.pin: Callable[[], object] = _no_handle
        """Gives what keeps the file's handle open, as ``FileSource.pin``."""
        self.beside, self._health = beside, health
        self.damage = Damage(name, health)
        self.profile = profile
        self.request_bytes = request_bytes
        self.options = options
        try:
            self._footer: Footer = read_footer(profile.watched(source), tail_bytes)
            elements, shape = self._footer.metadata.schema, self._footer.shape
            self.schema: Schema = shape.kept("schema", lambda: read_schema(elements))
            self._chunks = ColumnChunks(self)
            is_checked = self.options.looks_for_damage
            self._checksums = self.checked_footer() if is_checked else None
        except FormatError as error:
            raise error.at(Where(name)) from error
        self._row_group_bounds: dict[int, Bounds] = {}
        self.page_indexes = PageIndexes(self, self._page_index_checksums())
        self.ignored: dict[str, None] = {}
        """What was warned of so far, in order: indexes that are not to be trusted."""
        self.pages_read = 0
        """Data pages decoded so far; a chunk without an offset index counts as one."""
        self.groups_read: set[int] = set()
        """Row groups of which any page was decoded so far."""
        self.unmendable: set[ChunkId] = set()
        """Chunks whose footer entry could not be corrected, as long as no other chunk's is."""
        self.not_coded: set[tuple[int, int]] = set()
        """Row groups and leaves whose texts turned out not to be had as codes."""

    @property
    def metadata(self) -> FileMetaData:
        return self._footer.metadata

    @cached_property
    def binding(self) -> str:
        """What tells this file's layout from any other's: ``directory.binding_of``."""
        return binding_of(self.metadata)

    @cached_property
    def source(self) -> AheadSource:
        return AheadSource(self._footer.source, self._footer.source.holds)

    @property
    def footer(self) -> bytes:
        """The footer's thrift bytes."""
        return self._footer.raw

    @property
    def footer_offset(self) -> int:
        """Where the footer begins in the file, in bytes."""
        return self._footer.offset

    @cached_property
    def row_group_starts(self) -> Int64Array:
        """First row of each row group, then the number of rows. Shape ``(groups + 1,)``."""
        counts = [group.num_rows for group in self.metadata.row_groups]
        return np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64)

    @property
    def num_rows(self) -> int:
        """Rows of all row groups; what some footers say of the file as a whole is wrong."""
        return int(self.row_group_starts[-1])

    def num_rows_in(self, row_group: int) -> int:
        """Rows of one row group."""
        return self.metadata.row_groups[row_group].num_rows

    @property
    def held_bytes(self) -> int:
        """About as many bytes of memory as are held: for the footer, indexes, and the tail."""
        raw = len(self._footer.raw)
        decoded = raw + self.page_indexes.num_bytes
        decoded += raw if "pyarrows_metadata" in self.__dict__ else 0
        own = _OBJECT_BYTES + _OBJECTS_PER_BYTE * decoded
        beside = 0 if self.beside is None else self.beside.held_bytes
        return own + self._footer.source.held_bytes + beside

    def release_tail(self) -> None:
        """Hold no longer what was read along with the footer, nor the sidecar's handle."""
        self._footer.source.release()
        if self.beside is not None:
            self.beside.rest()

    @property
    def shape(self) -> Shape:
        """What the footer has in common with those of other files."""
        return self._footer.shape

    @cached_property
    def templates(self) -> SchemaTemplates:
        return self.shape.kept(("templates", self.options.of_types), self._new_templates)

    def _new_templates(self) -> SchemaTemplates:
        leaves = {leaf.name for leaf in self.schema.leaves}
        read_dictionary = [path for path in self.options.read_dictionary if path in leaves]
        unit = self.options.coerce_int96_timestamp_unit
        return SchemaTemplates(self.metadata, self._footer.raw, read_dictionary, unit)

    @cached_property
    def columns(self) -> ColumnTypes:
        """The types of the columns, which files of one shape share."""
        return self.shape.kept(("columns", self.options.of_types), self._new_columns)

    def _new_columns(self) -> ColumnTypes:
        orders, unit = self.metadata.column_orders, self.options.coerce_int96_timestamp_unit
        return ColumnTypes(self.schema, self.templates, orders, unit)

    @cached_property
    def schema_arrow(self) -> pa.Schema:
        """The schema as pyarrow reads it. Raises ``FormatError`` if pyarrow cannot read it."""
        try:
            return self.columns.schema_arrow
        except FormatError as error:
            raise error.at(Where(self.name)) from error

    @cached_property
    def pyarrows_metadata(self) -> pq.FileMetaData:
        """The footer as pyarrow decodes it. Raises one of ``FAILURES``."""
        return read_by_pyarrow(self.footer)

    def arrow_type(self, root: Root) -> pa.DataType:
        """Returns the type of a root with all of its leaves, as pyarrow reads it."""
        try:
            return self.columns.arrow_type(root)
        except FormatError as error:
            raise error.at(Where(self.name)) from error

    def column_chunk(self, row_group: int, leaf: int) -> ColumnChunk:
        """What the footer says of one chunk.

        Raises ``FormatError`` where it is not decodable, or contradicts the row group.
        """
        return self._chunks.column_chunk(row_group, leaf)

    def chunk(self, row_group: int, leaf: int) -> ColumnMetaData:
        """Metadata of one chunk. Raises ``FormatError`` where its data is not in this file."""
        return self._chunks.chunk(row_group, leaf)

    def outlines(self, row_group: int, leaves: Sequence[int]) -> Sequence[Outline | ColumnMetaData]:
        """Where chunks of a row group are, and what they take: of many, told sooner than ``chunk``
        does, and with the same errors.
        """
        return self._chunks.outlines(row_group, leaves)

    @property
    def mended(self) -> Mapping[ChunkId, ColumnMetaData]:
        """Chunks of which the footer says what is not so, and what is."""
        return self._chunks.mended

    @cached_property
    def layout(self) -> Layout:
        """Where chunks are."""
        return Layout(self)

    def mend_chunk(
        self, row_group: int, leaf: int, chunk: ColumnMetaData, wrong: Sequence[str]
    ) -> None:
        """Go by ``chunk`` from now on, where ``wrong`` fields of the footer's say otherwise."""
        self._chunks.mend(row_group, leaf, chunk)
        self.layout.move(row_group, leaf, chunk)
        self.unmendable.clear()
        self.page_indexes.forget(row_group, leaf)
        where = Where(row_group=row_group, column=self.schema.leaves[leaf].name)
        self.warn(f"the footer is wrong, as pages show: {where}: {', '.join(wrong)}")

    def order(self, leaf: int) -> ValueOrder:
        """Returns how a column's values compare."""
        return self.columns.order(leaf)

    def order_is_declared(self, leaf: int) -> bool:
        """Does the footer say how this column's bounds compare?"""
        return order_is_declared(self.columns.column_order(leaf))

    def row_group_bounds(self, leaf: int) -> Bounds:
        """What statistics say of a column's chunks, one for each row group."""
        if leaf not in self._row_group_bounds:
            chunks = [self.chunk(group, leaf) for group in range(len(self.metadata.row_groups))]
            self._row_group_bounds[leaf] = self.bounds_of(leaf, chunks)
        return self._row_group_bounds[leaf]

    def bounds_of(self, leaf: int, told: Sequence[ColumnMetaData] | ColumnIndex) -> Bounds:
        """What statistics of chunks, or the ColumnIndex of one, say of a column in such files."""
        order, declared = self.order(leaf), self.order_is_declared(leaf)
        if isinstance(told, ColumnIndex):
            bounds = page_bounds(order, told, declared=declared)
        else:
            bounds = chunk_bounds(order, told, declared=declared)
        if not miscounts_nulls(self, leaf):
            return bounds
        return recounted(bounds, told, self.schema.leaves[leaf].max_definition_level)

    # --- page indexes and damage ---------------------------------------------------------

    def expect_metadata(
        self, entries: Iterable[IndexEntry], offsets: Iterable[ChunkId], columns: Iterable[ChunkId]
    ) -> None:
        """Have sections' metadata and page indexes fetched along with whatever is read next.

        That is where they take no more than a request of their own would cost.
        """
        ranges = [
            (entry.offset + entry.length - entry.meta_length, entry.meta_length)
            for entry in entries
            if not (self.sections.is_opened(entry) or self.sections.is_beside(entry))
        ]
        ranges += self.page_indexes.ranges(offsets, columns)
        ranges = [(offset, length) for offset, length in ranges if length > 0]
        if sum(length for _, length in ranges) <= self.request_bytes:
            self.source.expect(ranges)

    def checked_footer(self) -> Checksums | None:
        """The checksums of what has none in the format, if the file has any.

        Raises ``FormatError`` where the footer does not match its own.
        """
        footer = self._footer
        return checked_footer(footer.metadata, footer.raw, footer.source, footer.offset)

    def _page_index_checksums(self) -> dict[tuple[int, int, str], int]:
        if self._checksums is None:
            return {}
        names = [name for name, _ in page_index_places(self.metadata)]
        known = self._checksums.page_indexes
        return dict(zip(names, known, strict=True)) if len(names) == len(known) else {}

    @property
    def trusts_bounds(self) -> bool:
        """Are statistics gone by? Where damage is looked for, only those that have a checksum."""
        return not self.options.looks_for_damage or self._checksums is not None

    def note_damage(self, row_group: int, leaf: int, found: Sequence[CorruptData]) -> bool:
        """Leave the damaged rows of a chunk out, with a warning for each place that is new.

        False where none is. Raises ``FormatError``, for the first place, where damage is not to be
        skipped.
        """
        if not self.options.skips_corrupt:
            raise FormatError(found[0].message, found[0].where)
        new = self.damage.add(row_group, leaf, found)
        for one in new:
            self.ignored[str(one)] = None
            tell(str(one), CorruptDataWarning)
        return bool(new)

    # --- embedded indexes -----------------------------------------------------------------------

    @cached_property
    def sections(self) -> Sections:
        """The embedded indexes."""
        return Sections(self)

    @property
    def directory(self) -> Directory | None:
        """The directory of embedded indexes, where there is one that belongs to this file."""
        return self.sections.directory

    @property
    def sidecar_is_current(self) -> bool:
        """Is the sidecar that was found still the one there is? True where none was looked for."""
        return self.beside is None or self.beside.is_current

    def open_sidecar(self) -> Sidecar | None:
        """The file's sidecar. Raises as ``Beside.opened`` does."""
        return None if self.beside is None else self.beside.opened(self.footer)

    def note_indexes(
        self, held: Mapping[IndexEntry, bool], stale: Mapping[bool, Collection[IndexEntry]]
    ) -> None:
        """Tell the data set, if the file is one of its, which indexes it has, and which are stale:
        in itself, False, and beside it, True.
        """
        if self._health is not None:
            home = self.beside.home if self.beside else False
            homes = {entry: is_beside and home for entry, is_beside in held.items()}
            gone = {is_beside and home: entries for is_beside, entries in stale.items()}
            self._health.note(self.name, homes, gone, self.columns)

    def warn(self, message: str, *, counted: bool = False) -> None:
        """Report that something is not to be trusted; a warning, and kept for ``explain``.

        What is ``counted`` a data set warns of itself.
        """
        self.ignored[message] = None
        if counted and self._health is not None:
            return
        warn(f"{self.name}: {message}")


class Lease(NamedTuple):
    """An opened file, and a question that waits for its answer: is it still the file at its path?

    On remote storage the answer takes a request, which is under way meanwhile.
    """

    file: OpenedFile
    is_current: Callable[[], bool]


READ_ERRORS = (IntarsiaError, OSError, pa.ArrowException)
"""What reading files may raise. A step that only saves work ignores these: a file is then read
anyway, which says what is wrong with it, or reads the version that has taken its place."""
MAX_TRIES = 20
"""Versions of one file that a query begins with. After that it says that it cannot read it."""


class ChangesTooOften(PathError):  # noqa: N818 # as FileReplaced
    """A file was replaced each time before it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: the file was replaced {MAX_TRIES} times, each time before it was read: ask "
            "again when it is changed less often"
        )
        self._path = path

    def __reduce__(self) -> tuple[type[ChangesTooOften], tuple[str]]:
        return type(self), (self._path,)


def of_one_version(get: Callable[[], Lease], action: Callable[[OpenedFile], T]) -> T:
    """What ``action`` returns of the file that ``get`` gives, all of one version.

    The file's handle stays open meanwhile. ``action`` is done again if the file was replaced all
    the same. Raises ``ChangesTooOften``; passes ``FileReplaced`` on if ``get`` has no other file.
    """
    before = None
    for _ in range(MAX_TRIES):
        lease = get()
        try:
            pinned = lease.file.pin()
            found = action(lease.file)
            del pinned
        except FileReplaced:
            if lease.file is before:
                raise
        else:
            if lease.is_current():
                return found
        before = lease.file
    raise ChangesTooOften(lease.file.name)


def until_whole(path: str, action: Callable[[], T]) -> T:
    """What ``action`` returns, done again as long as it raises ``FileReplaced``.

    Raises ``ChangesTooOften``, of the file at ``path``.
    """
    for _ in range(MAX_TRIES):
        with contextlib.suppress(FileReplaced):
            return action()
    raise ChangesTooOften(path)


def _no_handle() -> None:
    return None


def lease_of(file: OpenedFile) -> Lease:
    """A file that is opened for one use, and so is what it is."""
    return Lease(file, lambda: True)
