"""A reader of lookups and of the keys of strings, written from ``docs/reference/format.md`` alone.

It imports no Intarsia.
"""

import base64
import hashlib
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash


class Thrift:
    """Decodes the compact protocol: structs become dicts by field number, lists become tuples."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        length = self.varint()
        self.at += length
        return self.data[self.at - length : self.at]

    def value(self, kind: int):
        match kind:
            case 1 | 2:  # a field that is True or False
                return kind == 1
            case 3:
                return self.byte()
            case 4 | 5 | 6:
                return self.zigzag()
            case 7:
                self.at += 8
                return struct.unpack("<d", self.data[self.at - 8 : self.at])[0]
            case 8:
                return self.binary()
            case 9 | 10:
                head = self.byte()
                count = head >> 4 if head >> 4 < 15 else self.varint()
                return tuple(self.value(head & 15) for _ in range(count))
            case 12:
                return self.struct()
        raise ValueError(f"thrift type {kind}")

    def struct(self) -> dict:
        fields, number = {}, 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            fields[number] = self.value(head & 15)
        return fields


def binding_of(footer: dict) -> str:
    """Returns the hash that binds a directory to the file with this ``FileMetaData``."""
    digest = hashlib.blake2b(digest_size=16)
    for group in footer[4]:
        digest.update(struct.pack("<qq", group[3], len(group[1])))
        for chunk in (column.get(3) for column in group[1]):
            if chunk is None:
                digest.update(b"-")
                continue
            stats = chunk.get(12)
            bounds = counts = None
            if stats is not None:
                low, high, old_low, old_high = (stats.get(n) for n in (6, 5, 2, 1))
                new = (old_low, old_high) if low is None and high is None else (low, high)
                bounds, counts = (old_low, old_high, *new), (stats.get(3), stats.get(4))
            facts = (*(chunk.get(n) for n in (9, 11, 7, 6, 5)), [*chunk[2]], bounds, counts)
            digest.update(repr(facts).encode())
    return digest.hexdigest()


def pointer_of(data: bytes, footer: dict) -> dict:
    """Returns the pointer in a file's footer."""
    pointer = json.loads({pair[1]: pair[2] for pair in footer[5]}[b"intarsia"])
    assert pointer["offset"] + pointer["length"] == len(data) - 8 - footer_length(data, -8)
    return pointer


def pointer_of_sidecar(data: bytes, path: Path) -> dict:
    """Returns the pointer at the end of the sidecar of the file at ``path``."""
    assert data[:8] == data[-8:] == b"INTARSIA"
    pointer = json.loads(data[-12 - footer_length(data, -12) : -12])
    parquet = path.read_bytes()
    thrift = parquet[-8 - footer_length(parquet, -8) : -8]
    assert pointer["of"] == {
        "size": len(parquet),
        "stamp": f"time {round(path.stat().st_mtime_ns / 1e6)}",
        "footer": hashlib.blake2b(thrift, digest_size=16).hexdigest(),
    }
    return pointer


def footer_length(data: bytes, at: int) -> int:
    return struct.unpack("<I", data[at:][:4])[0]


def lookup_of(path: Path, column: str) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Returns the entries of a file's lookup, the first of each page, and the granules' starts."""
    data = path.read_bytes()
    parquet_footer = Thrift(data[-8 - footer_length(data, -8) : -8]).struct()
    sidecars = [*path.parent.glob(f"_intarsia/{path.name}.{'[0-9a-f]' * 8}.intarsia")]
    if sidecars:
        data = max(sidecars, key=lambda sidecar: sidecar.stat().st_mtime_ns).read_bytes()
        pointer = pointer_of_sidecar(data, path)
    else:
        pointer = pointer_of(data, parquet_footer)
    raw = data[pointer["offset"] :][: pointer["length"]]
    directory = json.loads(raw)
    assert pointer["version"] == 1
    assert zlib.crc32(raw) == pointer["crc32"]
    assert directory["binding"] == binding_of(parquet_footer), "the indexes are stale"
    (entry,) = (e for e in directory["indexes"] if (e["kind"], e["on"]) == ("lookup", column))
    section = data[entry["offset"] :][: entry["length"]]
    assert entry["kind_version"] == 1
    assert "meaning" not in entry
    assert zlib.crc32(section[-entry["meta_length"] :]) == entry["meta_crc32"]
    footer = Thrift(section[-4 - footer_length(section, -4) :]).struct()
    info = json.loads({pair[1]: pair[2] for pair in footer[5]}[b"intarsia"])
    assert info["file_id"] == directory["file_id"]
    assert "block_size" not in info
    sizes = np.frombuffer(zlib.decompress(base64.b64decode(info["granules"])), "<i8")
    page_starts, first = [], 0
    for group in footer[4]:
        offset_index = Thrift(section[group[1][0][4] :]).struct()
        page_starts += [first + place.get(3, 0) for place in offset_index[1]]
        first += group[3]
    table = pq.read_table(pa.BufferReader(section + b"PAR1"), page_checksum_verification=True)
    return table, np.array(page_starts), np.cumsum(sizes)


def candidate_rows(path: Path, column: str, plain: bytes) -> list[tuple[int, int]]:
    """Returns the row ranges, their ends excluded, that may hold a value, given as PLAIN bytes."""
    table, page_starts, starts = lookup_of(path, column)
    keys, steps = (array.to_numpy() for array in table.columns)
    is_new = np.ones(len(keys), bool)
    is_new[1:] = keys[1:] != keys[:-1]
    is_new[page_starts] = True
    granules, granule = [], 0
    for position in np.flatnonzero(keys == xxhash.xxh64_intdigest(plain) >> 32):
        granule = int(steps[position]) + (0 if is_new[position] else granule)
        granules.append(granule)
    return [(int(starts[granule]), int(starts[granule + 1])) for granule in granules]


def gram_keys(text: str) -> set[int]:
    """Returns the keys of a string of ASCII in an n-gram index."""
    symbols = text.upper().encode()
    keys = set()
    for i in range(len(symbols) - 2):
        gram = symbols[i : i + 4]
        number = int.from_bytes(gram, "little")
        head = ((number & 0xFFFFFF) * 0x9E3779B1 & 0xFFFFFFFF) >> 12 & ~15
        tail = (number * 0x85EBCA9D & 0xFFFFFFFF) >> 28 if len(gram) == 4 else 0
        is_frequent = all(symbol in b"0123456789ABCDEF TINORSL" for symbol in gram[:3])
        keys.add(head | (tail if is_frequent else tail & ~1))
    return keys


def word_key(word: str) -> int:
    """Returns the key of a word of ASCII."""
    mask = (1 << 64) - 1
    value = sum(
        ord(character) * pow(0x9E3779B97F4A7C15, i, 1 << 64)
        for i, character in enumerate(word.upper()[:64])
    )
    value = value & mask ^ (value & mask) >> 32
    return (value * 0xD6E8FEB86659FD93 & mask) >> 32
