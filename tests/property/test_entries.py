"""An index on the entries of maps does not change answers, damaged or not."""

import warnings
from decimal import Decimal
from functools import reduce
from math import nan

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.io.source import BufferSource
from intarsia.testing.strategies import example_values

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
ITEMS = [
    pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64(), pa.float32(),
    pa.float64(), pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()),
    pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("ms", "UTC"),
    pa.decimal128(10, 2), pa.decimal128(38, 0),
]  # fmt: skip
KEYS = [pa.string(), pa.large_string()]
NUMBERS = [
    pa.scalar(1), pa.scalar(1.0), pa.scalar(1.5), pa.scalar(0.1), pa.scalar(-0.0), pa.scalar(nan),
    pa.scalar(2**63, pa.uint64()), pa.scalar(1, pa.int8()), pa.scalar(0.1, pa.float32()),
    pa.scalar(Decimal("1.00")), pa.scalar(Decimal("-1.5")), pa.scalar(300), pa.scalar(1e300),
]  # fmt: skip


def plain(kind):
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_number(kind):
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(check(kind) for check in checks)


def some_of(kind):
    return st.sampled_from(example_values(plain(kind)))


@st.composite
def tables(draw):
    """A table of a row number, maps ``m``, and maybe a struct ``s`` with the same maps."""
    key, item = draw(st.sampled_from(KEYS)), draw(st.sampled_from(ITEMS))
    entry = st.tuples(some_of(key), some_of(item) | st.none())
    cells = draw(st.lists(st.lists(entry, max_size=4) | st.none(), max_size=40))
    if draw(st.booleans()):
        cells.sort(key=repr)
    maps = pa.array(cells, pa.map_(key, item))
    columns = {"n": pa.array(range(len(cells)), pa.int64()), "m": maps}
    if draw(st.booleans()):
        mask = pa.array(draw(st.lists(st.booleans(), min_size=len(cells), max_size=len(cells))))
        columns["s"] = pa.StructArray.from_arrays([maps], ["m"], mask=mask.cast(pa.bool_()))
    return pa.table(columns), key, item


@st.composite
def conditions(draw, table, key, item, depth=2):
    part = draw(st.sampled_from(["leaf", "leaf", "and", "or", "not"])) if depth else "leaf"
    if part == "not":
        return ~draw(conditions(table, key, item, depth - 1))
    if part in ("and", "or"):
        parts = [draw(conditions(table, key, item, depth - 1)) for _ in range(2)]
        return reduce(lambda a, b: a & b if part == "and" else a | b, parts)
    of = draw(st.sampled_from(["m", *([pc.field("s", "m")] if "s" in table.column_names else [])]))
    of = pc.field(of) if isinstance(of, str) else of
    named = pa.scalar(draw(some_of(key)), key)
    value = pc.map_lookup(of, named, "first")
    asked = draw(st.sampled_from(["=", "=", "IN", "IN", "<>", "<", "NULL", "key"]))
    if asked == "NULL":
        return value.is_null()
    if asked == "key":
        return ia.map_contains(of, named)
    kind = plain(item)
    one = some_of(item).map(lambda held: pa.scalar(held, kind))
    if asked == "IN":
        several = draw(st.lists(some_of(item) | st.none(), max_size=5))
        return value.isin(pa.array(several, kind))
    if is_number(kind):
        widest = kind == pa.decimal128(38, 0)  # pyarrow cannot compare it with fractions
        one |= st.sampled_from([n for n in NUMBERS if not (widest and pa.types.is_decimal(n.type))])
    constant = pc.scalar(draw(one))
    return {"=": value == constant, "<>": value != constant, "<": value < constant}[asked]


def stored(draw, table):
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, row_group_size=draw(st.integers(1, 50)),
        max_rows_per_page=draw(st.integers(1, 20)), write_batch_size=1,
        write_page_index=draw(st.booleans()), use_dictionary=draw(st.booleans()),
        data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
    )  # fmt: skip
    return sink.getvalue().to_pybytes()


def rows(file, condition):
    return file.read(["n"], filter=condition)["n"].to_pylist()


@SETTINGS
@given(data=st.data())
def test_an_index_of_entries_changes_no_answer(data, tmp_path_factory):
    table, key, item = data.draw(tables())
    bare = stored(data.draw, table)
    path = tmp_path_factory.mktemp("entries") / "t.parquet"
    path.write_bytes(bare)
    actual = ia.verify(path)
    on = ["m", *(["s.m"] if "s" in table.column_names else [])]
    ia.add_indexes(path, [ia.Entries(name, data.draw(st.integers(1, 20))) for name in on])
    assert ia.verify(path) == actual
    indexed = path.read_bytes()
    damaged = bytearray(indexed)
    for entry in ia.list_indexes(path)[0].indexes:
        for _ in range(data.draw(st.integers(1, 3))):
            at = entry.offset + data.draw(st.integers(0, entry.length - 1))
            damaged[at] ^= data.draw(st.integers(1, 255))
    files = [ia.ParquetFile(BufferSource(memoryview(raw))) for raw in (indexed, damaged)]
    for _ in range(4):
        condition = data.draw(conditions(table, key, item))
        try:
            expected = rows(ia.ParquetFile(BufferSource(memoryview(bare))), condition)
        except ia.PredicateError:
            continue  # pyarrow cannot compare these
        if "ia.map_contains" not in str(condition):
            try:
                assert expected == table.filter(condition)["n"].to_pylist()
            except pa.ArrowInvalid:  # it casts both sides to int64, which does not hold all uint64
                assert pa.uint64() in (key, item)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ia.IntarsiaWarning)
            assert rows(files[0], condition) == expected, str(condition)
        assert ia.dataset(path).count_rows(filter=condition) == len(expected)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ia.IntarsiaWarning)
            assert rows(files[1], condition) == expected, f"damaged: {condition}"
