"""An index on the elements of lists and maps does not change answers, damaged or not."""

import datetime
import math
import warnings
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.io.source import BufferSource

SETTINGS = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
EPOCH = datetime.datetime(2020, 1, 1)
NAN, INF = math.nan, math.inf
MOMENTS = [EPOCH + datetime.timedelta(microseconds=n * 1000) for n in (-1, 0, 1)]
VALUES = {  # no string views: pyarrow filters no table that has such a column
    pa.int8(): [0, 1, -1, 127],
    pa.int16(): [0, 1, -1, 32767],
    pa.int32(): [0, 1, -1, 2**31 - 1],
    pa.int64(): [0, 1, -1, 2**53 + 1, -(2**63)],
    pa.uint8(): [0, 1, 255],
    pa.uint16(): [0, 1, 65535],
    pa.uint32(): [0, 1, 2**32 - 1],
    pa.uint64(): [0, 1, 2**63, 2**64 - 1],
    pa.float32(): [0.0, -0.0, 1.5, NAN, INF, 0.1],
    pa.float64(): [0.0, -0.0, 1.5, NAN, -INF, 0.1],
    pa.bool_(): [True, False],
    pa.string(): ["", "a", "A", "ab", "日本", "z" * 70],
    pa.large_string(): ["", "a", "ä"],
    pa.dictionary(pa.int32(), pa.string()): ["", "a", "b"],
    pa.binary(): [b"", b"a\x00", b"a"],
    pa.binary(3): [b"abc", b"\x00\x00\x00"],
    pa.date32(): [datetime.date(1969, 12, 31), datetime.date(2020, 2, 29)],
    pa.time32("ms"): [datetime.time(1, 2, 3), datetime.time(0)],
    pa.time64("us"): [datetime.time(1, 2, 3, 4), datetime.time(0)],
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("ms", "UTC"): [moment.replace(tzinfo=datetime.UTC) for moment in MOMENTS],
    pa.duration("ms"): [datetime.timedelta(0), datetime.timedelta(seconds=1)],
    pa.decimal128(10, 2): [Decimal("-1.50"), Decimal("0.00"), Decimal("1.00")],
    pa.decimal128(38, 0): [Decimal(10) ** 37, Decimal(1)],
    pa.decimal256(50, 2): [Decimal(10) ** 40, Decimal("1.00")],
    pa.decimal32(5, 2): [Decimal("1.00"), Decimal("-9.99")],
}
NUMBERS = [
    pa.scalar(1), pa.scalar(1.0), pa.scalar(1.5), pa.scalar(0.1), pa.scalar(-0.0), pa.scalar(NAN),
    pa.scalar(2**63, pa.uint64()), pa.scalar(1, pa.int8()), pa.scalar(0.1, pa.float32()),
    pa.scalar(Decimal("1.00")), pa.scalar(Decimal("-1.5")), pa.scalar(300), pa.scalar(1e300),
]  # fmt: skip


def is_number(kind):
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(check(kind) for check in checks)


def plain(kind):
    return kind.value_type if pa.types.is_dictionary(kind) else kind


SHAPES = {
    "list": pa.list_,
    "large": pa.large_list,
    "fixed": lambda kind: pa.list_(kind, 2),
    "view": pa.list_view,
    "large view": pa.large_list_view,
    "map": lambda kind: pa.map_(kind, pa.int8()),
}


@st.composite
def tables(draw):
    """A table of a row number, lists ``l``, and maybe a struct ``s`` with the same lists."""
    shape, kind = draw(st.sampled_from(sorted(SHAPES))), draw(st.sampled_from(list(VALUES)))
    value = st.sampled_from(VALUES[kind])
    if shape == "map":
        if kind == pa.decimal32(5, 2):
            kind, value = pa.int64(), st.integers(-2, 2)
        cell = st.lists(st.tuples(value, st.integers(0, 3) | st.none()), max_size=3)
    else:
        size = 2 if shape == "fixed" else None
        cell = st.lists(value | st.none(), min_size=size or 0, max_size=size or 4)
    cells = draw(st.lists(cell | st.none(), max_size=40))
    if draw(st.booleans()):
        cells.sort(key=repr)
    lists = pa.array(cells, SHAPES[shape](kind))
    columns = {"n": pa.array(range(len(cells)), pa.int64()), "l": lists}
    if draw(st.booleans()) and "view" not in shape:
        mask = pa.array(draw(st.lists(st.booleans(), min_size=len(cells), max_size=len(cells))))
        inner = pa.StructArray.from_arrays([columns["n"], lists], ["n", "l"])
        columns["s"] = pa.StructArray.from_arrays([inner], ["t"], mask=mask.cast(pa.bool_()))
    return pa.table(columns), plain(kind), shape


