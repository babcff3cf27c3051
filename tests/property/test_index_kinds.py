"""For every kind and every predicate, the pruned answer equals pyarrow's over the same data."""

import contextlib
import datetime
import decimal
import itertools
import math
import warnings
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.io.source import BufferSource

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
EPOCH = datetime.datetime(2020, 1, 1)
TEXTS = ["", "a", "A", "ab", "aB", "b%", "ä", "ſ", "K", "K", "İ", "日本", "z" * 100]
VALUES = {
    "i": (pa.int64(), [0, 1, -1, 5, 2**53 + 1, -(2**62)]),
    "h": (pa.int16(), [0, 1, -1, 32767]),
    "u": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "f": (pa.float64(), [0.0, -0.0, 1.5, math.nan, -math.nan, math.inf, -math.inf, 0.1]),
    "g": (pa.float32(), [0.0, -0.0, 1.5, math.nan, -math.nan, 0.25]),
    "s": (pa.string(), TEXTS),
    "t": (pa.large_string(), TEXTS),
    "w": (pa.dictionary(pa.int32(), pa.string()), TEXTS),
    "x": (pa.binary(), [b"", b"a\x00", b"a", b"\xff" * 70]),
    "b": (pa.bool_(), [True, False]),
    "d": (pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2020, 2, 29)]),
    "m": (pa.timestamp("us"), [EPOCH, EPOCH + datetime.timedelta(microseconds=1)]),
    "z": (pa.timestamp("ms", "UTC"), [EPOCH.replace(tzinfo=datetime.UTC)]),
    "c": (pa.decimal128(10, 2), [decimal.Decimal("-1.50"), decimal.Decimal("0.00")]),
}
ORDERED = [name for name in VALUES if name not in ("b", "x", "w")]
TEXT = ("s", "t", "w")
NUMBERS = ("i", "h", "f", "g")
UNFIT = {ia.Lookup: ("b",), ia.Distinct: (), ia.MinMax: ()}
COMPARISONS = [pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal]
SEARCHES = [
    pc.match_like, pc.match_substring, pc.starts_with, pc.ends_with, pc.match_substring_regex,
]  # fmt: skip
PATTERNS = ["", "a", "A", "ä", "a%", "%b", "_", "k", "S", "i", "日"]


def column(kind, values, draw, rows):
    choices = st.sampled_from([*values, None])
    cells = draw(st.lists(choices, min_size=rows, max_size=rows))
    if draw(st.booleans()):
        cells.sort(key=lambda cell: (cell is None, str(cell)))
    return pa.array(cells, kind)


@st.composite
def tables(draw):
    rows = draw(st.integers(0, 50))
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True))
    arrays = {name: column(*VALUES[name], draw, rows) for name in names}
    if draw(st.booleans()):
        inner = pa.StructArray.from_arrays([column(*VALUES["s"], draw, rows)], ["in"])
        outer = [inner, column(*VALUES["i"], draw, rows)]
        mask = pa.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), pa.bool_())
        arrays["st"] = pa.StructArray.from_arrays(outer, ["o", "n"], mask=mask)
    if draw(st.booleans()):
        texts = st.one_of(st.none(), st.sampled_from(VALUES["s"][1]))
        entries = st.lists(st.tuples(st.sampled_from("kx'"), texts), max_size=3)
        maps = st.lists(st.one_of(st.none(), entries), min_size=rows, max_size=rows)
        arrays["map"] = pa.array(draw(maps), pa.map_(pa.string(), pa.string()))
    return pa.table(arrays)


def layouts():
    return st.fixed_dictionaries(
        {
            "row_group_size": st.integers(1, 60),
            "max_rows_per_page": st.integers(1, 20),
            "write_batch_size": st.just(1),
            "use_dictionary": st.booleans(),
            "write_page_index": st.booleans(),
            "write_statistics": st.booleans(),
        }
    )


def fields_of(table):
    """Each column or leaf: its Expression, its name, and the entry of ``VALUES`` for it."""
    for name in table.column_names:
        if name == "map":
            continue
        if name == "st":
            yield pc.field("st", "o", "in"), "st.o.in", "s"
            yield pc.field("st", "n"), "st.n", "i"
        else:
            yield pc.field(name), name, name


