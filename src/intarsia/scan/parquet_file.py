"""``ParquetFile``: one file, page by page."""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.decode.page_size_limit import check_page_size_limit
from intarsia.errors import PathError, UnsupportedError, Where, check_several, instead, public
from intarsia.expr.filterable_types import restorer_of
from intarsia.file.chunk_reader import Chunk
from intarsia.file.corrupt_rows import CorruptData, OnCorrupt, check_on_corrupt
from intarsia.file.health import Health
from intarsia.file.open_file import OpenedFile
from intarsia.file.page_index_cache import ChunkId
from intarsia.file.page_listing import PageInfo, describe_pages
from intarsia.file.read_options import DEFAULTS, ReadOptions
from intarsia.file.scan_profile import UNWATCHED, Unwatched
from intarsia.file.sidecar_discovery import Beside, Sidecars, places_of
from intarsia.index.base import term_for
from intarsia.index.directory import IndexEntry
from intarsia.io.source import KnownEnd, Source
from intarsia.io.storage import FileSource, PathLike, resolve
from intarsia.parquet.metadata import FileMetaData
from intarsia.parquet.page_index import ColumnIndex, OffsetIndex
from intarsia.parquet.schema import Schema
from intarsia.pruning.term import parse_term
from intarsia.redaction import shown_redacted
from intarsia.row_ranges import RowRanges
from intarsia.scan.column_reader import read_rows
from intarsia.scan.integrity.oversized_pages import fitting
from intarsia.scan.integrity.page_guard import PageIndexMistrust
from intarsia.scan.nested_projection import Projection, named
from intarsia.scan.request import (
    Filter,
    FilterLike,
    Request,
    expression_of,
    without_columns,
    without_rows,
)
from intarsia.scan.scan import scan_file


class ChunkPageIndex(NamedTuple):
    """Both page indexes of a chunk, each None where there is none that can be trusted."""

    column_index: ColumnIndex | None
    offset_index: OffsetIndex | None


