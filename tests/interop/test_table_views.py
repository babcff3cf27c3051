"""Files that are read as parts of a table: other names, constants, deleted rows and defaults."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.file.file_view import ColumnMapping, FileView, MappedField, TableSnapshot

ROWS = 3000
STORED = pa.table(
    {
        "col-1": [f"k{i * 7919 % ROWS:05}" for i in range(ROWS)],
        "key": pa.array(range(ROWS), pa.int32()),  # dropped; "key" is another column now
        "col-2": [{"x": i, "gone": -i, "tags": [{"t": f"t{i % 7}"}]} for i in range(ROWS)],
        "part": ["stored"] * ROWS,
        "col-5": [float(i % 100) for i in range(ROWS)],
    }
)
MAPPING = ColumnMapping(
    (
        MappedField("key", ("col-1",)),
        MappedField(
            "s",
            ("col-2",),
            None,
            (
                MappedField("gone", ("never",)),
                MappedField("y", ("x",)),
                MappedField(
                    "labels",
                    ("tags",),
                    None,
                    (MappedField("", (), None, (MappedField("label", ("t",)),)),),
                ),
            ),
        ),
        MappedField("value", ("col-5",)),
        MappedField("later", ("col-9",)),
        MappedField("level", ("col-10",)),
    ),
    other_names=frozenset({"part"}),
)
SCHEMA = pa.schema(
    {
        "part": pa.string(),
        "key": pa.string(),
        "s": pa.struct(
            {
                "gone": pa.int64(),
                "y": pa.int64(),
                "labels": pa.list_(pa.struct({"label": pa.string()})),
            }
        ),
        "value": pa.float64(),
        "later": pa.int64(),
        "level": pa.int32(),
    }
)
DEFAULTS = {"level": pa.scalar(7, pa.int32())}


def logical(part, deleted):
    """The rows of one file as the table has them."""
    keys = STORED["col-1"].to_pylist()
    structs = [
        {"gone": None, "y": s["x"], "labels": [{"label": t["t"]} for t in s["tags"]]}
        for s in STORED["col-2"].to_pylist()
    ]
    table = pa.table(
        {
            "part": pa.repeat(part, ROWS) if part else pa.nulls(ROWS, pa.string()),
            "key": keys,
            "s": structs,
            "value": STORED["col-5"],
            "later": pa.nulls(ROWS, pa.int64()),
            "level": pa.repeat(pa.scalar(7, pa.int32()), ROWS),
        }
    ).cast(SCHEMA)
    return table.filter(pa.array(~np.isin(np.arange(ROWS), deleted)))


DELETED = {
    "a": np.arange(0, ROWS, 10),
    "b": np.arange(500, 1700),
    "c": np.array([], np.int64),
    None: np.arange(ROWS),
    "e": np.array([0, ROWS - 1]),
}


@pytest.fixture(params=["one layout", "groups", "indexed", "sidecars"], scope="module")
def tables(request, tmp_path_factory):
    """A data set of views, and its rows."""
    views, parts, folder = {}, [], tmp_path_factory.mktemp("table")
    for number, (part, deleted) in enumerate(DELETED.items()):
        path = f"{folder}/{number}.parquet"
        size = 1000 if request.param == "groups" else ROWS
        pq.write_table(STORED, path, row_group_size=size, write_page_index=True)
        views[path] = FileView(
            MAPPING,
            {"part": pa.scalar(part, pa.string())},
            ia.RowRanges.from_rows(deleted),
            DEFAULTS,
        )
        parts.append(logical(part, deleted))
    if request.param in ("indexed", "sidecars"):
        indexes = [
            ia.Lookup("col-1", granule_rows=100),
            ia.Lookup('lower("col-1")', granule_rows=100),
            ia.Lookup("key", granule_rows=100),
            ia.MinMax("col-2.x", granule_rows=100),
        ]
        ia.add_indexes([*views], indexes, sidecar=request.param == "sidecars")
    table = TableSnapshot("table t, version 3", views)
    return ia.Dataset.of_table(table, SCHEMA, pafs.LocalFileSystem()), pa.concat_tables(parts)


FILTERS = [
    pc.field("key") == "k00007",
    pc.field("key").isin(["k00007", "k00500", "k01699", "k00000"]),
    pc.field("value") > 98,
    (pc.field("value") > 98) & (pc.field("part") == "b"),
    pc.field("part").is_null(),
    pc.field("s", "y") < 20,
    pc.field("s", "gone").is_null(),
    pc.field("later").is_null(),
    pc.field("later") == 3,
    pc.field("level") == 7,
    pc.field("level") != 7,
    ~(pc.field("value") < 50),
    pc.utf8_lower(pc.field("key")) == "k00033",
]


def test_all_rows_are_those_of_the_table(tables):
    data, expected = tables
    assert data.to_table() == expected
    assert data.count_rows() == expected.num_rows
    assert data.head(20) == expected.slice(0, 20)
    assert data.to_table(["value", "key"]) == expected.select(["value", "key"])
    assert pa.Table.from_batches(data.to_batches(), SCHEMA) == expected
    assert data.scanner(["key"]).to_table() == expected.select(["key"])


@pytest.mark.parametrize("condition", FILTERS, ids=str)
def test_filters_give_the_rows_of_the_table(condition, tables):
    data, expected = tables
    rows = expected.filter(condition)
    assert data.to_table(filter=condition) == rows
    assert data.to_table(["part", "level"], condition) == rows.select(["part", "level"])
    assert data.count_rows(condition) == rows.num_rows
    assert data.filter(condition).head(3) == rows.slice(0, 3)
    plan = data.plan(filter=condition)
    assert plan.figures.rows.selected >= rows.num_rows


def test_rows_are_taken_by_their_numbers_in_the_table(tables):
    data, expected = tables
    numbers = [0, 5, expected.num_rows - 1, 2700, 2699, 5]
    assert data.take(numbers) == expected.take(numbers)
    with pytest.raises(IndexError):
        data.take([expected.num_rows])


def test_copies_read_the_same_rows(tables):
    data, expected = tables
    condition = pc.field("value") > 98
    for copy in (pickle.loads(pickle.dumps(data)), data.with_options(reader="pages")):
        assert copy.to_table(filter=condition) == expected.filter(condition)
        assert repr(copy) == repr(data)
    fragments = list(data.get_fragments())
    for copies in (fragments, pickle.loads(pickle.dumps(fragments))):
        assert pa.concat_tables(one.to_table() for one in copies) == expected
        assert sum(one.count_rows(condition) for one in copies) == data.count_rows(condition)
    narrower = SCHEMA.remove(SCHEMA.get_field_index("s"))
    again = data.replace_schema(narrower)
    assert again.to_table() == expected.select(narrower.names)


def test_columns_of_pyarrows_scanner_are_refused(tables):
    with pytest.raises(ia.PredicateError, match="table t, version 3 does not go with"):
        tables[0].to_table(["__fragment_index"])


def test_queries_give_the_rows_of_the_table(tables):
    data, expected = tables
    query = "SELECT part, count(*) n, sum(s.y) y FROM t WHERE value > 90 GROUP BY ALL ORDER BY ALL"
    assert ia.sql(query, t=data) == ia.sql(query, t=expected)
    query = "SELECT key, value FROM t ORDER BY key LIMIT 5"
    assert ia.sql(query, t=data) == ia.sql(query, t=expected)
    frame = ia.polars.scan(data)
    assert frame.select("key", "level").collect().to_arrow().cast(
        pa.schema([SCHEMA.field("key"), SCHEMA.field("level")])
    ) == expected.select(["key", "level"])


def test_an_index_is_used_under_the_name_of_the_table(tables, request):
    data, _ = tables
    if "indexed" in request.node.name or "sidecars" in request.node.name:
        explanation = str(data.explain(filter="key = 'k00001'"))
        assert "key:lookup" in explanation
        assert data.plan(filter="key = 'k00001'").figures.rows.selected <= 100 * len(DELETED)


# --- names --------------------------------------------------------------------------------------


def elements(schema, tmp_path):
    path = tmp_path / "elements.parquet"
    pq.write_table(schema.empty_table(), path)
    return ia.ParquetFile(path).schema.elements


def with_id(field, number):
    return field.with_metadata({"PARQUET:field_id": str(number)})


def test_field_ids_decide_where_a_file_has_them(tmp_path):
    mapping = ColumnMapping(
        (MappedField("a", ("b",), 1), MappedField("b", ("a",), 2), MappedField("c", ("x",), 3)),
        by_id=True,
    )
    named = pa.schema([pa.field("a", pa.int64()), pa.field("x", pa.int64())])
    assert mapping.names(elements(named, tmp_path)) == ["schema", "b", "c"]
    numbered = pa.schema([with_id(named.field(0), 1), with_id(named.field(1), 9)])
    assert mapping.names(elements(numbered, tmp_path)) == ["schema", "a", "x"]
    swapped = pa.schema([with_id(named.field(0), 2), with_id(pa.field("b", pa.int8()), 1)])
    assert mapping.names(elements(swapped, tmp_path)) == ["schema", "b", "a"]


def test_hidden_columns_get_no_name_of_the_table(tmp_path):
    mapping = ColumnMapping((MappedField("a", ("x",)),), other_names=frozenset({"day", "_a"}))
    stored = pa.schema({"a": pa.int8(), "day": pa.int8(), "x": pa.int8(), "_day": pa.int8()})
    names = mapping.names(elements(stored, tmp_path))
    assert names[3] == "a"
    assert len(set(names)) == len(names)
    assert not {"a", "day", "_a"}.intersection([*names[1:3], *names[4:]])


def test_maps_and_lists_are_named_within(tmp_path):
    inner = pa.struct({"p": pa.int8()})
    stored = pa.schema({"m": pa.map_(pa.string(), inner), "l": pa.list_(pa.list_(inner))})
    fields = (MappedField("q", ("p",)),)
    value = MappedField("", fields=fields)
    mapping = ColumnMapping(
        (
            MappedField("map", ("m",), fields=(MappedField(""), value)),
            MappedField("list", ("l",), fields=(MappedField("", fields=(value,)),)),
        )
    )
    assert mapping.names(elements(stored, tmp_path)) == [
        *("schema", "map", "key_value", "key", "value", "q"),
        *("list", "list", "element", "list", "element", "q"),
    ]
