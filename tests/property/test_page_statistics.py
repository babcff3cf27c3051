"""Shortened bounds are still bounds, for any bytes or strings, cut anywhere."""

from hypothesis import example, given
from hypothesis import strategies as st

from intarsia.parquet.page_statistics import shortened_high, shortened_low

LENGTHS = st.integers(1, 12)
# Characters at the limits of UTF-8 lengths one to four, and around the surrogates.
EDGES = "\x00a\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010fffe\U0010ffff"
TEXT = st.text(st.sampled_from(EDGES) | st.characters(exclude_categories=["Cs"]), max_size=20)
BYTES = st.binary(max_size=20) | st.lists(st.sampled_from([0, 1, 254, 255])).map(bytes)


@given(BYTES, LENGTHS)
@example(b"\xff" * 5, 3)
@example(b"a\xff\xff\xffz", 3)
def test_shortened_bytes_bound_their_value(value, length):
    low = shortened_low(value, length, text=False)
    high = shortened_high(value, length, text=False)
    assert low <= value <= high
    assert len(low) <= length
    assert len(high) <= length or high == value
    if len(value) <= length:
        assert low == high == value
    elif any(byte != 0xFF for byte in value[:length]):
        assert value < high
        assert len(high) <= length


@given(TEXT, LENGTHS)
@example("\ud7ff" * 3, 3)
@example("\U0010ffff" * 4, 4)
@example("a\U0010ffff\U0010ffff", 5)
@example("\x7f" * 5, 3)
@example("ä" * 5, 3)
@example("日本語", 1)
def test_shortened_strings_bound_their_value_and_stay_utf8(text, length):
    value = text.encode()
    low = shortened_low(value, length, text=True)
    high = shortened_high(value, length, text=True)
    assert low <= value <= high
    assert text.startswith(low.decode())
    assert high.decode().encode() == high
    assert len(low) <= length
    assert high == value or len(high) <= length + 1  # a raised character may take one more byte


@given(BYTES, LENGTHS)
@example(b"\x80" * 9, 3)
@example(b"a\x80\x80\x80\x80\x80", 3)
@example(b"\xf4\x8f\xbf\xbf\xff\xff", 4)
@example(b"\xed\x9f\xbf\xed\xa0\x80", 3)
def test_invalid_utf8_in_string_columns_is_bounded(value, length):
    low = shortened_low(value, length, text=True)
    high = shortened_high(value, length, text=True)
    assert low <= value <= high
    assert len(low) <= length


@given(BYTES, BYTES, LENGTHS)
def test_shortening_bytes_keeps_the_order_of_bounds(one, other, length):
    least, most = sorted([one, other])
    assert shortened_low(least, length, text=False) <= shortened_low(most, length, text=False)


@given(BYTES, BYTES, LENGTHS, st.booleans())
@example(b"\x00", b"\x00\x80", 1, True)
def test_a_shortened_bound_still_bounds_all_values(one, other, length, text):
    least, most = sorted([one, other])
    assert shortened_low(least, length, text=text) <= most
    assert shortened_high(most, length, text=text) >= least


@given(TEXT, LENGTHS, TEXT)
def test_a_raised_string_is_above_all_strings_with_its_prefix(text, length, rest):
    value = text.encode()
    high = shortened_high(value, length, text=True)
    if high != value:
        kept = shortened_low(value, length, text=True)
        assert kept + rest.encode() < high
