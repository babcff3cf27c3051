"""A sidecar: the sections and the directory of a file that is not to be rewritten, beside it.

::

    INTARSIA │ section │ section │ directory │ pointer │ its length │ INTARSIA
                                                └ JSON     └ 4 bytes, little-endian

Sections and directory are what they are within a file; the pointer is the one that a footer has,
and says in ``of`` which file it belongs to: of what size, version and footer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
from dataclasses import dataclass
from typing import Any

from intarsia.errors import FormatError
from intarsia.index.directory import (
    Directory,
    IndexEntry,
    StaleError,
    directory_at,
    encode_directory,
    integer_of,
    json_object,
    text_in,
)
from intarsia.io.source import HeldSource, Source
from intarsia.limits import MAX_POINTER_BYTES, check_claim

MAGIC = b"INTARSIA"
_ENDING = struct.Struct("<I8s")
_TAIL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Owner:
    """The file a sidecar belongs to: its length in bytes, its stamp, and a hash of its footer.

    ``stamp`` is empty where its file system tells nothing that changes with the file.
    """

    size: int
    stamp: str
    footer: str

    @classmethod
    def of(cls, size: int, stamp: str | None, footer: bytes) -> Owner:
        """``footer`` are the thrift bytes."""
        return cls(size, stamp or "", hashlib.blake2b(footer, digest_size=16).hexdigest())

    def problem(self, now: Owner) -> str | None:
        """Why the sidecar of this file is none of the file that is there ``now``."""
        if self.footer != now.footer or self.size != now.size:
            return "it is of another file; this one was rewritten since"
        if self.stamp != now.stamp:
            return "the file is newer, or a copy"
        return None


def encode_end(directory: Directory, owner: Owner, offset: int) -> bytes:
    """What follows the sections, to be placed at ``offset``."""
    data, value = encode_directory(directory, offset)
    of = {"size": owner.size, "stamp": owner.stamp, "footer": owner.footer}
    pointer = json.dumps({**json.loads(value), "of": of}).encode()
    return data + pointer + _ENDING.pack(len(pointer), MAGIC)


class Sidecar:
    """An opened sidecar: its directory in memory, its sections read on demand."""

    def __init__(self, source: Source, owner: Owner) -> None:
        """``owner`` is the file as it is now.

        Raises ``StaleError`` where the sidecar is of another, ``FormatError`` where it is damaged.
        """
        start = max(0, source.size - _TAIL_BYTES)
        self.source = HeldSource(source, start, source.read([(start, source.size - start)])[0])
        pointer = self._pointer(source.size)
        found = pointer.get("of")
        if not isinstance(found, dict):
            raise FormatError("the sidecar does not say which file it belongs to")
        self.owner = Owner(
            integer_of(found, "size"), text_in(found, "stamp"), text_in(found, "footer")
        )
        problem = self.owner.problem(owner)
        if problem:
            entries: tuple[IndexEntry, ...] = ()
            with contextlib.suppress(FormatError):
                entries = directory_at(pointer, self.source).indexes
            raise StaleError(problem, entries=entries)
        self.directory = directory_at(pointer, self.source)

    def _pointer(self, size: int) -> dict[str, Any]:
        if size < _ENDING.size:
            raise FormatError("the sidecar is too short")
        end = self.source.read([(size - _ENDING.size, _ENDING.size)])[0]
        length, magic = _ENDING.unpack(end)
        if magic != MAGIC or length > size - _ENDING.size:
            raise FormatError("this is no sidecar, or a torn one")
        check_claim("the sidecar's pointer", length, MAX_POINTER_BYTES)
        return json_object(bytes(self.source.read([(size - _ENDING.size - length, length)])[0]))
