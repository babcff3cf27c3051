import random
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.errors import FormatError
from intarsia.parquet.compact_protocol import varint
from intarsia.parquet.levels import (
    MAX_VALUES,
    PageLevels,
    bit_width,
    decode_hybrid,
    decode_levels,
    histogram,
    hybrid_bytes,
)
from intarsia.parquet.metadata import Encoding

PACKED, REPEATED = "packed", "repeated"


def packed_little(levels, width):
    """Packs bits from the lowest bit of each byte up, like the RLE hybrid."""
    number = sum(level << (i * width) for i, level in enumerate(levels))
    return number.to_bytes(-(-len(levels) * width // 8), "little")


def packed_big(levels, width):
    """Packs bits from the highest bit of each byte down, like the deprecated BIT_PACKED."""
    bits = "".join(format(level, f"0{width}b") for level in levels)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))


def encoded(runs, width):
    out = b""
    for kind, levels in runs:
        if kind == PACKED:
            whole = levels + [0] * (-len(levels) % 8)
            out += varint(len(whole) // 8 << 1 | 1) + packed_little(whole, width)
        else:
            out += varint(len(levels) << 1) + levels[0].to_bytes(-(-width // 8), "little")
    return out


def slowly_decoded(data, max_level, count):
    """Decodes the hybrid's levels one bit at a time; None if the bytes are invalid."""
    width, at, levels = max_level.bit_length(), 0, []
    while len(levels) < count:
        header = shift = 0
        while True:
            if at == len(data) or shift > 35:
                return None
            byte, at = data[at], at + 1
            header |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if header >> 1 == 0:
            return None
        for i in range(header >> 1 << 3 if header & 1 else header >> 1):
            if len(levels) == count:
                break
            bits = 0
            for j in range(width if header & 1 else -(-width // 8) * 8):
                bit = i * width + j if header & 1 else j
                if at + bit // 8 >= len(data):
                    return None
                bits |= (data[at + bit // 8] >> bit % 8 & 1) << j
            if bits > max_level:
                return None
            levels.append(bits)
        at += (header >> 1) * width if header & 1 else -(-width // 8)
    return levels


@st.composite
def highest_levels(draw):
    width = draw(st.integers(1, 9))
    return draw(st.integers(1 << (width - 1), (1 << width) - 1))


@st.composite
def run_lists(draw, max_level):
    """Runs of both kinds. Packed runs have whole groups of eight, except the last."""
    runs = []
    level = st.integers(0, max_level)
    for _ in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            runs.append((REPEATED, [draw(level)] * draw(st.integers(1, 300))))
        else:
            size = 8 * draw(st.integers(1, 5))
            runs.append((PACKED, draw(st.lists(level, min_size=size, max_size=size))))
    if draw(st.booleans()):
        runs.append((PACKED, draw(st.lists(level, min_size=1, max_size=20))))
    return runs


@given(st.data())
def test_levels_of_mixed_runs_are_decoded(data):
    max_level = data.draw(highest_levels())
    runs = data.draw(run_lists(max_level))
    levels = [level for _, run in runs for level in run]
    raw = encoded(runs, bit_width(max_level))
    assert decode_hybrid(memoryview(raw), max_level, len(levels)).tolist() == levels
    assert hybrid_bytes(memoryview(raw), max_level, len(levels)) == len(raw)
    assert hybrid_bytes(memoryview(raw + b"\x02"), max_level, len(levels)) == len(raw)
    framed = len(raw).to_bytes(4, "little") + raw + b"values"
    actual, taken = decode_levels(memoryview(framed), Encoding.RLE, max_level, len(levels))
    assert actual.tolist() == levels
    assert taken == 4 + len(raw)


@given(st.data())
def test_fewer_levels_than_the_runs_hold_are_the_first_ones(data):
    max_level = data.draw(highest_levels())
    runs = data.draw(run_lists(max_level))
    levels = [level for _, run in runs for level in run]
    count = data.draw(st.integers(0, len(levels)))
    raw = memoryview(encoded(runs, bit_width(max_level)))
    assert decode_hybrid(raw, max_level, count).tolist() == levels[:count]


@given(st.data())
def test_cut_or_random_bytes_are_refused_just_where_a_slow_decoder_refuses_them(data):
    max_level = data.draw(highest_levels())
    raw = data.draw(st.binary(max_size=40))
    count = data.draw(st.integers(0, 100))
    if data.draw(st.booleans()):
        whole = encoded(data.draw(run_lists(max_level)), bit_width(max_level))
        raw = whole[: data.draw(st.integers(0, len(whole)))]
    expected = slowly_decoded(raw, max_level, count)
    if expected is None:
        with pytest.raises(FormatError):
            decode_hybrid(memoryview(raw), max_level, count)
    else:
        assert decode_hybrid(memoryview(raw), max_level, count).tolist() == expected


@given(st.data())
def test_the_slow_decoder_undoes_the_slow_encoder(data):
    max_level = data.draw(highest_levels())
    runs = data.draw(run_lists(max_level))
    levels = [level for _, run in runs for level in run]
    assert slowly_decoded(encoded(runs, bit_width(max_level)), max_level, len(levels)) == levels


@given(st.data())
def test_bit_packed_levels_are_read_from_the_highest_bit_on(data):
    max_level = data.draw(highest_levels())
    levels = data.draw(st.lists(st.integers(0, max_level), max_size=40))
    raw = packed_big(levels, bit_width(max_level))
    actual, taken = decode_levels(
        memoryview(raw + b"values"), Encoding.BIT_PACKED, max_level, len(levels)
    )
    assert actual.tolist() == levels
    assert taken == len(raw)
    for stop in range(len(raw)):
        with pytest.raises(FormatError, match="too short"):
            decode_levels(memoryview(raw[:stop]), Encoding.BIT_PACKED, max_level, len(levels))


def test_the_specifications_own_example_of_both_bit_orders():
    numbers = list(range(8))
    little = bytes([0b10001000, 0b11000110, 0b11111010])
    big = bytes([0b00000101, 0b00111001, 0b01110111])
    assert decode_hybrid(memoryview(b"\x03" + little), 7, 8).tolist() == numbers
    assert decode_levels(memoryview(big), Encoding.BIT_PACKED, 7, 8)[0].tolist() == numbers


def test_zero_levels_take_no_bytes():
    assert decode_hybrid(memoryview(b""), 3, 0).tolist() == []
    assert decode_levels(memoryview(b""), Encoding.BIT_PACKED, 3, 0)[1] == 0
    assert decode_levels(memoryview(bytes(4)), Encoding.RLE, 3, 0)[1] == 4


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 3, 63, 64])
def test_many_packed_runs_of_the_same_length_are_decoded(width, groups):
    """Writers mix them with other runs, and cut the last one short."""
    chosen = random.Random(groups)
    runs = [(PACKED, [chosen.randrange(2**width) for _ in range(8 * groups)]) for _ in range(150)]
    runs[70:70] = [(PACKED, [1] * 16), (REPEATED, [1] * 9)]
    levels = [level for _, run in runs for level in run]
    raw = memoryview(encoded(runs, width))
    assert decode_hybrid(raw, 2**width - 1, len(levels)).tolist() == levels
    for count in (len(levels) - 5, 8 * groups * 64, 8 * groups * 64 + 1, 1):
        assert decode_hybrid(raw, 2**width - 1, count).tolist() == levels[:count]
    with pytest.raises(FormatError, match="end early"):
        decode_hybrid(raw[:-1], 2**width - 1, len(levels))


def test_a_packed_run_may_end_with_the_last_level_it_is_asked_for():
    whole = encoded([(PACKED, [1, 0, 1, 1, 0, 0, 0, 1, 1, 1])], 1)
    assert len(whole) == 3
    assert decode_hybrid(memoryview(whole[:2]), 1, 8).tolist() == [1, 0, 1, 1, 0, 0, 0, 1]
    with pytest.raises(FormatError, match="end early"):
        decode_hybrid(memoryview(whole[:2]), 1, 9)


@pytest.mark.parametrize(
    ("raw", "count"),
    [
        (b"\x04\x03", 2),
        (b"\x03" + packed_little([0, 1, 2, 3, 0, 0, 0, 0], 2), 4),
        (b"\x03" + packed_little([0, 1, 2, 3, 0, 0, 0, 0], 2), 8),
    ],
)
def test_a_level_above_the_highest_is_refused(raw, count):
    with pytest.raises(FormatError, match="level 3 in a column whose highest is 2"):
        decode_hybrid(memoryview(raw), 2, count)
    with pytest.raises(FormatError, match="level 3 in a column whose highest is 2"):
        decode_levels(memoryview(packed_big([0, 3], 2)), Encoding.BIT_PACKED, 2, 2)


def test_padding_may_be_above_the_highest_level():
    raw = b"\x03" + packed_little([0, 1, 2, 3, 3, 3, 3, 3], 2)
    assert decode_hybrid(memoryview(raw), 2, 3).tolist() == [0, 1, 2]
    assert decode_levels(memoryview(b"\x1b"), Encoding.BIT_PACKED, 2, 3)[0].tolist() == [0, 1, 2]


def test_a_run_level_above_the_width_is_refused_in_one_byte_or_two():
    with pytest.raises(FormatError, match="level 255"):
        decode_hybrid(memoryview(b"\x02\xff"), 1, 1)
    with pytest.raises(FormatError, match="level 512"):
        decode_hybrid(memoryview(b"\x02\x00\x02"), 511, 1)


@pytest.mark.parametrize("count", [-1, MAX_VALUES + 1, 2**31 - 1, 2**62])
@pytest.mark.parametrize("encoding", [Encoding.RLE, Encoding.BIT_PACKED])
def test_absurd_counts_are_refused_and_nothing_is_allocated(count, encoding):
    run = varint(2**31 << 1) + b"\x01"
    raw = memoryview(len(run).to_bytes(4, "little") + run)
    tracemalloc.start()
    before = time.process_time()
    try:
        with pytest.raises(FormatError, match="claims"):
            decode_levels(raw, encoding, 1, count)
        with pytest.raises(FormatError, match="claims"):
            decode_hybrid(raw[4:], 1, count)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - before < 1


def test_a_run_that_claims_too_much_allocates_only_the_requested_levels():
    raw = memoryview(varint(2**31 << 1) + b"\x01")
    assert decode_hybrid(raw, 1, 10).tolist() == [1] * 10
    packed = memoryview(varint((2**30) << 1 | 1) + b"\xff\x01")
    assert decode_hybrid(packed, 1, 10).tolist() == [1] * 9 + [0]
    with pytest.raises(FormatError, match="end early"):
        decode_hybrid(packed, 1, 17)


@pytest.mark.parametrize("raw", [b"\x00\x01", b"\x01", b"\x00\x00" * 1000, b"\x80" * 50 + b"\x01"])
def test_empty_runs_and_endless_headers_are_refused(raw):
    with pytest.raises(FormatError):
        decode_hybrid(memoryview(raw), 1, 1)


@pytest.mark.parametrize("length", [1, 2**31, 2**32 - 1])
def test_a_length_beyond_the_page_is_refused(length):
    raw = memoryview(length.to_bytes(4, "little"))
    with pytest.raises(FormatError, match="claim"):
        decode_levels(raw, Encoding.RLE, 1, 0)
    with pytest.raises(FormatError, match="too short"):
        decode_levels(raw[:3], Encoding.RLE, 1, 0)


@pytest.mark.parametrize("encoding", [Encoding.PLAIN, Encoding.RLE_DICTIONARY, -1, 99])
def test_other_encodings_of_levels_are_refused(encoding):
    with pytest.raises(FormatError, match=f"encoding {int(encoding)}"):
        decode_levels(memoryview(bytes(8)), encoding, 1, 1)


def levels_of(repetition, definition):
    count = len(definition if repetition is None else repetition)
    made = [None if x is None else np.array(x, np.uint8) for x in (repetition, definition)]
    return PageLevels(count, *made)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=50))
def test_rows_begin_and_values_are_present_where_the_levels_say_so(pairs):
    repetition, definition = [r for r, _ in pairs], [d for _, d in pairs]
    page = levels_of(repetition, definition)
    assert page.num_rows() == sum(r == 0 for r in repetition)
    assert page.num_present(3) == sum(d == 3 for d in definition)
    assert page.begins_a_row == (not pairs or repetition[0] == 0)
    assert histogram(page.definition, 3, len(pairs)).tolist() == [
        definition.count(level) for level in range(4)
    ]
    assert histogram(page.repetition, 2, len(pairs)).tolist() == [
        repetition.count(level) for level in range(3)
    ]


def test_without_levels_every_value_is_a_row_and_present():
    page = PageLevels(7, None, None)
    assert (page.num_rows(), page.num_present(0), page.begins_a_row) == (7, 7, True)
    assert histogram(None, 0, 7).tolist() == [7]


def test_a_page_that_continues_a_row_does_not_begin_one():
    assert not levels_of([1, 0, 1], [1, 1, 1]).begins_a_row
    assert levels_of([1, 0, 1], [1, 1, 1]).num_rows() == 1
    assert levels_of([0, 1], [1, 1]).begins_a_row
