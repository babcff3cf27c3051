"""Sidecars: the index sections and the directory of a file that is not to be changed.

::

    INTARSIA │ section │ section │ directory │ pointer │ its length │ INTARSIA
                                                └ JSON     └ 4 bytes, little-endian

Sections and directory are the same as inside a file. The pointer is the value that a footer has
for the key ``intarsia``, and names in ``of`` the file that owns it: its size, stamp and footer.
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
    string_of,
)
from intarsia.io.source import CachedRangeSource, Source
from intarsia.limits import MAX_POINTER_BYTES, check_claim

MAGIC = b"INTARSIA"
_ENDING = struct.Struct("<I8s")
_TAIL_BYTES = 64 * 1024
"""Bytes read from the end at once; most directories fit into them."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The file of a sidecar: bytes, stamp ("" if there is none), and hash of its footer."""

    size: int
    stamp: str
    footer: str

    @classmethod
    def of(cls, size: int, stamp: str | None, footer: bytes) -> Owner:
        """Returns the owner with this size, stamp and encoded ``FileMetaData``."""
        return cls(size, stamp or "", hashlib.blake2b(footer, digest_size=16).hexdigest())

    def problem(self, now: Owner) -> str | None:
        """Returns why this owner's sidecar does not fit the file ``now``, or None if it does."""
        if self.footer != now.footer or self.size != now.size:
            return "it belongs to another file; this one was rewritten since"
        if self.stamp != now.stamp:
            return "the file is newer, or a copy"
        return None


def encode_end(directory: Directory, owner: Owner, offset: int) -> bytes:
    """Returns the bytes after the sections: directory, pointer and ending, for ``offset``."""
    directory_json, pointer_json = encode_directory(directory, offset)
    owner_fields = {"size": owner.size, "stamp": owner.stamp, "footer": owner.footer}
    pointer = json.dumps({**json.loads(pointer_json), "of": owner_fields}).encode()
    return directory_json + pointer + _ENDING.pack(len(pointer), MAGIC)


class Sidecar:
    """An open sidecar: its directory in memory, its sections read on demand."""

    def __init__(self, source: Source, owner: Owner) -> None:
        """Opens the sidecar in ``source`` for ``owner``, the file as it is now.

        Raises ``StaleError`` if the sidecar belongs to another file or an earlier state of it, and
        ``FormatError`` if it is damaged.
        """
        start = max(0, source.size - _TAIL_BYTES)
        self.source = CachedRangeSource(
            source, start, source.read([(start, source.size - start)])[0]
        )
        pointer = self._pointer(source.size)
        owner_fields = pointer.get("of")
        if not isinstance(owner_fields, dict):
            raise FormatError("the sidecar does not say which file it belongs to")
        self.owner = Owner(
            integer_of(owner_fields, "size"),
            string_of(owner_fields, "stamp"),
            string_of(owner_fields, "footer"),
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
            raise FormatError("this is not a sidecar, or it was cut short")
        check_claim("the sidecar's pointer", length, MAX_POINTER_BYTES)
        return json_object(bytes(self.source.read([(size - _ENDING.size - length, length)])[0]))
