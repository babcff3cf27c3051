"""Whether pyarrow may scan the files of a data set by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow.dataset as pads

import intarsia.memory as memory
from intarsia.dataset.footer_freshness import Footers
from intarsia.dataset.partition_check import check_folders
from intarsia.dataset.request_builder import confuses_pyarrow
from intarsia.dataset.scan_source import ScanSource


def must_read_pages(source: ScanSource) -> bool:
    """True if every scan needs our reader: for a table's view, for checks, or for names."""
    options = source.options
    if source.cache.table_view is not None:
        return True
    checks_pages = options.looks_for_damage or options.page_size_limit is not None
    return checks_pages or confuses_pyarrow(source.schema)


def pyarrow_may_scan(
    source: ScanSource,
    footers: Footers,
    get_fragments: Callable[[], Iterable[pads.ParquetFileFragment]],
) -> bool:
    """True if pyarrow may scan by itself, by the ``footers`` that it caches in its fragments.

    Raises ``FormatError`` if a footer contradicts the file's folder.
    """
    if must_read_pages(source) or memory.is_limited():
        return False
    if not footers.are_current([file.path for file in source.files], source.filesystem):
        return False
    if not any(file.constants for file in source.files):
        return True
    if source.cache.is_local and not footers.agree:
        check_folders(get_fragments(), source.files, source.cache, source.schema)
        footers.agree = True
    return source.cache.is_local
