"""A string that matches a pattern, by pyarrow, has all keys that the pattern requires."""

import re
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from intarsia.index.key_formula import granules_of, leaves_of
from intarsia.index.kinds import gram_keys
from intarsia.index.kinds.gram_keys import keys_needed, keys_of_strings
from intarsia.index.kinds.regex_literals import required_by_regex
from intarsia.index.kinds.required_substrings import required_by_like, required_by_literal

NARROW = "abAB01kKsSiI"
WIDE = "\u212a\u017f\u0130\u0131éÉßẞǅ中𝒳\u0301\0\n"
TEXTS = st.text(NARROW + WIDE + " %_\\.", max_size=12) | st.text(max_size=6)
PIECES = st.text(NARROW + WIDE, min_size=1, max_size=5)
COLUMNS = st.lists(TEXTS | st.none(), min_size=1, max_size=8)
KINDS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
BYTES = [pa.binary(), pa.large_binary()]


def rows_by_keys(values, required, positions=None):
    """The positions where the keys allow a match."""
    positions = np.arange(len(values)) if positions is None else positions
    formula = keys_needed(required)
    if formula is None:
        return set(positions.tolist())
    keys, at = keys_of_strings(values, positions)

    def held(leaf):
        return np.isin(positions, at[np.isin(keys, leaf.keys)])

    return set(positions[granules_of(formula, held, len(positions))].tolist())


def check(values, matches, required):
    actual = set(pc.indices_nonzero(pc.fill_null(matches, False)).to_pylist())
    assert actual <= rows_by_keys(values, required)
    granules = np.arange(len(values)) // 3
    assert {row // 3 for row in actual} <= rows_by_keys(values, required, granules)


LITERALS = [pc.match_substring, pc.starts_with, pc.ends_with]


@given(COLUMNS, st.data(), st.sampled_from(LITERALS), st.booleans(), st.sampled_from(KINDS))
def test_literal_patterns_require_keys_of_all_matches(texts, data, function, ignore_case, kind):
    source = data.draw(st.sampled_from([text for text in texts if text] or ["abc"]))
    start = data.draw(st.integers(0, len(source) - 1))
    stop = data.draw(st.integers(start + 1, len(source)))
    pattern = source[start:stop]
    if ignore_case:
        pattern = data.draw(st.sampled_from([pattern, pattern.swapcase(), pattern.lower()]))
    values = pa.array(texts, pa.string())
    matches = function(values, pattern, ignore_case=ignore_case)
    check(values.cast(kind), matches, required_by_literal(pattern))
    for changed in (pc.utf8_lower(values), pc.utf8_upper(values)):
        check(values.cast(kind), function(changed, pattern), required_by_literal(pattern))


@given(COLUMNS, PIECES, st.sampled_from(LITERALS), st.booleans(), st.sampled_from(BYTES))
def test_literal_patterns_on_bytes(texts, pattern, function, ignore_case, kind):
    values = pa.array(texts, pa.string()).cast(kind)
    matches = function(values, pattern.encode(), ignore_case=ignore_case)
    check(values, matches, required_by_literal(pattern.encode(), latin=True))


@given(st.lists(st.binary(max_size=9), min_size=1), st.data())
def test_bytes_that_are_not_utf8_lose_no_match(texts, data):
    values = pa.array(texts, pa.binary())
    pattern = data.draw(st.sampled_from([text for text in texts if text] or [b"abc"]))
    check(values, pc.match_substring(values, pattern), required_by_literal(pattern, latin=True))
    required = required_by_literal(pattern)
    if required is not None:
        invalid = pa.Array.from_buffers(pa.string(), len(values), values.buffers())
        check(invalid, pc.match_substring(values, pattern), required)


LIKE = st.lists(PIECES | st.sampled_from(["%", "_", "\\%", "\\_", "\\\\", "\\a", "\\"])).map(
    "".join
)


@given(COLUMNS, LIKE, st.booleans())
@example(["xa\\bcx", "xabcx"], "%a\\bc%", False)
@example(["abc%d", "abcd"], "abc\\%%", False)
@example(["abc\\"], "abc\\", False)
def test_like_patterns_require_keys_of_all_matches(texts, pattern, ignore_case):
    texts = [*texts, re.sub(r"\\(.)", r"\1", pattern.replace("%", "xx").replace("_", "y"))]
    values = pa.array(texts, pa.string())
    try:
        matches = pc.match_like(values, pattern, ignore_case=ignore_case)
    except pa.ArrowInvalid:
        assume(False)
    check(values, matches, required_by_like(pattern))
    check(values, pc.match_like(pc.utf8_lower(values), pattern), required_by_like(pattern))


CONSTRUCTS = r"""
. \d \w \s \bab ^ $ [ab] [^a] [a-c]0 [0-9A-F] []a] [a-] [\]b] [[:alpha:]a] [^[:digit:]] \pL
\p{Greek} \x41b \x{212a} \n \Qa.b\E \. (?i) (?s) a{0} { a{,2} ab{01} x{ [\d_] \z (?-i) |
"""
ATOMS = st.text(NARROW + "éÉ中\u212a", max_size=4).map(re.escape) | st.sampled_from(
    CONSTRUCTS.split()
)


def _grown(inner):
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        inner.map(lambda part: f"({part})"),
        inner.map(lambda part: f"(?i:{part})"),
        st.tuples(
            inner, st.sampled_from(["*", "+", "?", "+?", "{2}", "{1,2}", "{2,}", "{0,1}"])
        ).map(lambda both: f"(?P<n>{both[0]}){both[1]}".replace("?P<n>", "?:")),
    )


