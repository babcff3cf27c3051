"""``optimize`` with logical types that Arrow lacks: new files keep them."""

from __future__ import annotations

import datetime as dt

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
import intarsia.spark as ias
from intarsia.parquet.metadata import ConvertedType, Empty, LogicalType
from intarsia.writer.parquet_writer import open_writer

pytestmark = pytest.mark.spark

ENUM = {"converted_type": ConvertedType.ENUM, "logicalType": LogicalType(ENUM=Empty())}
OLD_ENUM = {"converted_type": ConvertedType.ENUM}
BSON = {"converted_type": ConvertedType.BSON, "logicalType": LogicalType(BSON=Empty())}
INTERVAL = {"converted_type": ConvertedType.INTERVAL}
ANNOTATED = {"e": ENUM, "span": INTERVAL, "list": ENUM, "struct.e": ENUM}
"""Annotations by the beginning of a leaf's path. DuckDB does not know BSON."""
TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("e", pa.binary()),
        ("b", pa.binary()),
        ("span", pa.binary(12)),
        ("list", pa.list_(pa.binary())),
        ("struct", pa.struct([("n", pa.int64()), ("e", pa.binary())])),
    ]
)


def put(path, ids, annotated=ANNOTATED, **options):
    """Writes a file of numbered rows with annotations."""
    rows = [
        {
            "id": i,
            "e": f"e{i % 3}".encode(),
            "b": b"\5\0\0\0\0",
            "span": bytes(4) + i.to_bytes(4, "little") + bytes(4),
            "list": [b"x"] * (i % 3) if i % 4 else None,
            "struct": {"n": i, "e": b"y"} if i % 5 else None,
        }
        for i in ids
    ]
    pq.write_table(TYPES.empty_table(), path, **options)
    elements = {
        leaf.elements[-1]: fields
        for leaf in ia.ParquetFile(path).schema.leaves
        for name, fields in annotated.items()
        if f"{leaf.name}.".startswith(f"{name}.")
    }
    with open_writer(TYPES, path, annotations=elements, **options) as writer:
        writer.write_table(pa.Table.from_pylist(rows, TYPES))


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*.parquet")}


def said(path):
    """Returns the annotations of all leaves."""
    leaves = ia.ParquetFile(path).schema.leaves
    return [(leaf.element.converted_type, leaf.element.logicalType) for leaf in leaves]


@pytest.mark.parametrize("cluster_by", [[], ["id"]], ids=["merged", "ordered"])
@pytest.mark.parametrize("options", [{}, {"use_compliant_nested_type": False}], ids=["new", "old"])
def test_new_files_keep_the_annotations(cluster_by, options, spark, tmp_path):
    put(tmp_path / "a.parquet", range(10, 20), **options)
    put(tmp_path / "b.parquet", range(10), **options)
    before = said(tmp_path / "a.parquet")
    assert [converted for converted, _ in before].count(ConvertedType.ENUM) == 3
    expected = ia.dataset(tmp_path).to_table().sort_by("id")
    ias.optimize(spark, tmp_path, cluster_by=cluster_by, indexes=["id:lookup", "e:bloom"])
    (file,) = tmp_path.glob("*.parquet")
    assert said(file) == before
    assert ia.verify(file) == []
    assert ia.dataset(file).to_table().sort_by("id").equals(expected)
    by_duckdb = duckdb.sql(f"SELECT e, span FROM '{file}' WHERE id = 7").fetchall()
    assert by_duckdb == [("e1", dt.timedelta(days=7))]


def test_types_without_an_order_get_no_bounds(spark, tmp_path):
    put(tmp_path / "a.parquet", range(10))
    put(tmp_path / "b.parquet", range(10))
    ias.optimize(spark, tmp_path)
    (file,) = tmp_path.glob("*.parquet")
    group = pq.read_metadata(file).row_group(0)
    has = {group.column(i).path_in_schema: group.column(i).is_stats_set for i in range(7)}
    assert has.pop("span") is False
    assert set(has.values()) == {True}


