"""Splits strings into words, computes keys of words, and searches for words.

A word is a maximal run of characters that join, or one ideograph (see ``word_characters``).
Letters, digits, marks and connectors join. Case is ignored (see ``case_folding``). A string
contains words if each of them is a word of the string. The key of a word is a 32-bit hash of its
first 64 folded characters.

This is simpler than Unicode's word boundaries: ``don't`` is the two words ``don`` and ``t``,
``3.14`` is ``3`` and ``14``. Queries are split in the same way.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from intarsia.row_ranges import Int64Array, distinct
from intarsia.strings.byte_search import contains, places_of
from intarsia.strings.case_folding import FOLD_VERSION, fold_table, folded
from intarsia.strings.code_points import (
    Characters,
    Pairs,
    as_column,
    characters_of,
    flat_strings,
    is_bytes,
    parts,
    present,
    slices,
)
from intarsia.strings.word_characters import ALONE, JOINS, word_classes

WORDS_VERSION = 1000 * FOLD_VERSION + 1
"""Version of the keys and of the search: of the character tables, and of the hash."""

KeyArray = NDArray[np.uint32]
CodeArray = NDArray[np.uint8] | NDArray[np.uint32]
BoolArray = NDArray[np.bool_]
_FOLDED_DIFFERENTLY = re.compile(r"[^0-9A-HJ-Z_]+")
"""Characters for which pyarrow's search without case differs from folding: not ASCII, and I."""
_ROWS_PER_MATCH, _FREE_MATCHES = 64, 64
"""With more than 64 matches and one per 64 rows, searching each string is as fast."""
LONGEST = 64
"""Characters of a word that its key covers, at most."""
_HASH_BASE = 0x9E3779B97F4A7C15
_HASH_MIX = np.uint64(0xD6E8FEB86659FD93)


