"""Statistics of Delta logs and of Iceberg manifests leave out files before they are opened.

Each answer is compared with that of pyarrow on all rows.
"""

import datetime as dt
import decimal
import math

import delta_log
import deltalake
import iceberg_tables
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import intarsia as ia

FILES, ROWS = 6, 12
START = dt.datetime(1969, 12, 31, 23, 59, 59, 999_400)
ALIKE = "the first characters of all strings are these, "
LAST = chr(0x10FFFF)
"""The last character: a string of these alone cannot be shortened to a greater one."""


def rows(file):
    """Returns the rows of one file. Values of most columns ascend from file to file."""
    numbers = range(file * ROWS, (file + 1) * ROWS)
    times = [START + dt.timedelta(microseconds=37 * n) for n in numbers]
    doubles = [math.nan if n % 5 == 0 else n / 3 - 10 for n in numbers]
    return pa.table(
        {
            "i": pa.array([n if n % 7 else None for n in numbers], pa.int32()),
            "big": pa.array([n - 2**62 for n in numbers], pa.int64()),
            "f": pa.array([0.1 * n if n % 4 else -0.0 for n in numbers], pa.float32()),
            "d": pa.array(doubles, pa.float64()),
            "s": [f"é{n:03}" for n in numbers],
            "long": [f"{ALIKE}{n:03}" for n in numbers],
            "cut": [f"{n:03}{LAST * 40}{n}" for n in numbers],
            "ts": pa.array(times, pa.timestamp("us")),
            "tz": pa.array(times, pa.timestamp("us", tz="UTC")),
            "date": pa.array([START.date() + dt.timedelta(days=n) for n in numbers], pa.date32()),
            "ok": [file > 2] * ROWS,
            "price": pa.array([decimal.Decimal(n) / 8 for n in numbers], pa.decimal128(9, 3)),
            "sum": pa.array(
                [decimal.Decimal(f"123456789012345678{n:02}.125") for n in numbers],
                pa.decimal128(38, 3),
            ),
            "few": pa.array([n if file == 4 else None for n in numbers], pa.int64()),
            "st": [{"a": n, "b": {"c": f"c{n:03}"}} if n % 6 else None for n in numbers],
        }
    )


ALL = pa.concat_tables(rows(file) for file in range(FILES))


def delta(folder):
    """A table with deletion vectors, in which a column was added late."""
    settings = {"delta.enableDeletionVectors": "true"}
    for file in range(FILES):
        first = {"configuration": settings} if not file else {"schema_mode": "merge"}
        deltalake.write_deltalake(folder, rows(file), mode="append", **first)
    added = [one["add"]["path"] for one in delta_log.actions(folder) if "add" in one]
    for path in added[::2]:
        delta_log.delete_rows(folder, path, [0, ROWS - 1])
    return lambda: ia.delta(folder)


def mapped_delta(folder):
    """A table whose columns have other names in files, and in statistics."""
    for file in range(FILES):
        first = {"configuration": {"delta.columnMapping.mode": "name"}} if not file else {}
        # Timestamps without a zone would name features in the protocol, and mapping is not one.
        deltalake.write_deltalake(folder, rows(file).drop_columns(["ts"]), mode="append", **first)
    assert "col-" in pa.table(DeltaTable(folder).get_add_actions(flatten=True)).column_names[4]
    return lambda: ia.delta(folder)


def iceberg(folder):
    table = iceberg_tables.catalog_in(folder).create_table("n.t", schema=ALL.schema)
    for file in range(FILES):
        table.append(rows(file))
    deleted = {location: [0, 5] for location in iceberg_tables.locations(table)[::2]}
    opened = iceberg_tables.with_deletes(table, deleted)
    return lambda: ia.iceberg(opened)


TABLES = {make.__name__: make for make in (delta, mapped_delta, iceberg)}


@pytest.fixture(scope="module", params=TABLES.values(), ids=TABLES)
def opened(request, tmp_path_factory):
    """A function that opens the table anew, and all rows of the table."""
    open_table = request.param(tmp_path_factory.mktemp("table"))
    return open_table, open_table().to_table()