@pytest.mark.parametrize("other", [ENUM, OLD_ENUM])
def test_annotations_of_older_and_newer_writers_are_equivalent(other, spark, tmp_path):
    put(tmp_path / "a.parquet", range(10), {"e": ENUM, "b": BSON})
    put(tmp_path / "b.parquet", range(10), {"e": other, "b": BSON})
    ias.optimize(spark, tmp_path)
    (file,) = tmp_path.glob("*.parquet")
    assert said(file)[1:3] == [tuple(ENUM.values()), tuple(BSON.values())]
    assert spark.read.parquet(str(file)).dtypes[1:3] == [("e", "string"), ("b", "binary")]


@pytest.mark.parametrize("other", [{}, {"e": BSON}])
def test_files_with_different_annotations_do_not_change(other, spark, tmp_path):
    put(tmp_path / "a.parquet", range(10), {"e": ENUM})
    put(tmp_path / "b.parquet", range(10), other)
    before = contents(tmp_path)
    with pytest.raises(ia.UnsupportedError, match="'e' is ENUM in some files, but not in all"):
        ias.optimize(spark, tmp_path)
    assert contents(tmp_path) == before


def test_a_column_that_some_files_lack_keeps_its_annotation(spark, tmp_path):
    put(tmp_path / "a.parquet", range(10), {"e": ENUM})
    pq.write_table(pa.table({"id": range(10)}), tmp_path / "b.parquet")
    ias.optimize(spark, tmp_path)
    (file,) = tmp_path.glob("*.parquet")
    assert said(file)[1][0] == ConvertedType.ENUM


def variants(spark, folder, *texts):
    for text in texts:
        frame = spark.sql("SELECT parse_json(:text) AS v, id FROM range(20)", {"text": text})
        frame.coalesce(1).write.mode("append").parquet(str(folder))


def types_of(spark, folder):
    actual = spark.read.parquet(str(folder)).selectExpr("to_json(v) AS v").distinct()
    return sorted(row.v for row in actual.collect())


@pytest.mark.parametrize("cluster_by", [[], ["id"]], ids=["merged", "ordered"])
def test_variants_keep_their_type(cluster_by, spark, tmp_path):
    variants(spark, tmp_path, '{"a":1}', '{"a":2}')
    ias.optimize(spark, tmp_path, cluster_by=cluster_by)
    (file,) = tmp_path.glob("*.parquet")
    group = ia.ParquetFile(file).schema.elements[1]
    assert (group.name, group.logicalType.VARIANT is not None) == ("v", True)
    assert types_of(spark, tmp_path) == ['{"a":1}', '{"a":2}']


def test_files_with_differently_shredded_variants_do_not_change(spark, tmp_path):
    variants(spark, tmp_path, '{"a":1}', '{"b":"x"}')
    before = contents(tmp_path)
    with pytest.raises(ia.UnsupportedError, match="VARIANT, and its storage type differs"):
        ias.optimize(spark, tmp_path)
    assert contents(tmp_path) == before
    assert types_of(spark, tmp_path) == ['{"a":1}', '{"b":"x"}']


@pytest.mark.parametrize(("kind", "made"), [("GEOMETRY", "geom"), ("GEOGRAPHY", "geog")])
def test_geometries_keep_their_type(kind, made, spark, tmp_path):
    point = "X'0101000000000000000000F03F0000000000000040'"
    frame = spark.sql(f"SELECT st_{made}fromwkb({point}) AS g")
    for _ in range(2):
        frame.coalesce(1).write.mode("append").parquet(str(tmp_path))
    (before, _) = (said(file) for file in tmp_path.glob("*.parquet"))
    ias.optimize(spark, tmp_path)
    (file,) = tmp_path.glob("*.parquet")
    assert said(file) == before
    assert getattr(before[0][1], kind) is not None
    assert not pq.read_metadata(file).row_group(0).column(0).is_stats_set
    actual = spark.read.parquet(str(tmp_path)).selectExpr("hex(st_asbinary(g)) AS g").collect()
    assert [row.g for row in actual] == [point[2:-1]] * 2
