"""Each kind of input gives the same rows and types, by ``write_table`` and ``write_dataset``."""

from __future__ import annotations

import datetime

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia

TABLE = pa.table(
    {
        "id": pa.array(range(5000), pa.int64()),
        "name": [None if i % 7 == 0 else f"n{i % 50}" for i in range(5000)],
        "at": pa.array(
            [datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=i) for i in range(5000)],
            pa.timestamp("us"),
        ),
        "tags": [[i, None] if i % 3 else None for i in range(5000)],
    }
)
PLAIN = TABLE.schema


class Stream:
    """An object of which only the Arrow stream is known."""

    def __arrow_c_stream__(self, requested_schema=None):
        return TABLE.to_reader(700).__arrow_c_stream__(requested_schema)


class Interchange:
    """An object of which only the data frame protocol is known."""

    def __dataframe__(self, nan_as_null=False, allow_copy=True):
        return TABLE.drop_columns(["tags"]).__dataframe__(nan_as_null, allow_copy)


def relation():
    connection = duckdb.connect()
    connection.register("rows", TABLE)
    return connection.sql("FROM rows")


def lazy_of_ours(tmp_path):
    pq.write_table(TABLE, tmp_path / "source.parquet")
    return ia.polars.scan(str(tmp_path / "source.parquet"))


def of_files(tmp_path):
    pq.write_table(TABLE, tmp_path / "source.parquet", row_group_size=900)
    return ia.dataset(tmp_path / "source.parquet")


INPUTS = {
    "table": lambda _: TABLE,
    "record batch": lambda _: TABLE.combine_chunks().to_batches()[0],
    "tables": lambda _: [TABLE.slice(0, 1000), TABLE.slice(1000)],
    "batches": lambda _: TABLE.to_batches(max_chunksize=700),
    "reader": lambda _: TABLE.to_reader(700),
    "pyarrow's data set": lambda _: pads.dataset(TABLE),
    "our data set": of_files,
    "scanner": lambda _: pads.dataset(TABLE).scanner(batch_size=700),
    "stream": lambda _: Stream(),
    "polars": lambda _: pl.from_arrow(TABLE),
    "polars, lazy": lambda _: pl.from_arrow(TABLE).lazy(),
    "polars, lazy, ours": lazy_of_ours,
    "frames of polars": lambda _: [pl.from_arrow(TABLE.slice(0, 9)), pl.from_arrow(TABLE.slice(9))],
    "relation": lambda _: relation(),
    "interchange": lambda _: Interchange(),
    "pandas": lambda _: TABLE.drop_columns(["tags"]).to_pandas(),
}


@pytest.mark.parametrize("kind", [*INPUTS])
@pytest.mark.parametrize("is_cast", [False, True], ids=["own schema", "schema"])
def test_each_input_gives_the_same_rows(tmp_path, kind, is_cast):
    rows = INPUTS[kind]
    expected = TABLE if kind not in ("interchange", "pandas") else TABLE.drop_columns(["tags"])
    options = {"schema": expected.schema} if is_cast else {}
    ia.write_table(rows(tmp_path), tmp_path / "a.parquet", indexes=["id:lookup"], **options)
    ia.write_dataset(rows(tmp_path), tmp_path / "lake", indexes=["id:lookup"], **options)
    for path in ("a.parquet", "lake"):
        data = ia.dataset(tmp_path / path)
        actual = data.to_table()
        if is_cast:
            assert actual.schema == expected.schema
        assert actual.to_pydict() == expected.to_pydict()
        assert actual.cast(expected.schema).equals(expected)
        assert data.to_table(["id"], "id = 4321").to_pydict() == {"id": [4321]}
        assert ia.verify(data.files[0]) == []


def test_eager_and_lazy_frames_have_the_same_types(tmp_path):
    frame = pl.DataFrame(
        {
            "category": pl.Series(["x", "y", None], dtype=pl.Categorical),
            "name": pl.Series(["x", "y", "x"], dtype=pl.Enum(["x", "y"])),
            "amount": pl.Series(["1.10", "2", None]).cast(pl.Decimal(10, 2)),
            "bytes": [b"a", None, b"c"],
            "day": [datetime.date(2026, 1, 1), None, None],
            "part": [{"a": 1}, {"a": None}, None],
            "nothing": [None, None, None],
        }
    )
    ia.write_table(frame, tmp_path / "eager.parquet")
    ia.write_table(frame.lazy(), tmp_path / "lazy.parquet")
    eager, lazy = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("eager", "lazy"))
    assert eager.equals(lazy, check_metadata=True)
    assert pl.read_parquet(tmp_path / "lazy.parquet").equals(frame)


