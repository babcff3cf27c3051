"""Writing new files with indexes: pyarrow encodes, the sections follow, one rename publishes.

Until then a file has a temporary name, which begins with ``.`` and which readers pass over. A
writer that is killed leaves it behind; ``recover`` makes a file of it.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from intarsia.errors import PathError, Where, placed, public
from intarsia.file.open_file import OpenedFile
from intarsia.index.directory import without_pointer
from intarsia.index.registry import IndexSpec, kinds_of
from intarsia.indexing.build import check_indexes
from intarsia.indexing.file_layout import compose
from intarsia.io.atomic_replace import check_place, replacing, sync_folder
from intarsia.io.external_sort import Workspace
from intarsia.io.file_handle import check_may_write
from intarsia.io.local_path import local_path
from intarsia.io.retry import infos_of
from intarsia.io.source import BufferSource
from intarsia.io.storage import FileSource, PathLike, resolve
from intarsia.parquet.footer import framed, read_footer, with_elements
from intarsia.scan.parquet_file import open_file
from intarsia.scan.request import without_rows
from intarsia.writer.arrow_writer import ArrowWriter
from intarsia.writer.checkpoints import OF_ONE_WRITER, CheckpointWriter
from intarsia.writer.defaults import PAGE_ROWS, USUAL_ROW_GROUP
from intarsia.writer.dictionary_choice import dictionary_settings, says_encodings
from intarsia.writer.sampled_dictionaries import FittedWriter

DEFAULTS: dict[str, Any] = {
    "compression": "zstd",
    "write_page_index": True,
    "write_page_checksum": True,
    "max_rows_per_page": PAGE_ROWS,
    # Pages end at a batch of values: with smaller batches they hold as many rows as was asked for.
    "write_batch_size": 1024,
    # Every page read needs its chunk's dictionary as well, so a dictionary stays near a page's
    # size, where nothing is known of the values.
    "dictionary_pagesize_limit": 128 * 1024,
}


@public
def write_table(
    table: pa.Table | pa.RecordBatch,
    where: PathLike,
    *,
    indexes: Sequence[IndexSpec | str] = (),
    filesystem: Any = None,
    checkpoint_row_groups: int | None = None,
    keep_unfinished: bool = False,
    **options: Any,
) -> None:
    """Write a table, or batch, as one Parquet file with page indexes and the ``indexes`` asked for.

    ``options`` are those of ``pyarrow.parquet.write_table``; the defaults differ in that pages have
    indexes, checksums and at most 8,192 rows, zstd compresses them, and only columns have
    dictionaries of which one takes no more than a page: each page that is read needs its own. The
    file appears at once, whole; ``checkpoint_row_groups`` and ``keep_unfinished`` are about its
    temporary name until then, as for ``ParquetWriter``. Raises ``IndexSpecError`` for an index that
    cannot be built, ``PathError`` where the file cannot be written, and ``ValueError`` for rows
    without columns, which no file can hold.
    """
    _check_columns(table)
    table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    row_group_size = options.pop("row_group_size", None)
    first = table.slice(0, row_group_size or USUAL_ROW_GROUP)
    file = partial(empty_file, table.schema, str(where), dict(options))
    page_rows = options.get("max_rows_per_page") or PAGE_ROWS
    options |= dictionary_settings(first, file, page_rows, options)
    with open_writer(
        table.schema,
        where,
        indexes,
        filesystem=filesystem,
        checkpoint_row_groups=checkpoint_row_groups,
        keep_unfinished=keep_unfinished,
        **options,
    ) as writer:
        writer.write_table(table, row_group_size)


@public
class ParquetWriter:
    """Writes one Parquet file, table by table, with the ``indexes`` asked for.

    As ``pyarrow.parquet.ParquetWriter``, whose keywords it takes, with the defaults of
    ``intarsia.write_table``. The file appears at ``where`` when the writer is closed, whole and
    synced. Until then it has a temporary name beside it, ``.NAME.….intarsia-tmp``, that readers
    pass over. Leaving a ``with`` block by an error, or an error while writing, removes it, unless
    ``keep_unfinished`` is true: then a note of the error says where it is. A writer that is neither
    closed nor left, as when a program ends, leaves it, and says so in a ``ResourceWarning``.

    With ``checkpoint_row_groups=N`` a footer is written and synced after every Nth row group.
    When ``write_table`` returns, all row groups up to the last checkpoint are on the disk, and
    ``recover`` gets them back, whatever becomes of the process or, as far as the disk keeps what it
    was asked to sync, of the machine; row groups written since can be recovered as well where they
    got there in time. Each footer lists all row groups so far: many checkpoints of many row groups
    make a longer file. Without checkpoints nothing is promised of a file that was not closed.

    Raises ``IndexSpecError`` for an index that cannot be built, ``PathError`` where the file cannot
    be written.

    On remote storage the file is first written to ``TMPDIR``. Closing the writer uploads it under a
    temporary name and moves it to ``where``, so that it appears whole or not at all. Checkpoints
    and ``keep_unfinished`` are for local files.
    """

    def __init__(
        self,
        where: PathLike,
        schema: pa.Schema,
        *,
        indexes: Sequence[IndexSpec | str] = (),
        checkpoint_row_groups: int | None = None,
        keep_unfinished: bool = False,
        filesystem: Any = None,
        **options: Any,
    ) -> None:
        self.schema = schema
        self._block = open_writer(
            schema,
            where,
            indexes,
            filesystem=filesystem,
            checkpoint_row_groups=checkpoint_row_groups,
            keep_unfinished=keep_unfinished,
            **options,
        )
        self._writer: pq.ParquetWriter | FittedWriter | CheckpointWriter = self._block.__enter__()
        self.is_open = True

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Write ``table`` in row groups of at most ``row_group_size`` rows, 1,048,576 by default.

        Raises ``ValueError`` for a table of another schema, for rows without columns, which no file
        can hold, and once the writer is closed.
        """
        _check_columns(table)
        if not table.schema.equals(self.schema, check_metadata=False):
            raise ValueError(f"a table of another schema: {table.schema}, not {self.schema}")
        with self._or_closed():
            self._writer.write_table(table, row_group_size)

    def write_batch(self, batch: pa.RecordBatch, row_group_size: int | None = None) -> None:
        """As ``write_table``."""
        self.write_table(pa.Table.from_batches([batch], batch.schema), row_group_size)

    def write(
        self, table_or_batch: pa.Table | pa.RecordBatch, row_group_size: int | None = None
    ) -> None:
        """As ``write_table``, of either."""
        if isinstance(table_or_batch, pa.RecordBatch):
            self.write_batch(table_or_batch, row_group_size)
        else:
            self.write_table(table_or_batch, row_group_size)

    def add_key_value_metadata(self, key_value_metadata: Mapping[str, str]) -> None:
        """Add entries to the footer."""
        with self._or_closed():
            self._writer.add_key_value_metadata(key_value_metadata)

    def close(self) -> None:
        """Finish the file and have it appear. A second call does nothing."""
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
    def _or_closed(self) -> Iterator[None]:
        """What fails midway leaves a file that must not appear."""
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
    indexes: Sequence[IndexSpec | str] = (),
    *,
    filesystem: Any = None,
    checkpoint_row_groups: int | None = None,
    keep_unfinished: bool = False,
    annotations: Mapping[int, Mapping[str, Any]] | None = None,
    **options: Any,
) -> Iterator[pq.ParquetWriter | FittedWriter | CheckpointWriter]:
    """A ``pyarrow.parquet.ParquetWriter`` whose file, with ``indexes``, appears at the end.

    ``annotations`` are fields of its schema's elements, by position, that pyarrow does not write.
    When the block fails, nothing is left behind, unless it is to ``keep_unfinished``.
    """
    found, path = resolve(where, filesystem)
    local = local_path(path, found)
    if local is not None:
        path = local
        check_place(path)
    else:
        _check_remote(path, found, checkpoint_row_groups, keep_unfinished=keep_unfinished)
    if not isinstance(schema, pa.Schema):
        raise TypeError(f"a file is written by a pyarrow.Schema, not by {type(schema).__name__}")
    if "row_group_size" in options:
        raise TypeError("'row_group_size' is an option of write_table, not of ParquetWriter")
    schema = without_pointer(schema)
    kinds = kinds_of(indexes)
    settings = DEFAULTS | options
    most = settings["max_rows_per_page"]
    if most is not None and most < 1:
        raise ValueError(f"max_rows_per_page must be at least 1, not {most}")
    check_fit(schema, kinds, path, options)
    on = found if local is None else pafs.LocalFileSystem()
    place = replacing(path, on, keep_unfinished=keep_unfinished, holds_rows=True)
    with placed(Where(path)), place as create:
        out = create()
        temporary = out.name
        try:
            with _writer_of(out, schema, checkpoint_row_groups, settings, options) as writer:
                yield writer
            if annotations:
                _annotate(temporary, annotations)
            if kinds:
                _index(temporary, kinds)
        except GeneratorExit:
            where_it_is = "lost" if local is None else f"in {temporary}"
            message = f"{path}: its writer was not closed: what it wrote is {where_it_is}"
            warnings.warn(message, ResourceWarning, stacklevel=2)
            raise
        except BaseException as error:
            if keep_unfinished:
                error.add_note(f"what was written so far is in {temporary}")
            raise


