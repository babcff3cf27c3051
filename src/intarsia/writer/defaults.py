"""Defaults of the layout of new files."""

from __future__ import annotations

DEFAULT_ROW_GROUP_ROWS = 1024 * 1024
"""Rows of a row group by default, as in pyarrow."""
PAGE_ROWS = 8192
"""Rows of a page by default. A point query reads one page a column; each page costs a header and
bounds.
"""
