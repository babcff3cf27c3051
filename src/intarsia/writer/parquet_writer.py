"""Writes new files with indexes.

pyarrow encodes the rows, sections follow, and one rename publishes the file. Until then a file has
a temporary name that begins with ``.``, and readers skip it. A writer that is killed leaves the
temporary file behind; ``recover`` makes a file of it.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from intarsia.errors import PathError, Where, placed, public
from intarsia.index.directory import without_pointer
from intarsia.index.index import Index
from intarsia.index.registry import IndexSpec, parse_indexes
from intarsia.indexing.file_layout import compose
from intarsia.io.atomic_replace import check_place, replacing, sync_folder
from intarsia.io.external_sort import Workspace
from intarsia.io.file_handle import check_may_write
from intarsia.io.local_path import local_path
from intarsia.io.retry import infos_of
from intarsia.io.storage import FileSource, PathLike, resolve
from intarsia.memory import share
from intarsia.parquet.footer import framed, read_footer, with_elements
from intarsia.scan.parquet_file import open_file
from intarsia.scan.request import without_rows
from intarsia.writer.arrow_writer import ArrowWriter
from intarsia.writer.checkpoints import NEVER, OF_ONE_WRITER, CheckpointWriter
from intarsia.writer.defaults import DEFAULT_ROW_GROUP_ROWS, default_page_rows
from intarsia.writer.dictionary_choice import dictionary_settings, says_encodings
from intarsia.writer.empty_file import check_fit, empty_file
from intarsia.writer.input_rows import input_rows
from intarsia.writer.policy_settings import NewFileSettings, settings_at
from intarsia.writer.row_buffer import ROW_GROUP_BYTES, row_groups
from intarsia.writer.row_sorting import sorted_tables
from intarsia.writer.sampled_dictionaries import SampledDictionaryWriter

DEFAULTS: dict[str, Any] = {
    "compression": "zstd",
    "write_page_index": True,
    "write_page_checksum": True,
    # Pages end with a batch of values. Small batches give pages of the requested number of rows.
    "write_batch_size": 1024,
    # Reading a page also reads its chunk's dictionary. If nothing is known of the values, a
    # dictionary is therefore about as large as a page at most.
    "dictionary_pagesize_limit": 128 * 1024,
}
"""Options of pyarrow's writer unless the caller gives others, beside ``max_rows_per_page``."""


@public
def write_table(
    table: Any,
    where: PathLike,
    *,
    indexes: Sequence[Index | str] | None = None,
    sort_by: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    filesystem: Any = None,
    checkpoint_row_groups: int | None = None,
    keep_unfinished: bool = False,
    **options: Any,
) -> None:
    """Writes rows as one Parquet file with indexes.

    The file appears at once, whole. The defaults differ from pyarrow's: pages have indexes,
    checksums and at most 8,192 rows, 2,048 in a file with indexes, and zstd compresses them. A
    column gets a dictionary only if that is no larger than a page, because reading a page also
    reads the dictionary. If the folder has a policy, its layout takes the place of these defaults.

    Parameters
    ----------
    table : table, batches, reader, data set, frame or relation
        The rows, as for ``write_dataset``. One row group of a stream is in memory at a time: about
        256 MB, or ``row_group_size`` rows.
    where : str or path-like
        The file, on the local disk or on remote storage. An existing file is replaced.
    indexes : sequence of Index or str, optional
        Indexes such as ``Lookup("trace_id")`` or ``"trace_id:lookup"``, as for ``add_indexes``. By
        default those of the folder's policy that the schema can have.
    sort_by : sequence of str, optional
        The columns by which rows are sorted, NULL last. Equal rows stay in order. Rows that do not
        fit into memory are sorted in ``TMPDIR``. By default those of the folder's policy that exist
        and have an order; an empty sequence keeps the order of the rows.
    schema : pyarrow.Schema, optional
        The schema to which rows are cast. An iterable of batches needs it.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        The file system of ``where``. By default it is taken from the URI; other paths are local.
    checkpoint_row_groups : int, optional
        Row groups between two footers, as for ``ParquetWriter``.
    keep_unfinished : bool, default False
        Keeps the temporary file after an error, as for ``ParquetWriter``.
    **options
        Options of ``pyarrow.parquet.write_table``.

    Raises
    ------
    IndexSpecError
        If an index cannot be built.
    PathError
        If the file cannot be written.
    TypeError
        If ``table`` is no such object.
    ValueError
        If there are rows without columns: no file can hold them. If rows do not fit ``schema``.

    Examples
    --------
    >>> table = pa.table({"trace_id": ["a", "b"], "status": [200, 500]})
    >>> ia.write_table(table, "new.parquet", indexes=["trace_id:lookup"])
    >>> [entry.name for entry in ia.list_indexes("new.parquet")[0].indexes]
    ['trace_id:lookup']
    """
    rows_schema, groups = input_rows(table, schema)
    row_group_size = options.pop("row_group_size", None)
    settings = settings_at(where, filesystem, rows_schema, indexes, sort_by, options)
    size = settings.row_group_rows if row_group_size is None else row_group_size
    group_rows = max(size or DEFAULT_ROW_GROUP_ROWS, 1)
    with Workspace() as work:
        if settings.sort_by:
            groups = sorted_tables(groups, settings.sort_by, work)
        if settings.sort_by or not isinstance(table, pa.Table | pa.RecordBatch):
            most = sys.maxsize if row_group_size else share(ROW_GROUP_BYTES, 8)
            groups = row_groups(groups, group_rows, most)
        first = next(groups, without_rows(rows_schema))
        file = partial(empty_file, rows_schema, str(where), dict(options))
        page_rows = settings.options.get("max_rows_per_page") or default_page_rows(settings.indexes)
        dictionaries = dictionary_settings(
            first.slice(0, group_rows), file, page_rows, settings.options
        )
        with open_writer(
            rows_schema,
            where,
            settings.indexes,
            filesystem=filesystem,
            checkpoint_row_groups=checkpoint_row_groups,
            keep_unfinished=keep_unfinished,
            **{**settings.options, **dictionaries},
        ) as writer:
            writer.write_table(first, size)
            del first  # frees rows before the next ones are read, or indexes are built
            for group in groups:
                writer.write_table(group, size)
                del group


