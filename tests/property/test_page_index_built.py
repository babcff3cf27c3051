"""Page indexes added later equal those that pyarrow writes, on random tables and layouts."""

import datetime
import decimal
import math
import warnings
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.file.chunk_reader import Chunk
from intarsia.parquet.value_order import Domain
from intarsia.scan.parquet_file import open_file

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
EPOCH = datetime.datetime(2020, 1, 1)
SHORT = st.text("aäb日\U0010ffff", max_size=5)
KINDS = {
    "i8": (pa.int8(), st.integers(-128, 127)),
    "i32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "i64": (pa.int64(), st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)),
    "u16": (pa.uint16(), st.integers(0, 2**16 - 1)),
    "u32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "u64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "f16": (pa.float16(), st.floats(width=16, allow_nan=False).map(np.float16)),
    "f32": (pa.float32(), st.floats(width=32)),
    "f64": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, -math.inf]) | st.floats()),
    "bool": (pa.bool_(), st.booleans()),
    "s": (pa.string(), SHORT | st.just("z" * 100) | st.just("ä" * 50)),
    "bin": (pa.binary(), st.binary(max_size=5) | st.just(b"\xff" * 90) | st.just(b"a" * 80)),
    "flba": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "d": (pa.date32(), st.dates()),
    "t": (pa.time64("us"), st.times()),
    "ts": (pa.timestamp("us"), st.datetimes()),
    "tz": (pa.timestamp("ms", "UTC"), st.integers(-(10**9), 10**9)),
    "dec": (pa.decimal128(10, 2), st.decimals(-(10**7), 10**7, places=2)),
    "big": (pa.decimal128(30, 2), st.decimals(-(10**25), 10**25, places=2)),
    "dict": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["x", "y", "zz"])),
    "null": (pa.null(), st.none()),
    "list": (pa.list_(pa.int32()), st.lists(st.integers(-5, 5) | st.none(), max_size=3)),
    "deep": (
        pa.list_(pa.list_(pa.string())),
        st.lists(st.none() | st.lists(SHORT | st.none(), max_size=2), max_size=2),
    ),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        st.lists(st.tuples(SHORT, st.integers(0, 9) | st.none()), max_size=2),
    ),
    "pair": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))]),
        st.fixed_dictionaries(
            {
                "a": st.integers(-5, 5) | st.none(),
                "b": st.none() | st.lists(st.just(1.5), max_size=2),
            }
        ),
    ),
}


def sort_key(cell):
    return (cell is None, str(type(cell)), repr(cell) if isinstance(cell, list | dict) else cell)


@st.composite
def tables(draw):
    rows = draw(st.integers(0, 50))
    arrays = {}
    names = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True)
    for name in draw(names):
        kind, values = KINDS[name]
        cell = values | st.none() if draw(st.booleans()) else values
        cells = draw(st.lists(cell, min_size=rows, max_size=rows))
        if draw(st.booleans()):
            cells.sort(key=sort_key, reverse=draw(st.booleans()))
        if draw(st.booleans()):
            start = draw(st.integers(0, rows))
            cells[start : start + 15] = [None] * len(cells[start : start + 15])
        arrays[name] = pa.array(cells, kind)
    return pa.table(arrays)


