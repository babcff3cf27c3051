"""How files are laid out unless the caller says otherwise."""

from __future__ import annotations

USUAL_ROW_GROUP = 1024 * 1024
"""Rows of a row group where nothing else is asked for."""
PAGE_ROWS = 8192
"""Rows of a page: a point query reads one page a column, and each costs a header and bounds."""