REGEX = st.recursive(ATOMS, _grown, max_leaves=10)


def _compiled(pattern):
    """The pattern compiled by Python, if valid: the source of strings that may match."""
    with warnings.catch_warnings(action="error"):
        try:
            return re.compile(pattern)
        except (re.error, FutureWarning, DeprecationWarning):
            return None


@settings(deadline=None)
@given(COLUMNS, REGEX, st.booleans(), st.data())
@example(["abcb"], "ab(c|d)b+", False, None)
@example(["\u212aab"], "kab", True, None)
def test_regular_expressions_require_keys_of_all_matches(texts, pattern, ignore_case, data):
    python = _compiled(pattern)
    if python is not None and data is not None:
        texts = [*texts, *(data.draw(st.from_regex(python)) for _ in range(3))]
        texts = [text if text is None else text.encode(errors="ignore").decode() for text in texts]
    for kind, latin in ((pa.string(), False), (pa.binary(), True)):
        values = pa.array(texts, pa.string()).cast(kind)
        try:
            matches = pc.match_substring_regex(values, pattern, ignore_case=ignore_case)
        except pa.ArrowInvalid:
            continue
        check(values, matches, required_by_regex(pattern, latin=latin))


@pytest.mark.parametrize(
    ("pattern", "texts", "others"),
    [
        ("ab(c|d)ef+", ["xABCEFF", "abdef"], ["abcxef", "abef"]),
        ("foo.*[kK]elvin", ["foo \u212aelvin"], ["foo", "kelvin"]),
        ("hello|world", ["Hello", "world"], ["hell", "orld"]),
        (r"\bCVE-20[12][0-9]-\d+", ["cve-2019-1"], ["cve-2039-1"]),
        ("(abc)?def", ["def"], ["abc"]),
        ("x{4}", ["xxxx"], ["xxx"]),
        ("(?:abc){2,}", ["abcabc"], ["abc"]),
        (r"\Qa.b+\E", ["a.b+"], ["aab+"]),
    ],
)
def test_unsupported_parts_of_regular_expressions_require_no_keys(pattern, texts, others):
    values = pa.array([*texts, *others])
    assert rows_by_keys(values, required_by_regex(pattern)) == set(range(len(texts)))


@pytest.mark.parametrize(
    "pattern", ["ab", "[a-z]{5}", ".*", "(abc)?", "abc|", r"\w+", r"(?=abc)", "a\\C"]
)
def test_patterns_without_required_text_have_no_keys(pattern):
    assert keys_needed(required_by_regex(pattern)) is None


@given(COLUMNS, st.sampled_from([1, 3, 100]))
def test_keys_do_not_depend_on_slices_or_neighbours(texts, size):
    values = pa.array(texts, pa.string())
    whole = _pairs(values, np.arange(len(values)))
    apart = set()
    for i in range(len(values)):
        apart |= _pairs(values.slice(i, 1), np.array([i]))
    assert whole == apart
    by_granule = _pairs(values, np.arange(len(values)) // size)
    assert by_granule <= {(key, row // size) for key, row in whole}


def _pairs(values, positions):
    keys, at = keys_of_strings(values, positions)
    assert keys.dtype == np.uint32
    assert at.dtype == np.int64
    pairs = list(zip(keys.tolist(), at.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    return set(pairs)


def test_keys_of_many_positions_and_slices(monkeypatch):
    texts = [f"value {i:x}" if i % 7 else None for i in range(20_000)]
    values = pa.array(texts)
    assert rows_by_keys(values, required_by_literal("value 1f")) >= {
        i for i, text in enumerate(texts) if text and "value 1f" in text
    }
    expected = _pairs(values, np.arange(len(texts)))
    monkeypatch.setattr("intarsia.strings.code_points.SLICE_BYTES", 1000)
    assert _pairs(values, np.arange(len(texts))) == expected


@given(st.text(NARROW + WIDE, max_size=60), st.integers(1, 9), st.sampled_from(KINDS[:2] + BYTES))
def test_a_long_string_has_the_keys_of_its_pieces(text, size, kind):
    values = pa.array(["ab", text, "abc"], pa.string()).cast(kind)
    expected = _pairs(values, np.arange(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("intarsia.strings.code_points.SLICE_BYTES", size)
        patch.setattr("intarsia.strings.code_points._MIN_DEDUPLICATED_PAIRS", 8)
        keys, at = keys_of_strings(values, np.arange(3))
    assert set(zip(keys.tolist(), at.tolist(), strict=True)) == expected


def test_a_pattern_of_three_characters_matches_at_the_end_of_a_value():
    values = pa.array(["abc", "xabc", "abcd", "ab", "", None, "bca"])
    assert rows_by_keys(values, required_by_literal("abc")) == {0, 1, 2}


def test_long_patterns_require_few_keys():
    formula = keys_needed(required_by_literal("".join(chr(0x100 + i) for i in range(1000))))
    assert len(leaves_of(formula)) <= gram_keys.MOST_KEYS


def test_numbers_have_no_keys():
    with pytest.raises(TypeError, match="int64"):
        keys_of_strings(pa.array([1]), np.zeros(1, np.int64))