@shown_redacted
@public
class ParquetFile:
    """A Parquet file opened for reading by page.

    ``where`` is a path, a URI, or a ``Source``; ``filesystem`` a ``pyarrow.fs`` or fsspec file
    system; ``sidecar`` the folder of sidecars, where they are not beside their files.
    ``page_checksum_verification`` compares the pages that are read with their checksums,
    where they have some; reading a damaged one raises ``FormatError``. ``read_dictionary`` names
    columns of text that are to come as Arrow dictionaries. ``distinct_index_column``,
    ``on_corrupt`` and ``page_size_limit`` are as for ``intarsia.dataset``. ``close``, or the end of
    a ``with`` block, lets go of the file; a ``Source`` is left to who gave it.

    Raises ``PathError`` where there is no such file, ``FormatError`` where it is not Parquet.
    """

    def __init__(
        self,
        where: PathLike | Source,
        *,
        filesystem: Any = None,
        sidecar: PathLike | None = None,
        page_checksum_verification: bool = False,
        read_dictionary: Sequence[str] = (),
        distinct_index_column: str | None = None,
        on_corrupt: OnCorrupt | None = None,
        page_size_limit: int | None = None,
    ) -> None:
        check_several(read_dictionary=read_dictionary)
        check_on_corrupt(on_corrupt)
        check_page_size_limit(page_size_limit)
        options = ReadOptions(
            page_checksum_verification or on_corrupt is not None,
            tuple(read_dictionary),
            distinct_index_column,
            on_corrupt,
            page_size_limit,
        )
        self._file: OpenedFile | None = None
        self._file, self._let_go = _open(where, filesystem, options, sidecar)

    def __enter__(self) -> ParquetFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file: whatever is asked of it then is a ``ValueError``."""
        self._file = None
        self._let_go()

    @property
    def _opened(self) -> OpenedFile:
        if self._file is None:
            raise ValueError("the file is closed")
        return self._file

    @property
    def metadata(self) -> FileMetaData:
        """The decoded footer, with the specification's names."""
        return self._opened.metadata

    def __repr__(self) -> str:
        groups = f"{self.num_row_groups:,} row groups"
        return f"<intarsia.ParquetFile {self._opened.name}: {self.num_rows:,} rows in {groups}>"

    @property
    def schema(self) -> Schema:
        """The Parquet schema, as its leaf columns."""
        return self._opened.schema

    @property
    def schema_arrow(self) -> pa.Schema:
        """The schema as pyarrow reads it, with the metadata that Arrow's writers store."""
        return self._opened.schema_arrow.with_metadata(self._opened.templates.stored_metadata)

    @property
    def num_rows(self) -> int:
        return self._opened.num_rows

    @property
    def num_row_groups(self) -> int:
        return len(self.metadata.row_groups)

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return self._opened.source.size

    @property
    def footer(self) -> bytes:
        """The footer's thrift bytes, without length and magic."""
        return self._opened.footer

    @property
    def indexes(self) -> tuple[IndexEntry, ...]:
        """Indexes of known and unknown kinds: those embedded, then those of the sidecar.

        Offsets are those in the file, or in its sidecar.
        """
        return self._opened.sections.entries

    @property
    def corrupt(self) -> list[CorruptData]:
        """The damaged places that reads came upon so far, with ``on_corrupt="skip"``."""
        return list(self._opened.damage.found.values())

    def distinct(self, on: str | pc.Expression) -> pa.Array | None:
        """The distinct values of a column, or function of columns, that has a ``Distinct`` index.

        Ascending; NaN and NULL come last, where there are any. Reads the index only. None where
        there is no such index, or it is damaged. Raises ``PredicateError`` for a column that is not
        there.
        """
        schema = self._opened.schema
        if isinstance(on, pc.Expression):
            on = str(term_for(on, "distinct"))
        elif schema.leaf(on) is None and schema.root(on) is None:
            parse_term(on, self._opened.schema_arrow)
        sections = self._opened.sections
        for entry in sections.entries:
            found = sections.resolved(entry)
            if found is not None and entry.on == on:
                values = sections.values(found)
                if values is not None:
                    return values
        return None

    def page_index(self, row_group: int, column: int | str) -> ChunkPageIndex:
        """The page indexes of a chunk. ``column`` is a leaf's position or path.

        Raises ``IndexError`` for a row group or column that is not there.
        """
        id_ = self._chunk_id(row_group, column)
        indexes = self._opened.page_indexes
        return ChunkPageIndex(indexes.columns(*id_), indexes.offsets(*id_))

    def pages(self, row_group: int, column: int | str) -> list[PageInfo]:
        """Every page of a chunk, as its header, its levels and the column index describe it.

        Raises ``IndexError`` as ``page_index`` does, ``FormatError`` for a page that cannot be
        decoded.
        """
        return list(describe_pages(self._opened, *self._chunk_id(row_group, column)))

    def dictionary(self, row_group: int, column: int | str) -> pa.Array | None:
        """The entries of a chunk's dictionary; None where it has none.

        They have the Arrow type of the column's Parquet type, which knows no time zones.
        Raises as ``pages`` does.
        """
        return Chunk(self._opened, *self._chunk_id(row_group, column)).dictionary()

    def read(
        self,
        columns: Sequence[str] | None = None,
        rows: RowRanges | None = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
    ) -> pa.Table:
        """Read ``columns`` (all by default) at ``rows`` (all), where ``filter`` holds.

        A column is a name or, for part of a nested one, a dotted path as ``pyarrow.parquet`` has
        it: ``"a.b"`` for a struct's field, ``"a.list.element.b"`` within a list. Leaves of one
        column come as one column. ``filter`` is as ``FilterLike`` says.

        Raises ``PredicateError`` for a column that is not there, ``IndexError`` for rows beyond the
        end, ``FormatError`` for bytes that cannot be decoded.
        """
        schema = self.schema_arrow
        if columns is None and filter is None and len(set(schema.names)) < len(schema):
            return self._read_all(self._checked(rows))
        request = self._request(columns, filter)
        tables = [*fitting(scan_file(self._opened, request, {}, self._checked(rows)))]
        if not request.columns:  # concatenation would forget how many rows there are
            return without_columns(sum(table.num_rows for table in tables))
        found = pa.concat_tables(tables) if tables else without_rows(request.output)
        return restorer_of(schema)(found)

    def iter_batches(
        self,
        batch_size: int = 65_536,
        columns: Sequence[str] | None = None,
        rows: RowRanges | None = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
    ) -> Iterator[pa.RecordBatch]:
        """What ``read`` gives, in batches of at most ``batch_size`` rows, read as they are wanted.

        Raises as ``read`` does, and ``UnsupportedError`` where names do not tell columns apart.
        """
        if operator.index(batch_size) < 1:
            raise ValueError(f"batch_size is 1 at least, not {batch_size}")
        tables = scan_file(self._opened, self._request(columns, filter), {}, self._checked(rows))
        give = restorer_of(self.schema_arrow)
        return (batch for table in tables for batch in give(table).to_batches(batch_size))

    def _checked(self, rows: RowRanges | None) -> RowRanges | None:
        if not isinstance(rows, RowRanges | None):
            raise TypeError(f"rows are RowRanges, not {type(rows).__name__}")
        if rows and int(rows.stops[-1]) > self.num_rows:
            raise IndexError(f"row {int(rows.stops[-1]) - 1} of {self.num_rows}")
        return rows

    def _request(self, columns: Sequence[str] | None, filter_: FilterLike) -> Request:
        schema = self.schema_arrow
        check_several(columns=columns)
        names = tuple(schema.names if columns is None else dict.fromkeys(columns))
        pruned: Projection = {}
        if not set(names) <= set(schema.names):
            names, pruned = named(self._opened, names)
        counts = Counter(schema.names)
        for name in names:
            if counts[name] > 1:
                raise UnsupportedError(f"two columns are called {name!r}", Where(self._opened.name))
        expression = expression_of(filter_, schema)
        wanted = None if expression is None else Filter.of(expression, schema)
        return Request(schema if wanted is None else wanted.schema, names, wanted, pruned)

    def _read_all(self, rows: RowRanges | None) -> pa.Table:
        """Every column, where names do not tell them apart."""
        wanted = RowRanges.all(self.num_rows) if rows is None else rows
        roots = [root for root in self.schema.roots if root.leaves]
        while True:
            try:
                arrays = read_rows(self._opened, roots, wanted)
            except PageIndexMistrust:
                # An index was dropped, and pages are found without it; or some are damaged.
                wanted -= self._opened.damage.rows_of(range(len(self.schema.leaves)))
                continue
            try:
                return pa.Table.from_arrays(arrays, schema=self.schema_arrow)
            except pa.ArrowNotImplementedError as error:  # as list views, where names are the same
                raise UnsupportedError(str(error), Where(self._opened.name)) from error

    def _chunk_id(self, row_group: int, column: int | str) -> ChunkId:
        leaf = self._leaf(column)
        if not 0 <= row_group < len(self.metadata.row_groups):
            raise IndexError(f"there are {len(self.metadata.row_groups)} row groups")
        return row_group, leaf

    def _leaf(self, column: int | str) -> int:
        if isinstance(column, int):
            if not 0 <= column < len(self.schema.leaves):
                raise IndexError(f"there are {len(self.schema.leaves)} columns")
            return column
        leaf = self.schema.leaf(column)
        if leaf is None:
            known = (leaf.name for leaf in self.schema.leaves)
            raise IndexError(f"column {column!r} is not there{instead(column, known)}")
        return leaf.index


