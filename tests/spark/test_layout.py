"""The layout of rows: along space-filling curves, in files of a given size, sorted within tasks."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

import intarsia as ia
import intarsia.spark as ias
from intarsia.commit.job import bytes_of

pytestmark = pytest.mark.spark

ROWS = 40_000
SELECT = ["id", "CAST(abs(hash(id)) % 1000 AS INT) AS a", "abs(hash(id, 1)) % 1000 / 4 AS b"]
BOX = "a BETWEEN 100 AND 399 AND b BETWEEN 25 AND 49.75"


@pytest.fixture(scope="module")
def points(spark):
    return spark.range(0, ROWS, 1, 2).selectExpr(*SELECT, "md5(CAST(id AS STRING)) AS hash")


@pytest.fixture(scope="module")
def laid_out(points, tmp_path_factory):
    """The same points by a range of ``a`` and ``b``, and along each space-filling curve."""
    folder = tmp_path_factory.mktemp("laid-out")
    for curve in (None, "zorder", "hilbert"):
        options = {"cluster_by": ["a", "b"], "curve": curve, "rows_per_page": 200}
        ias.write(points, folder / str(curve), indexes=["hash:lookup"], **options)
    return folder


def files_under(folder):
    return sorted(folder.rglob("*.parquet"))


def planned(folder, where):
    return ia.dataset(folder).explain(filter=where).planned.rows.selected


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_rows_along_a_curve_are_complete(curve, spark, points, laid_out):
    actual = spark.read.parquet(str(laid_out / curve))
    assert actual.columns == points.columns
    assert sorted(actual.collect()) == sorted(points.collect())


def test_a_box_reads_fewer_pages_along_a_curve(points, laid_out):
    rows = {curve: planned(laid_out / curve, BOX) for curve in ("None", "zorder", "hilbert")}
    matching = points.where(BOX).count()
    assert matching > 100
    assert matching < rows["hilbert"] <= rows["zorder"] < 0.5 * rows["None"]


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
@pytest.mark.parametrize("where", ["a = 77", "b BETWEEN 25 AND 26"])
def test_each_clustered_column_skips_pages(curve, where, laid_out):
    assert planned(laid_out / curve, where) < 0.2 * ROWS


def test_a_range_sort_helps_only_its_first_column(laid_out):
    assert planned(laid_out / "None", "a = 77") < 0.05 * ROWS
    assert planned(laid_out / "None", "b BETWEEN 25 AND 26") > 0.9 * ROWS


def test_only_sorted_rows_are_declared_sorted(laid_out):
    for curve, expected in (("None", ["a", "b"]), ("zorder", [])):
        for file in files_under(laid_out / curve):
            metadata = pq.read_metadata(file)
            order = metadata.row_group(0).sorting_columns
            names = [metadata.schema.column(column.column_index).path for column in order]
            assert names == [name for name in expected if name != "b"]  # a double has no order


def test_texts_dates_decimals_null_and_nan_lie_on_a_curve(spark, tmp_path):
    data = spark.range(0, 4000, 1, 2).selectExpr(
        "id",
        "IF(id % 7 = 0, NULL, concat('https://example.org/', abs(hash(id)) % 500)) AS url",
        "IF(id % 5 = 0, double('nan'), IF(id % 11 = 0, NULL, hash(id, 1) / 3)) AS x",
        "date_add(DATE '2013-01-01', abs(hash(id, 2)) % 300) AS day",
        "CAST(abs(hash(id, 3)) % 900 AS DECIMAL(20, 2)) AS money",
    )
    columns = ["url", "x", "day", "money"]
    ias.write(data, tmp_path, cluster_by=columns, curve="hilbert", rows_per_page=50)
    actual = spark.read.parquet(str(tmp_path))
    assert sorted(map(str, actual.collect())) == sorted(map(str, data.collect()))
    for where in (
        "url = 'https://example.org/7'",
        "day = '2013-03-01'",
        "money = 17",
        "url IS NULL",
    ):
        assert planned(tmp_path, where) < 0.6 * 4000


@pytest.mark.parametrize(("indexes", "expected"), [((), 8192), (("id:lookup",), 2048)])
def test_rows_of_pages(indexes, expected, spark, tmp_path):
    def page_rows():
        files = map(ia.ParquetFile, tmp_path.glob("*.parquet"))
        return {page.num_rows for file in files for page in file.pages(0, "id")} - {None}

    data = spark.range(0, 5 * 8192, numPartitions=1)
    ias.write(data, tmp_path, indexes=indexes)
    assert page_rows() == {expected}
    ias.write(data, tmp_path, mode="append", indexes=indexes)
    ias.optimize(spark, tmp_path)
    assert len(list(tmp_path.glob("*.parquet"))) == 1
    assert page_rows() == {expected}


def test_curves_within_folders(spark, points, tmp_path):
    data = points.selectExpr("*", "id % 3 AS p")
    options = {"partition_by": "p", "cluster_by": ["a", "b"], "curve": "hilbert"}
    ias.write(data, tmp_path, rows_per_page=200, **options)
    assert {path.name for path in tmp_path.glob("p=*")} == {"p=0", "p=1", "p=2"}
    assert planned(tmp_path, f"p = 1 AND {BOX}") < 0.1 * ROWS
    assert ias.read(spark, tmp_path, where=BOX).count() == points.where(BOX).count()


# --- the size of files --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "bounds"),
    [
        ({"cluster_by": "a"}, (0.5, 1.3)),
        ({"cluster_by": ["a", "b"], "curve": "zorder"}, (0.5, 1.3)),
        ({}, (0.5, 1.3)),
    ],
    ids=["range", "curve", "as_it_comes"],
)
def test_files_have_about_the_requested_size(options, bounds, spark, points, tmp_path):
    target = 128 * 1024
    written = ias.write(
        points, tmp_path, target_file_size="128 KB", indexes=["hash:lookup"], **options
    )
    sizes = [file.bytes for file in written]
    assert sum(file.rows for file in written) == ROWS
    assert sizes == [(tmp_path / file.path).stat().st_size for file in written]
    assert len(sizes) > 5
    assert bounds[0] < sum(sizes) / len(sizes) / target < bounds[1]
    assert max(sizes) < 1.5 * target
    assert sum(size < 0.3 * target for size in sizes) <= 0.3 * len(sizes)


def test_folders_are_divided_by_size_too(spark, points, tmp_path):
    data = points.selectExpr("*", "id % 2 AS p")
    ias.write(data, tmp_path, partition_by="p", cluster_by="a", target_file_size=200_000)
    for p in range(2):
        sizes = [file.stat().st_size for file in files_under(tmp_path / f"p={p}")]
        assert len(sizes) > 2
        assert max(sizes) < 300_000


def test_one_large_row_is_a_file_however_small_the_target(spark, tmp_path):
    data = spark.range(0, 3, 1, 1).selectExpr("id", "repeat(md5(CAST(id AS STRING)), 1000) AS t")
    written = ias.write(data, tmp_path, target_file_size=1)
    assert sorted(file.rows for file in written) == [1, 1, 1]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1000, 1000),
        ("128 MB", 2**27),
        ("1g", 2**30),
        ("1.5KiB", 1536),
        (" 2 gib ", 2**31),
        ("3 B", 3),
        ("7", 7),
        (None, None),
    ],
)
def test_sizes_are_parsed(size, expected):
    assert bytes_of(size) == expected


@pytest.mark.parametrize("size", ["", "MB", "1 XB", "-1", 0, -5, "0 KB", True, 1.5j])
def test_invalid_sizes_are_refused(size):
    with pytest.raises(ValueError, match="target_file_size"):
        bytes_of(size)


# --- the order within tasks ---------------------------------------------------------------------


def test_rows_are_sorted_within_tasks_on_request(spark, points, tmp_path):
    options = {"cluster_by": ["a", "b"], "curve": "zorder", "target_file_size": "400 KB"}
    ias.write(points, tmp_path, sort_within="hash", **options)
    files = files_under(tmp_path)
    assert len(files) > 1
    for file in files:
        actual = pq.read_table(file)["hash"].to_pylist()
        assert actual == sorted(actual)
        assert pq.read_metadata(file).row_group(0).sorting_columns[0].column_index == 3


def test_without_clustering_rows_are_sorted_in_their_partitions(spark, points, tmp_path):
    written = ias.write(points, tmp_path, sort_within=["b", "id"])
    assert sorted(file.rows for file in written) == [ROWS // 2, ROWS // 2]
    for file in written:
        table = pq.read_table(tmp_path / file.path)
        pairs = list(zip(table["b"].to_pylist(), table["id"].to_pylist(), strict=True))
        assert pairs == sorted(pairs)


def test_a_clustered_dataframe_has_the_same_rows_and_columns(spark, points):
    actual = ias.cluster(points, ["a", "b"], curve="hilbert", num_partitions=3)
    assert actual.columns == points.columns
    assert sorted(actual.collect()) == sorted(points.collect())
