"""Filters evaluated by pyarrow's scan of row groups, compared with our reader and memory."""

import shutil
from datetime import date, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia as ia

NAN = float("nan")
VALUES = {
    "integer": (pa.int32(), [0, 1, 2, 5, -7, 2**31 - 1, None]),
    "number": (pa.float64(), [0.0, -0.0, 1.5, NAN, -3.0, None]),
    "text": (pa.string(), ["", "a", "b", "ab", "å", None]),
    "day": (pa.date32(), [date(2024, 1, 1), date(2024, 5, 7), date(1960, 1, 1), None]),
    "at": (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1), datetime(1970, 1, 1), None]),
}
FIELDS = [pa.field(name, kind) for name, (kind, _) in VALUES.items()]
SCHEMA = pa.schema([*FIELDS, pa.field("part", pa.int32())])


def comparisons():
    def of(name):
        kind, values = VALUES[name]
        field = pc.field(name)
        known = [value for value in values if value is not None]
        value = st.sampled_from(known).map(lambda actual: pa.scalar(actual, kind))
        ordered = st.builds(
            lambda operator, actual: getattr(field, operator)(actual),
            st.sampled_from(["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]),
            value,
        )
        members = st.lists(st.sampled_from(known), min_size=1, max_size=3)
        return ordered | members.map(lambda actual: field.isin(pa.array(actual, kind)))

    part = st.integers(0, 2).map(lambda actual: pc.field("part") == actual)
    return st.one_of(part, *map(of, VALUES))


def filters():
    return st.recursive(
        comparisons(),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            inner.map(lambda a: ~a),
        ),
        max_leaves=4,
    )


def lakes():
    """For each file: its rows, its folder, and its writer options."""
    row = st.tuples(*(st.sampled_from(values) for _, values in VALUES.values()))
    file = st.fixed_dictionaries(
        {
            "rows": st.lists(row, min_size=1, max_size=12),
            "part": st.integers(0, 2),
            "repeats": st.sampled_from([1, 300]),
            "row_group_size": st.sampled_from([3, 1000]),
            "write_page_index": st.booleans(),
            "has_narrow_numbers": st.booleans(),
            "lacks_text": st.booleans(),
        }
    )
    return st.lists(file, min_size=1, max_size=7)


def written(lake, folder):
    """Writes the files; returns the rows of the data set."""
    shutil.rmtree(folder, ignore_errors=True)
    tables = []
    for number, file in enumerate(lake):
        columns = zip(*(file["rows"] * file["repeats"]), strict=True)
        table = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, FIELDS, strict=True)],
            schema=pa.schema(FIELDS),
        )
        stored = table
        if file["has_narrow_numbers"]:
            narrow = table.column("number").cast(pa.float32())
            stored = stored.set_column(1, "number", narrow)
        if file["lacks_text"]:
            stored = stored.drop_columns(["text"])
            table = table.set_column(2, "text", pa.nulls(len(table), pa.string()))
        at = folder / f"part={file['part']}" / f"{number}.parquet"
        at.parent.mkdir(parents=True, exist_ok=True)
        options = {key: file[key] for key in ("row_group_size", "write_page_index")}
        pq.write_table(stored, at, **options)
        parts = pa.array([file["part"]] * len(table), pa.int32())
        tables.append((at, table.append_column("part", parts)))
    return pa.concat_tables([table for _, table in sorted(tables, key=lambda one: str(one[0]))])


@settings(max_examples=30, deadline=None)
@given(lakes(), st.lists(filters(), min_size=1, max_size=6))
def test_counts_equal_those_of_our_reader_and_of_memory(tmp_path_factory, lake, wanted):
    folder = tmp_path_factory.getbasetemp() / "counts"
    rows = written(lake, folder)
    opened = ia.dataset(folder, schema=SCHEMA, partitioning="hive")
    pages = opened.with_options(reader="pages")
    for filter_ in wanted:
        expected = rows.filter(filter_).num_rows
        assert pages.count_rows(filter_) == expected, filter_
        assert opened.count_rows(filter_) == expected, filter_


@settings(max_examples=30, deadline=None)
@given(lakes(), st.lists(filters(), min_size=1, max_size=6), st.data())
def test_tables_equal_those_of_memory(tmp_path_factory, lake, wanted, draw):
    folder = tmp_path_factory.getbasetemp() / "tables"
    rows = written(lake, folder)
    opened = ia.dataset(folder, schema=SCHEMA, partitioning="hive")
    for filter_ in wanted:
        names = draw.draw(st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True))
        expected = rows.filter(filter_).select(names)
        actual = opened.to_table(names, filter_)
        assert actual.schema.equals(expected.schema, check_metadata=True), filter_
        assert repr(actual.to_pydict()) == repr(expected.to_pydict()), filter_
