"""Folders in tables that others keep, whose logs would not know of new files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.errors import PathError
from intarsia.table_format import Tables, tables_above

if TYPE_CHECKING:
    from intarsia.spark.place import Place


def check_own(place: Place) -> None:
    """Raise ``PathError`` if the place's folder is a table of another format, or is in one."""
    check_no_tables(place.root, tables_above(place.filesystem, [f"{place.root}/*"]))


def check_no_tables(root: str, tables: Tables) -> None:
    """Raise ``PathError`` if there is one among ``tables``."""
    for folder, kind in tables.items():
        raise PathError(
            f"{root}: {folder} is {kind.name}, whose log ({kind.log}) would not know of what is "
            "written here"
        )
