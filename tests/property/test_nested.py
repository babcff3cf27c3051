"""Nested columns read by page have the same values and types as pyarrow's whole read."""

import datetime
import decimal
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.file.open_file import OpenedFile
from intarsia.file.page_walk import make_offset_indexes
from intarsia.io.source import BufferSource
from intarsia.row_ranges import RowRanges
from intarsia.scan.column_reader import read_rows

EPOCH = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


class Place(pa.ExtensionType):
    """An extension of two leaves."""

    STORAGE = pa.struct([("x", pa.int32()), ("names", pa.list_(pa.string()))])

    def __init__(self):
        super().__init__(self.STORAGE, "intarsia.test.place")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage, _serialized):
        return cls()


@pytest.fixture(scope="module", autouse=True)
def _registered():
    pa.register_extension_type(Place())
    yield
    pa.unregister_extension_type("intarsia.test.place")


LEAVES = {
    pa.int32(): lambda r: r.randrange(-5, 1000),
    pa.bool_(): lambda r: r.random() < 0.5,
    pa.float64(): lambda r: r.random(),
    pa.string(): lambda r: "x" * r.randrange(20) + str(r.randrange(40)),
    pa.large_binary(): lambda r: r.randbytes(r.randrange(30)),
    pa.binary(3): lambda r: r.randbytes(3),
    pa.decimal128(12, 2): lambda r: decimal.Decimal(r.randrange(10**6)) / 100,
    pa.timestamp("us", "Europe/Berlin"): lambda r: EPOCH + datetime.timedelta(r.randrange(99)),
    pa.duration("ms"): lambda r: datetime.timedelta(seconds=r.randrange(99)),
    pa.date32(): lambda r: datetime.date(2020, 1, 1 + r.randrange(28)),
    pa.uuid(): lambda r: r.randbytes(16),
    pa.json_(): lambda r: str(r.randrange(99)),
    pa.dictionary(pa.int32(), pa.string()): lambda r: "word " * 5 + str(r.randrange(30)),
}
KEYS = [pa.int32(), pa.string(), pa.timestamp("us", "Europe/Berlin"), pa.uuid()]
SHAPES = ["struct", "struct", "list", "large list", "fixed", "view", "large view", "map"]


@st.composite
def types(draw, depth, leaves):
    """A type nested up to ``depth`` deep."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(leaves))
    shape = draw(st.sampled_from(SHAPES))
    count = draw(st.integers(1, 3)) if shape == "struct" else 1
    inner = [draw(types(depth - 1, leaves)) for _ in range(count)]
    match shape:
        case "struct":
            return pa.struct([(f"f{i}", kind) for i, kind in enumerate(inner)])
        case "list":
            return pa.list_(inner[0])
        case "large list":
            return pa.large_list(inner[0])
        case "fixed":
            return pa.list_(inner[0], 2)
        case "view":
            return pa.list_view(inner[0])
        case "large view":
            return pa.large_list_view(inner[0])
        case _:
            return pa.map_(draw(st.sampled_from(KEYS)), inner[0])


def array_of(kind, length, r, nullable=True):
    """Random values, some NULL, and lists of 0 to 5."""
    if isinstance(kind, pa.BaseExtensionType) and pa.types.is_nested(kind.storage_type):
        return pa.ExtensionArray.from_storage(kind, array_of(kind.storage_type, length, r))
    absent = [nullable and r.random() < 0.15 for _ in range(length)]
    if kind in LEAVES:
        values = [None if no else LEAVES[kind](r) for no in absent]
        is_extension = isinstance(kind, pa.BaseExtensionType)
        actual = pa.array(values, kind.storage_type if is_extension else kind)
        return pa.ExtensionArray.from_storage(kind, actual) if is_extension else actual
    mask = pa.array(absent, pa.bool_())
    if pa.types.is_struct(kind):
        children = [array_of(field.type, length, r) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_fixed_size_list(kind):
        items = array_of(kind.value_type, length * kind.list_size, r)
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=mask)
    sizes = [0 if no else r.choice([0, 1, 2, 2, 5]) for no in absent]
    ends = np.cumsum([0, *sizes])
    count = int(ends[-1])
    if pa.types.is_map(kind):
        keys, items = array_of(kind.key_type, count, r, False), array_of(kind.item_type, count, r)
        return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, items, kind, mask=mask)
    items = array_of(kind.value_type, count, r)
    if pa.types.is_list_view(kind):
        starts, sizes = pa.array(ends[:-1], pa.int32()), pa.array(sizes, pa.int32())
        return pa.ListViewArray.from_arrays(starts, sizes, items, type=kind, mask=mask)
    if pa.types.is_large_list_view(kind):
        starts, sizes = pa.array(ends[:-1], pa.int64()), pa.array(sizes, pa.int64())
        return pa.LargeListViewArray.from_arrays(starts, sizes, items, type=kind, mask=mask)
    made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    offsets = pa.array(ends, pa.int64() if made is pa.LargeListArray else pa.int32())
    return made.from_arrays(offsets, items, type=kind, mask=mask)


@st.composite
def files(draw, leaves=tuple(LEAVES)):
    """A table of nested columns and the bytes of a file of it."""
    r = random.Random(draw(st.integers(0, 2**32)))
    num_rows = draw(st.integers(0, 300))
    columns = {
        f"c{i}": array_of(kind, num_rows, r)
        for i, kind in enumerate(draw(st.lists(types(4, leaves), min_size=1, max_size=3)))
    }
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns),
        sink,
        write_page_index=draw(st.sampled_from([True, True, True, False])),
        data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
        data_page_size=draw(st.sampled_from([1, 100, 1000])),
        write_batch_size=draw(st.sampled_from([2, 7, 30])),
        use_dictionary=draw(st.booleans()),
        dictionary_pagesize_limit=draw(st.sampled_from([100, 2**20])),
        row_group_size=draw(st.sampled_from([50, 120, 1000])),
        compression=draw(st.sampled_from(["none", "snappy", "zstd"])),
    )
    return sink.getvalue().to_pybytes()


@st.composite
def rows_of(draw, num_rows):
    bound = st.integers(0, num_rows)
    pairs = draw(st.lists(st.tuples(bound, bound), max_size=5))
    single = draw(st.lists(st.integers(0, max(num_rows - 1, 0)), max_size=5))
    ranges = [(min(pair), max(pair)) for pair in pairs] + [
        (i, min(i + 1, num_rows)) for i in single
    ]
    return RowRanges.of(*ranges)


def at_rows(table, rows):
    """``table.take`` for types that pyarrow's ``take`` does not support."""
    return pa.concat_tables([table.slice(0, 0), *(table.slice(a, b - a) for a, b in rows)])


