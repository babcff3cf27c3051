"""Chooses which columns are written with a dictionary: those with one no larger than a page.

Reading a page also reads its chunk's dictionary. A dictionary larger than a page makes point
queries expensive. A column without a dictionary takes more of the file, and more time to read as a
whole. pyarrow has one size limit for all columns and a list of columns with dictionaries. Columns
are therefore sampled first: in the first row group, or in each one that is a pyarrow file of its
own.
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

_MAX_DICTIONARY_BYTES = 1024 * 1024
"""Bytes at which pyarrow ends a dictionary. Later values are stored plain."""
_SMALL_DICTIONARY_BYTES = 128 * 1024
"""Bytes of a dictionary that pays with pages of any size."""
_SMALL_SAMPLE_ROWS, _LARGE_SAMPLE_ROWS = 16 * 1024, 64 * 1024
"""Values that are sampled; more if the first sample does not decide."""
_MAX_DISTINCT_SHARE = 0.75
"""Share of distinct values in a sample above which most values of the column differ."""
_ENCODING_OPTIONS = (
    "use_dictionary",
    "dictionary_pagesize_limit",
    "use_byte_stream_split",
    "column_encoding",
)
"""Options of pyarrow's writer that choose encodings."""


def says_encodings(options: Mapping[str, Any]) -> bool:
    """True if options of pyarrow's writer say which columns have which encodings."""
    return any(name in options for name in _ENCODING_OPTIONS)


def dictionary_settings(
    table: pa.Table,
    file: Callable[[], OpenedFile],
    page_rows: int,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns settings for a row group, none if ``options`` choose encodings."""
    if not table.num_rows or says_encodings(options):
        return {}
    return _settings(_dictionary_sizes(table, page_rows), file, _MAX_DICTIONARY_BYTES)


def with_dictionary_settings(
    table: pa.Table, file: OpenedFile, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns ``settings`` with the dictionary settings for ``table``, the first rows of a file.

    ``file`` has the same columns. Dictionaries may grow to twice their size in ``table``, since
    more rows follow.
    """
    if not table.num_rows or table.num_columns != len(
        file.schema.roots
    ):  # pyarrow raises an error then
        return {**settings}
    sizes = _dictionary_sizes(table, settings["max_rows_per_page"] or PAGE_ROWS)
    largest = max((size for size in sizes if size is not None), default=0)
    limit = min(max(_SMALL_DICTIONARY_BYTES, 2 * largest), _MAX_DICTIONARY_BYTES)
    return {**settings, **_settings(sizes, lambda: file, limit)}


def _settings(
    sizes: Sequence[int | None], file: Callable[[], OpenedFile], limit: int
) -> dict[str, Any]:
    """Returns settings for columns, given the sizes of their dictionaries in bytes."""
    settings: dict[str, Any] = {"dictionary_pagesize_limit": limit}
    if None in sizes:
        leaves = file().schema.leaves
        paths = [".".join(leaf.path) for leaf in leaves if sizes[leaf.root] is not None]
        settings["use_dictionary"] = paths or False
    return settings


def _dictionary_sizes(table: pa.Table, page_rows: int) -> list[int | None]:
    """Returns ``_dictionary_bytes`` of each column."""
    return all_of(partial(_dictionary_bytes, column, page_rows) for column in table.columns)


def _dictionary_bytes(column: pa.ChunkedArray, page_rows: int) -> int | None:
    """Returns a dictionary's approximate bytes, 0 if in doubt, None if it does not pay."""
    if pa.types.is_nested(column.type) or pa.types.is_dictionary(column.type):
        return 0
    try:
        few = _sample(column, _SMALL_SAMPLE_ROWS)
        distinct = len(few.unique())
        are_alike = distinct <= _MAX_DISTINCT_SHARE * len(few)
        size = distinct * few.nbytes // len(few) if are_alike else 0
        if len(column) <= page_rows or distinct <= page_rows / 2:
            return size
        if not are_alike:
            return size if distinct <= page_rows else None
        values = _sample(column, _LARGE_SAMPLE_ROWS)
        distinct = len(values.unique())
    except pa.ArrowNotImplementedError:
        return 0
    pays = distinct <= page_rows or distinct * values.nbytes <= _SMALL_DICTIONARY_BYTES * len(
        values
    )
    return size if pays else None


def _sample(column: pa.ChunkedArray, rows: int) -> pa.ChunkedArray:
    """Returns ``rows`` of a column's values, spread over all of it."""
    if len(column) > rows:
        try:
            column = column.take(np.linspace(0, len(column) - 1, rows, dtype=np.int64))
        except (
            pa.ArrowInvalid,
            pa.ArrowNotImplementedError,
        ):  # too long for one array, or a view type
            column = column.slice(0, rows)
    if isinstance(column.type, pa.BaseExtensionType):
        return column.cast(column.type.storage_type)
    return column
