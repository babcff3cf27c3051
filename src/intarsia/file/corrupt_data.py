"""Damaged places of a file, and the rows that are lost with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from intarsia.errors import Where
from intarsia.row_ranges import RowRanges

OnCorrupt = Literal["raise", "skip"]
"""Whether a damaged page raises an error that says where, or its rows are left out."""


def check_on_corrupt(value: object) -> None:
    """Raises ``ValueError`` unless ``value`` is an ``OnCorrupt`` or None."""
    if value not in (None, "raise", "skip"):
        raise ValueError(f'on_corrupt is "raise" or "skip", not {value!r}')


@dataclass(frozen=True, slots=True)
class CorruptData:
    """One damaged place of a file, and the rows that are lost with it.

    Reads of the damaged column leave these rows out. Reads of other columns have them.

    Attributes
    ----------
    where : Where
        File, row group, column and page. ``where.page`` counts the dictionary as the first page,
        and is None if the whole chunk is damaged.
    message : str
        A description of the damage.
    rows : RowRanges
        Row numbers, counted from the start of the file.

    Examples
    --------
    >>> data = ia.dataset("logs.parquet", on_corrupt="skip")
    >>> data.to_table().num_rows
    1000
    >>> data.corrupt
    []
    """

    where: Where
    message: str
    rows: RowRanges

    @property
    def num_rows(self) -> int:
        """The number of lost rows."""
        return self.rows.num_rows

    def __str__(self) -> str:
        return f"{self.where}: {self.message}; {self.num_rows:,} rows lost"
