"""Lists of distinct values that other writers left in an opened file."""

from __future__ import annotations

from intarsia.file.open_file import OpenedFile
from intarsia.index.kinds.distinct_idx1 import ListedValues


def stray_list(file: OpenedFile) -> ListedValues | None:
    """Returns the list of another writer that the directory does not mention, or None.

    Raises ``FormatError`` if the footer entry points at unrelated bytes, or was copied by a tool
    that rewrote the file.
    """
    return file.sections.foreign_list()