@st.composite
def layouts(draw):
    return {
        "row_group_size": draw(st.integers(1, 60)),
        "data_page_size": draw(st.sampled_from([1, 30, 200, 2**20])),
        "max_rows_per_page": draw(st.sampled_from([3, 10, 20_000])),
        "write_batch_size": draw(st.sampled_from([1, 4, 1024])),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "compression": draw(st.sampled_from(["none", "snappy", "zstd", "gzip", "lz4"])),
        "use_dictionary": draw(st.booleans()),
        "write_statistics": draw(st.just(True)),
        "store_decimal_as_integer": draw(st.booleans()),
        "write_page_checksum": draw(st.booleans()),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("built")


def read_or_reject(path, table):
    """Reads a file with pyarrow; rejects files that pyarrow wrote unreadably (tiny batches)."""
    try:
        actual = pq.read_table(path)
    except pa.ArrowInvalid:
        return reject()
    return actual if same(actual, table) else reject()


def both(folder, table, layout, **options):
    """The file indexed by pyarrow, and the same file indexed here, whose old bytes are checked."""
    theirs, ours = folder / "theirs.parquet", folder / "ours.parquet"
    pq.write_table(table, theirs, write_page_index=True, **layout)
    pq.write_table(table, ours, write_page_index=False, **layout)
    for path in (theirs, ours):
        read_or_reject(path, table)
    before = ours.read_bytes()
    ia.add_indexes(ours, [ia.PageIndex(**options)])
    assert ours.read_bytes().startswith(before)
    return theirs, ours


def same(found, expected):
    rows = repr(found.to_pylist()) == repr(expected.to_pylist())
    return rows and found.schema.equals(expected.schema)


def decoded(chunk):
    """All physical values of a chunk."""
    parts = [part.drop_null() for part in chunk.arrays(list(chunk.pages()))]
    return pa.concat_arrays(parts) if parts else pa.array([])


def values_by_page(file, group, leaf):
    """The physical values of each page of a chunk, counted by its levels."""
    chunk = Chunk(file, group, leaf)
    pages = list(chunk.pages())
    values = decoded(chunk)
    actual = []
    at = 0
    for page in pages:
        if page.is_data:
            count = chunk.levels(page).num_present(chunk.leaf.max_definition_level)
            actual.append(values.slice(at, count))
            at += count
    assert at == len(values)
    return actual


def encoded(values, order):
    """The PLAIN encoding of values, as bounds are stored."""
    if order.stored is None or pa.types.is_fixed_size_binary(values.type):
        return values.to_pylist()
    numbers = values.to_numpy(zero_copy_only=False)
    width = 1 if numbers.dtype == bool else numbers.itemsize
    raw = numbers.tobytes()
    return [raw[i : i + width] for i in range(0, len(raw), width)]


def bounds_hold(order, index, pages):
    for i, values in enumerate(pages):
        assert bool(index.null_pages[i]) == (len(values) == 0)
        if not len(values):
            assert index.min_values[i] == index.max_values[i] == b""
            continue
        keys, usable = order.keys(encoded(values, order))
        low, high = (
            order.keys([bound])[0][0] for bound in (index.min_values[i], index.max_values[i])
        )
        assert usable.all()
        assert all(low <= key for key in keys)
        assert all(key <= high for key in keys)


def check_order(order, index):
    """Asserts that the declared boundary order is that of the bounds."""
    held = [i for i in range(len(index)) if not index.null_pages[i]]
    low, high = (
        list(order.keys([bounds[i] for i in held])[0])
        for bounds in (index.min_values, index.max_values)
    )
    ascending = all(a <= b for keys in (low, high) for a, b in pairwise(keys))
    descending = all(a >= b for keys in (low, high) for a, b in pairwise(keys))
    assert index.boundary_order == (1 if ascending else 2 if descending else 0)


@SETTINGS
@given(table=tables(), layout=layouts())
def test_a_page_index_built_afterwards_equals_the_one_pyarrow_writes(folder, table, layout):
    theirs, ours = both(folder, table, layout)
    assert same(pq.read_table(ours), table)
    assert same(pq.ParquetFile(ours, page_checksum_verification=True).read(), table)
    actual, expected = ia.ParquetFile(ours), ia.ParquetFile(theirs)
    plain = open_file(ours)
    for group in range(len(actual.metadata.row_groups)):
        for leaf in range(len(actual.schema.leaves)):
            with warnings.catch_warnings():
                # pyarrow sometimes writes pages without a row, and an index that must not be used.
                warnings.simplefilter("ignore", ia.IntarsiaWarning)
                other = expected.page_index(group, leaf)
            compare(plain, actual.page_index(group, leaf), other, group, leaf)


def compare(file, mine, other, group, leaf):
    if not file.num_rows_in(group):
        assert mine == (None, None)
        return
    chunk = Chunk(file, group, leaf)
    walked = [page for page in chunk.pages() if page.is_data]
    levels = [chunk.levels(page) for page in walked]
    if not all(page.begins_a_row and page.num_rows() for page in levels):
        assert chunk.leaf.max_repetition_level
        assert mine == (None, None)
        return
    starts = mine.offset_index.first_row_index.tolist()
    # V1 pages of repeated columns end at a row's end only if pyarrow writes an index.
    alike = not chunk.leaf.max_repetition_level or any(
        page.header.data_page_header_v2 for page in walked
    )
    if alike:
        assert starts == other.offset_index.first_row_index.tolist()
    # pyarrow omits statistics in page headers if it writes an index, so offsets differ.
    sizes = mine.offset_index.compressed_page_size.tolist()
    assert sizes == [page.size for page in walked]
    assert mine.offset_index.offset.tolist() == [page.offset for page in walked]
    assert starts == np.cumsum([0, *(page.num_rows() for page in levels)]).tolist()[:-1]
    order = file.order(leaf)
    pages = values_by_page(file, group, leaf)
    assert len(pages) == len(sizes)
    if order.has_nan and any(
        np.isnan(order.keys(encoded(values, order))[0]).any() for values in pages
    ):
        assert mine.column_index is None
        return
    if not order.is_defined:
        assert mine.column_index is None
        return
    index = mine.column_index
    bounds_hold(order, index, pages)
    check_order(order, index)
    if order.has_nan:
        assert index.nan_counts.tolist() == [0] * len(pages)
    if other.column_index is None or not alike:
        return
    assert index.null_pages.tolist() == other.column_index.null_pages.tolist()
    if other.column_index.null_counts is not None:
        assert index.null_counts.tolist() == other.column_index.null_counts.tolist()
    for name in ("repetition_level_histograms", "definition_level_histograms"):
        histogram = getattr(other.column_index, name)
        if histogram is not None and len(histogram):
            assert getattr(index, name).tolist() == histogram.tolist()
    longest = max(map(len, [*index.min_values, *index.max_values]), default=0)
    if chunk.leaf.path[0] == "dict":
        return  # pyarrow takes the bounds of a whole dictionary for those of each of its pages.
    if order.domain is not Domain.BYTES or longest < 60:
        # Compares keys, not bytes: both zeros have one key, and we write the zero that bounds both.
        for mine_, theirs in (
            (index.min_values, other.column_index.min_values),
            (index.max_values, other.column_index.max_values),
        ):
            assert order.keys(mine_)[0].tolist() == order.keys(theirs)[0].tolist()


@settings(SETTINGS, max_examples=40)
@given(
    st.lists(
        st.text("aä日\U0010ffff\ud7ff", max_size=12) | st.just("\U0010ffff" * 12) | st.none(),
        min_size=1,
        max_size=30,
    ),
    st.lists(st.binary(max_size=12) | st.just(b"\xff" * 12), min_size=30, max_size=30),
    st.integers(1, 8),
)
def test_bounds_exceed_the_maximum_length_only_if_no_shorter_bound_exists(
    folder, texts, blobs, length
):
    table = pa.table({"s": texts, "b": pa.array(blobs[: len(texts)], pa.binary())})
    layout = {"max_rows_per_page": 5, "write_batch_size": 1}
    _, ours = both(folder, table, layout, truncate_length=length)
    file, plain = ia.ParquetFile(ours), open_file(ours)
    for leaf in (0, 1):
        index = file.page_index(0, leaf).column_index
        pages = values_by_page(plain, 0, leaf)
        bounds_hold(plain.order(leaf), index, pages)
        check_order(plain.order(leaf), index)
        for values, low, high in zip(pages, index.min_values, index.max_values, strict=True):
            assert len(low) <= length
            whole = max(values.to_pylist(), default=b"")
            assert high == whole or len(high) <= length + (leaf == 0)
            if leaf == 0:
                assert low.decode() is not None
                assert high.decode() is not None


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_chunk_with_a_nan_has_offsets_and_no_bounds(tmp_path, kind, version):
    path = tmp_path / "t.parquet"
    cells = [1.0, 2.0, math.nan, None, 3.0, 4.0]
    table = pa.table(
        {"x": pa.array([np.float16(c) if c is not None else None for c in cells]).cast(kind)}
    )
    pq.write_table(table, path, row_group_size=3, data_page_version=version)
    ia.add_indexes(path, [ia.PageIndex()])
    file = ia.ParquetFile(path)
    with_nan, without = file.page_index(0, 0), file.page_index(1, 0)
    assert with_nan.column_index is None
    assert len(with_nan.offset_index) == 1
    assert without.column_index.nan_counts.tolist() == [0]
    assert without.column_index.null_counts.tolist() == [1]


def test_a_zero_bound_covers_both_zeros(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"p": [0.0], "n": [-0.0]}), path)
    ia.add_indexes(path, [ia.PageIndex()])
    for name in ("p", "n"):
        index = ia.ParquetFile(path).page_index(0, name).column_index
        assert index.min_values == [np.float64(-0.0).tobytes()]
        assert index.max_values == [np.float64(0.0).tobytes()]


def test_decimals_are_never_shortened(tmp_path):
    path = tmp_path / "t.parquet"
    values = [decimal.Decimal(10) ** 36 + i for i in range(3)]
    pq.write_table(pa.table({"x": pa.array(values, pa.decimal128(38, 0))}), path)
    ia.add_indexes(path, [ia.PageIndex(truncate_length=1)])
    index = ia.ParquetFile(path).page_index(0, 0).column_index
    assert index.min_values == [int(values[0]).to_bytes(16, "big")]
    assert index.max_values == [int(values[2]).to_bytes(16, "big")]
