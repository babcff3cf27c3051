"""``ParquetFile``, the public reader of one file, and functions that open files."""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.decode.page_size_limit import check_page_size_limit
from intarsia.errors import PathError, UnsupportedError, Where, check_is_list, instead, public
from intarsia.expr.filterable_types import restorer_of
from intarsia.file.chunk_reader import Chunk
from intarsia.file.corrupt_data import CorruptData, OnCorrupt, check_on_corrupt
from intarsia.file.file_footer import ChunkId
from intarsia.file.file_view import OWN_VIEW, FileView
from intarsia.file.health import Health
from intarsia.file.open_file import OpenedFile
from intarsia.file.page_listing import PageInfo, describe_pages
from intarsia.file.read_options import DEFAULTS, ReadOptions
from intarsia.file.scan_profile import NO_PROFILE, NoProfile
from intarsia.file.sidecar_discovery import SidecarFinder, Sidecars, places_of
from intarsia.index.base import term_for
from intarsia.index.directory import IndexEntry
from intarsia.io.source import CachedTailSource, Source
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
    """Both page indexes of a chunk. Each is None if it is missing or cannot be trusted."""

    column_index: ColumnIndex | None
    """Bounds and NULL counts of each page."""
    offset_index: OffsetIndex | None
    """Position, size and first row of each page."""