@public
class ParquetWriter:
    """Writes one Parquet file with user-defined indexes, table by table.

    The file appears at ``where``, whole and synced, when the writer is closed. Until then it has
    the temporary name ``.NAME.….intarsia-tmp`` in the same folder, and readers skip it. An error,
    within the writer or its ``with`` block, removes it. A writer that is never closed leaves the
    temporary file behind and issues a ``ResourceWarning``.

    With ``checkpoint_row_groups=N`` a footer is written and synced after every Nth row group. Once
    ``write_table`` returns, ``recover`` can restore all row groups up to the last checkpoint, even
    if the process or the machine fails. Row groups after the checkpoint can be restored if they
    reached the disk. Each footer lists all row groups so far: many checkpoints make a longer file.
    Without checkpoints, a file that was not closed may be lost.

    On remote storage the file is first written to ``TMPDIR``. Closing the writer uploads it under a
    temporary name and moves it to ``where``. It appears whole or not at all.

    Parameters
    ----------
    where : str or path-like
        The file. An existing file is replaced.
    schema : pyarrow.Schema
        The schema of all tables.
    indexes : sequence of Index or str, optional
        Indexes such as ``Lookup("trace_id")`` or ``"trace_id:lookup"``, as for ``add_indexes``. By
        default those of the folder's policy that the schema can have.
    checkpoint_row_groups : int, optional
        Row groups between two footers, at least 1. Local files only. By default there are no
        checkpoints.
    keep_unfinished : bool, default False
        Keeps the temporary file after an error. A note of the error names it. Local files only.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        The file system of ``where``. By default it is taken from the URI; other paths are local.
    **options
        Keywords of ``pyarrow.parquet.ParquetWriter``, with the defaults of
        ``intarsia.write_table``. Rows keep their order, also if a policy has ``sort_by``.

    Raises
    ------
    IndexSpecError
        If an index cannot be built.
    PathError
        If the file cannot be written.

    Examples
    --------
    >>> table = pa.table({"trace_id": ["a", "b"], "status": [200, 500]})
    >>> with ia.ParquetWriter("new.parquet", table.schema, indexes=["trace_id:lookup"]) as writer:
    ...     for start in range(2):
    ...         writer.write_table(table.slice(start, 1))
    >>> file = ia.ParquetFile("new.parquet")
    >>> file.num_rows, len(file.metadata.row_groups)
    (2, 2)
    """

    def __init__(
        self,
        where: PathLike,
        schema: pa.Schema,
        *,
        indexes: Sequence[Index | str] | None = None,
        checkpoint_row_groups: int | None = None,
        keep_unfinished: bool = False,
        filesystem: Any = None,
        **options: Any,
    ) -> None:
        self.schema = schema
        annotations = options.pop("annotations", None)
        settings = NewFileSettings(indexes or (), options=options)
        if not options.get("is_hidden"):  # write_dataset has read the policy
            settings = settings_at(where, filesystem, schema, indexes, (), options)
        self._row_group_rows = settings.row_group_rows
        self._block = open_writer(
            schema,
            where,
            settings.indexes,
            filesystem=filesystem,
            checkpoint_row_groups=checkpoint_row_groups,
            keep_unfinished=keep_unfinished,
            annotations=annotations,
            **settings.options,
        )
        self._writer: pq.ParquetWriter | SampledDictionaryWriter | CheckpointWriter = (
            self._block.__enter__()
        )
        self.is_open = True

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Writes ``table`` in row groups of at most ``row_group_size`` rows.

        The default is that of the folder's policy, else 1,048,576.

        Raises ``ValueError`` for a table of another schema, for rows without columns, and once the
        writer is closed.
        """
        _check_columns(table)
        if not table.schema.equals(self.schema, check_metadata=False):
            raise ValueError(f"a table of another schema: {table.schema}, not {self.schema}")
        with self._closed_on_error():
            self._writer.write_table(
                table, self._row_group_rows if row_group_size is None else row_group_size
            )

    def write_batch(self, batch: pa.RecordBatch, row_group_size: int | None = None) -> None:
        """Writes a record batch, as ``write_table`` does."""
        self.write_table(pa.Table.from_batches([batch], batch.schema), row_group_size)

    def write(
        self, table_or_batch: pa.Table | pa.RecordBatch, row_group_size: int | None = None
    ) -> None:
        """Writes a table or a record batch, as ``write_table`` does."""
        if isinstance(table_or_batch, pa.RecordBatch):
            self.write_batch(table_or_batch, row_group_size)
        else:
            self.write_table(table_or_batch, row_group_size)

    def add_key_value_metadata(self, key_value_metadata: Mapping[str, str]) -> None:
        """Adds entries to the footer."""
        with self._closed_on_error():
            self._writer.add_key_value_metadata(key_value_metadata)

    def close(self) -> None:
        """Finishes the file, which then appears at its path. A second call does nothing."""
        if self.is_open:
            self.is_open = False
            self._block.__exit__(None, None, None)

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._give_up(error)

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        """Closes the writer if its block fails, so that an incomplete file does not appear."""
        if not self.is_open:
            raise ValueError("the writer is closed")
        try:
            yield
        except BaseException as error:
            self._give_up(error)
            raise

    def _give_up(self, error: BaseException) -> None:
        if self.is_open:
            self.is_open = False
            self._block.__exit__(type(error), error, error.__traceback__)


@contextlib.contextmanager
def open_writer(
    schema: pa.Schema,
    where: PathLike,
    indexes: Sequence[Index | str] = (),
    *,
    filesystem: Any = None,
    checkpoint_row_groups: int | None = None,
    keep_unfinished: bool = False,
    annotations: Mapping[int, Mapping[str, Any]] | None = None,
    encodes_groups_at_once: bool = False,
    check: Callable[[], None] | None = None,
    is_hidden: bool = False,
    **options: Any,
) -> Iterator[pq.ParquetWriter | SampledDictionaryWriter | CheckpointWriter]:
    """Yields a writer like ``pyarrow.parquet.ParquetWriter``.

    Its file appears at the end, with ``indexes``. ``annotations`` are fields of schema elements, by
    position, that pyarrow does not write. With ``encodes_groups_at_once``, threads encode the row
    groups of a table at the same time. ``is_hidden`` is as for ``replacing``. If the block fails,
    nothing is left behind unless ``keep_unfinished`` is true.

    ``check`` says that the rows are those of the file at ``where``. It is called just before that
    file is replaced, and may raise ``PathError`` to keep it.
    """
    file_system, path = resolve(where, filesystem)
    local = local_path(path, file_system)
    if local is not None:
        path = local
        check_place(path)
    else:
        _check_remote(path, file_system, checkpoint_row_groups, keep_unfinished=keep_unfinished)
    if not isinstance(schema, pa.Schema):
        raise TypeError(f"the schema must be a pyarrow.Schema, not {type(schema).__name__}")
    if "row_group_size" in options:
        raise TypeError("'row_group_size' is an option of write_table, not of ParquetWriter")
    schema = without_pointer(schema)
    kinds = parse_indexes(indexes)
    settings = DEFAULTS | {"max_rows_per_page": default_page_rows(kinds)} | options
    page_rows = settings["max_rows_per_page"]
    if page_rows is not None and page_rows < 1:
        raise ValueError(f"max_rows_per_page must be at least 1, not {page_rows}")
    check_fit(schema, kinds, path, options)
    target_system = file_system if local is None else pafs.LocalFileSystem()
    target = replacing(
        path,
        target_system,
        check=check or (lambda: None),
        keep_unfinished=keep_unfinished,
        holds_rows=check is None,
        is_hidden=is_hidden,
    )
    with placed(Where(path)), target as create:
        out = create()
        temporary = out.name
        try:
            every = checkpoint_row_groups
            if every is None and encodes_groups_at_once:
                every = NEVER
            with _writer_of(out, schema, every, settings, options) as writer:
                yield writer
            if annotations:
                _annotate(temporary, annotations)
            if kinds:
                _index(temporary, kinds)
        except GeneratorExit:
            whereabouts = "lost" if local is None else f"in {temporary}"
            message = f"{path}: its writer was not closed: the rows it wrote are {whereabouts}"
            warnings.warn(message, ResourceWarning, stacklevel=2)
            raise
        except BaseException as error:
            if keep_unfinished:
                error.add_note(f"what was written so far is in {temporary}")
            raise


def _check_remote(
    path: str, filesystem: pafs.FileSystem, every: int | None, *, keep_unfinished: bool
) -> None:
    """Raises ``PathError`` if the remote file cannot be written, or not with these options."""
    if every is not None or keep_unfinished:
        raise PathError(
            f"{path}: checkpoint_row_groups and keep_unfinished are for local files; write there, "
            "and copy the file"
        )
    check_may_write(filesystem, path)
    try:
        kind = infos_of(filesystem, path).type
    except OSError as error:
        raise PathError(f"{path}: cannot be written: {error}") from error
    if kind == pafs.FileType.Directory:
        raise PathError(f"{path}: there is a folder where the file is to be")


def _index(path: str, indexes: Sequence[IndexSpec]) -> None:
    """Appends indexes to a file that was just written and has none."""
    with Workspace() as work, open(path, "ab") as append:
        for part in compose(open_file(path, pafs.LocalFileSystem()), indexes, (), work).parts:
            assert not isinstance(part, tuple), "there was nothing to replace"
            append.write(part)


def _check_columns(table: pa.Table | pa.RecordBatch) -> None:
    if not isinstance(table, pa.Table | pa.RecordBatch):
        kind = type(table).__name__
        hint = "; convert it with pyarrow.table(…)" if hasattr(table, "__arrow_c_stream__") else ""
        raise TypeError(f"only a pyarrow table or record batch can be written, not {kind}{hint}")
    if table.num_rows and not table.num_columns:
        raise ValueError(f"{table.num_rows:,} rows without a column cannot be written")


@contextlib.contextmanager
def _writer_of(
    out: BinaryIO,
    schema: pa.Schema,
    every: int | None,
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Iterator[pq.ParquetWriter | SampledDictionaryWriter | CheckpointWriter]:
    """Yields a writer to the local file ``out``. ``options`` are the caller's ``settings``."""
    with out:
        if every is not None:
            if every != NEVER:
                sync_folder(out.name)
            fits = not says_encodings(options)
            checkpoints = CheckpointWriter(out, schema, every, settings, fits=fits)
            yield checkpoints
            checkpoints.close()
            return
    with pa.OSFile(out.name, "wb") as sink:
        if says_encodings(options) or any(options.get(name) is not None for name in OF_ONE_WRITER):
            arrow_writer: ArrowWriter | SampledDictionaryWriter = ArrowWriter(
                sink, schema, **settings
            )
        else:
            arrow_writer = SampledDictionaryWriter(
                sink, schema, empty_file(schema, out.name, settings), settings
            )
        with arrow_writer as writer:
            yield writer


def _annotate(path: str, annotations: Mapping[int, Mapping[str, Any]]) -> None:
    with contextlib.closing(FileSource(pafs.LocalFileSystem(), path)) as source:
        footer = read_footer(source)
    with open(path, "r+b") as out:
        out.truncate(footer.offset)
        out.seek(footer.offset)
        out.write(framed(with_elements(footer.raw, annotations)))