def _check_remote(
    path: str, filesystem: pafs.FileSystem, every: int | None, *, keep_unfinished: bool
) -> None:
    """Raise ``PathError`` where no remote file can be written as asked."""
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
    """Append indexes to a file that was just written, and has none."""
    with Workspace() as work, open(path, "ab") as append:
        for part in compose(open_file(path, pafs.LocalFileSystem()), indexes, (), work).parts:
            assert not isinstance(part, tuple), "there was nothing to replace"
            append.write(part)


def _check_columns(table: pa.Table | pa.RecordBatch) -> None:
    if not isinstance(table, pa.Table | pa.RecordBatch):
        kind = type(table).__name__
        hint = ": pyarrow.table(…) makes one of it" if hasattr(table, "__arrow_c_stream__") else ""
        raise TypeError(f"what is written is a table of pyarrow, not {kind}{hint}")
    if table.num_rows and not table.num_columns:
        raise ValueError(f"{table.num_rows:,} rows without a column cannot be written")


@contextlib.contextmanager
def _writer_of(
    out: BinaryIO,
    schema: pa.Schema,
    every: int | None,
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Iterator[pq.ParquetWriter | FittedWriter | CheckpointWriter]:
    """A writer to ``out``, a file of the local disk, which is closed at the end.

    ``settings`` are pyarrow's keywords, and ``options`` those of them that were asked for.
    """
    with out:
        if every is not None:
            sync_folder(out.name)
            fits = not says_encodings(options)
            checkpoints = CheckpointWriter(out, schema, every, settings, fits=fits)
            yield checkpoints
            checkpoints.close()
            return
    with pa.OSFile(out.name, "wb") as sink:
        if says_encodings(options) or any(options.get(name) is not None for name in OF_ONE_WRITER):
            made: ArrowWriter | FittedWriter = ArrowWriter(sink, schema, **settings)
        else:
            made = FittedWriter(sink, schema, empty_file(schema, out.name, settings), settings)
        with made as writer:
            yield writer


def _annotate(path: str, annotations: Mapping[int, Mapping[str, Any]]) -> None:
    with contextlib.closing(FileSource(pafs.LocalFileSystem(), path)) as source:
        footer = read_footer(source)
    with open(path, "r+b") as out:
        out.truncate(footer.offset)
        out.seek(footer.offset)
        out.write(framed(with_elements(footer.raw, annotations)))


def check_fit(
    schema: pa.Schema,
    indexes: Sequence[IndexSpec],
    name: str,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Raise ``IndexSpecError`` unless a file ``name`` of ``schema`` can have ``indexes``.

    ``options`` of pyarrow's writer may change names and types.
    """
    if indexes:
        check_indexes(empty_file(schema, name, options or {}), indexes)


def empty_file(schema: pa.Schema, name: str, options: Mapping[str, Any]) -> OpenedFile:
    """What pyarrow writes, with its writer's ``options``, of no rows."""
    sink = pa.BufferOutputStream()
    plain = {name: value for name, value in options.items() if name not in OF_ONE_WRITER}
    pq.write_table(without_rows(schema), sink, **plain)
    return OpenedFile(BufferSource(memoryview(sink.getvalue())), name)
