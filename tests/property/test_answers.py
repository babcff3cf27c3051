"""Every pruned answer equals the brute-force answer: random tables, layouts, filters and rows."""

import datetime
import decimal
import math
from functools import reduce
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.io.source import BufferSource
from intarsia.plan.cost_model import CostModel
from intarsia.scan import predicate_order, units

SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
UTC = datetime.UTC
EPOCH = datetime.datetime(2020, 1, 1)

# Few distinct values, so that filters match, with unusual values among them.
VALUES = {
    "i32": (pa.int32(), [0, 1, -1, 7, 2**31 - 1, -(2**31)]),
    "i64": (pa.int64(), [0, 1, 5, 2**53, 2**53 + 1, -(2**63), 2**63 - 1]),
    "u32": (pa.uint32(), [0, 1, 2**31, 2**32 - 1]),
    "u64": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "f64": (pa.float64(), [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 0.1]),
    "f32": (pa.float32(), [0.0, -0.0, 1.5, math.nan, 0.25, -3.0]),
    "s": (pa.string(), ["", "a", "ab", "b", "ä", "日本", "z" * 100]),
    "b": (pa.bool_(), [True, False]),
    "bin": (pa.binary(), [b"", b"a\x00", b"a", b"\x00", b"\xff" * 70, b"abc"]),
    "flba": (
        pa.binary(4),
        [b"\x00\x00\x00\x01", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"abcd"],
    ),
    "d": (pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2020, 2, 29)]),
    "ts": (pa.timestamp("us"), [EPOCH, EPOCH + datetime.timedelta(microseconds=1)]),
    "tz": (pa.timestamp("ms", "UTC"), [EPOCH.replace(tzinfo=UTC)]),
    "ns": (pa.timestamp("ns"), [EPOCH, EPOCH + datetime.timedelta(days=9)]),
    "dec": (pa.decimal128(10, 2), [decimal.Decimal("-1.50"), decimal.Decimal("0.00")]),
    "dict": (pa.dictionary(pa.int32(), pa.string()), ["x", "y"]),
}
# Literals of other types than the field's, which pyarrow compares with it nevertheless.
FOREIGN = {
    "i32": [pa.scalar(7), pa.scalar(0.5), pa.scalar(7.0), pa.scalar(2**40)],
    "i64": [pa.scalar(1, pa.int8()), pa.scalar(5.0), pa.scalar(2.0**53), pa.scalar(-1e300)],
    "u32": [pa.scalar(-1), pa.scalar(2**31), pa.scalar(2**40), pa.scalar(0.5)],
    "f64": [pa.scalar(1), pa.scalar(0.1, pa.float32()), pa.scalar(2**53 + 1)],
    "f32": [pa.scalar(0.1), pa.scalar(0.25), pa.scalar(1), pa.scalar(1e300)],
    "d": [pa.scalar(EPOCH), pa.scalar(datetime.datetime(2020, 2, 29, 12))],
    "ts": [pa.scalar(500, pa.timestamp("ns")), pa.scalar(datetime.date(2020, 1, 1))],
    "ns": [pa.scalar(EPOCH, pa.timestamp("s")), pa.scalar(EPOCH, pa.timestamp("us"))],
    "dec": [pa.scalar(decimal.Decimal("-1.5")), pa.scalar(decimal.Decimal("0.001"))],
}
UNORDERED = ("b", "bin", "flba", "dict")
LOOKUPS = [name for name in VALUES if name != "b"]


@st.composite
def tables(draw):
    rows = draw(st.integers(0, 60))
    arrays = {}
    for name in draw(
        st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4, unique=True)
    ):
        kind, values = VALUES[name]
        choices = st.sampled_from([*values, None]) if draw(st.booleans()) else st.none()
        cells = draw(st.lists(choices, min_size=rows, max_size=rows))
        if draw(st.booleans()):
            cells.sort(key=lambda cell: (cell is None, str(cell)))
        arrays[name] = pa.array(cells, kind)
    if draw(st.booleans()):
        arrays["list"] = pa.array([[i, None] if i % 3 else None for i in range(rows)])
        arrays["struct"] = pa.array([{"x": i % 5, "y": str(i)} for i in range(rows)])
    return pa.table(arrays)


@st.composite
def layouts(draw):
    return {
        "row_group_size": draw(st.integers(1, 80)),
        "max_rows_per_page": draw(st.integers(1, 20)),
        "write_batch_size": 1,
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "use_dictionary": draw(st.booleans()),
        "compression": draw(st.sampled_from(["none", "snappy", "zstd"])),
        "write_page_index": draw(st.booleans()),
        "write_statistics": draw(st.booleans()),
    }


@st.composite
def filters(draw, table, depth=2):
    shape = draw(st.sampled_from(["leaf", "leaf", "and", "or", "not"])) if depth else "leaf"
    if shape == "not":
        return ~draw(filters(table, depth - 1))
    if shape in ("and", "or"):
        parts = [draw(filters(table, depth - 1)) for _ in range(draw(st.integers(2, 3)))]
        return reduce(lambda a, b: a & b if shape == "and" else a | b, parts)
    name = draw(st.sampled_from([name for name in table.column_names if name in VALUES]))
    kind, values = VALUES[name]
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    field = pc.field(name)
    shapes = ["==", "!=", "in", "null"] + ([] if name in UNORDERED else ["<", "<=", ">", ">="])
    match draw(st.sampled_from(shapes)):
        case "in":
            members = draw(st.lists(st.sampled_from([*values, None]), max_size=4))
            return field.isin(pa.array(members, kind))
        case "null":
            return field.is_null()
        case op:
            own = [pa.scalar(value, kind) for value in values]
            literal = pc.scalar(draw(st.sampled_from(own + FOREIGN.get(name, []))))
            return {
                "==": field == literal,
                "!=": field != literal,
                "<": field < literal,
                "<=": field <= literal,
                ">": field > literal,
                ">=": field >= literal,
            }[op]


