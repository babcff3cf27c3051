"""Buffers rows and gives tables of a requested size, such as row groups."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

ROW_GROUP_BYTES = 256 * 1024 * 1024
"""Bytes of Arrow memory at which a row group of buffered batches ends."""


def row_groups(tables: Iterator[pa.Table], num_rows: int, num_bytes: int) -> Iterator[pa.Table]:
    """Yields the rows of ``tables`` in tables of ``num_rows`` rows, or of ``num_bytes`` if less."""
    rows = Rows(tables)
    while (group := rows.take(num_rows, num_bytes)) is not None:
        yield group
        del group  # frees it before the next one is made


class Rows:
    """A stream of rows that gives tables of a requested size."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._buffered: list[pa.Table] = []
        self._is_ended = False

    @property
    def num_buffered(self) -> int:
        """Rows in the buffer."""
        return sum(table.num_rows for table in self._buffered)

    def peek(self, num_rows: int) -> pa.Table | None:
        """Returns up to ``num_rows`` next rows, without taking them. Returns None at the end."""
        self._pull(num_rows, None)
        return pa.concat_tables(self._buffered).slice(0, num_rows) if self._buffered else None

    def take(self, num_rows: int, num_bytes: int, slack: int = 0) -> pa.Table | None:
        """Takes the next rows up to both limits, and the last ``slack`` rows with them; or None."""
        self._pull(num_rows + slack + 1, num_bytes)
        if not self._buffered:
            return None
        table = pa.concat_tables(self._buffered)
        size = table.nbytes
        if size > num_bytes:
            num_rows = min(num_rows, max(1, len(table) * num_bytes // size))
        elif self._is_ended and len(table) <= num_rows + slack:
            num_rows = len(table)
        rest = table.slice(num_rows)
        self._buffered = [rest] if rest.num_rows else []
        return table.slice(0, num_rows)

    def _pull(self, num_rows: int, num_bytes: int | None) -> None:
        rows, size = self.num_buffered, sum(table.nbytes for table in self._buffered)
        while rows < num_rows and (num_bytes is None or size < num_bytes) and not self._is_ended:
            table = next(self._tables, None)
            if table is None:
                self._is_ended = True
            elif table.num_rows:
                self._buffered.append(table)
                rows, size = rows + table.num_rows, size + table.nbytes
