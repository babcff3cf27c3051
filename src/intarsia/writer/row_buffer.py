"""Rows as they come, of which tables of a wanted size are taken: those of a row group."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

ROW_GROUP_BYTES = 256 * 1024 * 1024
"""Of Arrow memory, at which a row group ends that is gathered from batches."""


class Rows:
    """A run of rows, of which tables of a wanted size are taken."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._held: list[pa.Table] = []
        self._is_ended = False

    @property
    def num_held(self) -> int:
        """Rows at hand."""
        return sum(table.num_rows for table in self._held)

    def peek(self, num_rows: int) -> pa.Table | None:
        """The next rows, up to ``num_rows``, which stay; None at the end."""
        self._pull(num_rows, None)
        return pa.concat_tables(self._held).slice(0, num_rows) if self._held else None

    def take(self, num_rows: int, num_bytes: int, slack: int = 0) -> pa.Table | None:
        """The next ``num_rows`` rows, or as many as take ``num_bytes`` of Arrow memory.

        All that are left, where these are no more than ``slack`` more; None at the end.
        """
        self._pull(num_rows + slack + 1, num_bytes)
        if not self._held:
            return None
        table = pa.concat_tables(self._held)
        size = table.nbytes
        if size > num_bytes:
            num_rows = min(num_rows, max(1, len(table) * num_bytes // size))
        elif self._is_ended and len(table) <= num_rows + slack:
            num_rows = len(table)
        rest = table.slice(num_rows)
        self._held = [rest] if rest.num_rows else []
        return table.slice(0, num_rows)

    def _pull(self, num_rows: int, num_bytes: int | None) -> None:
        rows, size = self.num_held, sum(table.nbytes for table in self._held)
        while rows < num_rows and (num_bytes is None or size < num_bytes) and not self._is_ended:
            table = next(self._tables, None)
            if table is None:
                self._is_ended = True
            elif table.num_rows:
                self._held.append(table)
                rows, size = rows + table.num_rows, size + table.nbytes
