"""The file without rows that a schema gives, to check columns before any row is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from intarsia.file.open_file import OpenedFile
from intarsia.index.registry import IndexSpec
from intarsia.indexing.build import check_indexes
from intarsia.io.source import BufferSource
from intarsia.scan.request import without_rows
from intarsia.writer.checkpoints import OF_ONE_WRITER


def check_fit(
    schema: pa.Schema,
    indexes: Sequence[IndexSpec],
    name: str,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Raises ``IndexSpecError`` unless a file ``name`` of ``schema`` can have ``indexes``.

    ``options`` of pyarrow's writer may change names and types.
    """
    if indexes:
        check_indexes(empty_file(schema, name, options or {}), indexes)


def empty_file(schema: pa.Schema, name: str, options: Mapping[str, Any]) -> OpenedFile:
    """Returns the file without rows that pyarrow writes with its writer's ``options``."""
    sink = pa.BufferOutputStream()
    plain = {name: value for name, value in options.items() if name not in OF_ONE_WRITER}
    pq.write_table(without_rows(schema), sink, **plain)
    return OpenedFile(BufferSource(memoryview(sink.getvalue())), name)
