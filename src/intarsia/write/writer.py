"""Writing new files with indexes: pyarrow encodes, the sections follow, one rename publishes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from intarsia.errors import PathError
from intarsia.index.registry import IndexSpec, kinds_of
from intarsia.read.file import open_file
from intarsia.read.opened import OpenedFile
from intarsia.read.request import without_rows
from intarsia.source import BufferSource
from intarsia.storage import PathLike, replacing, resolve
from intarsia.write.build import check_indexes
from intarsia.write.compose import compose
from intarsia.write.spill import Workspace

PAGE_ROWS = 8192
"""Rows a page: a point query reads one page a column, and each page costs a header and bounds."""
DEFAULTS: dict[str, Any] = {
    "compression": "zstd",
    "write_page_index": True,
    "write_page_checksum": True,
    "max_rows_per_page": PAGE_ROWS,
    # Pages end at a batch of values: with smaller batches they hold as many rows as was asked for.
    "write_batch_size": 1024,
    # Every page read needs its chunk's dictionary as well, so a dictionary stays near a page's
    # size.
    "dictionary_pagesize_limit": 128 * 1024,
}


def write_table(
    table: pa.Table,
    where: PathLike,
    *,
    indexes: Sequence[IndexSpec | str] = (),
    filesystem: Any = None,
    **options: Any,
) -> None:
    """Write ``table`` as one Parquet file with page indexes and the ``indexes`` asked for.

    ``options`` are those of ``pyarrow.parquet.write_table``; the defaults differ in that pages have
    indexes, checksums and at most 8,192 rows, and zstd compresses them. The file appears at once,
    whole. Raises ``IndexSpecError`` for an index that cannot be built.
    """
    row_group_size = options.pop("row_group_size", None)
    with open_writer(table.schema, where, indexes, filesystem=filesystem, **options) as writer:
        writer.write_table(table, row_group_size)


@contextlib.contextmanager
def open_writer(
    schema: pa.Schema,
    where: PathLike,
    indexes: Sequence[IndexSpec | str] = (),
    *,
    filesystem: Any = None,
    **options: Any,
) -> Iterator[pq.ParquetWriter]:
    """A ``pyarrow.parquet.ParquetWriter`` whose file, with ``indexes``, appears at the end.

    When the block fails, nothing is left behind.
    """
    found, path = resolve(where, filesystem)
    if not isinstance(found, pafs.LocalFileSystem):
        raise PathError(f"{path}: new files are written to local folders only, so far")
    if not Path(path).parent.is_dir():
        raise PathError(f"{Path(path).parent}: there is no such folder to write to")
    if Path(path).is_dir():
        raise PathError(f"{path}: there is a folder where the file is to be")
    kinds = kinds_of(indexes)
    settings = DEFAULTS | options
    if settings["max_rows_per_page"] < 1:
        raise ValueError(
            f"max_rows_per_page must be at least 1, not {settings['max_rows_per_page']}"
        )
    check_fit(schema, kinds, path)
    with replacing(path, found) as create:
        out = create()
        temporary = out.name
        out.close()
        with (
            pa.OSFile(temporary, "wb") as sink,
            pq.ParquetWriter(sink, schema, **settings) as writer,
        ):
            yield writer
        if kinds:
            with Workspace() as work, open(temporary, "ab") as append:
                for part in compose(open_file(temporary, found), kinds, (), work).parts:
                    assert not isinstance(part, tuple), "there was nothing to replace"
                    append.write(part)


def check_fit(schema: pa.Schema, indexes: Sequence[IndexSpec], name: str) -> None:
    """Raise ``IndexSpecError`` unless a file ``name`` of ``schema`` can have ``indexes``."""
    if indexes:
        sink = pa.BufferOutputStream()
        pq.write_table(without_rows(schema), sink)
        check_indexes(OpenedFile(BufferSource(memoryview(sink.getvalue())), name), indexes)