def open_file(
    where: PathLike | Source,
    filesystem: Any = None,
    options: ReadOptions = DEFAULTS,
    sidecar: PathLike | Sidecars | None = None,
) -> OpenedFile:
    """Open a file by path or URI, or over any ``Source``. Errors as of ``ParquetFile``."""
    return _open(where, filesystem, options, sidecar)[0]


def _open(
    where: PathLike | Source,
    filesystem: Any,
    options: ReadOptions,
    sidecar: PathLike | Sidecars | None,
) -> tuple[OpenedFile, Callable[[], None]]:
    """The file, and what closes it."""
    if not isinstance(where, str | os.PathLike):
        if not hasattr(where, "size"):
            kind = type(where).__name__
            raise TypeError(f"a file is opened by its path, its URI or as a Source, not as {kind}")
        return OpenedFile(where, "<source>", options=options), lambda: None
    source = FileSource(*resolve(where, filesystem))
    opened = open_source(source, options, places=places_of(source.filesystem, sidecar))
    return opened, source.close


def open_source(
    source: FileSource,
    options: ReadOptions = DEFAULTS,
    profile: Unwatched = UNWATCHED,
    *,
    places: Sidecars,
    health: Health | None = None,
    tail: memoryview | None = None,
) -> OpenedFile:
    """Open a file by its source. Errors as of ``ParquetFile``.

    ``tail`` are its last bytes, where they are known, the footer included.
    """
    path = source.path
    try:
        opened = OpenedFile(
            source if tail is None else KnownEnd(source, tail),
            path,
            source.tail_bytes if tail is None else len(tail),
            options=options,
            request_bytes=0 if source.is_local else source.gap,
            profile=profile,
            beside=Beside(source, places),
            health=health,
        )
        opened.pin = source.pin
        return opened
    except OSError as error:
        if isinstance(error, PathError):
            raise
        raise PathError(f"{path}: cannot be read: {error}") from error
