"""The keys of words, and the search for words, compared with a slow search string by string."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from intarsia.strings.case_folding import folded
from intarsia.strings.tokenizer import contains_words, keys_of_strings, keys_of_words, words_of
from intarsia.strings.word_characters import ALONE, JOINS, word_classes

LETTERS = st.text("abKk\u212asſiİ_1 .-é\u0301中国ひЖж\0", max_size=10) | st.text(max_size=5)
COLUMNS = st.lists(LETTERS | st.none(), max_size=8)
KINDS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


def slow_words(text):
    """Splits word by word, character by character."""
    words, word = [], ""
    for character in f"{text} ":
        kind = word_classes()[ord(character)]
        if kind == JOINS:
            word += character
            continue
        words += [word, character] if kind == ALONE else [word]
        word = ""
    return {folded(word) for word in words if word}


@given(LETTERS)
def test_words_equal_those_found_character_by_character(text):
    assert set(words_of(text)) == slow_words(text)


@given(COLUMNS, LETTERS, st.integers(0, 2), st.sampled_from(KINDS))
@example(["\u212aa b", "b KA.", "kab", None], "b ka", 1, pa.string())
@example(["a中国b"], "国", 0, pa.string())
def test_the_search_for_words_finds_all_strings(texts, words, skipped, kind):
    values = pa.array(texts, pa.string()).cast(kind).slice(skipped)
    wanted = slow_words(words)
    expected = [None if text is None else wanted <= slow_words(text) for text in texts[skipped:]]
    assert contains_words(values, words).to_pylist() == expected
    chunked = pa.chunked_array([values, values], values.type)
    assert contains_words(chunked, words).to_pylist() == expected * 2


@given(st.text("abKk\u212a中é_ .", max_size=60), st.integers(1, 9), st.integers(1, 5))
def test_a_long_string_has_the_keys_of_its_pieces(text, size, longest):
    values = pa.array(["ab c", text, "c"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("intarsia.strings.tokenizer.LONGEST", longest)
        expected = keys_of_strings(values, np.arange(3))
        patch.setattr("intarsia.strings.code_points.SLICE_BYTES", size)
        actual = keys_of_strings(values, np.arange(3))
    assert _set(*actual) == _set(*expected)


def _set(keys, at):
    return set(zip(keys.tolist(), at.tolist(), strict=True))


@given(COLUMNS, LETTERS)
def test_strings_that_contain_words_have_their_keys(texts, words):
    values = pa.array(texts, pa.string())
    keys, at = keys_of_strings(values, np.arange(len(values)))
    assert keys.dtype == np.uint32
    assert len(keys) == sum(len(slow_words(text)) for text in texts if text is not None)
    expected = keys_of_words(words).tolist()
    for row, actual in enumerate(contains_words(values, words).to_pylist()):
        if actual:
            assert set(expected) <= set(keys[at == row].tolist())
    keys, at = keys_of_strings(values, np.arange(len(values)) // 2)
    assert len(set(zip(keys.tolist(), at.tolist(), strict=True))) == len(keys)


@given(st.lists(st.binary(max_size=8)), st.text("aÃ© é", max_size=4))
def test_bytes_are_read_as_characters(texts, words):
    values = pa.array(texts, pa.binary())
    wanted = slow_words(words.encode().decode("latin-1"))
    expected = [wanted <= slow_words(text.decode("latin-1")) for text in texts]
    assert contains_words(values, words).to_pylist() == expected


def test_an_empty_search_matches_every_string():
    assert contains_words(pa.array(["a", "", None]), " .").to_pylist() == [True, True, None]
    assert contains_words(pa.array([], pa.string()), "a").to_pylist() == []


def test_numbers_have_no_words():
    with pytest.raises(TypeError, match="int64"):
        contains_words(pa.array([1]), "a")
