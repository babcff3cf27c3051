"""Sources that cache, slice and prefetch."""

import threading

import pytest

from intarsia.errors import FormatError
from intarsia.io.source import CachedRangeSource, PrefetchSource, WindowSource
from intarsia.testing import CountingSource

DATA = bytes(range(256))


def bytes_of(ranges):
    return [DATA[offset : offset + length] for offset, length in ranges]


def test_what_is_expected_is_fetched_along_and_then_costs_nothing():
    log = CountingSource(DATA)
    source = PrefetchSource(log)
    source.expect([(10, 5), (20, 5)])
    assert log.calls == []
    assert source.read([(0, 3)]) == bytes_of([(0, 3)])
    assert log.calls == [[(0, 3), (10, 5), (20, 5)]]
    assert source.read([(20, 5), (10, 5)]) == bytes_of([(20, 5), (10, 5)])
    assert len(log.calls) == 1


def test_what_is_kept_in_pieces_is_given_in_one_piece():
    log = CountingSource(DATA)
    source = PrefetchSource(log)
    pieces = {(start, 10): memoryview(DATA)[start : start + 10] for start in (30, 10, 20, 60)}
    source.keep(pieces)
    assert source.read([(10, 30)]) == [DATA[10:40]]
    assert log.calls == []
    assert source.read([(10, 10), (60, 10)]) == [DATA[10:20], DATA[60:70]]
    assert log.calls == [[(10, 10)]]
    source.keep(pieces)
    for range_ in ((10, 31), (9, 31), (20, 50), (12, 20)):
        start, length = range_
        assert source.read([range_]) == [DATA[start : start + length]]
        assert log.calls.pop() == [range_]


def test_it_is_given_once_then_forgotten():
    log = CountingSource(DATA)
    source = PrefetchSource(log)
    source.expect([(10, 5)])
    source.read([(0, 3)])
    source.read([(10, 5)])
    assert source.read([(10, 5)]) == bytes_of([(10, 5)])
    assert log.calls[1:] == [[(10, 5)]]


def test_ranges_in_hand_and_ranges_to_fetch_come_in_the_order_asked():
    source = PrefetchSource(CountingSource(DATA))
    source.expect([(10, 5), (30, 2)])
    source.read([(0, 3)])
    ranges = [(50, 1), (30, 2), (60, 4), (10, 5), (10, 5), (0, 0)]
    assert source.read(ranges) == bytes_of(ranges)


def test_a_range_that_is_both_wanted_and_expected_is_fetched_once():
    log = CountingSource(DATA)
    source = PrefetchSource(log)
    source.expect([(10, 5), (10, 5), (20, 1)])
    source.expect([(10, 5)])
    assert source.read([(10, 5)]) == bytes_of([(10, 5)])
    assert log.calls == [[(10, 5), (20, 1)]]


def test_a_read_of_nothing_fetches_nothing():
    log = CountingSource(DATA)
    source = PrefetchSource(log)
    source.expect([(10, 5)])
    assert source.read([]) == []
    assert log.calls == []


def test_what_is_at_hand_is_no_occasion_to_fetch_more():
    log = CountingSource(DATA)
    cached = CachedRangeSource(log, 200, memoryview(DATA)[200:])
    source = PrefetchSource(cached, cached.holds)
    source.expect([(10, 5)])
    assert source.read([(210, 4)]) == bytes_of([(210, 4)])
    assert log.calls == []
    assert source.read([(0, 2), (220, 1)]) == bytes_of([(0, 2), (220, 1)])
    assert log.calls == [[(0, 2), (10, 5)]]


def test_an_expected_range_outside_the_file_harms_nothing():
    source = PrefetchSource(CountingSource(DATA))
    source.expect([(250, 100), (10, 5)])
    assert source.read([(0, 3)]) == bytes_of([(0, 3)])
    assert source.read([(10, 5)]) == bytes_of([(10, 5)])
    with pytest.raises(FormatError, match="outside"):
        source.read([(250, 100)])


def test_a_wanted_range_outside_the_file_is_an_error():
    source = PrefetchSource(CountingSource(DATA))
    source.expect([(10, 5)])
    with pytest.raises(FormatError, match="outside"):
        source.read([(250, 100)])


def test_threads_get_the_bytes_they_asked_for():
    source = PrefetchSource(CountingSource(DATA))
    wrong = []

    def work(seed):
        for step in range(2000):
            start = (seed * 31 + step * 7) % 200
            source.expect([(start + 3, 4), (start + 9, 2)])
            ranges = [(start, 3), (start + 3, 4)]
            if source.read(ranges) != bytes_of(ranges):
                wrong.append(start)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_window_knows_its_edges():
    window = WindowSource(CountingSource(DATA), 100, 50)
    assert window.size == 50
    assert window.read([(0, 2), (48, 2)]) == bytes_of([(100, 2), (148, 2)])
    with pytest.raises(FormatError, match="outside"):
        window.read([(48, 3)])
