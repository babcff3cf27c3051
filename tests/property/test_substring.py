"""Searching for a string in the bytes of a column gives the rows that pyarrow finds."""

from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from intarsia.expr.tree import read_expression
from intarsia.scan.filter import substring
from intarsia.scan.filter.substring import SubstringSearch, rows_containing, substring_search_of
from intarsia.strings import byte_search

LETTERS = st.text("ab", max_size=6)
KINDS = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]


@given(
    st.lists(st.lists(LETTERS | st.none() | st.just("äaß"), max_size=12), max_size=3),
    st.text("abä", min_size=1, max_size=4),
    st.sampled_from(KINDS),
    st.integers(0, 3),
)
@example([["a", "b", "ab"]], "ab", pa.string(), 0)
@example([["aaaa", "", "aa"]], "aa", pa.string(), 0)
@example([[None, "ab"], []], "ab", pa.binary(), 1)
def test_the_rows_are_those_that_pyarrow_finds(chunks, text, kind, skipped):
    arrays = [pa.array(chunk, pa.string()).cast(kind).slice(skipped) for chunk in chunks]
    values = pa.chunked_array(arrays, type=kind)
    expected = pc.indices_nonzero(pc.match_substring(values, text.encode()))
    with mock.patch.object(substring, "_MIN_HITS_LIMIT", 1000):
        found = rows_containing(values, SubstringSearch("f", text.encode()))
    assert found.tolist() == expected.to_pylist()


@given(
    st.lists(st.text("abAB@0ä", max_size=6) | st.none(), max_size=12),
    st.text("abAB@0", min_size=1, max_size=4),
    st.sampled_from(KINDS),
)
def test_case_insensitive_search_misses_no_value(texts, text, kind):
    values = pa.chunked_array([pa.array(texts, pa.string()).cast(kind)])
    strings = values.cast(pa.string())
    matches = pc.match_substring(strings, text, ignore_case=True)
    expected = pc.indices_nonzero(matches).to_pylist()
    with mock.patch.object(substring, "_MIN_HITS_LIMIT", 1000):
        found = rows_containing(values, SubstringSearch("f", text.encode(), any_case=True))
    assert set(found.tolist()) >= set(expected)
    if text.isalpha():
        assert found.tolist() == expected


@given(st.binary(max_size=40), st.binary(min_size=1, max_size=3), st.data())
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_string_is_found_where_python_finds_it(platform, data, other, drawn):
    start = drawn.draw(st.integers(0, len(data)))
    inside = data[start : start + drawn.draw(st.integers(1, 8))]
    values = np.frombuffer(data, np.uint8)
    with mock.patch.object(byte_search.sys, "platform", platform):
        for text in filter(None, (inside, other, other + b"\0", data + other)):
            assert byte_search.contains(values, text) == (text in data)
            places = [at for at in range(len(data)) if data.startswith(text, at)]
            assert byte_search.places_of(values, text, len(data)).tolist() == places
            assert byte_search.places_of(values, text, len(places)).tolist() == places
            assert not places or byte_search.places_of(values, text, len(places) - 1) is None


@pytest.mark.parametrize(("most", "asked"), [(2_000, 1_024), (30_000, 30_001), (60_000, 50_000)])
def test_the_search_for_a_frequent_string_stops_early(most, asked):
    data = np.frombuffer(b"ab" * 50_000, np.uint8)
    taken = []

    def found(*args):
        for place in byte_search._exact_matches(data, b"a"):
            taken.append(place)
            yield place

    with mock.patch.object(byte_search, "_matches", found):
        places = byte_search.places_of(data, b"a", most)
    assert len(taken) == asked
    assert (places is None) == (most < 50_000)


@given(st.text("aAbB0kK_", max_size=60), st.text("abk_", min_size=1, max_size=4), st.integers(1, 9))
def test_letters_of_either_case_are_found_across_blocks(text, piece, block):
    values = np.frombuffer(text.encode(), np.uint8)
    places = [at for at in range(len(text)) if text.lower().startswith(piece, at)]
    with mock.patch.object(byte_search, "_BLOCK_BYTES", block):
        assert byte_search.places_of(values, piece.encode(), 99, any_case=True).tolist() == places


def test_bytes_under_a_null_do_not_match():
    data = pa.py_buffer(b"abab")
    offsets = pa.py_buffer(pa.array([0, 2, 4], pa.int32()).buffers()[1])
    values = pa.StringArray.from_buffers(2, offsets, data, pa.py_buffer(b"\x02"))
    assert values.to_pylist() == [None, "ab"]
    assert rows_containing(pa.chunked_array([values]), SubstringSearch("f", b"ab")).tolist() == [1]


def test_many_matches_are_left_to_pyarrow():
    values = pa.chunked_array([["x"] * 100])
    assert rows_containing(values, SubstringSearch("f", b"x")) is None
    assert rows_containing(values[:50], SubstringSearch("f", b"x")).tolist() == list(range(50))


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_other_types_are_left_to_pyarrow(kind):
    values = pa.chunked_array([pa.array(["ab"]).cast(kind)])
    assert rows_containing(values, SubstringSearch("f", b"ab")) is None


FIELD = pc.field("f")


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (pc.match_substring(FIELD, "ab"), SubstringSearch("f", b"ab")),
        (pc.match_substring(FIELD, ""), None),
        (pc.match_substring(FIELD, "ab", ignore_case=True), None),
        (pc.match_like(FIELD, "%ä%"), SubstringSearch("f", "ä".encode())),
        (pc.match_like(FIELD, "%a%b%"), None),
        (pc.match_like(FIELD, "%a_%"), None),
        (pc.match_like(FIELD, "%a\\%%"), None),
        (pc.match_like(FIELD, "%ab"), None),
        (pc.match_like(FIELD, "%"), None),
        (pc.match_like(FIELD, "%%"), None),
        (pc.match_like(FIELD, "%a%", ignore_case=True), None),
        (~pc.match_substring(FIELD, "ab"), None),
        (pc.match_substring(pc.field("a", "b"), "ab"), None),
        (pc.match_substring(pc.utf8_lower(FIELD), "ab"), None),
    ],
)
def test_conditions_that_only_search_for_a_string(condition, found):
    assert substring_search_of(read_expression(condition)) == found