@shown_redacted
@public
class ParquetFile:
    """A Parquet file opened for reading by page.

    ``close`` and the end of a ``with`` block close the file. A ``Source`` stays open; the caller
    closes it.

    Parameters
    ----------
    where : str, path or Source
        A path, a URI, or an object with a length and ranged reads.
    filesystem : pyarrow or fsspec file system, optional
        The file system of ``where``. By default it follows from ``where``.
    sidecar : str or path, optional
        The folder of sidecars, if they are not next to their files.
    page_checksum_verification : bool, default False
        Compares pages with their checksums, if they have any, when they are read.
    read_dictionary : sequence of str
        String columns to return as Arrow dictionaries.
    distinct_index_column, on_corrupt, page_size_limit
        As for ``intarsia.dataset``.

    Raises
    ------
    PathError
        If there is no such file.
    FormatError
        If the file is not Parquet. Reading raises it for pages that cannot be decoded.

    Examples
    --------
    >>> with ia.ParquetFile("logs.parquet") as file:
    ...     file.num_rows, file.indexes[0].kind
    (1000, 'lookup')
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
        check_is_list(read_dictionary=read_dictionary)
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
        self._file, self._close_source = _open(where, filesystem, options, sidecar)

    def __enter__(self) -> ParquetFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file. Using it afterwards raises ``ValueError``."""
        self._file = None
        self._close_source()

    @property
    def _opened(self) -> OpenedFile:
        if self._file is None:
            raise ValueError("the file is closed")
        return self._file

    @property
    def metadata(self) -> FileMetaData:
        """The decoded footer (``FileMetaData``), with the specification's names."""
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
        """The schema as pyarrow reads it, with the metadata that Arrow writers store."""
        return self._opened.schema_arrow.with_metadata(self._opened.templates.stored_metadata)

    @property
    def num_rows(self) -> int:
        return self._opened.num_rows

    @property
    def num_row_groups(self) -> int:
        return len(self.metadata.row_groups)

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self._opened.source.size

    @property
    def footer(self) -> bytes:
        """The Thrift bytes of the footer, without length and magic."""
        return self._opened.footer

    @property
    def indexes(self) -> tuple[IndexEntry, ...]:
        """Indexes of known and unknown kinds: first the embedded ones, then those of the sidecar.

        Offsets count from the start of the file, or of the sidecar.
        """
        return self._opened.sections.entries

    @property
    def corrupt(self) -> list[CorruptData]:
        """Damaged pages and chunks that reads have skipped so far, with ``on_corrupt="skip"``."""
        return list(self._opened.damage.places.values())

    def distinct(self, on: str | pc.Expression) -> pa.Array | None:
        """Returns the distinct values of a column or expression with a ``Distinct`` index.

        Only the index is read.

        Parameters
        ----------
        on : str or Expression
            The indexed column or expression.

        Returns
        -------
        pyarrow.Array or None
            Values in ascending order, then NaN and NULL if they occur. None if there is no such
            index or it is damaged.

        Raises
        ------
        PredicateError
            If there is no such column.

        Examples
        --------
        >>> report, = ia.add_indexes("logs.parquet", ["status:distinct"])
        >>> ia.ParquetFile("logs.parquet").distinct("status").to_pylist()
        [200, 500]
        """
        schema = self._opened.schema
        if isinstance(on, pc.Expression):
            on = str(term_for(on, "distinct"))
        elif schema.leaf(on) is None and schema.root(on) is None:
            parse_term(on, self._opened.schema_arrow)
        sections = self._opened.sections
        for entry in sections.entries:
            index = sections.resolved(entry)
            if index is not None and entry.on == on:
                values = sections.values(index)
                if values is not None:
                    return values
        return None

    def page_index(self, row_group: int, column: int | str) -> ChunkPageIndex:
        """Returns the page indexes of a chunk.

        Parameters
        ----------
        row_group : int
            The number of the row group, from 0.
        column : int or str
            The position of the leaf column in the schema, or its dotted path.

        Returns
        -------
        ChunkPageIndex
            The column index and the offset index.

        Raises
        ------
        IndexError
            If there is no such row group or column.

        Examples
        --------
        >>> index = ia.ParquetFile("logs.parquet").page_index(0, "status")
        >>> index.offset_index.first_row_index.tolist()
        [0]
        """
        chunk_id = self._chunk_id(row_group, column)
        indexes = self._opened.page_indexes
        return ChunkPageIndex(indexes.columns(*chunk_id), indexes.offsets(*chunk_id))

    def pages(self, row_group: int, column: int | str) -> list[PageInfo]:
        """Describes every page of a chunk by its header, its levels and the column index.

        Parameters
        ----------
        row_group : int
            The number of the row group, from 0.
        column : int or str
            The position of the leaf column in the schema, or its dotted path.

        Returns
        -------
        list of PageInfo
            One for each page, the dictionary page included.

        Raises
        ------
        IndexError
            If there is no such row group or column.
        FormatError
            If a page cannot be decoded.

        Examples
        --------
        >>> pages = ia.ParquetFile("logs.parquet").pages(0, "msg")
        >>> pages[-1].first_row, pages[-1].num_rows
        (0, 1000)
        """
        return list(describe_pages(self._opened, *self._chunk_id(row_group, column)))

    def dictionary(self, row_group: int, column: int | str) -> pa.Array | None:
        """Returns the entries of a chunk's dictionary.

        Parameters
        ----------
        row_group : int
            The number of the row group, from 0.
        column : int or str
            The position of the leaf column in the schema, or its dotted path.

        Returns
        -------
        pyarrow.Array or None
            Entries in the Arrow type of the column's Parquet type, without a time zone's name.
            None if the chunk has no dictionary.

        Raises
        ------
        IndexError
            If there is no such row group or column.
        FormatError
            If the dictionary cannot be decoded.

        Examples
        --------
        >>> ia.ParquetFile("logs.parquet").dictionary(0, "status").to_pylist()
        [200, 500]
        """
        return Chunk(self._opened, *self._chunk_id(row_group, column)).dictionary()

    def read(
        self,
        columns: Sequence[str] | None = None,
        rows: RowRanges | None = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
    ) -> pa.Table:
        """Reads columns at the given rows where the filter is true.

        Parameters
        ----------
        columns : sequence of str, optional
            Names, or dotted paths to parts of nested columns as in ``pyarrow.parquet``: ``"a.b"``
            for a field of a struct, ``"a.list.element.b"`` within a list. Parts of one column are
            returned as one column. All columns by default.
        rows : RowRanges, optional
            Rows to read, counted from 0. All rows by default.
        filter : Expression, str or list, optional
            An Expression, a SQL condition, or tuples as in ``pyarrow.parquet.read_table``.

        Returns
        -------
        pyarrow.Table
            The matching rows, in the file's order.

        Raises
        ------
        PredicateError
            If there is no such column.
        IndexError
            If ``rows`` go beyond the end of the file.
        FormatError
            If bytes cannot be decoded.

        Examples
        --------
        >>> file = ia.ParquetFile("logs.parquet")
        >>> file.read(["msg"], filter="trace_id = 't7'").to_pylist()
        [{'msg': 'request 7 done'}]
        >>> file.read(["status"], rows=ia.RowRanges.of((0, 3))).num_rows
        3
        """
        schema = self.schema_arrow
        if columns is None and filter is None and len(set(schema.names)) < len(schema):
            return self._read_all(self._checked_rows(rows))
        request = self._request(columns, filter)
        tables = [*fitting(scan_file(self._opened, request, {}, self._checked_rows(rows)))]
        if not request.columns:  # concatenation would lose the number of rows
            return without_columns(sum(table.num_rows for table in tables))
        combined = pa.concat_tables(tables) if tables else without_rows(request.output)
        return restorer_of(schema)(combined)

    def iter_batches(
        self,
        batch_size: int = 65_536,
        columns: Sequence[str] | None = None,
        rows: RowRanges | None = None,
        filter: FilterLike = None,  # noqa: A002 # pyarrow's name for it
    ) -> Iterator[pa.RecordBatch]:
        """Reads the result of ``read`` in batches. Each part is read when it is requested.

        Parameters
        ----------
        batch_size : int, default 65,536
            Maximum rows of a batch.
        columns, rows, filter
            As for ``read``.

        Returns
        -------
        iterator of pyarrow.RecordBatch
            The matching rows, in the file's order.

        Raises
        ------
        UnsupportedError
            If two columns have the same name. The errors of ``read`` are raised as well.

        Examples
        --------
        >>> file = ia.ParquetFile("logs.parquet")
        >>> batches = file.iter_batches(600, ["msg"], rows=ia.RowRanges.of((0, 800)))
        >>> [batch.num_rows for batch in batches]
        [600, 200]
        """
        if operator.index(batch_size) < 1:
            raise ValueError(f"batch_size is 1 at least, not {batch_size}")
        tables = scan_file(
            self._opened, self._request(columns, filter), {}, self._checked_rows(rows)
        )
        restore = restorer_of(self.schema_arrow)
        return (batch for table in tables for batch in restore(table).to_batches(batch_size))

    def _checked_rows(self, rows: RowRanges | None) -> RowRanges | None:
        if not isinstance(rows, RowRanges | None):
            raise TypeError(f"rows are RowRanges, not {type(rows).__name__}")
        if rows and int(rows.stops[-1]) > self.num_rows:
            raise IndexError(f"row {int(rows.stops[-1]) - 1} of {self.num_rows}")
        return rows

    def _request(self, columns: Sequence[str] | None, filter_: FilterLike) -> Request:
        schema = self.schema_arrow
        check_is_list(columns=columns)
        names = tuple(schema.names if columns is None else dict.fromkeys(columns))
        pruned: Projection = {}
        if not set(names) <= set(schema.names):
            names, pruned = named(self._opened, names)
        counts = Counter(schema.names)
        for name in names:
            if counts[name] > 1:
                raise UnsupportedError(f"two columns are called {name!r}", Where(self._opened.name))
        expression = expression_of(filter_, schema)
        prepared = None if expression is None else Filter.of(expression, schema)
        return Request(schema if prepared is None else prepared.schema, names, prepared, pruned)

    def _read_all(self, rows: RowRanges | None) -> pa.Table:
        """Reads all columns of a file in which columns have the same name."""
        rows_left = RowRanges.all(self.num_rows) if rows is None else rows
        roots = [root for root in self.schema.roots if root.leaves]
        while True:
            try:
                arrays = read_rows(self._opened, roots, rows_left)
            except PageIndexMistrust:
                # A wrong index is no longer used, or damaged rows are known now.
                rows_left -= self._opened.damage.rows_of(range(len(self.schema.leaves)))
                continue
            try:
                return pa.Table.from_arrays(arrays, schema=self.schema_arrow)
            except pa.ArrowNotImplementedError as error:  # for example list views
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
            names = (leaf.name for leaf in self.schema.leaves)
            raise IndexError(f"column {column!r} is not there{instead(column, names)}")
        return leaf.index


