"""The results of commands."""

from __future__ import annotations

from typing import NamedTuple


class Said(NamedTuple):
    """The output of a command, and its exit code."""

    out: str
    err: str
    code: int

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()
