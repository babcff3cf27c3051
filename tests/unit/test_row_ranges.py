import pickle

import numpy as np
import pytest

from intarsia.row_ranges import RowRanges


def rows(*numbers):
    return np.array(numbers, dtype=np.int64)


A = RowRanges.of((0, 4), (8, 10))  # YYYYNNNNYY
B = RowRanges.of((2, 6), (9, 10))  # NNYYYYNNNY


def test_intersection():
    assert RowRanges.of((2, 4), (9, 10)) == A & B


def test_union():
    assert RowRanges.of((0, 6), (8, 10)) == A | B


def test_difference():
    assert RowRanges.of((0, 2), (8, 9)) == A - B


def test_complement():
    assert A.complement(12) == RowRanges.of((4, 8), (10, 12))


def test_complement_of_none_is_all_and_of_all_is_none():
    assert RowRanges.none().complement(5) == RowRanges.all(5)
    assert RowRanges.all(5).complement(5) == RowRanges.none()


def test_complement_within_fewer_rows_than_are_selected():
    assert RowRanges.of((1, 3), (7, 9)).complement(5) == RowRanges.of((0, 1), (3, 5))


def test_operations_with_the_empty_set():
    none = RowRanges.none()
    assert A & none == none & A == none
    assert A | none == none | A == A
    assert A - none == A
    assert none - A == none


def test_adjacent_and_overlapping_ranges_are_merged():
    assert list(RowRanges.of((0, 3), (3, 5), (4, 8))) == [(0, 8)]


def test_a_range_within_another_is_merged_into_it():
    assert list(RowRanges.of((0, 10), (2, 3), (9, 12))) == [(0, 12)]


def test_ranges_are_sorted_and_empty_ones_dropped():
    assert list(RowRanges.of((8, 9), (5, 5), (7, 6), (0, 2))) == [(0, 2), (8, 9)]


def test_equal_sets_of_rows_are_equal_and_hash_equally():
    one, other = RowRanges.of((3, 5), (0, 3)), RowRanges.of((0, 5))
    assert one == other
    assert hash(one) == hash(other)
    assert one != RowRanges.of((0, 4))
    assert one != "[0, 5)"


def test_length_counts_ranges_and_num_rows_counts_rows():
    assert len(A) == 2
    assert A.num_rows == 6
    assert RowRanges.none().num_rows == 0


def test_ranges_are_true_if_any_row_is_selected():
    assert A
    assert not RowRanges.none()
    assert not RowRanges.all(0)


def test_iteration_gives_python_integers():
    assert all(type(edge) is int for pair in A for edge in pair)


def test_repr_shows_the_first_ranges_and_the_number_of_rows():
    many = RowRanges.of(*((i, i + 1) for i in range(0, 4000, 2)))
    assert repr(A) == "RowRanges([0, 4), [8, 10); 6 rows)"
    assert repr(many).endswith("…; 2,000 rows)")
    assert len(repr(many)) < 120


def test_negative_rows_are_refused():
    with pytest.raises(ValueError, match="start at 0"):
        RowRanges.of((-1, 2))


def test_arrays_of_unequal_length_or_shape_are_refused():
    with pytest.raises(ValueError, match="equal length"):
        RowRanges(rows(0, 2), rows(1))
    with pytest.raises(ValueError, match="one-dimensional"):
        RowRanges(np.zeros((2, 2), np.int64), np.ones((2, 2), np.int64))


def test_attributes_cannot_be_set():
    with pytest.raises(AttributeError, match="immutable"):
        A.starts = rows(1)
    with pytest.raises(AttributeError):
        A.other = 1


def test_arrays_cannot_be_written_to():
    for array in (A.starts, A.stops):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_given_arrays_stay_writable():
    starts, stops = rows(0, 8), rows(4, 10)
    RowRanges(starts, stops)
    starts[0] = 1
    stops[0] = 2


def test_writing_to_given_arrays_does_not_change_the_ranges():
    starts, stops = rows(0, 8, 20), rows(4, 10, 30)
    made = RowRanges(starts[:2], stops[:2])
    starts[0] = 3
    assert made == A


def test_operations_do_not_change_their_operands():
    one, other = RowRanges.of((0, 4), (8, 10)), RowRanges.of((2, 6), (9, 10))
    for _ in (one & other, one | other, one - other, one.complement(10), one.shift(3)):
        assert one == A
        assert other == B


def test_pickling_keeps_rows_and_immutability():
    copy = pickle.loads(pickle.dumps(A))
    assert copy == A
    assert not copy.starts.flags.writeable
    assert not copy.stops.flags.writeable


def test_from_mask():
    mask = np.array([True, True, False, True])
    assert RowRanges.from_mask(mask) == RowRanges.of((0, 2), (3, 4))
    assert RowRanges.from_mask(mask, start=10) == RowRanges.of((10, 12), (13, 14))
    assert RowRanges.from_mask(np.zeros(3, np.bool_)) == RowRanges.none()
    assert RowRanges.from_mask(np.zeros(0, np.bool_)) == RowRanges.none()


def test_from_rows_takes_any_order_and_repeats():
    assert RowRanges.from_rows(rows(7, 2, 3, 2, 1)) == RowRanges.of((1, 4), (7, 8))
    assert RowRanges.from_rows(rows()) == RowRanges.none()


def test_rows_lists_every_row_as_int64():
    assert A.rows().tolist() == [0, 1, 2, 3, 8, 9]
    assert A.rows().dtype == np.int64
    assert RowRanges.none().rows().tolist() == []


def test_rows_can_be_beyond_32_bits():
    far = RowRanges.of((2**40, 2**40 + 2))
    assert far.rows().tolist() == [2**40, 2**40 + 1]


def test_union_of_many():
    assert RowRanges.union([A, B, RowRanges.none()]) == A | B
    assert RowRanges.union(iter([])) == RowRanges.none()


def test_covers_marks_ranges_with_a_selected_row():
    #        0123456789
    # A      YYYYNNNNYY
    starts, stops = rows(0, 4, 3, 7, 10), rows(1, 8, 5, 9, 12)
    assert A.covers(starts, stops).tolist() == [True, False, True, True, False]


def test_an_empty_range_is_never_covered():
    assert A.covers(rows(1, 2), rows(1, 1)).tolist() == [False, False]


def test_no_rows_cover_nothing():
    assert RowRanges.none().covers(rows(0), rows(9)).tolist() == [False]


def test_clip_keeps_rows_within():
    assert A.clip(2, 9) == RowRanges.of((2, 4), (8, 9))
    assert A.clip(5, 5) == RowRanges.none()


def test_shift_moves_rows():
    assert A.shift(5) == RowRanges.of((5, 9), (13, 15))
    assert A.shift(5).shift(-5) == A


def test_shift_below_zero_is_refused():
    with pytest.raises(ValueError, match="start at 0"):
        A.shift(-1)


def test_positions_are_counted_among_the_selected_rows():
    selected = RowRanges.of((1, 4), (6, 8))  # NYYYNNYY
    inner = RowRanges.of((2, 4), (6, 7))  # NNYYNNYN
    assert selected.positions(inner) == RowRanges.of((1, 4))
    assert selected.positions(selected) == RowRanges.all(5)
    assert selected.positions(RowRanges.none()) == RowRanges.none()
    assert RowRanges.none().positions(RowRanges.none()) == RowRanges.none()
