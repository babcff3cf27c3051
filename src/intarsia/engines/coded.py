"""Columns of few texts, which an engine is handed as Arrow dictionaries.

DuckDB groups, compares and joins by their codes, which are sooner decoded than texts.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from intarsia.data.dataset import Dataset
from intarsia.decode.page_check import has_codes_only
from intarsia.errors import IntarsiaError
from intarsia.format.metadata import ColumnMetaData
from intarsia.predicate.expression import field_paths, read_expression
from intarsia.read.columns import CODED
from intarsia.read.opened import OpenedFile

_DICTIONARY_BYTES, _BYTES_A_ROW = 64 * 1024, 0.25
"""Of a dictionary as it is stored, at most: each batch of rows comes with all of it."""


def with_codes(data: Dataset, columns: Iterable[str]) -> pa.Schema:
    """The schema of a data set, with those of ``columns`` as dictionaries that are a few texts in
    its files, as far as their first, one in their middle and their last tell.

    Not those that folders fix, nor any of its filter.
    """
    schema, files = data.schema, data._files
    wanted = data._scan_options.get("filter")
    used = set() if wanted is None else field_paths(read_expression(wanted))
    if used is None or not files or not data._cache.is_local:
        return schema
    left_out = {path[0] for path in used} | set(files[0].constants)
    paths = dict.fromkeys(files[at].path for at in (0, len(files) // 2, len(files) - 1))
    for at, field in enumerate(schema):
        if field.type == pa.string() and field.name in set(columns) - left_out:
            try:
                is_coded = all(_has_few(data._cache.get(path), field.name) for path in paths)
            except (IntarsiaError, OSError):  # of which the scan tells, if it comes by there
                return data.schema
            if is_coded:
                schema = schema.set(at, field.with_type(CODED))
    return schema


def _has_few(file: OpenedFile, name: str) -> bool:
    """Is a column of a file all codes, of small dictionaries?"""
    root, count = file.schema.root(name), len(file.metadata.row_groups)
    if root is None or not count or file.arrow_type(root) != pa.string():
        return False
    groups = dict.fromkeys((0, count // 2, count - 1))
    return all(_is_coded(file.chunk(group, root.leaves[0])) for group in groups)


def _is_coded(chunk: ColumnMetaData) -> bool:
    """Is it all codes, of a dictionary that is small beside them?"""
    size = chunk.data_page_offset - chunk.start
    most = min(_DICTIONARY_BYTES, chunk.num_values * _BYTES_A_ROW)
    return 0 < size <= most and has_codes_only(chunk)
