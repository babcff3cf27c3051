"""Defaults of the layout of new files."""

from __future__ import annotations

from collections.abc import Sized

DEFAULT_ROW_GROUP_ROWS = 1024 * 1024
"""Rows of a row group by default, as in pyarrow."""
PAGE_ROWS = 8192
"""Rows of a page of a file without indexes. A point query reads one page a column; each page costs
a header and bounds.
"""
INDEXED_PAGE_ROWS = 2048
"""Rows of a page of a file with indexes, which is asked for few rows more often. With the tables of
``benchmarks/layout.py``, such queries take a third to nine tenths of the time. The files have 2 to
20 % more bytes, and reading all rows takes 4 to 40 % longer.
"""


def default_page_rows(indexes: Sized) -> int:
    """Returns the most rows of a page in a file with these indexes."""
    return INDEXED_PAGE_ROWS if len(indexes) else PAGE_ROWS
