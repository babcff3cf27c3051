"""How files are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from intarsia.file.corrupt_rows import OnCorrupt

Reader = Literal["auto", "pages", "engine"]
"""Which reader reads files: ours, page by page, or an engine's own, if it gives the same rows."""


def check_reader(reader: object) -> None:
    """Raise ``ValueError`` unless ``reader`` is a ``Reader``."""
    if reader not in get_args(Reader):
        raise ValueError(f"reader is one of {', '.join(get_args(Reader))}, not {reader!r}")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a file is read, with pyarrow's names for it.

    ``page_checksum_verification`` compares pages with their checksums, where they have some.
    ``read_dictionary`` are the columns of text that come as Arrow dictionaries, by their paths;
    ``distinct_index_column`` is the column that lists of other writers are of. ``on_corrupt``
    checks pages as far as they can be, and says what becomes of damaged ones. ``page_size_limit``
    are the most bytes that one page may hold, where there is a limit.
    ``coerce_int96_timestamp_unit`` is that of INT96, of which nanoseconds, the default, hold 1677
    to 2262 only. ``reader`` says which reader reads files: by default the one that is faster.
    """

    page_checksum_verification: bool = False
    read_dictionary: tuple[str, ...] = ()
    distinct_index_column: str | None = None
    on_corrupt: OnCorrupt | None = None
    page_size_limit: int | None = None
    coerce_int96_timestamp_unit: str | None = None
    reader: Reader = "auto"

    def changed(self, **changes: Any) -> ReadOptions:
        """These, but for ``changes``; checksums are compared where damage is looked for."""
        made = replace(self, **changes)
        is_checked = made.page_checksum_verification or made.looks_for_damage
        return replace(made, page_checksum_verification=is_checked)

    @property
    def of_types(self) -> tuple[object, ...]:
        """Those that decide the types in which columns come."""
        return self.read_dictionary, self.coerce_int96_timestamp_unit

    @property
    def looks_for_damage(self) -> bool:
        """Is everything that is read to be checked?"""
        return self.on_corrupt is not None

    @property
    def skips_corrupt(self) -> bool:
        """Are the rows of damaged pages left out?"""
        return self.on_corrupt == "skip"


DEFAULTS = ReadOptions()