def words_of(text: str) -> list[str]:
    """Returns the distinct words of ``text``, folded, in order of appearance."""
    starts, stops = _word_bounds(word_classes()[characters_of(text)])
    folded_text = folded(text)
    return list(
        dict.fromkeys(
            folded_text[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
        )
    )


def keys_of_words(text: str) -> KeyArray:
    """Returns the sorted, distinct keys of the words in ``text``."""
    characters = characters_of(text)
    bounds = _word_bounds(word_classes()[characters])
    return distinct(_keys(fold_table()[characters], *bounds))


def keys_of_strings(values: pa.Array, positions: Int64Array) -> tuple[KeyArray, Int64Array]:
    """Returns (key, position) pairs of the words in ``n`` strings or bytes, in any order.

    ``positions``, ascending and of shape ``(n,)``, gives the row or granule of each value. NULLs
    have no keys. Strings are processed in slices of about 1 MB. A pair may repeat if a position has
    values in several slices.

    Raises ``TypeError`` for values that are not strings.
    """
    values, valid = present(values)
    positions = positions if valid is None else positions[valid]
    latin, pairs = is_bytes(values.type), Pairs()
    for part in parts(*flat_strings(values), latin=latin, ahead=LONGEST):
        starts, stops = _word_bounds(part.characters.mapped(word_classes()))
        is_own = (starts >= part.begin) & (starts < part.stop)
        starts, stops = starts[is_own], stops[is_own]
        value_of = np.searchsorted(part.characters.ends, starts)
        keys = _keys(part.characters.mapped(fold_table()), starts, stops)
        pairs.add(*_distinct(keys, positions[part.first_value : part.stop_value][value_of]))
    return pairs.collected()


def contains_words(values: pa.Array | pa.ChunkedArray, words: str) -> pa.Array | pa.ChunkedArray:
    """Returns which strings contain every word of ``words``, in any order. NULL for NULL.

    If ``words`` contains no word, all strings match. Raises ``TypeError`` for values that are not
    strings.
    """
    if isinstance(values, pa.ChunkedArray):
        chunks = [contains_words(chunk, words) for chunk in values.chunks]
        return pa.chunked_array(chunks, type=pa.bool_())
    present_values, valid = present(values)
    query_words = words_of(as_column(words, values.type))
    mask = _candidates(present_values, query_words)
    present_values = present_values.filter(pa.array(mask))
    data, offsets = flat_strings(present_values)
    rows = np.ones(len(present_values), dtype=bool)
    for first, stop in slices(offsets):
        part = Characters(data, offsets[first : stop + 1], latin=is_bytes(values.type))
        rows[first:stop] = _rows_with(part, query_words)
    mask[mask] = rows
    if valid is None:
        return pa.array(mask)
    full_mask = np.zeros(len(values), dtype=bool)
    full_mask[valid] = mask
    return pa.array(full_mask, mask=~valid)


def _candidates(values: pa.Array, query_words: list[str]) -> BoolArray:
    """Returns which strings contain a part of the longest of ``query_words``."""
    pieces = [piece for word in query_words for piece in _FOLDED_DIFFERENTLY.split(word)]
    longest = max(pieces, key=len, default="")
    if not longest:
        return np.ones(len(values), dtype=bool)
    rows = _rows_with_piece(values, longest.encode())
    mask: BoolArray = np.zeros(len(values), dtype=bool)
    if rows is None:
        matches = pc.match_substring(values, longest, ignore_case=True)
        mask[:] = matches.to_numpy(zero_copy_only=False)
    else:
        mask[rows] = True
    return mask


def _rows_with_piece(values: pa.Array, piece: bytes) -> Int64Array | None:
    """Returns positions of the strings that contain an ASCII piece, and perhaps of some others.

    Returns None if there are many, or if strings have characters beyond ASCII that fold to the
    piece.
    """
    data, offsets = flat_strings(values)
    non_ascii = (character for byte in sorted(set(piece)) for character in _folded_to(byte))
    if any(contains(data, character) for character in non_ascii):
        return None
    max_matches = _FREE_MATCHES + len(values) // _ROWS_PER_MATCH
    matches = places_of(data, piece, max_matches, any_case=True)
    if matches is None:
        return None
    rows = np.searchsorted(offsets, matches, side="right") - 1
    return rows[matches + len(piece) <= offsets[rows + 1]]


@cache
def _folded_to(letter: int) -> tuple[bytes, ...]:
    """Returns the characters beyond ASCII, as UTF-8, that fold to an ASCII character."""
    characters = np.flatnonzero(fold_table() == letter)
    return tuple(chr(code).encode() for code in characters.tolist() if code > 0x7F)


def _rows_with(texts: Characters, query_words: list[str]) -> BoolArray:
    """Returns a mask of the strings that contain all of the folded ``query_words``."""
    mask = np.ones(len(texts.ends), dtype=bool)
    if not query_words:
        return mask
    classes = texts.mapped(word_classes())
    for word in query_words:
        folds = texts.mapped(_ascii_folds()) if word.isascii() else texts.mapped(fold_table())
        starts = _occurrences(folds, classes, word)
        has_word = np.zeros(len(mask), dtype=bool)
        has_word[np.searchsorted(texts.ends, starts)] = True
        mask &= has_word
    return mask


def _occurrences(folds: CodeArray, classes: NDArray[np.uint8], word: str) -> Int64Array:
    """Returns where ``word`` starts as a whole word."""
    starts = np.flatnonzero(folds[: max(len(folds) - len(word), 0)] == ord(word[0]))
    for i in range(1, len(word)):
        starts = starts[folds[starts + i] == ord(word[i])]
    if word_classes()[ord(word[0])] == JOINS:
        starts = starts[(starts == 0) | (classes[starts - 1] != JOINS)]
        starts = starts[classes[starts + len(word)] != JOINS]
    return starts


@cache
def _ascii_folds() -> NDArray[np.uint8]:
    """Returns the folded character of every code point if it is ASCII, else U+00FF."""
    return np.minimum(fold_table(), 0xFF).astype(np.uint8)


def _word_bounds(classes: NDArray[np.uint8]) -> tuple[Int64Array, Int64Array]:
    """Returns start and end positions of words, from the classes of characters."""
    before = np.concatenate((np.zeros(1, np.uint8), classes[:-1]))
    after = np.concatenate((classes[1:], np.zeros(1, np.uint8)))
    joins = classes == JOINS
    alone = classes == ALONE
    starts = np.flatnonzero(alone | (joins & (before != JOINS)))
    stops = np.flatnonzero(alone | (joins & (after != JOINS))) + 1
    return starts, stops


def _keys(folds: NDArray[np.uint32], starts: Int64Array, stops: Int64Array) -> KeyArray:
    """Returns the key of each word: a polynomial of its first folded characters, then mixed."""
    if not len(starts):
        return np.empty(0, np.uint32)
    lengths = np.minimum(stops - starts, LONGEST)
    before = np.cumsum(lengths) - lengths
    offsets = np.arange(int(lengths.sum())) - np.repeat(before, lengths)
    powers = np.full(int(lengths.max()), _HASH_BASE, dtype=np.uint64)
    powers[0] = 1
    powers = np.multiply.accumulate(powers)
    letters = folds[offsets + np.repeat(starts, lengths)]
    values = np.add.reduceat(powers[offsets] * letters, before)
    values ^= values >> np.uint64(32)
    values *= _HASH_MIX
    keys: KeyArray = (values >> np.uint64(32)).astype(np.uint32)
    return keys


def _distinct(keys: KeyArray, positions: Int64Array) -> tuple[KeyArray, Int64Array]:
    """Returns distinct pairs. ``positions`` are ascending."""
    if not len(keys):
        return keys, positions
    first = np.concatenate(([True], positions[1:] != positions[:-1]))
    groups = (np.cumsum(first) - 1).astype(np.uint64)
    packed = np.sort(groups << np.uint64(32) | keys)
    packed = packed[np.concatenate(([True], packed[1:] != packed[:-1]))]
    return packed.astype(np.uint32), positions[first][(packed >> np.uint64(32)).astype(np.int64)]
