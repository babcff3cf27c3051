"""Columns that a scan does not use do not affect its answer or its errors."""

from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.dataset import request_builder

F = pc.field
ROWS = 20
METADATA = {"origin": "test"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A partitioned table with a struct, a name with a dot, UUIDs and views.

    One file stores its partition column as well.
    """
    path = tmp_path_factory.mktemp("wide")
    for year in (2023, 2024):
        table = pa.table(
            {
                "n": range(ROWS),
                "point": pa.array([{"x": i, "y": -i} for i in range(ROWS)]),
                "point.z": range(ROWS),
                "view": pa.array([f"text {i}" for i in range(ROWS)], pa.string_view()),
                "id": pa.array([bytes([i]) * 16 for i in range(ROWS)], pa.uuid()),
            }
        ).replace_schema_metadata(METADATA)
        if year == 2024:
            table = table.append_column("year", pa.array([year] * ROWS, pa.int32()))
        file = path / f"year={year}" / "t.parquet"
        file.parent.mkdir()
        pq.write_table(table, file)
    return path


def outcome(data, columns, condition):
    """Returns the answer of a scan, or the type and message of its error."""
    try:
        table = data.to_table(columns=columns, filter=condition)
    except (ia.IntarsiaError, TypeError, ValueError, pa.ArrowException) as error:
        return type(error), str(error)
    return table.schema.metadata, table


@pytest.mark.parametrize(
    "columns",
    [
        ["n"],
        ("view", "n"),
        ["id", "year"],
        ["point"],
        ["point.x", "n"],
        ["point.z"],
        ["__filename", "n"],
        [],
        None,
        {"sum": F("n") + F("point", "x")},
        ["none"],
        ["point.none"],
        ["n", 3],
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "condition",
    [
        F("n") == 7,
        (F("year") == 2024) & (F("n") < 3),
        F("view") == "text 5",
        F("point", "y") < -15,
        F("id") == "07070707-0707-0707-0707-070707070707",
        F("none") == 1,
        '"point.z" IN (1, 2)',
        None,
    ],
    ids=str,
)
def test_unused_columns_change_nothing(folder, columns, condition):
    data = ia.dataset(folder, partitioning="hive")
    with mock.patch.object(request_builder, "_MIN_WIDE_COLUMNS", 1):
        actual = outcome(data, columns, condition)
    assert actual == outcome(data, columns, condition)


def test_a_stored_partition_column_is_checked_though_it_is_not_used(tmp_path):
    file = tmp_path / "year=2024" / "t.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"n": [1, 2], "year": pa.array([1999, 1999], pa.int32())}), file)
    data = ia.dataset(tmp_path, partitioning="hive")
    with (
        mock.patch.object(request_builder, "_MIN_WIDE_COLUMNS", 1),
        pytest.raises(ia.IntarsiaError, match="year"),
    ):
        data.to_table(columns=["n"], filter=F("n") == 1)


def test_the_scan_of_a_wide_table_looks_at_used_columns_only(tmp_path):
    count = request_builder._MIN_WIDE_COLUMNS
    path = tmp_path / "t.parquet"
    table = pa.table({f"c{n}": range(ROWS) for n in range(count)})
    pq.write_table(table, path)
    with mock.patch.object(
        request_builder, "request_of", side_effect=request_builder.request_of
    ) as request_of:
        actual = ia.dataset(path).to_table(columns=["c7"], filter=F("c9") == 3)
    assert actual.equals(pads.dataset(path).to_table(columns=["c7"], filter=F("c9") == 3))
    assert [call.args[0].names for call in request_of.call_args_list] == [["c7", "c9"]]
