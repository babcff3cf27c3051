"""Some leaves of nested columns have the types and values that pyarrow reads."""

import itertools

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.errors import FormatError, PredicateError, UnsupportedError
from intarsia.row_ranges import RowRanges

ROWS = 2000
ROW_RANGES = RowRanges.of((3, 5), (777, 790), (1990, 2000))


@pytest.fixture(scope="module")
def table():
    pair = pa.struct([("x", pa.int32()), ("y", pa.string())])
    numbers = range(ROWS)
    return pa.table(
        {
            "n": pa.array(numbers),
            "s": pa.array(
                [
                    {"a": i, "b": {"x": i % 7, "y": str(i)}, "c": [i] * (i % 3)} if i % 5 else None
                    for i in numbers
                ],
                pa.struct([("a", pa.int64()), ("b", pair), ("c", pa.large_list(pa.int32()))]),
            ),
            "l": pa.array([[{"x": i, "y": str(i)}] * (i % 4) for i in numbers], pa.list_(pair)),
            "m": pa.array(
                [[(str(i), {"x": i, "y": "z" * (i % 9)})] for i in numbers],
                pa.map_(pa.string(), pair),
            ),
            "f": pa.array(
                [[{"x": i, "y": str(i)}] * 2 if i % 3 else None for i in numbers], pa.list_(pair, 2)
            ),
            "s.a": pa.array([i % 100 for i in numbers], pa.int8()),
        }
    )


@pytest.fixture(scope="module")
def path(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("projection") / "t.parquet"
    options = {"data_page_size": 500, "write_batch_size": 50, "row_group_size": 900}
    pq.write_table(table, path, write_page_index=True, use_dictionary=False, **options)
    return path


def at_rows(table, rows):
    return pa.concat_tables([table.slice(start, stop - start) for start, stop in rows])


NAMES = [
    "n",
    "s.b",
    "s.b.y",
    "s.c",
    "s.c.list",
    "l.list.element.y",
    "m.key_value.key",
    "m.key_value.value",
    "m.key_value.value.x",
    "f.list.element.x",
    "m",
]


@pytest.mark.parametrize(
    "columns", [*([name] for name in NAMES), *map(list, itertools.combinations(NAMES, 2))], ids=str
)
def test_names_select_the_columns_that_pyarrow_selects(path, columns):
    expected = pq.ParquetFile(path).read(columns=columns)
    actual = ia.ParquetFile(path).read(columns, ROW_RANGES)
    assert actual.schema == expected.schema
    assert actual.equals(at_rows(expected, ROW_RANGES))
    actual.validate(full=True)
    assert ia.ParquetFile(path).read(columns).equals(expected)
    filter_ = (pc.field("n") > 700) & (pc.field("s", "a") < 801)
    whole = pq.ParquetFile(path).read()
    numbers = whole.append_column("row", pa.array(range(ROWS))).filter(filter_).column("row")
    assert ia.ParquetFile(path).read(columns, filter=filter_).equals(expected.take(numbers))


def test_the_full_name_of_a_column_takes_precedence(path, table):
    assert ia.ParquetFile(path).read(["s.a"]).equals(table.select(["s.a"]))


@pytest.mark.parametrize("name", ["s.", "s.b.", "l.y", "l.list.element.z", ".", "nope.x"])
def test_an_unknown_path_is_refused(path, name):
    with pytest.raises(PredicateError, match="is not there"):
        ia.ParquetFile(path).read([name])


FILTERS = [
    pc.field("s", "a") == 801,
    pc.field("s", "b", "x").is_null() & (pc.field("n") < 20),
    (pc.field("s", "b", "y") == "1234") | (pc.field("s", "a") == 801),
    pc.field("s").is_null() & (pc.field("s", "a").is_null()) & (pc.field("n") > 1500),
    pc.list_value_length(pc.field("s", "c")) > 1,
]


@pytest.mark.parametrize("filter_", FILTERS, ids=str)
@pytest.mark.parametrize("columns", [["s"], ["s", "n"], ["l"], None, []], ids=str)
def test_filters_on_fields_within_columns(path, table, filter_, columns):
    actual = ia.dataset(path).to_table(columns=columns, filter=filter_)
    expected = table.filter(filter_)
    assert actual.equals(expected if columns is None else expected.select(columns))


def test_computed_columns_read_the_leaves_they_need(path, table):
    columns = {"x": pc.field("s", "b", "x"), "total": pc.field("s", "a") + pc.field("n")}
    filter_ = pc.field("s", "a") == 801
    actual = ia.dataset(path).to_table(columns=columns, filter=filter_)
    assert actual.to_pylist() == [{"x": 801 % 7, "total": 1602}]


def test_files_that_lack_a_field_give_nulls(tmp_path):
    for name, row in (("a", {"x": 1, "y": 2}), ("b", {"x": 3})):
        pq.write_table(pa.table({"s": [row]}), tmp_path / f"{name}.parquet")
    actual = ia.dataset(tmp_path).to_table(filter=pc.field("s", "y").is_null())
    assert actual.to_pylist() == [{"s": {"x": 3, "y": None}}]


def test_a_file_that_lacks_a_required_field_is_named(tmp_path):
    for name, row in (("a", {"x": 1, "y": 2}), ("b", {"x": 3})):
        kind = pa.struct([pa.field(field, pa.int64(), nullable=False) for field in row])
        pq.write_table(
            pa.table({"n": [1], "s": pa.array([row], kind)}), tmp_path / f"{name}.parquet"
        )
    with pytest.raises(FormatError, match=r"b\.parquet, column s: .*non-nullable .*`y` not found"):
        ia.dataset(tmp_path).to_table(filter=pc.field("n") == 1)


class Pair(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.struct([("x", pa.int32()), ("y", pa.int32())]), "intarsia.test.pair")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage, _serialized):
        return cls()


def test_part_of_an_extension_type_is_refused(tmp_path):
    pa.register_extension_type(Pair())
    try:
        storage = pa.array([{"x": 1, "y": 2}], Pair().storage_type)
        values = pa.ExtensionArray.from_storage(Pair(), storage)
        pq.write_table(pa.table({"p": values}), tmp_path / "t.parquet")
        file = ia.ParquetFile(tmp_path / "t.parquet")
        with pytest.raises(UnsupportedError, match="part of an extension"):
            file.read(["p.x"])
        assert file.read(["p.x", "p.y"]).column("p").type == Pair()
    finally:
        pa.unregister_extension_type("intarsia.test.pair")
