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

from intarsia.parallel import all_of
from intarsia.read.opened import OpenedFile
from intarsia.write.arrow import PAGE_ROWS

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
    return _settings(_paying(table, page_rows), file, _LARGEST)


def fitted_settings(table: pa.Table, file: OpenedFile, page_rows: int | None) -> dict[str, Any]:
    """As ``dictionary_settings``, of rows that others follow in the same columns: dictionaries take
    up to twice what they do here.
    """
    if not table.num_rows or table.num_columns != len(file.schema.roots):  # which pyarrow refuses
        return {}
    paying = _paying(table, page_rows or PAGE_ROWS)
    sizes = (_dictionary_bytes(c) for c, pays in zip(table.columns, paying, strict=True) if pays)
    limit = min(max(_SMALL, 2 * max(sizes, default=0)), _LARGEST)
    return _settings(paying, lambda: file, limit)


def _paying(table: pa.Table, page_rows: int) -> list[bool]:
    """For each column: does a dictionary pay?"""
    return all_of(partial(_pays, column, page_rows) for column in table.columns)


def _settings(paying: Sequence[bool], file: Callable[[], OpenedFile], limit: int) -> dict[str, Any]:
    found: dict[str, Any] = {"dictionary_pagesize_limit": limit}
    if not all(paying):
        leaves = file().schema.leaves
        paths = [".".join(leaf.path) for leaf in leaves if paying[leaf.root]]
        found["use_dictionary"] = paths or False
    return found


def _pays(column: pa.ChunkedArray, page_rows: int) -> bool:
    """Does a dictionary of a column's values take less than a page, or little? When in doubt, so it
    is assumed of what is nested, or has no distinct values that Arrow tells.
    """
    kind = column.type
    if len(column) <= page_rows or pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return True
    try:
        few = _sample(column, _FEW)
        distinct = len(few.unique())
        if not page_rows / 2 < distinct <= _UNLIKE * len(few):
            return distinct <= page_rows
        values = _sample(column, _MANY)
        distinct = len(values.unique())
    except pa.ArrowNotImplementedError:
        return True
    return distinct <= page_rows or distinct * values.nbytes <= _SMALL * len(values)


def _dictionary_bytes(column: pa.ChunkedArray) -> int:
    """About as many bytes as a dictionary of a column's values takes; 0 where Arrow tells of none,
    or most of them differ.
    """
    if pa.types.is_nested(column.type) or pa.types.is_dictionary(column.type) or not len(column):
        return 0
    values = _sample(column, _FEW)
    try:
        distinct = len(values.unique())
    except pa.ArrowNotImplementedError:
        return 0
    return distinct * values.nbytes // len(values) if distinct <= _UNLIKE * len(values) else 0


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
