import datetime

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from intarsia.parquet import xxhash64
from intarsia.parquet.xxhash64 import hash_values, xxh64


def expected(values):
    return [xxhash.xxh64_intdigest(value) for value in values]


def random_bytes(count, length, seed=0):
    data = np.random.default_rng(seed).integers(0, 256, count * length, dtype=np.uint8).tobytes()
    return [data[i * length : (i + 1) * length] for i in range(count)]


def test_one_value():
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"abc") == xxhash.xxh64_intdigest(b"abc")


@pytest.mark.parametrize("count", [1, 40, 600])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_binary_of_every_length(kind, count):
    for length in range(131):
        values = random_bytes(count, length, length)
        hashes = hash_values(pa.array(values, kind))
        assert hashes.dtype == np.uint64
        assert hashes.tolist() == expected(values)


def test_fixed_size_binary_of_every_length():
    for length in range(1, 131):
        values = random_bytes(600, length, length)
        assert hash_values(pa.array(values[:5], pa.binary(length))).tolist() == expected(values[:5])
        assert hash_values(pa.array(values, pa.binary(length))).tolist() == expected(values)


def test_binary_of_mixed_lengths_keeps_its_order():
    lengths = np.random.default_rng(1).integers(0, 40, 5000)
    values = [random_bytes(1, int(n), i)[0] for i, n in enumerate(lengths)]
    assert hash_values(pa.array(values, pa.binary())).tolist() == expected(values)


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (pa.int32(), "<i4"),
        (pa.int64(), "<i8"),
        (pa.uint32(), "<u4"),
        (pa.uint64(), "<u8"),
        (pa.float32(), "<f4"),
        (pa.float64(), "<f8"),
    ],
)
def test_numbers_are_hashed_in_their_plain_encoding(kind, stored):
    numbers = [0, 1, 2, 77, 2**24]
    plain = [np.array([n], dtype=stored).tobytes() for n in numbers]
    assert hash_values(pa.array(numbers, kind)).tolist() == expected(plain)


def test_negative_numbers():
    plain = [np.array([n], dtype="<i8").tobytes() for n in (-1, -(2**63))]
    assert hash_values(pa.array([-1, -(2**63)], pa.int64())).tolist() == expected(plain)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_negative_zero_is_hashed_as_positive_zero(kind):
    negative, positive = hash_values(pa.array([-0.0, 0.0], kind)).tolist()
    assert negative == positive == xxh64(bytes(kind.bit_width // 8))


@pytest.mark.parametrize(
    "values",
    [
        pa.array(range(100), pa.int32()),
        pa.array(random_bytes(100, 7), pa.binary()),
        pa.array(random_bytes(100, 7), pa.large_binary()),
        pa.array(random_bytes(100, 7), pa.binary(7)),
    ],
    ids=lambda values: str(values.type),
)
def test_a_slice_is_hashed_as_its_own_values(values):
    assert hash_values(values[13:71]).tolist() == hash_values(values)[13:71].tolist()


@pytest.mark.parametrize(
    "kind",
    [pa.int32(), pa.int64(), pa.float64(), pa.binary(), pa.large_binary(), pa.binary(4)],
    ids=str,
)
def test_no_values_have_no_hashes(kind):
    assert hash_values(pa.array([], kind)).tolist() == []
    assert hash_values(pa.array([None, None], kind)[:0]).tolist() == []


def test_more_values_than_a_block():
    values = pa.array(range(70_000), pa.int64())
    hashes = hash_values(values)
    for i in (0, 65_535, 65_536, 69_999):
        assert hashes[i] == xxh64(i.to_bytes(8, "little"))


def test_nulls_are_refused():
    with pytest.raises(ValueError, match="NULL"):
        hash_values(pa.array([1, None]))


@pytest.mark.parametrize("values", [["a"], [True], [datetime.date(2020, 1, 1)], [[1]]])
def test_types_that_are_not_physical_are_refused(values):
    with pytest.raises(TypeError, match="not hashed"):
        hash_values(pa.array(values))


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("lengths", [(32, 32), (36, 36), (0, 0), (45, 46), (0, 7)])
def test_many_texts_of_one_length_and_of_few_in_a_slice(kind, lengths):
    count = 40_000
    values = [v[: lengths[i % 2]] for i, v in enumerate(random_bytes(count, max(lengths), 3))]
    array = pa.array(values, kind)
    assert hash_values(array).tolist() == expected(values)
    assert hash_values(array[1:-3]).tolist() == expected(values[1:-3])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(100_000)])
def test_long_values_are_hashed_one_by_one(kind, monkeypatch):
    """Steps of 8 bytes for all values at once once took a hundred times as long."""
    steps = []
    real = xxhash64._hash_block
    monkeypatch.setattr(xxhash64, "_hash_block", lambda *a: steps.append(a) or real(*a))
    values = random_bytes(40, 100_000)
    assert hash_values(pa.array(values, kind)).tolist() == expected(values)
    if kind != pa.binary(100_000):
        mixed = [value[: len(value) - i % 2] for i, value in enumerate(values + values)]
        assert hash_values(pa.array(mixed, kind)).tolist() == expected(mixed)
    assert not steps
