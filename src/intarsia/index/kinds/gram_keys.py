"""Keys of the grams of texts, and the keys that a pattern asks for.

A gram is three characters and a little of the fourth: short ones are told apart by what follows
only as far as that pays. Characters are folded (``fold``) and squeezed into a byte, a *symbol*::

    key, 20 bits   │ 16 bits: hash of three symbols │ 4 bits: hash of four symbols │

Of the four bits the lowest is zero unless all three symbols are frequent ones: three such tell
little, in English words, and in hexadecimal digits above all. As the keys of one three-symbol gram
lie side by side, a text of just three characters is looked for by a run of 16 keys. What ends a
value has no fourth symbol: its four bits are zero.

All is fixed, nothing is learned from the data: which keys a pattern needs follows from the pattern
alone. ``GRAMS_VERSION`` names the meaning of keys.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.index.key_formula import Every, FingerprintArray, Formula, Keys, Some
from intarsia.index.kinds.required_substrings import AllOf, AnyOf, Has, Required
from intarsia.row_ranges import Int64Array
from intarsia.strings.case_folding import FOLD_VERSION, fold_table
from intarsia.strings.code_points import (
    END,
    Pairs,
    characters_of,
    flat_texts,
    is_bytes,
    parts,
    present,
)

GRAMS_VERSION = 1000 * FOLD_VERSION + 1
KEY_BITS = 20
_TAIL_BITS = 4
_RUN = 1 << _TAIL_BITS
LEAST = 3
"""Characters that a piece of text must have to be looked for."""
MOST_KEYS = 24
"""Keys that are looked for of one piece; of a longer one, they are spread over it."""
_FREQUENT = "0123456789ABCDEF TINORSL"
_HEAD_FACTOR = np.uint32(0x9E3779B1)
_TAIL_FACTOR = np.uint32(0x85EBCA9D)
_PAD = 4
_MAX_GROUPS = 1 << (32 - KEY_BITS)

SymbolArray = NDArray[np.uint8]
N = TypeVar("N", np.uint32, np.uint64)


def keys_of_texts(values: pa.Array, positions: Int64Array) -> tuple[FingerprintArray, Int64Array]:
    """The distinct (key, position) pairs of ``n`` texts: strings or bytes, in any order.

    ``positions``, shape ``(n,)`` and ascending, says where each value belongs: to a row, or a
    granule. NULLs have no keys. Works in slices of some 1 MB and takes some 30 times that;
    a pair may repeat where a position goes on in another slice.

    Raises ``TypeError`` for values that are no texts.
    """
    values, valid = present(values)
    positions = positions if valid is None else positions[valid]
    latin, found = is_bytes(values.type), Pairs()
    for part in parts(*flat_texts(values), latin=latin, ahead=LEAST):
        mapped = part.characters.mapped(_symbol_table())
        symbols = np.concatenate((mapped, np.zeros(_PAD, np.uint8)))
        mine = positions[part.first_value : part.stop_value]
        own = slice(part.begin, part.stop)
        found.add(*_keys_of_symbols(symbols, part.characters.ends, mine, own))
    return found.found()


def keys_needed(required: Required | None) -> Formula | None:
    """The keys that a position must have if a text there is to meet ``required``.

    ``None`` where every text might: pieces shorter than three characters tell nothing.
    """
    match required:
        case Has(text):
            return _keys_of_piece(text)
        case AllOf(parts):
            known = [key for part in parts if (key := keys_needed(part)) is not None]
            return Every(tuple(known)) if len(known) > 1 else known[0] if known else None
        case AnyOf(parts):
            every = [keys_needed(part) for part in parts]
            needed = tuple(key for key in every if key is not None)
            return Some(needed) if needed and len(needed) == len(every) else None
    return None


@cache
def _symbol_table() -> SymbolArray:
    """A byte for every code point: ASCII as it is, what is beyond it by its low bits."""
    folds = fold_table()
    symbols = np.where(folds < 0x80, folds, 0x80 | ((folds ^ folds >> 7) & 0x7F)).astype(np.uint8)
    symbols.flags.writeable = False
    return symbols


@cache
def _frequent_table() -> NDArray[np.bool_]:
    table = np.zeros(256, dtype=bool)
    table[list(_FREQUENT.encode())] = True
    return table


def _grams(symbols: SymbolArray) -> tuple[FingerprintArray, NDArray[np.bool_]]:
    """The key of the gram at each symbol, and whether there is one."""
    count = len(symbols) - _PAD
    four = np.ndarray((count,), dtype="<u4", buffer=symbols, strides=(1,))
    inside = symbols != END
    head = inside[:count] & inside[1 : count + 1] & inside[2 : count + 2]
    frequent = _frequent_table()[symbols]
    coarse = ~(frequent[:count] & frequent[1 : count + 1] & frequent[2 : count + 2])
    keys = (four & np.uint32(0xFFFFFF)) * _HEAD_FACTOR
    keys >>= np.uint32(32 - KEY_BITS)
    keys &= np.uint32(-_RUN & 0xFFFFFFFF)
    tails = four * _TAIL_FACTOR
    tails >>= np.uint32(32 - _TAIL_BITS)
    tails &= ~coarse.astype(np.uint32)
    whole = inside[3 : count + 3]
    tails *= whole
    keys |= tails
    return keys, head


def _keys_of_symbols(
    symbols: SymbolArray, ends: Int64Array, positions: Int64Array, own: slice
) -> tuple[FingerprintArray, Int64Array]:
    """Distinct keys, and their positions, of the grams at ``own`` in texts that end at ``ends``."""
    keys, told = _grams(symbols)
    first = np.concatenate(([True], positions[1:] != positions[:-1]))
    group_of = np.cumsum(first) - 1
    code = np.dtype(np.uint32 if group_of[-1] < _MAX_GROUPS else np.uint64)
    groups = np.repeat(group_of.astype(code), np.diff(ends, prepend=-1))
    codes = groups << code.type(KEY_BITS) | keys
    found = _distinct(codes[own][told[own]])
    mine = (found & code.type((1 << KEY_BITS) - 1)).astype(np.uint32)
    return mine, positions[first][(found >> code.type(KEY_BITS)).astype(np.int64)]


def _distinct(values: NDArray[N]) -> NDArray[N]:
    values = np.sort(values)
    return values[np.concatenate(([True], values[1:] != values[:-1]))] if len(values) else values


def _keys_of_piece(text: str) -> Formula | None:
    if len(text) < LEAST:
        return None
    symbols = np.concatenate((_symbol_table()[characters_of(text)], np.zeros(_PAD, np.uint8)))
    keys, _ = _grams(symbols)
    if len(text) == LEAST:
        return Keys(np.arange(keys[0], keys[0] + _RUN, dtype=np.uint32))
    distinct = list(dict.fromkeys(keys[: len(text) - LEAST].tolist()))
    if len(distinct) > MOST_KEYS:
        distinct = [distinct[i * len(distinct) // MOST_KEYS] for i in range(MOST_KEYS)]
    needed = tuple(Keys(np.array([key], dtype=np.uint32)) for key in distinct)
    return Every(needed) if len(needed) > 1 else needed[0]
