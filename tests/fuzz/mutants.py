"""Mutants of files: a file and a seed give the same bytes every time."""

import random

FEW_CHUNKS = 24
"""Number of chunks of a mutant that are read page by page."""


def mutant(data: bytes, seed: int) -> bytes:
    """``data`` with bits flipped, its end cut off, or a range taken out."""
    if not data:
        return data
    chance = random.Random(seed)
    mutate = chance.choices([flipped, cut, shortened], weights=[8, 1, 1])[0]
    return mutate(bytearray(data), chance)


def flipped(data: bytearray, chance: random.Random) -> bytes:
    for _ in range(chance.choice([1, 1, 2, 4, 16])):
        at = place(len(data), chance)
        data[at] = chance.choice([data[at] ^ (1 << chance.randrange(8)), chance.randrange(256)])
    return bytes(data)


def cut(data: bytearray, chance: random.Random) -> bytes:
    return bytes(data[: place(len(data), chance)])


def shortened(data: bytearray, chance: random.Random) -> bytes:
    start = place(len(data), chance)
    del data[start : start + chance.choice([1, 2, 8, 64, 1024])]
    return bytes(data)


def place(size: int, chance: random.Random) -> int:
    """A random position; half of them in the last few kilobytes, where footer and indexes are."""
    tail = min(size, chance.choice([12, 512, 4096, size]))
    return size - 1 - chance.randrange(tail)
