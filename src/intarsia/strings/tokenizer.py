"""Keys of the words of texts, and the search for words itself.

A word is a maximal run of characters that join (``word_chars``: letters, digits, marks,
connectors), or one ideograph; its case does not count (``fold``). A text contains words if it holds
each of them as a word of its own. The key of a word is a hash of 32 bits of its first 64 folded
characters.

This is simpler than Unicode's word boundaries: ``don't`` is the two words ``don`` and ``t``,
``3.14`` is ``3`` and ``14``. A query is taken apart in the same way.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from intarsia.row_ranges import Int64Array
from intarsia.strings.byte_search import contains, places_of
from intarsia.strings.case_folding import FOLD_VERSION, fold_table, folded
from intarsia.strings.code_points import (
    Characters,
    Pairs,
    as_column,
    characters_of,
    flat_texts,
    is_bytes,
    parts,
    present,
    slices,
)
from intarsia.strings.word_characters import ALONE, JOINS, word_classes

WORDS_VERSION = 1000 * FOLD_VERSION + 1
"""Names the meaning of keys and of the search: the tables of characters, and the hash."""

KeyArray = NDArray[np.uint32]
CodeArray = NDArray[np.uint8] | NDArray[np.uint32]
BoolArray = NDArray[np.bool_]
_UNLIKE_PYARROW = re.compile(r"[^0-9A-HJ-Z_]+")
"""Beyond ASCII, and I: to folding, İ and ı are one with it."""
_ROWS_A_PLACE, _FREE_PLACES = 64, 64
"""Where a piece is in more places than one in so many rows, looking at each text is as quick."""
LONGEST = 64
"""Characters of a word that its key is of, at most."""
_BASE = 0x9E3779B97F4A7C15
_MIX = np.uint64(0xD6E8FEB86659FD93)


def words_of(text: str) -> list[str]:
    """The distinct words of ``text``, folded, in order of appearance."""
    starts, stops = _word_bounds(word_classes()[characters_of(text)])
    whole = folded(text)
    return list(
        dict.fromkeys(whole[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True))
    )


def keys_of_words(text: str) -> KeyArray:
    """The key of each word of ``text``: a text that contains them has all of these keys."""
    characters = characters_of(text)
    bounds = _word_bounds(word_classes()[characters])
    return np.unique(_keys(fold_table()[characters], *bounds))


def keys_of_texts(values: pa.Array, positions: Int64Array) -> tuple[KeyArray, Int64Array]:
    """The distinct (key, position) pairs of ``n`` texts: strings or bytes, in any order.

    ``positions``, shape ``(n,)`` and ascending, says where each value belongs: to a row, or a
    granule. NULLs have no keys. Works in slices of some 1 MB; a pair may repeat where a position
    goes on in another slice.

    Raises ``TypeError`` for values that are no texts.
    """
    values, valid = present(values)
    positions = positions if valid is None else positions[valid]
    latin, found = is_bytes(values.type), Pairs()
    for part in parts(*flat_texts(values), latin=latin, ahead=LONGEST):
        starts, stops = _word_bounds(part.characters.mapped(word_classes()))
        mine = (starts >= part.begin) & (starts < part.stop)
        starts, stops = starts[mine], stops[mine]
        value_of = np.searchsorted(part.characters.ends, starts)
        keys = _keys(part.characters.mapped(fold_table()), starts, stops)
        found.add(*_distinct(keys, positions[part.first_value : part.stop_value][value_of]))
    return found.found()


def contains_words(values: pa.Array | pa.ChunkedArray, words: str) -> pa.Array | pa.ChunkedArray:
    """Which texts contain every word of ``words``, in any order; NULL where the text is NULL.

    Where ``words`` holds no word, every text does. Raises ``TypeError`` for values that are no
    texts.
    """
    if isinstance(values, pa.ChunkedArray):
        chunks = [contains_words(chunk, words) for chunk in values.chunks]
        return pa.chunked_array(chunks, type=pa.bool_())
    filled, valid = present(values)
    wanted = words_of(as_column(words, values.type))
    found = _possible(filled, wanted)
    filled = filled.filter(pa.array(found))
    data, offsets = flat_texts(filled)
    rows = np.ones(len(filled), dtype=bool)
    for first, stop in slices(offsets):
        part = Characters(data, offsets[first : stop + 1], latin=is_bytes(values.type))
        rows[first:stop] = _rows_with(part, wanted)
    found[found] = rows
    if valid is None:
        return pa.array(found)
    everywhere = np.zeros(len(values), dtype=bool)
    everywhere[valid] = found
    return pa.array(everywhere, mask=~valid)


def _possible(values: pa.Array, wanted: list[str]) -> BoolArray:
    """Which texts hold a part of the longest of the folded words ``wanted``.

    The part has only letters for which pyarrow's own search ignores case just as folding does.
    """
    pieces = [piece for word in wanted for piece in _UNLIKE_PYARROW.split(word)]
    longest = max(pieces, key=len, default="")
    if not longest:
        return np.ones(len(values), dtype=bool)
    rows = _rows_with_piece(values, longest.encode())
    found: BoolArray = np.zeros(len(values), dtype=bool)
    if rows is None:
        matches = pc.match_substring(values, longest, ignore_case=True)
        found[:] = matches.to_numpy(zero_copy_only=False)
    else:
        found[rows] = True
    return found


def _rows_with_piece(values: pa.Array, piece: bytes) -> Int64Array | None:
    """Positions of the texts that hold a piece of ASCII, and perhaps of some that do not.

    None where they are many, or hold characters beyond ASCII that are folded to some of it.
    """
    data, offsets = flat_texts(values)
    foreign = (other for byte in sorted(set(piece)) for other in _folded_to(byte))
    if any(contains(data, other) for other in foreign):
        return None
    most = _FREE_PLACES + len(values) // _ROWS_A_PLACE
    places = places_of(data, piece, most, any_case=True)
    if places is None:
        return None
    rows = np.searchsorted(offsets, places, side="right") - 1
    return rows[places + len(piece) <= offsets[rows + 1]]


@cache
def _folded_to(letter: int) -> tuple[bytes, ...]:
    """The characters beyond ASCII, as UTF-8, that are folded to a letter of it."""
    found = np.flatnonzero(fold_table() == letter)
    return tuple(chr(code).encode() for code in found.tolist() if code > 0x7F)


def _rows_with(texts: Characters, wanted: list[str]) -> BoolArray:
    """Which of some texts hold all of the folded words ``wanted``."""
    rows = np.ones(len(texts.ends), dtype=bool)
    if not wanted:
        return rows
    classes = texts.mapped(word_classes())
    for word in wanted:
        folds = texts.mapped(_ascii_folds()) if word.isascii() else texts.mapped(fold_table())
        at = _occurrences(folds, classes, word)
        hit = np.zeros(len(rows), dtype=bool)
        hit[np.searchsorted(texts.ends, at)] = True
        rows &= hit
    return rows


def _occurrences(folds: CodeArray, classes: NDArray[np.uint8], word: str) -> Int64Array:
    """Where ``word`` begins as a word of its own."""
    at = np.flatnonzero(folds[: max(len(folds) - len(word), 0)] == ord(word[0]))
    for i in range(1, len(word)):
        at = at[folds[at + i] == ord(word[i])]
    if word_classes()[ord(word[0])] == JOINS:
        at = at[(at == 0) | (classes[at - 1] != JOINS)]
        at = at[classes[at + len(word)] != JOINS]
    return at


@cache
def _ascii_folds() -> NDArray[np.uint8]:
    """The folded characters that are ASCII, and U+00FF for all others."""
    return np.minimum(fold_table(), 0xFF).astype(np.uint8)


def _word_bounds(classes: NDArray[np.uint8]) -> tuple[Int64Array, Int64Array]:
    """Where words begin and end, by the classes of characters."""
    before = np.concatenate((np.zeros(1, np.uint8), classes[:-1]))
    after = np.concatenate((classes[1:], np.zeros(1, np.uint8)))
    joins = classes == JOINS
    alone = classes == ALONE
    starts = np.flatnonzero(alone | (joins & (before != JOINS)))
    stops = np.flatnonzero(alone | (joins & (after != JOINS))) + 1
    return starts, stops


def _keys(folds: NDArray[np.uint32], starts: Int64Array, stops: Int64Array) -> KeyArray:
    """The key of each word: a polynomial over its first folded characters, its bits mixed."""
    if not len(starts):
        return np.empty(0, np.uint32)
    lengths = np.minimum(stops - starts, LONGEST)
    before = np.cumsum(lengths) - lengths
    place = np.arange(int(lengths.sum())) - np.repeat(before, lengths)
    powers = np.full(int(lengths.max()), _BASE, dtype=np.uint64)
    powers[0] = 1
    powers = np.multiply.accumulate(powers)
    letters = folds[place + np.repeat(starts, lengths)]
    values = np.add.reduceat(powers[place] * letters, before)
    values ^= values >> np.uint64(32)
    values *= _MIX
    keys: KeyArray = (values >> np.uint64(32)).astype(np.uint32)
    return keys


def _distinct(keys: KeyArray, positions: Int64Array) -> tuple[KeyArray, Int64Array]:
    """Distinct pairs; ``positions`` are ascending."""
    if not len(keys):
        return keys, positions
    first = np.concatenate(([True], positions[1:] != positions[:-1]))
    groups = (np.cumsum(first) - 1).astype(np.uint64)
    codes = np.sort(groups << np.uint64(32) | keys)
    codes = codes[np.concatenate(([True], codes[1:] != codes[:-1]))]
    return codes.astype(np.uint32), positions[first][(codes >> np.uint64(32)).astype(np.int64)]
