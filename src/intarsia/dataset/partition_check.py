"""Compares the values of folders with those of the files, before pyarrow scans by itself.

pyarrow gives the folder's value for every row and does not compare. Scans by page compare in
``plan.planner``.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from intarsia.dataset.row_count_check import FAILURES
from intarsia.plan.stored_columns import check_folder
from intarsia.pruning.partition_pruning import Constants
from intarsia.scan.files.file_cache import FileCache
from intarsia.scan.files.file_pruning import File


def check_folders(
    fragments: Iterable[pads.ParquetFileFragment],
    files: Iterable[File],
    cache: FileCache,
    schema: pa.Schema,
) -> None:
    """Raises ``FormatError`` if the footer of a file shows another value than its folder.

    Reads the footers, which pyarrow caches for its scan. pyarrow reports a file that it cannot
    open.
    """
    for fragment, file in zip(fragments, files, strict=True):
        try:
            is_equal = not file.constants or _is_equal(fragment.metadata, file.constants)
        except FAILURES:
            continue
        if not is_equal:
            check_folder(cache.as_opened(file.path), file.constants, schema)


def _is_equal(footer: pq.FileMetaData, constants: Constants) -> bool:
    """True if the file lacks these columns, or if its statistics prove these values.

    False does not mean that the values differ: ``check_folder`` compares all types.
    """
    names = footer.schema.names
    stored = {names.index(name): value for name, value in constants.items() if name in names}
    groups = range(footer.num_row_groups) if stored else ()
    return all(
        _is_only(footer.row_group(group).column(place).statistics, value)
        for group in groups
        for place, value in stored.items()
    )


def _is_only(statistics: pq.Statistics | None, value: pa.Scalar) -> bool:
    if statistics is None or not statistics.has_min_max or statistics.null_count != 0:
        return False
    try:
        low, high, plain = statistics.min, statistics.max, value.as_py()
    except (ValueError, pa.ArrowException):
        return False
    return bool(low == high == plain)
