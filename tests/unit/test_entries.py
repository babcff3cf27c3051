"""``Entries``: its column types, its build settings, and the interfaces that use it."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.expr.tree import read_expression
from intarsia.file.open_file import OpenedFile
from intarsia.index.kinds.entries import Entries
from intarsia.io.source import BufferSource
from intarsia.plan.file_group import FileGroup
from intarsia.plan.planner import plan_group
from intarsia.pruning.bounds_comparison import types_agree
from intarsia.pruning.builder import pruning_of

ROWS, PAGE = 4000, 100
#  host     h0, h1 … in all rows but every seventh, where the map is NULL.
#  level    "info", and "error" in rows 1234 and 3001
#  rare     in row 2500 only
MAPS = [
    None
    if i % 7 == 0
    else [("host", f"h{i}"), ("level", "error" if i in (1234, 3001) else "info")]
    + [("rare", "x")] * (i == 2500)
    for i in range(ROWS)
]
TEXTS = pa.array(MAPS, pa.map_(pa.string(), pa.string()))
TABLE = pa.table(
    {
        "n": range(ROWS),
        "attrs": TEXTS,
        "s": pa.StructArray.from_arrays([TEXTS], ["m"]),
        "numbers": pa.array(
            [[(f"k{i % 3}", float(i)), (f"k{i % 3}", 0.5)] for i in range(ROWS)],
            pa.map_(pa.string(), pa.float32()),
        ),
    }
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("entries") / "t.parquet"
    pq.write_table(
        TABLE, path, row_group_size=1000, max_rows_per_page=PAGE, write_batch_size=PAGE,
        write_page_index=True, use_dictionary=False,
    )  # fmt: skip
    ia.add_indexes(path, [Entries(on, PAGE) for on in ("attrs", "s.m", "numbers")])
    return path


def value(key, of="attrs"):
    return pc.map_lookup(pc.field(*of.split(".")), key, "first")


ASKED = {
    "one": (value("host") == "h3001", [3001], 1),
    "another key": (value("level") == "error", [1234, 3001], 2),
    "another key's value": (value("level") == "h3001", [], 0),
    "several": (value("host").isin(["h5", "h6", "h3001", "no"]), [5, 6, 3001], 2),
    "absent": (value("host") == "nowhere", [], 0),
    "two keys": ((value("host") == "h3001") & (value("level") == "error"), [3001], 1),
    "either key": ((value("rare") == "x") | (value("level") == "error"), [1234, 2500, 3001], 3),
    "the key alone": (pc.match_like(value("rare"), "_"), [2500], 1),
    "not its value": (value("rare") != "y", [2500], 1),
    "whether it is there": (ia.map_contains("attrs", "rare"), [2500], 1),
    "no such key": (value("nothing") == "x", [], 0),
    "within structs": (value("host", "s.m") == "h3001", [3001], 1),
    "a function of it": (pc.utf8_upper(value("host")) == "H3001", [3001], 40),
    "numbers": (value("k1", "numbers") == 3001.0, [3001], 1),
    "numbers, of another key": (value("k2", "numbers") == 3001, [], 0),
}


@pytest.mark.parametrize(("condition", "rows", "pages"), ASKED.values(), ids=ASKED)
def test_pages_without_the_entry_are_not_read(file, condition, rows, pages):
    source = ia.dataset(file)
    assert source.to_table(["n"], filter=condition)["n"].to_pylist() == rows
    plan = source.explain(["n"], filter=condition).files[0].plan
    assert plan.rows.num_rows == pages * PAGE


@pytest.mark.parametrize(
    "condition",
    [
        value("host") != "h3001",
        ~(value("host") == "h3001"),
        value("rare").is_null(),
        pc.coalesce(value("rare"), pa.scalar("x")) == "x",
        pc.map_lookup(pc.field("attrs"), "rare", "last").is_null(),
    ],
    ids=str,
)
def test_conditions_that_rows_without_the_entry_pass_exclude_nothing(file, condition):
    actual = ia.dataset(file).to_table(["n"], filter=condition)["n"].to_pylist()
    assert actual == TABLE.filter(condition)["n"].to_pylist()
    assert len(actual) > ROWS // 2


@pytest.mark.parametrize(
    "where",
    [
        "attrs['host'] = 'h3001'",
        "attrs['host'] IN ('h3001', 'h')",
        "attrs['level'] = 'error' AND n > 2000",
    ],
)
def test_sql_uses_the_index(file, where):
    source = ia.dataset(file)
    assert ia.sql(f"SELECT n FROM t WHERE {where}", t=source)["n"].to_pylist() == [3001]
    assert source.count_rows(filter=where) == 1
    assert source.explain(filter=where).files[0].plan.rows.num_rows == PAGE


def test_one_value_of_many_files_is_looked_for_in_all_of_them_at_once(tmp_path):
    files = []
    for names in (["a", "b"], ["c"]):
        maps = pa.array([[("k", name)] for name in names], pa.map_(pa.string(), pa.string()))
        path = tmp_path / f"{names[0]}.parquet"
        ia.write_table(pa.table({"m": maps}), path, indexes=["m:entries"])
        files.append(OpenedFile(BufferSource(memoryview(path.read_bytes())), path.name))
    for sought, due in [("b", [True, False]), ("c", [False, True]), ("d", [False, False])]:
        pruning = pruning_of(read_expression(value("k", "m") == sought))
        group = FileGroup(files, [{}, {}], files[0].schema_arrow)
        assert group.files_of(plan_group(group, pruning).rows).tolist() == due


def test_maps_of_wider_values_share_the_index(tmp_path):
    """One file has 32-bit values, the other 64-bit; the data set reads both as 64-bit."""
    for name, kind in (("a", pa.int64()), ("b", pa.int32())):
        cells = pa.array([[("k", i)] for i in range(1000)], pa.map_(pa.string(), kind))
        path = tmp_path / f"{name}.parquet"
        ia.write_table(pa.table({"m": cells}), path, indexes=[Entries("m", granule_rows=10)])
    source = ia.dataset(tmp_path)
    for sought, left in ((7, 10), (2**40, 0)):
        condition = value("k", "m") == sought
        files = source.explain(filter=condition).files
        assert [file.plan.rows.num_rows for file in files] == [left] * len(files)
        assert source.to_table(filter=condition).num_rows == (2 if left else 0)


@pytest.mark.parametrize(
    ("stored", "seen", "agree"),
    [
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.large_string(), pa.int64()), True),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.string()), False),
        (pa.map_(pa.int32(), pa.int64()), pa.map_(pa.string(), pa.int64()), False),
        (pa.map_(pa.string(), pa.float64()), pa.map_(pa.string(), pa.float32()), False),
    ],
)
def test_map_types_agree_if_key_and_value_types_do(stored, seen, agree):
    assert types_agree(stored, seen) is agree


def test_a_catalog_contains_its_keys(tmp_path):
    for i in range(4):
        maps = pa.array([[("k", f"v{i}")]] * 10, pa.map_(pa.string(), pa.string()))
        ia.write_table(pa.table({"m": maps}), tmp_path / f"{i}.parquet", indexes=["m:entries"])
    ia.build_catalog(tmp_path)
    source = ia.dataset(tmp_path)
    assert source.count_rows(filter=value("k", "m") == "v2") == 10
    planned = source.plan(["m"], value("k", "m") == "v2")
    assert [part.path.endswith("2.parquet") for part in planned.files] == [True]


NUMBERS = [0.1, -0.0, float("nan"), 2.0**24, 16777217.0, None]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize(
    "sought",
    [
        pa.array([0.1]),
        pa.array([0.1], pa.float32()),
        pa.array([0.0]),
        pa.array([float("nan"), 7.0]),
        pa.array([16777217.0]),
        pa.array([None, 0.1]),
    ],
    ids=str,
)
def test_numbers_are_found_as_without_the_index(tmp_path, kind, sought):
    """For constants that are rounded, NaN or zero, and for conditions that NULL passes."""
    maps = pa.array([[("k", number)] for number in NUMBERS], pa.map_(pa.string(), kind))
    table, path = pa.table({"n": range(len(NUMBERS)), "m": maps}), tmp_path / "t.parquet"
    ia.write_table(table, path, indexes=[Entries("m", granule_rows=1)])
    conditions = [value("k", "m").isin(sought)]
    conditions += [value("k", "m") == one for one in sought if one.is_valid]
    for condition in conditions:
        actual = ia.dataset(path).to_table(["n"], filter=condition)
        assert actual.equals(table.filter(condition).select(["n"])), str(condition)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (pa.list_(pa.string()), "the column is not a map"),
        (pa.int32(), "the column is not a map"),
        (pa.map_(pa.int32(), pa.string()), "keys, of type int32, are not strings"),
        (pa.map_(pa.string(), pa.list_(pa.int8())), "values, of type list.*nested"),
        (pa.map_(pa.string(), pa.bool_()), "of its values, booleans"),
    ],
    ids=str,
)
def test_columns_that_cannot_have_the_index(tmp_path, kind, reason):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": pa.nulls(3, kind)}), path)
    with pytest.raises(ia.IndexSpecError, match=reason):
        ia.add_indexes(path, "x:entries")


def test_the_index_is_advised_for_conditions_on_several_keys(tmp_path):
    cells = [[("host", f"h{i}"), ("user", f"u{i % 9000}")] for i in range(40_000)]
    path = tmp_path / "t.parquet"
    maps = pa.array(cells, pa.map_(pa.string(), pa.string()))
    pq.write_table(pa.table({"attrs": maps}), path, max_rows_per_page=2000, write_page_index=True)
    filters = ["attrs['host'] = 'h3001'", "attrs['user'] = 'u17'", "attrs['rare'] = 'x'"]
    (proposed,) = ia.advise(path, filters=filters).proposals
    assert (proposed.index, proposed.filters) == ("attrs:entries", (0, 1, 2))