def is_sound(whole):
    """False for files that pyarrow itself cannot read.

    These have pages without rows, lists of structs, or dictionaries within lists.
    """
    try:
        return whole.read().num_rows == whole.metadata.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
        return False


def drawn(data, *leaves):
    """A file that pyarrow reads: its bytes, and pyarrow's reader."""
    stored = data.draw(files(*leaves))
    whole = pq.ParquetFile(pa.BufferReader(stored))
    assume(is_sound(whole))
    return stored, whole


def pruned(file, leaves):
    """Roots of the file with only ``leaves``."""
    roots = ((root, [leaf for leaf in root.leaves if leaf in leaves]) for root in file.schema.roots)
    return [root.pruned(own) for root, own in roots if own]


def values_equal(found, expected):
    """Asserts that ``found`` is valid and has the rows of ``expected``, dictionaries apart."""
    found.validate(full=True)
    assert found.schema == expected.schema
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.filterwarnings("ignore::intarsia.IntarsiaWarning")  # pyarrow's indexes of split rows
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_any_rows_of_any_leaves_equal_pyarrows(data):
    stored, whole = drawn(data)
    file = OpenedFile(BufferSource(stored), "a file")
    rows = data.draw(rows_of(file.num_rows))
    values_equal(ia.ParquetFile(BufferSource(stored)).read(rows=rows), at_rows(whole.read(), rows))
    some = data.draw(st.sets(st.sampled_from([leaf.index for leaf in file.schema.leaves])))
    expected = whole.reader.read_all(column_indices=sorted(some))
    roots = pruned(file, some)
    arrays = read_rows(file, roots, rows)
    actual = pa.Table.from_arrays(arrays, [root.name for root in roots])
    if some:
        values_equal(actual, at_rows(expected, rows))


@pytest.mark.filterwarnings("ignore::intarsia.IntarsiaWarning")  # pyarrow's indexes of split rows
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_extension_types_of_many_leaves_are_restored(data):
    stored, whole = drawn(data, (Place(), pa.int32(), pa.string()))
    rows = data.draw(rows_of(whole.metadata.num_rows))
    values_equal(ia.ParquetFile(BufferSource(stored)).read(rows=rows), at_rows(whole.read(), rows))


@pytest.mark.filterwarnings("ignore::intarsia.IntarsiaWarning")  # pyarrow's indexes of split rows
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_pages_located_by_headers_only_give_the_same_rows(data):
    stored, whole = drawn(data)
    file = OpenedFile(BufferSource(stored), "a file")
    for group in range(len(file.metadata.row_groups)):
        make_offset_indexes(file, group, range(len(file.schema.leaves)))
    rows = data.draw(rows_of(file.num_rows))
    arrays = read_rows(file, file.schema.roots, rows)
    actual = pa.Table.from_arrays(arrays, [root.name for root in file.schema.roots])
    values_equal(actual, at_rows(whole.read(), rows))


def test_children_of_the_same_name_are_told_apart():
    numbers, texts = pa.array(range(1000)), pa.array([f"text {i}" * 9 for i in range(1000)])
    twins = pa.StructArray.from_arrays([numbers, texts], ["twin", "twin"])
    sink = pa.BufferOutputStream()
    options = {"data_page_size": 100, "write_batch_size": 10, "use_dictionary": False}
    pq.write_table(pa.table({"r": twins}), sink, write_page_index=True, **options)
    file = ia.ParquetFile(BufferSource(sink.getvalue().to_pybytes()))
    actual = file.read(rows=RowRanges.of((7, 9))).column("r").combine_chunks()
    assert actual.field(0).to_pylist() == [7, 8]
    assert actual.field(1).to_pylist() == ["text 7" * 9, "text 8" * 9]


def test_many_chunks_are_merged_piece_by_piece(monkeypatch):
    monkeypatch.setattr("intarsia.decode.nested_merge._MAX_COMBINED_BYTES", 0)
    r = random.Random(1)
    kind = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
    table = pa.table({"r": array_of(kind, 3000, r)})
    sink = pa.BufferOutputStream()
    options = {"data_page_size": 100, "write_batch_size": 50, "row_group_size": 700}
    pq.write_table(table, sink, write_page_index=True, **options)
    file = ia.ParquetFile(BufferSource(sink.getvalue().to_pybytes()))
    rows = RowRanges.from_rows(np.arange(0, 3000, 97))
    values_equal(file.read(rows=rows), at_rows(table, rows))
