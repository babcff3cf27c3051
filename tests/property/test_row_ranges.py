import itertools
import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from intarsia.row_ranges import RowRanges

ROWS = 40
vectors = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).map(np.array)
edges = st.lists(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)), max_size=12)


def vector_of(ranges):
    vector = np.zeros(ROWS, dtype=np.bool_)
    for start, stop in ranges:
        vector[start:stop] = True
    return vector


def is_canonical(ranges):
    pairs = list(ranges)
    apart = all(one[1] < other[0] for one, other in itertools.pairwise(pairs))
    return apart and all(start < stop for start, stop in pairs)


def arrays_of(pairs):
    return (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))


@given(vectors)
def test_a_mask_comes_back(vector):
    ranges = RowRanges.from_mask(vector)
    assert is_canonical(ranges)
    assert (vector_of(ranges) == vector).all()
    assert ranges.num_rows == vector.sum()
    assert ranges.rows().tolist() == np.flatnonzero(vector).tolist()
    assert bool(ranges) == vector.any()


@given(edges)
def test_any_pairs_make_sorted_disjoint_ranges(pairs):
    ranges = RowRanges.of(*pairs)
    assert is_canonical(ranges)
    assert (vector_of(ranges) == vector_of(pairs)).all()


@given(vectors, vectors)
def test_set_operations(one, other):
    a, b = RowRanges.from_mask(one), RowRanges.from_mask(other)
    for result, vector in (
        (a & b, one & other),
        (a | b, one | other),
        (a - b, one & ~other),
        (a.complement(ROWS), ~one),
        (RowRanges.union([a, b, a]), one | other),
    ):
        assert is_canonical(result)
        assert (vector_of(result) == vector).all()


@given(vectors, vectors)
def test_equality_and_hash(one, other):
    a, b = RowRanges.from_mask(one), RowRanges.from_mask(other)
    assert (a == b) == (one == other).all()
    if a == b:
        assert hash(a) == hash(b)


@given(vectors, vectors)
def test_rows_at_positions(kept, chosen):
    ranges = RowRanges.from_mask(kept)
    positions = np.flatnonzero(chosen[: kept.sum()])
    actual = ranges.at(positions)
    assert is_canonical(actual)
    assert actual.rows().tolist() == np.flatnonzero(kept)[positions].tolist()


@given(vectors, st.integers(0, ROWS))
def test_complement_within_any_number_of_rows(vector, num_rows):
    ranges = RowRanges.from_mask(vector).complement(num_rows)
    assert is_canonical(ranges)
    assert (vector_of(ranges)[:num_rows] == ~vector[:num_rows]).all()
    assert not vector_of(ranges)[num_rows:].any()


@given(vectors, st.integers(0, ROWS), st.integers(0, ROWS))
def test_clip(vector, start, stop):
    inside = (np.arange(ROWS) >= start) & (np.arange(ROWS) < stop)
    assert (vector_of(RowRanges.from_mask(vector).clip(start, stop)) == (vector & inside)).all()


@given(vectors, st.integers(0, 1000))
def test_shift_and_from_mask_with_a_start(vector, by):
    moved = RowRanges.from_mask(vector).shift(by)
    assert moved == RowRanges.from_mask(vector, start=by)
    assert moved.rows().tolist() == (np.flatnonzero(vector) + by).tolist()


@given(st.lists(st.integers(0, ROWS - 1)))
def test_from_rows(numbers):
    vector = np.zeros(ROWS, dtype=np.bool_)
    vector[numbers] = True
    assert RowRanges.from_rows(np.array(numbers, dtype=np.int64)) == RowRanges.from_mask(vector)


@given(vectors, st.lists(st.integers(0, ROWS), max_size=6))
def test_by_part(vector, cuts):
    cuts = np.array([0, *sorted(cuts), ROWS])
    rows = np.flatnonzero(vector)
    parts = RowRanges.by_part(rows, cuts)
    expected = [rows[(rows >= a) & (rows < b)] - a for a, b in itertools.pairwise(cuts)]
    assert parts == [RowRanges.from_rows(part) for part in expected]


@given(vectors, edges)
def test_covers(vector, pairs):
    ranges = RowRanges.from_mask(vector)
    starts, stops = arrays_of(pairs)
    expected = [bool(vector[start:stop].any()) for start, stop in pairs]
    assert ranges.covers(starts, stops).tolist() == expected


@given(vectors, vectors)
def test_positions(kept, wanted):
    inner = kept & wanted
    actual = RowRanges.from_mask(kept).positions(RowRanges.from_mask(inner))
    assert actual.rows().tolist() == np.flatnonzero(inner[kept]).tolist()


@given(vectors)
def test_pickling(vector):
    ranges = RowRanges.from_mask(vector)
    assert pickle.loads(pickle.dumps(ranges)) == ranges