@st.composite
def conditions(draw, table, kind, shape, depth=2):
    part = draw(st.sampled_from(["leaf", "leaf", "and", "or", "not"])) if depth else "leaf"
    if part == "not":
        return ~draw(conditions(table, kind, shape, depth - 1))
    if part in ("and", "or"):
        parts = [draw(conditions(table, kind, shape, depth - 1)) for _ in range(2)]
        return reduce(lambda a, b: a & b if part == "and" else a | b, parts)
    fields = ["l", *([pc.field("s", "t", "l")] if "s" in table.column_names else [])]
    of = draw(st.sampled_from(fields))
    asked = draw(st.sampled_from(["one", "one", "any", "all", "other"]))
    if asked == "other":
        return pc.field("n") < draw(st.integers(0, 40))
    values = next(held for known, held in VALUES.items() if plain(known) == kind)
    one = st.sampled_from(values).map(lambda value: pa.scalar(value, kind))
    one |= st.just(pa.scalar(None, kind))
    if is_number(kind):
        widest = kind == pa.decimal128(38, 0)  # pyarrow cannot compare it with fractions
        one |= st.sampled_from([n for n in NUMBERS if not (widest and pa.types.is_decimal(n.type))])
    if shape == "map":
        return ia.map_contains(of, draw(one))
    if asked == "one":
        return ia.list_contains(of, draw(one))
    several = draw(st.lists(st.sampled_from(values) | st.none(), max_size=7))
    array = pa.array(several, kind)
    return (ia.list_contains_any if asked == "any" else ia.list_contains_all)(of, array)


def stored(draw, table):
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, row_group_size=draw(st.integers(1, 50)),
        max_rows_per_page=draw(st.integers(1, 20)), write_batch_size=1,
        write_page_index=draw(st.booleans()), use_dictionary=draw(st.booleans()),
        data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
        use_compliant_nested_type=draw(st.booleans()),
    )  # fmt: skip
    return sink.getvalue().to_pybytes()


def rows(file, condition):
    return file.read(["n"], filter=condition)["n"].to_pylist()


@SETTINGS
@given(data=st.data())
def test_an_index_of_elements_changes_no_answer(data, tmp_path_factory):
    table, kind, shape = data.draw(tables())
    bare = stored(data.draw, table)
    path = tmp_path_factory.mktemp("elements") / "t.parquet"
    path.write_bytes(bare)
    actual = ia.verify(path)  # pyarrow takes bounds of whole dictionaries for those of a slice
    on = ["l", *(["s.t.l"] if "s" in table.column_names else [])]
    ia.add_indexes(path, [ia.Elements(name, data.draw(st.integers(1, 20))) for name in on])
    assert ia.verify(path) == actual
    indexed = path.read_bytes()
    damaged = bytearray(indexed)
    for entry in ia.list_indexes(path)[0].indexes:
        for _ in range(data.draw(st.integers(1, 3))):
            at = entry.offset + data.draw(st.integers(0, entry.length - 1))
            damaged[at] ^= data.draw(st.integers(1, 255))
    files = [ia.ParquetFile(BufferSource(memoryview(raw))) for raw in (bare, indexed, damaged)]
    for _ in range(4):
        condition = data.draw(conditions(table, kind, shape))
        expected = rows(files[0], condition)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ia.IntarsiaWarning)
            assert rows(files[1], condition) == expected, str(condition)
        assert ia.dataset(path).count_rows(filter=condition) == len(expected)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ia.IntarsiaWarning)
            assert rows(files[2], condition) == expected, f"damaged: {condition}"


def python_says(condition, cell):
    """Evaluates a question about one list by Python's own equality."""
    how, values = condition
    if cell is None:
        return False
    held = [v for v in cell if v is not None and v == v]
    actual = [any(v == w for w in held) for v in values]
    return {"one": all, "any": any, "all": all}[how](actual)


@settings(SETTINGS, max_examples=60)
@given(data=st.data())
def test_an_index_of_elements_answers_as_python_does(data, tmp_path_factory):
    kind = data.draw(st.sampled_from([k for k in VALUES if not pa.types.is_dictionary(k)]))
    values = st.sampled_from(VALUES[kind])
    cells = data.draw(st.lists(st.none() | st.lists(values | st.none(), max_size=3), max_size=40))
    # As stored in the file: 32-bit floats differ from the Python values.
    lists = pa.array(cells, pa.list_(kind))
    path = tmp_path_factory.mktemp("oracle") / "t.parquet"
    ia.write_table(
        pa.table({"n": range(len(cells)), "l": lists}), path,
        indexes=[ia.Elements("l", data.draw(st.integers(1, 9)))],
    )  # fmt: skip
    count = data.draw(st.integers(1, 7))
    how = data.draw(st.sampled_from(["one", "any", "all"]))
    asked = data.draw(st.lists(values, min_size=count, max_size=count))
    asked = pa.array(asked[:1] if how == "one" else asked, kind)
    condition = {
        "one": lambda: ia.list_contains("l", asked[0]),
        "any": lambda: ia.list_contains_any("l", asked),
        "all": lambda: ia.list_contains_all("l", asked),
    }[how]()
    due = [
        n for n, cell in enumerate(lists.to_pylist()) if python_says((how, asked.to_pylist()), cell)
    ]
    assert rows(ia.ParquetFile(path), condition) == due