def test_frames_of_pandas_come_back_with_their_index(tmp_path):
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="key"))
    ia.write_table(frame, tmp_path / "a.parquet")
    assert pd.read_parquet(tmp_path / "a.parquet").equals(frame)


@pytest.mark.parametrize("kind", [kind for kind in INPUTS if kind not in ("tables", "batches")])
def test_inputs_without_rows_keep_their_schema(tmp_path, kind):
    rows = {
        "table": TABLE.slice(0, 0),
        "record batch": pa.RecordBatch.from_pylist([], schema=PLAIN),
        "reader": TABLE.slice(0, 0).to_reader(),
        "polars": pl.from_arrow(TABLE.slice(0, 0)),
        "polars, lazy": pl.from_arrow(TABLE).lazy().filter(pl.col("id") < 0),
        "relation": relation().filter("id < 0"),
        "pandas": TABLE.to_pandas().head(0),
    }.get(kind, pads.dataset(TABLE.slice(0, 0)))
    ia.write_table(rows, tmp_path / "a.parquet")
    if kind != "reader":  # it is used up
        ia.write_dataset(rows, tmp_path / "lake")
        assert ia.dataset(tmp_path / "lake").count_rows() == 0
        assert ia.dataset(tmp_path / "lake").schema.names == PLAIN.names
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 0
    assert pq.read_schema(tmp_path / "a.parquet").names == PLAIN.names


def test_a_schema_casts_and_orders_columns(tmp_path):
    schema = pa.schema([("name", pa.large_string()), ("id", pa.int16())])
    frame = pl.from_arrow(TABLE.select(["id", "name"]))
    expected = TABLE.select(["name", "id"]).cast(schema)
    for rows in (frame, frame.lazy(), TABLE.select(["id", "name"]), frame.to_pandas()):
        ia.write_table(rows, tmp_path / "a.parquet", schema=schema)
        assert pq.read_table(tmp_path / "a.parquet").equals(expected)
    with pytest.raises(ValueError, match="not in range"):
        ia.write_table(frame, tmp_path / "a.parquet", schema=pa.schema([schema[0], ("id", "int8")]))
    with pytest.raises(ValueError, match="rows of another schema"):
        ia.write_table(frame, tmp_path / "a.parquet", schema=pa.schema([schema[0]]))
    assert pq.read_table(tmp_path / "a.parquet").equals(expected)


def test_row_groups_of_streams_have_as_many_rows_as_is_asked(tmp_path):
    def group_rows(rows, **options):
        ia.write_table(rows, tmp_path / "a.parquet", **options)
        metadata = pq.read_metadata(tmp_path / "a.parquet")
        return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]

    for rows in (TABLE, TABLE.to_reader(700), pads.dataset(TABLE).scanner(batch_size=33)):
        assert group_rows(rows, row_group_size=2000) == [2000, 2000, 1000]
    assert group_rows(TABLE.to_reader(700)) == [5000]


def test_wrong_inputs_are_refused(tmp_path):
    for write in (ia.write_table, ia.write_dataset):
        for rows in (7, "logs.parquet", {"id": [1]}, None, []):
            with pytest.raises(TypeError, match="data is a table, batches"):
                write(rows, tmp_path / "a.parquet")
        with pytest.raises(TypeError, match="an iterable of batches needs a schema"):
            write(iter([TABLE]), tmp_path / "a.parquet")
        with pytest.raises(TypeError, match="an iterable of rows has tables"):
            write([TABLE, 7], tmp_path / "a.parquet")
        with pytest.raises(ValueError, match="another schema"):
            write([TABLE, TABLE.select(["id"])], tmp_path / "a.parquet")
        with pytest.raises(duckdb.Error, match="Could not convert"):
            write(relation().project("CAST(name AS INTEGER) AS n"), tmp_path / "a.parquet")
    assert [*tmp_path.iterdir()] == []
