"""Which columns are written with a dictionary: those of which it takes no more than a page does.

Each page that is read needs its chunk's dictionary as well. One that is larger than a page costs
whoever asks for a row; where a column has none, its values take more of the file, and of the time
of whoever reads all of them. Arrow has one limit for all columns, and a list of those that have
dictionaries: so columns are looked at before, in some rows of the first row group, or of each where
each is a file of its own to Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from intarsia.file.open_file import OpenedFile
from intarsia.threads import all_of
from intarsia.writer.defaults import PAGE_ROWS

_LARGEST = 1024 * 1024
"""Bytes of a dictionary, which Arrow ends there; values beyond go without."""
_SMALL = 128 * 1024
"""Bytes of one that costs little, whatever a page takes."""
_FEW, _MANY = 16 * 1024, 64 * 1024
"""Values that are looked at, more where the first ones do not tell."""
_UNLIKE = 0.75
"""Where a larger share of a sample differs, so do most of all values."""
_SETTINGS = (
    "use_dictionary",
    "dictionary_pagesize_limit",
    "use_byte_stream_split",
    "column_encoding",
)


def says_encodings(options: Mapping[str, Any]) -> bool:
    """Do options of pyarrow's writer say which columns have which encodings?"""
    return any(name in options for name in _SETTINGS)


def dictionary_settings(
    table: pa.Table,
    file: Callable[[], OpenedFile],
    page_rows: int,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Settings of pyarrow's writer for ``table``, a row group; ``file`` gives one of its columns.

    There are none where ``options`` say which columns have which encodings.
    """
    if not table.num_rows or says_encodings(options):
        return {}
    return _settings(_dictionaries(table, page_rows), file, _LARGEST)


def fitted(table: pa.Table, file: OpenedFile, settings: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` with those for ``table``, rows that others follow in the columns of ``file``:
    dictionaries take up to twice what they do here.
    """
    if not table.num_rows or table.num_columns != len(file.schema.roots):  # which pyarrow refuses
        return {**settings}
    sizes = _dictionaries(table, settings["max_rows_per_page"] or PAGE_ROWS)
    largest = max((size for size in sizes if size is not None), default=0)
    limit = min(max(_SMALL, 2 * largest), _LARGEST)
    return {**settings, **_settings(sizes, lambda: file, limit)}


def _settings(
    sizes: Sequence[int | None], file: Callable[[], OpenedFile], limit: int
) -> dict[str, Any]:
    """``sizes`` are those of the columns' dictionaries."""
    found: dict[str, Any] = {"dictionary_pagesize_limit": limit}
    if None in sizes:
        leaves = file().schema.leaves
        paths = [".".join(leaf.path) for leaf in leaves if sizes[leaf.root] is not None]
        found["use_dictionary"] = paths or False
    return found


def _dictionaries(table: pa.Table, page_rows: int) -> list[int | None]:
    """``_dictionary_bytes`` of each column."""
    return all_of(partial(_dictionary_bytes, column, page_rows) for column in table.columns)


def _dictionary_bytes(column: pa.ChunkedArray, page_rows: int) -> int | None:
    """About as many bytes as a dictionary of a column's values takes; None where it does not pay.

    It does where it takes less than a page, or little. When in doubt, so it is assumed, with 0
    bytes: of what is nested, or has no distinct values that Arrow tells, or mostly such.
    """
    if pa.types.is_nested(column.type) or pa.types.is_dictionary(column.type):
        return 0
    try:
        few = _sample(column, _FEW)
        distinct = len(few.unique())
        are_alike = distinct <= _UNLIKE * len(few)
        size = distinct * few.nbytes // len(few) if are_alike else 0
        if len(column) <= page_rows or distinct <= page_rows / 2:
            return size
        if not are_alike:
            return size if distinct <= page_rows else None
        values = _sample(column, _MANY)
        distinct = len(values.unique())
    except pa.ArrowNotImplementedError:
        return 0
    pays = distinct <= page_rows or distinct * values.nbytes <= _SMALL * len(values)
    return size if pays else None


def _sample(column: pa.ChunkedArray, rows: int) -> pa.ChunkedArray:
    """So many of a column's values, from all over it."""
    if len(column) > rows:
        try:
            column = column.take(np.linspace(0, len(column) - 1, rows, dtype=np.int64))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # too long for one array, or views
            column = column.slice(0, rows)
    if isinstance(column.type, pa.BaseExtensionType):
        return column.cast(column.type.storage_type)
    return column