def terms_of(table):
    """Each field and functions of it: the Expression, and the entry of ``VALUES`` it resembles."""
    for field, _, name in fields_of(table):
        yield field, name
        if name in ("s", "t"):
            yield pc.utf8_lower(field), "s"
            yield pc.utf8_length(field), "h"
        if name in ("i", "f"):
            yield field * 2 + 1, name
            yield pc.abs(field), name
            yield pc.negate_checked(field), name
        if name == "f":
            yield pc.floor(field), name
        if name in ("m", "z"):
            yield pc.hour(field), "i"
            yield pc.day_of_week(field, week_start=7), "i"
        if name in ("s", "i"):
            yield (
                pc.coalesce(field, pc.scalar(pa.scalar(VALUES[name][1][1], VALUES[name][0]))),
                name,
            )
    if "map" in table.column_names:
        for key in ("k", "'"):
            yield pc.map_lookup(pc.field("map"), key, "first"), "s"


@st.composite
def filters(draw, table, depth=2):
    shape = draw(st.sampled_from(["leaf", "leaf", "and", "or", "not"])) if depth else "leaf"
    if shape == "not":
        return ~draw(filters(table, depth - 1))
    if shape in ("and", "or"):
        parts = [draw(filters(table, depth - 1)) for _ in range(2)]
        return reduce(lambda a, b: a & b if shape == "and" else a | b, parts)
    term, name = draw(st.sampled_from(list(terms_of(table))))
    kind, values = VALUES[name]
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    shapes = ["compare", "in", "null", "valid"]
    shapes += ["search"] * 3 * (name in ("s", "t")) + ["nan"] * (name in ("f", "g"))
    match draw(st.sampled_from(shapes)):
        case "compare":
            ops = COMPARISONS if name in ORDERED else COMPARISONS[:2]
            literal = pa.scalar(draw(st.sampled_from(values)), kind)
            return draw(st.sampled_from(ops))(term, pc.scalar(literal))
        case "in":
            members = draw(st.lists(st.sampled_from([*values, None]), max_size=4))
            return term.isin(pa.array(members, kind))
        case "null":
            return term.is_null(nan_is_null=draw(st.booleans()) and name in ("f", "g"))
        case "valid":
            return term.is_valid()
        case "nan":
            return pc.is_nan(term)
        case "search":
            search = draw(st.sampled_from(SEARCHES))
            return search(term, draw(st.sampled_from(PATTERNS)), ignore_case=draw(st.booleans()))


@st.composite
def indexes(draw, table):
    actual = []
    for kind in (ia.Lookup, ia.Distinct, ia.MinMax):
        rows = st.integers(1, 30)
        fit = [called for _, called, name in fields_of(table) if name not in UNFIT[kind]]
        actual += [kind(on, draw(rows)) for on in fit if draw(st.booleans())]
        functions = [(term, name) for term, name in terms_of(table) if "(" in str(term)]
        functions = [term for term, _ in functions if not str(term).startswith("FieldRef")]
        actual += [kind(term, draw(rows)) for term in functions if draw(st.booleans())]
    if "map" in table.column_names and draw(st.booleans()):
        kind = draw(st.sampled_from([ia.Elements, ia.Entries]))
        actual.append(kind("map", draw(rows)))
    return actual


def brute_force(table, filter_):
    try:
        return table.filter(filter_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return reject()


def same(found, expected):
    return repr(found.to_pylist()) == repr(expected.to_pylist())


@SETTINGS
@given(data=st.data())
def test_an_indexed_read_equals_the_whole_read_filtered(data, tmp_path_factory):
    table = data.draw(tables())
    path = tmp_path_factory.mktemp("kinds") / "t.parquet"
    pq.write_table(table, path, **data.draw(layouts()))
    wanted = data.draw(indexes(table))
    with contextlib.suppress(ia.IndexSpecError):  # for example a function that overflows
        if wanted:
            ia.add_indexes(path, wanted)
            assert ia.verify(path) == []
    whole = pq.read_table(path)
    source = ia.dataset(path)
    for _ in range(3):
        filter_ = data.draw(filters(table))
        expected = brute_force(whole, filter_)
        assert same(source.to_table(filter=filter_), expected)
        assert source.count_rows(filter=filter_) == len(expected)


@settings(SETTINGS, max_examples=40)
@given(data=st.data())
def test_a_damaged_index_changes_no_answer(data, tmp_path_factory):
    table = data.draw(tables())
    path = tmp_path_factory.mktemp("damaged") / "t.parquet"
    pq.write_table(table, path, **data.draw(layouts()))
    base = path.stat().st_size
    wanted = data.draw(indexes(table))
    try:
        if wanted:
            ia.add_indexes(path, wanted)
    except ia.IndexSpecError:
        reject()
    whole = pq.read_table(path)
    entries = ia.list_indexes(path)[0].indexes
    stored = bytearray(path.read_bytes())
    for entry in entries:
        for _ in range(data.draw(st.integers(0, 3))):
            at = entry.offset + data.draw(st.integers(0, entry.length - 1))
            stored[at] ^= data.draw(st.integers(1, 255))
    assert base <= len(stored)
    file = ia.ParquetFile(BufferSource(bytes(stored)))
    for _ in range(3):
        filter_ = data.draw(filters(table))
        expected = brute_force(whole, filter_)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ia.IntarsiaWarning)
            assert same(file.read(filter=filter_), expected)


