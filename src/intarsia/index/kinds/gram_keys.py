"""Keys of the n-grams of strings, and the keys that a pattern requires.

A gram is three characters and a few bits of the fourth. Characters are case-folded and reduced to
one byte, a *symbol*::

    key, 20 bits   │ 16 bits: hash of three symbols │ 4 bits: hash of four symbols │

- The lowest of the four bits is zero unless all three symbols are frequent. Three frequent symbols
  distinguish little, in English words and in hexadecimal digits.
- The keys of one three-symbol gram are adjacent. A string of just three characters is therefore
  looked up as a run of 16 keys.
- The last three characters of a value have no fourth symbol: their four bits are zero.

The keys of a pattern follow from the pattern alone; nothing is learned from data.
``GRAMS_VERSION`` identifies the meaning of keys.
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
    flat_strings,
    is_bytes,
    parts,
    present,
)

GRAMS_VERSION = 1000 * FOLD_VERSION + 1
"""Changes with the key layout and with the tables of case folding."""
KEY_BITS = 20
_TAIL_BITS = 4
_RUN = 1 << _TAIL_BITS
"""Keys of one three-symbol gram."""
LEAST = 3
"""Characters that a substring must have to be looked up."""
MOST_KEYS = 24
"""Most keys that are looked up for one substring; a longer one's are spread over it."""
_FREQUENT = "0123456789ABCDEF TINORSL"
"""Symbols that occur in most strings."""
_HEAD_FACTOR = np.uint32(0x9E3779B1)
_TAIL_FACTOR = np.uint32(0x85EBCA9D)
_PAD = 4
"""Symbols appended so that four can be read at every symbol."""
_MAX_GROUPS = 1 << (32 - KEY_BITS)
"""Positions whose number fits into 32 bits together with a key."""

SymbolArray = NDArray[np.uint8]
N = TypeVar("N", np.uint32, np.uint64)


def keys_of_strings(values: pa.Array, positions: Int64Array) -> tuple[FingerprintArray, Int64Array]:
    """Returns the distinct (key, position) pairs of ``n`` strings or bytes, in any order.

    ``positions`` holds the row or granule of each value, ascending. Shape ``(n,)``. NULLs have no
    keys. Works in slices of about 1 MB and needs about 30 times that memory. A pair may repeat if a
    position continues in the next slice.

    Raises ``TypeError`` for values of other types.
    """
    values, valid = present(values)
    positions = positions if valid is None else positions[valid]
    latin, pairs = is_bytes(values.type), Pairs()
    for part in parts(*flat_strings(values), latin=latin, ahead=LEAST):
        mapped = part.characters.mapped(_symbol_table())
        symbols = np.concatenate((mapped, np.zeros(_PAD, np.uint8)))
        slice_positions = positions[part.first_value : part.stop_value]
        own = slice(part.begin, part.stop)
        pairs.add(*_keys_of_symbols(symbols, part.characters.ends, slice_positions, own))
    return pairs.collected()


def keys_needed(required: Required | None) -> Formula | None:
    """Returns the keys that ``required`` needs, or None if any string might meet it."""
    match required:
        case Has(text):
            return _keys_of_substring(text)
        case AllOf(parts):
            known = [key for part in parts if (key := keys_needed(part)) is not None]
            return Every(tuple(known)) if len(known) > 1 else known[0] if known else None
        case AnyOf(parts):
            part_formulas = [keys_needed(part) for part in parts]
            known_formulas = tuple(key for key in part_formulas if key is not None)
            return (
                Some(known_formulas)
                if known_formulas and len(known_formulas) == len(part_formulas)
                else None
            )
    return None


@cache
def _symbol_table() -> SymbolArray:
    """Returns a symbol for each code point: ASCII itself, others by their low bits."""
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
    """Returns the key of the gram at each symbol, and whether there is a gram."""
    count = len(symbols) - _PAD
    symbol_quads = np.ndarray((count,), dtype="<u4", buffer=symbols, strides=(1,))
    is_symbol = symbols != END
    is_gram = is_symbol[:count] & is_symbol[1 : count + 1] & is_symbol[2 : count + 2]
    is_frequent = _frequent_table()[symbols]
    is_coarse = ~(is_frequent[:count] & is_frequent[1 : count + 1] & is_frequent[2 : count + 2])
    keys = (symbol_quads & np.uint32(0xFFFFFF)) * _HEAD_FACTOR
    keys >>= np.uint32(32 - KEY_BITS)
    keys &= np.uint32(-_RUN & 0xFFFFFFFF)
    tails = symbol_quads * _TAIL_FACTOR
    tails >>= np.uint32(32 - _TAIL_BITS)
    tails &= ~is_coarse.astype(np.uint32)
    has_fourth = is_symbol[3 : count + 3]
    tails *= has_fourth
    keys |= tails
    return keys, is_gram


def _keys_of_symbols(
    symbols: SymbolArray, ends: Int64Array, positions: Int64Array, own: slice
) -> tuple[FingerprintArray, Int64Array]:
    """Returns distinct keys and positions of the grams at ``own``, in strings to ``ends``."""
    keys, is_gram = _grams(symbols)
    is_group_start = np.concatenate(([True], positions[1:] != positions[:-1]))
    group_of = np.cumsum(is_group_start) - 1
    code = np.dtype(np.uint32 if group_of[-1] < _MAX_GROUPS else np.uint64)
    groups = np.repeat(group_of.astype(code), np.diff(ends, prepend=-1))
    codes = groups << code.type(KEY_BITS) | keys
    distinct_codes = _distinct(codes[own][is_gram[own]])
    distinct_keys = (distinct_codes & code.type((1 << KEY_BITS) - 1)).astype(np.uint32)
    return distinct_keys, positions[is_group_start][
        (distinct_codes >> code.type(KEY_BITS)).astype(np.int64)
    ]


def _distinct(values: NDArray[N]) -> NDArray[N]:
    values = np.sort(values)
    return values[np.concatenate(([True], values[1:] != values[:-1]))] if len(values) else values


def _keys_of_substring(text: str) -> Formula | None:
    if len(text) < LEAST:
        return None
    symbols = np.concatenate((_symbol_table()[characters_of(text)], np.zeros(_PAD, np.uint8)))
    keys, _ = _grams(symbols)
    if len(text) == LEAST:
        return Keys(np.arange(keys[0], keys[0] + _RUN, dtype=np.uint32))
    distinct = list(dict.fromkeys(keys[: len(text) - LEAST].tolist()))
    if len(distinct) > MOST_KEYS:
        distinct = [distinct[i * len(distinct) // MOST_KEYS] for i in range(MOST_KEYS)]
    formulas = tuple(Keys(np.array([key], dtype=np.uint32)) for key in distinct)
    return Every(formulas) if len(formulas) > 1 else formulas[0]
