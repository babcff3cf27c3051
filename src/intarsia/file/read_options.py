"""The options that decide how files are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from intarsia.file.corrupt_data import OnCorrupt

Reader = Literal["auto", "pages", "engine"]
"""Which reader reads files: ours (``pages``), or the engine's own if it gives the same rows."""


def check_reader(reader: object) -> None:
    """Raises ``ValueError`` unless ``reader`` is a ``Reader``."""
    if reader not in get_args(Reader):
        raise ValueError(f"reader is one of {', '.join(get_args(Reader))}, not {reader!r}")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a file is read. Options that pyarrow has too have pyarrow's names.

    ``page_checksum_verification`` compares pages with their checksums, if they have some.
    ``read_dictionary`` are the paths of string columns that come as Arrow dictionaries.
    ``distinct_index_column`` is the column that a list of distinct values of another writer is of.
    ``on_corrupt`` has pages checked, and says what becomes of damaged ones.
    ``page_size_limit`` is the most bytes that one page may hold; None sets no limit.
    ``coerce_int96_timestamp_unit`` is the unit of INT96 timestamps. Nanoseconds, the default, hold
    the years 1677 to 2262 only.
    ``reader`` says which reader reads files; "auto" is the one that is faster.
    """

    page_checksum_verification: bool = False
    read_dictionary: tuple[str, ...] = ()
    distinct_index_column: str | None = None
    on_corrupt: OnCorrupt | None = None
    page_size_limit: int | None = None
    coerce_int96_timestamp_unit: str | None = None
    reader: Reader = "auto"

    def changed(self, **changes: Any) -> ReadOptions:
        """Returns the options with ``changes``. Looking for damage turns on checksums."""
        made = replace(self, **changes)
        is_checked = made.page_checksum_verification or made.looks_for_damage
        return replace(made, page_checksum_verification=is_checked)

    @property
    def type_options(self) -> tuple[object, ...]:
        """The options that decide the types of columns."""
        return self.read_dictionary, self.coerce_int96_timestamp_unit

    @property
    def looks_for_damage(self) -> bool:
        """True if everything that is read is checked."""
        return self.on_corrupt is not None

    @property
    def skips_corrupt(self) -> bool:
        """True if the rows of damaged pages are left out."""
        return self.on_corrupt == "skip"


DEFAULTS = ReadOptions()
