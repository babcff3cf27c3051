"""Which columns are written with a dictionary: those of which it takes no more than a page does.

Each page that is read needs its chunk's dictionary as well. One that is larger than a page costs
whoever asks for a row; where a column has none, its values take more of the file, and of the time
of whoever reads all of them. Arrow has one limit for all columns, and a list of those that have
dictionaries: so columns are looked at before, in some rows of the first row group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.read.opened import OpenedFile

_LARGEST = 1024 * 1024
"""Bytes of a dictionary, which Arrow ends there; values beyond go without."""
_SMALL = 128 * 1024
"""Bytes of one that costs little, whatever a page takes."""
_SAMPLE = 64 * 1024
_SETTINGS = (
    "use_dictionary",
    "dictionary_pagesize_limit",
    "use_byte_stream_split",
    "column_encoding",
)


def dictionary_settings(
    table: pa.Table, file: OpenedFile, page_rows: int, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings of pyarrow's writer for ``table``, a row group; ``file`` has its columns.

    There are none where ``options`` say which columns have which encodings.
    """
    if not table.num_rows or any(name in options for name in _SETTINGS):
        return {}
    paying = [_pays(column, page_rows) for column in table.columns]
    paths = [".".join(leaf.path) for leaf in file.schema.leaves if paying[leaf.root]]
    return {"use_dictionary": paths or False, "dictionary_pagesize_limit": _LARGEST}


def _pays(column: pa.ChunkedArray, page_rows: int) -> bool:
    """Does a dictionary of a column's values take less than a page, or little? When in doubt, so it
    is assumed of what is nested, or has no distinct values that Arrow counts.
    """
    values = column
    if len(column) > _SAMPLE:
        try:
            values = column.take(np.linspace(0, len(column) - 1, _SAMPLE, dtype=np.int64))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # too long for one array, or views
            values = column.slice(0, _SAMPLE)
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.cast(values.type.storage_type)
    if pa.types.is_nested(values.type) or pa.types.is_dictionary(values.type):
        return True
    try:
        distinct = int(pc.count_distinct(values).as_py())
    except pa.ArrowNotImplementedError:
        return True
    return distinct <= page_rows or distinct * values.nbytes <= _SMALL * len(values)