def conditions(names):
    """Conditions on all columns, with values that are at the edges of files and between them."""
    paths = {name: pc.field(name) for name in names if name != "st"}
    inner = {"st.a": pc.field("st", "a"), "st.b.c": pc.field("st", "b", "c")}
    values = {name: ALL[name].to_pylist() for name in paths}
    values["st.a"], values["st.b.c"] = [*range(len(ALL))], [f"c{n:03}" for n in range(len(ALL))]
    for name, field in {**paths, **inner}.items():
        kind = ALL.schema.field(name).type if name in paths else None
        for at in (ROWS - 1, 2 * ROWS, 4 * ROWS + 1):
            value = values[name][at]
            if value is None or value != value:
                continue
            literal = pa.scalar(value, kind)
            yield from (
                field == literal,
                field != literal,
                field < literal,
                field <= literal,
                field > literal,
                field >= literal,
                ~(field > literal),
                field.isin([value]),
            )
        yield from (field.is_null(), field.is_valid(), field.is_null(nan_is_null=True))


def same_rows(data, everything, condition):
    """True if a data set answers as pyarrow does. Rows are compared by their numbers."""
    expected = everything.filter(condition)["big"]
    rows_found = data.to_table(columns=["big"], filter=condition)["big"]
    return rows_found.to_pylist() == expected.to_pylist()


def test_answers_are_those_of_all_rows(opened):
    open_table, everything = opened
    data = open_table()
    for condition in conditions(everything.column_names):
        assert same_rows(data, everything, condition), condition


@pytest.mark.parametrize(
    ("condition", "num_files"),
    [
        (pc.field("i") == 30, 1),
        (pc.field("i") < 0, 0),
        (pc.field("big") >= 5 * ROWS - 2**62, 1),
        (pc.field("s") == "é030", 1),
        (pc.field("date") < dt.date(1970, 1, 1), 1),
        (pc.field("ok") & (pc.field("i") < 40), 1),
        ((pc.field("i") == 1) | (pc.field("s") == "é070"), 2),
        (pc.field("few").is_valid(), 1),
        (pc.field("price") < decimal.Decimal("1.5"), 1),
    ],
    ids=str,
)
def test_files_are_left_out_before_they_are_opened(opened, condition, num_files):
    data = opened[0]()
    assert same_rows(data, opened[1], condition)
    assert data.scan_source.cache.num_kept == num_files
    assert opened[0]().count_rows(filter=condition) == data.count_rows(filter=condition)
    assert data.plan(filter=condition).figures.files.selected <= num_files


@pytest.mark.parametrize(
    "condition", [pc.field("st", "a") == 30, pc.field("st", "b", "c") > "c061"], ids=str
)
def test_fields_of_structs_have_statistics_in_delta_logs(tmp_path, condition):
    data = delta(tmp_path)()
    assert same_rows(data, ALL, condition)
    assert data.scan_source.cache.num_kept == 1


def test_nan_is_no_bound(opened):
    """Files with NaN may hold rows that are not less than a value, whatever their bounds are."""
    for condition in (~(pc.field("d") < 100), ~(pc.field("d") > -100), pc.field("d") != 1):
        assert same_rows(opened[0](), opened[1], condition)


def test_explanations_name_the_table(opened):
    explanation = opened[0]().explain(filter=pc.field("i") == 30)
    excluded = [file.plan.steps[-1].source for file in explanation.files if file.reader == "none"]
    assert excluded == ["table"] * (FILES - 1)


def test_copies_leave_out_files_too(opened):
    import pickle

    copy = pickle.loads(pickle.dumps(opened[0]()))
    assert copy.to_table(filter=pc.field("i") == 30).num_rows == 1
    assert copy.scan_source.cache.num_kept == 1


def test_statistics_may_be_missing(tmp_path):
    """Files without statistics are opened, and those of columns that were added later."""
    path = str(tmp_path)
    deltalake.write_deltalake(path, pa.table({"i": [1, 2]}))
    deltalake.write_deltalake(
        path, pa.table({"i": [3, 4], "x": [1, 2]}), mode="append", schema_mode="merge"
    )
    first = next(one["add"] for one in delta_log.actions(path) if "add" in one)
    without = {name: value for name, value in first.items() if name != "stats"}
    delta_log.commit(path, {"add": without})
    data = ia.delta(DeltaTable(path))
    assert sorted(data.to_table(filter="i = 2 or i = 3")["i"].to_pylist()) == [2, 3]
    assert data.to_table(filter="i = 9").num_rows == 0
    assert data.to_table(filter="x is null").num_rows == 2
    assert data.to_table(filter="x = 1")["i"].to_pylist() == [3]
