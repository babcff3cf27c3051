"""The constant tables of characters, compared with pyarrow over all of Unicode."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from intarsia.strings.case_folding import CODE_POINTS, fold_table, folded
from intarsia.strings.word_characters import ALONE, JOINS, OUTSIDE, word_classes

CODES = np.array([code for code in range(CODE_POINTS) if not 0xD800 <= code <= 0xDFFF])
CHARACTERS = pa.array([chr(code) for code in CODES])


@pytest.mark.parametrize(
    "function", [pc.utf8_lower, pc.utf8_upper, pc.utf8_swapcase, pc.utf8_capitalize, pc.utf8_title]
)
def test_changing_case_does_not_change_the_fold(function):
    changed = function(CHARACTERS).to_pylist()
    assert all(len(text) == 1 for text in changed)
    mine = fold_table()[np.array([ord(text) for text in changed])]
    assert np.array_equal(mine, fold_table()[CODES])


def test_characters_that_a_search_without_case_takes_for_each_other_are_folded_alike():
    folds = fold_table()
    moved = np.flatnonzero(folds != np.arange(CODE_POINTS))
    python = [ord(c) for c in CHARACTERS.to_pylist() if c.lower() != c or c.casefold() != c]
    cased = np.unique(np.concatenate((moved, folds[moved], python)))
    values = pa.array([chr(code) for code in cased])
    for fold in np.unique(folds[cased]):
        alike = pc.match_substring_regex(values, _any_of(cased[folds[cased] == fold]))
        assert np.array_equal(pc.indices_nonzero(alike), np.flatnonzero(folds[cased] == fold))
    others = CHARACTERS.filter(pc.invert(pc.is_in(CHARACTERS, values)))
    assert not pc.any(pc.match_substring_regex(others, _any_of(cased))).as_py()


def _any_of(codes):
    return "(?i)[" + "".join(rf"\x{{{code:x}}}" for code in codes) + "]"


def test_folding_twice_changes_nothing_and_keeps_ascii():
    folds = fold_table()
    assert np.array_equal(folds[folds], folds)
    assert folded("K\u212a sſ Iıİi") == "KK SS IIII"
    assert (folds[:0x80] < 0x80).all()


def test_case_does_not_change_whether_a_character_belongs_to_words():
    classes = word_classes()
    assert np.array_equal(classes[fold_table()], classes)


@pytest.mark.parametrize(
    ("characters", "kind"),
    [("aZ09_é\u0301ßЖ각", JOINS), ("中〆ひ𠀀", ALONE), (" \0\t-.'€“”…→😀\u3000\ue000", OUTSIDE)],
)
def test_the_characters_of_words(characters, kind):
    assert {int(word_classes()[ord(c)]) for c in characters} == {kind}
