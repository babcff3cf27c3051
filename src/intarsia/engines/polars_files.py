"""Files that Polars reads by itself, as a LazyFrame of ``scan_parquet``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from intarsia.data.dataset import Dataset
from intarsia.data.hand_over import HandOver, hand_over, has_indexes
from intarsia.errors import IntarsiaError
from intarsia.read.opened import OpenedFile

if TYPE_CHECKING:
    import polars

MAX_FILES = 128
"""Files of a lake that Polars scans alone. It opens all of them for each query, while our footers
are cached: above this, a query that footers answer for most files is faster with these."""


def whole_scan(data: Dataset, schema: polars.Schema) -> polars.LazyFrame | None:
    """A scan of all of ``data`` by Polars alone, whose schema is ``schema``.

    None if indexes may skip rows, or if Polars may give other rows than our reader.
    """
    if data._cache.options.reader == "auto":
        files = data.files
        if data._cache.catalog is not None or len(files) > MAX_FILES:
            return None
        try:
            if any(has_indexes(data._cache.get(path)) for path in files):
                return None
        except (IntarsiaError, OSError):  # the scan reports it
            return None
    handed = handed_over(data, data.schema.names, schema)
    return None if handed is None else scan_of(handed, schema)


def handed_over(
    data: Dataset,
    columns: Sequence[str],
    schema: polars.Schema,
    filter_: pc.Expression | None = None,
    limit: int | None = None,
) -> HandOver | None:
    """The files that Polars is to read, or None if our reader reads them."""
    try:
        found = hand_over(data, columns, filter_, limit, expects_nan=True)
        if isinstance(found, str):
            return None
        names = [name for name in columns if name not in found.folder_keys]
        files = (data._cache.as_opened(path) for path in found.files)
        return found if all(_has_types(file, names, schema) for file in files) else None
    except (IntarsiaError, OSError):  # our reader reports it
        return None


def _has_types(file: OpenedFile, names: Sequence[str], schema: polars.Schema) -> bool:
    """True if Polars gives columns ``names`` of a file the types that they have in ``schema``."""
    import polars

    types = file.shape.kept("polars", lambda: polars.read_parquet_schema(file.name))
    return all(types.get(name) == schema[name] for name in names)


def scan_of(handed: HandOver, schema: polars.Schema) -> polars.LazyFrame:
    """A scan by Polars of all rows of files that are handed over.

    Columns have the types that ``schema`` gives them.
    """
    import polars

    # With a schema, Polars opens no file before it reads it, so it reads files that were replaced.
    types = {name: schema[name] for name in handed.schema.names}
    keys = {name: types[name] for name in handed.folder_keys}
    return polars.scan_parquet(
        list(handed.files),
        schema=types,
        hive_partitioning=bool(keys),
        hive_schema=keys or None,
        glob=False,
        extra_columns="ignore",
    )
