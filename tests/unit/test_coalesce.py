import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from intarsia.io.source import Group, coalesce

ranges_ = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 30)), max_size=15)


def test_no_ranges_make_no_groups():
    assert coalesce([], 10) == []


def test_close_ranges_share_a_group_and_distant_ones_do_not():
    assert coalesce([(0, 2), (4, 2), (16, 3)], 2) == [Group(0, 6, (0, 1)), Group(16, 3, (2,))]


def test_a_gap_of_exactly_the_limit_is_bridged():
    assert len(coalesce([(0, 2), (5, 1)], 3)) == 1
    assert len(coalesce([(0, 2), (5, 1)], 2)) == 2


def test_touching_ranges_share_a_group_without_any_gap():
    assert coalesce([(0, 5), (5, 5)], 0) == [Group(0, 10, (0, 1))]


def test_ranges_may_come_in_any_order_overlap_and_repeat():
    assert coalesce([(8, 4), (0, 10), (8, 4)], 0) == [Group(0, 12, (1, 0, 2))]


def test_a_range_inside_another_does_not_shorten_the_group():
    assert coalesce([(0, 100), (10, 5), (99, 3)], 0) == [Group(0, 102, (0, 1, 2))]


def test_many_adjacent_ranges_are_joined_quickly():
    before = time.process_time()
    (group,) = coalesce([(i * 10, 10) for i in range(50_000)], 0)
    assert group.length == 500_000
    assert len(group.members) == 50_000
    assert time.process_time() - before < 2


@given(ranges_, st.integers(0, 40))
def test_groups_contain_every_range_once_and_do_not_touch(ranges, gap):
    groups = coalesce(ranges, gap)
    assert sorted(i for group in groups for i in group.members) == list(range(len(ranges)))
    for group in groups:
        starts = [ranges[i][0] for i in group.members]
        stops = [ranges[i][0] + ranges[i][1] for i in group.members]
        assert (group.offset, group.offset + group.length) == (min(starts), max(stops))
    for one, other in itertools.pairwise(groups):
        assert one.offset + one.length + gap < other.offset


@given(ranges_, st.integers(0, 40))
def test_no_group_bridges_more_than_the_gap(ranges, gap):
    for group in coalesce(ranges, gap):
        stop = group.offset
        for i in sorted(group.members, key=lambda i: ranges[i]):
            assert ranges[i][0] <= stop + gap
            stop = max(stop, sum(ranges[i]))
