"""What a command says."""

from __future__ import annotations

from typing import NamedTuple


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    out: str
    err: str
    code: int

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()
