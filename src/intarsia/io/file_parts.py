"""Describes a new version of a file by bytes of the old one and new bytes."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.io.source import ByteRange

Part = bytes | memoryview | ByteRange
"""New bytes, or a byte range of the old file."""


@dataclass(frozen=True, slots=True)
class Composed:
    """The first ``prefix_bytes`` bytes of the old file, then ``parts``."""

    prefix_bytes: int
    parts: tuple[Part, ...]

    def is_all_of(self, size: int) -> bool:
        """True if this is all of an old file of ``size`` bytes, and nothing else."""
        return self.prefix_bytes == size and not self.parts
