"""Files that have a column in another type than the data set: the answer is that of the cast."""

import datetime
import decimal
import itertools
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia

NOON = datetime.datetime(2020, 1, 1, 12)
HALF = decimal.Decimal("1.5")
DAY = datetime.date(2020, 1, 1)
PAIRS = [
    (pa.float64(), pa.float32(), [0.1, 0.5, math.nan, None], [np.float32(0.1), 0.1, 0.5]),
    (pa.float32(), pa.float64(), [0.1, 0.5, math.nan, None], [0.1, 0.5, float(np.float32(0.1))]),
    (pa.timestamp("us"), pa.date32(), [NOON, None], [DAY, NOON]),
    (pa.date32(), pa.timestamp("us"), [DAY, None], [DAY, NOON]),
    (pa.timestamp("ms"), pa.timestamp("us"), [NOON, None], [NOON, DAY]),
    (pa.int32(), pa.int64(), [1, -5, None], [1, -5, 2**40, 0.5]),
    (pa.int64(), pa.int32(), [1, -5, None], [1, -5]),
    (pa.uint8(), pa.int64(), [1, 200, None], [1, 200, -1]),
    (pa.int32(), pa.float64(), [1, 2, None], [1.0, 1.5]),
    (pa.int32(), pa.string(), [1, 10, None], ["1", "10", "2"]),
    (pa.string(), pa.float64(), ["nan", "1.5", "01", None], [1.0, 1.5]),
    (pa.string(), pa.int64(), ["10", "9", None], [9, 10]),
    (
        pa.decimal128(5, 1),
        pa.decimal128(9, 3),
        [decimal.Decimal("1.5")],
        [decimal.Decimal("1.500")],
    ),
    (pa.string(), pa.large_string(), ["a", None], ["a", "b"]),
    (pa.string(), pa.dictionary(pa.int32(), pa.string()), ["a", "b", None], ["a", "c"]),
    (pa.bool_(), pa.int32(), [True, False, None], [0, 1]),
]


def filters_of(kind, literals):
    field = pc.field("x")
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    yield from (field.is_null(), field.is_valid())
    if pa.types.is_floating(kind):
        yield field.is_null(nan_is_null=True)
        yield field.isin(pa.array([math.nan], kind))
    for value in literals:
        literal = pc.scalar(value.item() if isinstance(value, np.generic) else value)
        typed = pc.scalar(pa.scalar(value)) if isinstance(value, np.generic) else literal
        yield from (field == typed, field != typed, field < typed, field >= typed, ~(field < typed))
    try:
        yield field.isin(pa.array(list(literals), plain))
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
        return


@pytest.mark.parametrize(("stored", "seen", "values", "literals"), PAIRS, ids=str)
def test_pruning_uses_the_type_in_which_the_filter_is_evaluated(
    tmp_path, stored, seen, values, literals
):
    for i, cells in enumerate([v] * 3 for v in values):
        path = tmp_path / f"{i}.parquet"
        table = pa.table({"x": pa.array(cells, stored), "n": range(3)})
        indexes = [] if pa.types.is_boolean(stored) else [ia.Lookup("x", granule_rows=1)]
        ia.write_table(table, path, indexes=indexes)
    schema = pa.schema([("x", seen), ("n", pa.int64())])
    whole = pq.ParquetFile(tmp_path / "0.parquet").read().slice(0, 0).schema
    assert whole.field("x").type == stored
    source = ia.dataset(tmp_path, schema=schema)
    tables = [pq.read_table(tmp_path / f"{i}.parquet") for i in range(len(values))]
    compared = 0
    for filter_ in filters_of(seen, literals):
        try:
            expected = pa.concat_tables(tables).cast(schema).filter(filter_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        assert source.count_rows(filter_) == expected.num_rows, str(filter_)
        compared += 1
    assert compared > 1


CONSTANTS = [
    (pa.date32(), DAY, [NOON, DAY, datetime.datetime(2020, 1, 1)]),
    (pa.float32(), 0.1, [0.1, 0.5]),
    (pa.int32(), 7, [7, 7.5, 2**40, -1]),
    (pa.string(), "a", ["a", "b"]),
]


@pytest.mark.parametrize(("kind", "value", "literals"), CONSTANTS, ids=str)
def test_a_partition_value_compares_like_a_column(tmp_path, kind, value, literals):
    pq.write_table(pa.table({"n": [1]}), tmp_path / "t.parquet")
    fragment = pa.dataset.ParquetFileFormat().make_fragment(
        str(tmp_path / "t.parquet"),
        pa.fs.LocalFileSystem(),
        pc.field("k") == pc.scalar(pa.scalar(value, kind)),
    )
    schema = pa.schema([("n", pa.int64()), ("k", kind)])
    source = ia.Dataset([fragment], schema, pa.dataset.ParquetFileFormat())
    table = pa.table({"n": [1], "k": pa.array([value], kind)})
    field = pc.field("k")
    for literal, negated in itertools.product(literals, (False, True)):
        other = pc.scalar(literal)
        for filter_ in (field == other, field != other, field < other, field >= other):
            wanted = ~filter_ if negated else filter_
            assert source.count_rows(wanted) == table.filter(wanted).num_rows, str(wanted)
        wanted = field.isin(pa.array([literal]))
        try:
            expected = table.filter(wanted).num_rows
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            continue
        assert source.count_rows(wanted) == expected, str(wanted)