def open_file(
    where: PathLike | Source,
    filesystem: Any = None,
    options: ReadOptions = DEFAULTS,
    sidecar: PathLike | Sidecars | None = None,
    view: FileView = OWN_VIEW,
) -> OpenedFile:
    """Opens a file by path, URI or ``Source``. Raises the errors of ``ParquetFile``.

    ``view`` is as for ``open_source``.
    """
    return _open(where, filesystem, options, sidecar, view)[0]


def _open(
    where: PathLike | Source,
    filesystem: Any,
    options: ReadOptions,
    sidecar: PathLike | Sidecars | None,
    view: FileView = OWN_VIEW,
) -> tuple[OpenedFile, Callable[[], None]]:
    """Opens a file and returns it with the function that closes it."""
    if not isinstance(where, str | os.PathLike):
        if not hasattr(where, "size"):
            kind = type(where).__name__
            raise TypeError(f"a file is opened by its path, its URI or as a Source, not as {kind}")
        return OpenedFile(where, "<source>", options=options), lambda: None
    source = FileSource(*resolve(where, filesystem))
    opened = open_source(source, options, places=places_of(source.filesystem, sidecar), view=view)
    return opened, source.close


def open_source(
    source: FileSource,
    options: ReadOptions = DEFAULTS,
    profile: NoProfile = NO_PROFILE,
    *,
    places: Sidecars,
    health: Health | None = None,
    tail: memoryview | None = None,
    view: FileView = OWN_VIEW,
) -> OpenedFile:
    """Opens a file by its source. Raises the errors of ``ParquetFile``.

    ``tail`` are the file's last bytes with the footer, if the caller has them. ``view`` says how
    the file is read as part of a table.
    """
    path = source.path
    try:
        opened = OpenedFile(
            source if tail is None else CachedTailSource(source, tail),
            path,
            source.tail_bytes if tail is None else len(tail),
            options=options,
            request_bytes=0 if source.is_local else source.gap,
            profile=profile,
            sidecar_finder=SidecarFinder(source, places),
            health=health,
            view=view,
        )
        opened.pin = source.pin
        return opened
    except OSError as error:
        if isinstance(error, PathError):
            raise
        raise PathError(f"{path}: cannot be read: {error}") from error
