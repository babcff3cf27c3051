"""Warnings about one file."""

from __future__ import annotations

from intarsia.errors import warn


class FileWarnings:
    """Issues the warnings about one file, and keeps their messages."""

    def __init__(self, name: str, *, in_data_set: bool) -> None:
        """Leaves some warnings to the data set of the file, if ``in_data_set``."""
        self._name, self._in_data_set = name, in_data_set
        self.ignored: dict[str, None] = {}
        """The messages so far, in order: damaged or stale indexes, and lost rows."""

    def warn(self, message: str, *, counted: bool = False) -> None:
        """Warns, and keeps it for ``explain``. The data set warns if it is ``counted``."""
        self.ignored[message] = None
        if counted and self._in_data_set:
            return
        warn(f"{self._name}: {message}")
