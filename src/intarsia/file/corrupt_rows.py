"""What is damaged in a file, as far as that was found: the places, and the rows they take along."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from intarsia.errors import Where
from intarsia.row_ranges import RowRanges

OnCorrupt = Literal["raise", "skip"]
"""What to do about damaged pages: say where they are, or leave out their rows."""


def check_on_corrupt(value: object) -> None:
    """Raise ``ValueError`` for what is none of the ways to treat damage."""
    if value not in (None, "raise", "skip"):
        raise ValueError(f'on_corrupt is "raise" or "skip", not {value!r}')


@dataclass(frozen=True, slots=True)
class CorruptData:
    """One damaged place, and the rows that cannot be read for it, numbered as the file's are.

    They are lost to reads of the place's column; others read them. ``where.page`` counts the
    dictionary as the first page; it is None where a chunk is damaged as a whole.
    """

    where: Where
    message: str
    rows: RowRanges

    @property
    def num_rows(self) -> int:
        """How many rows are lost."""
        return self.rows.num_rows

    def __str__(self) -> str:
        return f"{self.where}: {self.message}; {self.num_rows:,} rows lost"