def written(table, layout):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **layout)
    return sink.getvalue()


def brute_force(table, filter_):
    """The filter's answer by pyarrow alone; rejects examples that pyarrow cannot evaluate."""
    try:
        return table.filter(filter_)
    except pa.ArrowInvalid:  # for example an integer that cannot be compared as a float
        return reject()


def same(found, expected):
    """Equal, with NaN equal to NaN."""
    return found.schema.equals(expected.schema) and repr(found.to_pylist()) == repr(
        expected.to_pylist()
    )


@SETTINGS
@given(data=st.data())
def test_a_filtered_read_equals_the_whole_read_filtered(data):
    table = data.draw(tables())
    filter_ = data.draw(filters(table))
    stored = written(table, data.draw(layouts()))
    expected = brute_force(pq.read_table(pa.BufferReader(stored)), filter_)
    actual = ia.ParquetFile(BufferSource(memoryview(stored))).read(filter=filter_)
    assert same(actual, expected)


@SETTINGS
@given(data=st.data())
def test_any_rows_equal_the_same_rows_of_the_whole_read(data):
    table = data.draw(tables())
    stored = written(table, data.draw(layouts()))
    mask = data.draw(st.lists(st.booleans(), min_size=len(table), max_size=len(table)))
    rows = ia.RowRanges.from_mask(pa.array(mask, pa.bool_()).to_numpy(zero_copy_only=False))
    actual = ia.ParquetFile(BufferSource(memoryview(stored))).read(rows=rows)
    assert same(actual, pq.read_table(pa.BufferReader(stored)).take(pa.array(rows.rows())))


@SETTINGS
@given(data=st.data())
def test_rows_and_a_filter_together_keep_rows_that_pass_both(data):
    table = data.draw(tables())
    filter_ = data.draw(filters(table))
    stored = written(table, data.draw(layouts()))
    rows = ia.RowRanges.of((data.draw(st.integers(0, len(table))), len(table)))
    whole = pq.read_table(pa.BufferReader(stored))
    expected = brute_force(whole.take(pa.array(rows.rows())), filter_)
    brute_force(whole, filter_)
    actual = ia.ParquetFile(BufferSource(memoryview(stored))).read(rows=rows, filter=filter_)
    assert same(actual, expected)


@settings(SETTINGS, max_examples=80)
@given(data=st.data())
def test_an_indexed_read_equals_the_whole_read_filtered(data, tmp_path_factory):
    table = data.draw(tables())
    filter_ = data.draw(filters(table))
    brute_force(table, filter_)
    path = tmp_path_factory.mktemp("indexed") / "t.parquet"
    pq.write_table(table, path, **data.draw(layouts()))
    granule = data.draw(st.integers(1, 30))
    wanted = [ia.Lookup(n, granule_rows=granule) for n in table.column_names if n in LOOKUPS]
    if wanted:
        ia.add_indexes(path, wanted)
    expected = brute_force(pq.read_table(path), filter_)
    assert same(ia.ParquetFile(path).read(filter=filter_), expected)
    assert same(ia.dataset(path).to_table(filter=filter_), expected)
    assert pq.read_table(path).schema.equals(table.schema)


@settings(SETTINGS, max_examples=80)
@given(data=st.data())
def test_small_units_threads_and_staged_filters_change_no_answer(data, tmp_path_factory):
    table = data.draw(tables())
    filter_ = data.draw(filters(table))
    folder = tmp_path_factory.mktemp("units")
    files = data.draw(st.integers(1, 3))
    for number in range(files):
        part = table.slice(number * len(table) // files, (len(table) + files - 1) // files)
        pq.write_table(part, folder / f"{number}.parquet", **data.draw(layouts()))
    whole = pads.dataset(folder).to_table()
    expected = brute_force(whole, filter_)
    ds = ia.dataset(folder)
    limit = data.draw(st.integers(0, 10))
    first, rows = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 20))
    with (
        mock.patch.object(units, "COSTS", CostModel(first_unit_rows=first, unit_rows=rows)),
        mock.patch.object(predicate_order, "STAGED_ROWS", 0),
    ):
        assert same(ds.to_table(filter=filter_), expected)
        assert same(ds.to_table(filter=filter_, use_threads=False), expected)
        assert ds.count_rows(filter=filter_) == len(expected)
        assert same(ds.head(limit, filter=filter_), expected.slice(0, limit))
        assert same(ds.head(limit), whole.slice(0, limit))
        rows = data.draw(st.lists(st.integers(0, max(len(whole) - 1, 0)), max_size=9))
        if len(whole):
            assert same(ds.take(rows), whole.take(pa.array(rows, pa.int64())))


@pytest.mark.parametrize("name", LOOKUPS)
def test_a_lookup_finds_every_value_of_its_column(name, tmp_path):
    kind, values = VALUES[name]
    table = pa.table({name: pa.array([*values, None] * 50, kind)})
    path = tmp_path / "t.parquet"
    ia.write_table(table, path, indexes=[ia.Lookup(name, granule_rows=3)], row_group_size=70)
    file = ia.ParquetFile(path)
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    for value in values:
        filter_ = pc.field(name) == pc.scalar(pa.scalar(value, plain))
        assert file.read(filter=filter_).num_rows == table.filter(filter_).num_rows