@settings(SETTINGS, max_examples=40)
@given(data=st.data())
def test_distinct_lists_the_values_of_its_column(data, tmp_path_factory):
    table = data.draw(tables())
    path = tmp_path_factory.mktemp("distinct") / "t.parquet"
    pq.write_table(table, path, **data.draw(layouts()))
    called = [on for _, on, _ in fields_of(table)]
    ia.add_indexes(path, [ia.Distinct(on) for on in called])
    file = ia.ParquetFile(path)
    for term, on, _ in fields_of(table):
        values = table.append_column("v", pa.nulls(len(table))).select([on.split(".")[0]])[0]
        for name in on.split(".")[1:]:
            values = pc.struct_field(values, name)
        due = {repr(v + 0.0 if isinstance(v, float) else v) for v in values.to_pylist()}
        actual = file.distinct(on)
        assert {repr(value) for value in actual.to_pylist()} == due
        assert len(actual) == len(due)
        kept = [v for v in actual.drop_null().to_pylist() if v == v]
        assert kept == sorted(kept)
        assert repr(file.distinct(term).to_pylist()) == repr(actual.to_pylist())


@settings(SETTINGS, max_examples=40)
@given(data=st.data())
def test_dropping_indexes_gives_back_the_file_that_was_written(data, tmp_path_factory):
    table = data.draw(tables())
    path = tmp_path_factory.mktemp("dropped") / "t.parquet"
    pq.write_table(table, path, **data.draw(layouts()))
    before = path.read_bytes()
    columns = [on for _, on, name in fields_of(table) if name != "b"]
    wanted = [ia.Distinct(on) for on in columns] + [ia.PageIndex()]
    wanted += [ia.Bloom(on) for on in columns]
    if not columns:
        reject()
    for part in itertools.batched(wanted, 3) if hasattr(itertools, "batched") else [wanted]:
        ia.add_indexes(path, part)
    (report,) = ia.list_indexes(path)
    names = [entry.name for entry in report.indexes]
    (report,) = ia.drop_indexes(path, names[:1])
    assert [entry.name for entry in report.indexes] == names[1:]
    assert ia.verify(path) == []
    filter_ = data.draw(filters(table))
    expected = brute_force(pq.read_table(path), filter_)
    assert same(ia.dataset(path).to_table(filter=filter_), expected)
    rest = [*names[1:], *(f"{on}:bloom" for on in columns)]
    with contextlib.suppress(ia.IndexSpecError):  # only if every chunk had one, or has no rows
        ia.drop_indexes(path, "page_index")
    if len(table):
        ia.drop_indexes(path, rest)
        assert path.read_bytes() == before


@pytest.mark.parametrize("kind", [ia.Lookup, ia.Distinct, ia.MinMax])
@pytest.mark.parametrize("name", sorted(VALUES))
def test_every_value_is_found_again(kind, name, tmp_path):
    if name in UNFIT[kind]:
        table = pa.table({name: pa.array([], VALUES[name][0])})
        with pytest.raises(ia.IndexSpecError):
            ia.write_table(table, tmp_path / "t", indexes=[kind(name)])
        return
    type_, values = VALUES[name]
    table = pa.table({name: pa.array([*values, None] * 30, type_)})
    path = tmp_path / "t.parquet"
    ia.write_table(table, path, indexes=[kind(name, 3)], row_group_size=70)
    file = ia.ParquetFile(path)
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    for value in values:
        filter_ = pc.field(name) == pc.scalar(pa.scalar(value, plain))
        assert file.read(filter=filter_).num_rows == table.filter(filter_).num_rows
