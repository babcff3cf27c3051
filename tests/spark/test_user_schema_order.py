"""``sorting_columns`` are declared only in files whose rows have that order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
import intarsia.spark as ias
from intarsia.commit.job import make_job_folder
from intarsia.commit.storage import Place
from intarsia.spark.types import spark_schema
from intarsia.spark.write import task
from intarsia.spark.write.job_spec import Layout, job_of

pytestmark = pytest.mark.spark


def stated(path: Any) -> list[str]:
    """The declared sorting columns, which must be the same in all files."""
    ((first, *others),) = [[*path.rglob("*.parquet")]]
    actual = []
    for file in (first, *others):
        metadata = pq.read_metadata(file)
        for group in range(metadata.num_row_groups):
            order = metadata.row_group(group).sorting_columns
            actual.append([metadata.schema.column(one.column_index).path for one in order])
    assert all(one == actual[0] for one in actual)
    return actual[0]


@pytest.mark.parametrize(
    "layout", [Layout(cluster_by="c"), Layout(partition_by="p", sort_within="c")]
)
def test_a_task_that_sorts_in_runs_writes_a_file_per_run(tmp_path, monkeypatch, layout):
    monkeypatch.setattr(task, "SORTED_BYTES", 40_000)
    random = np.random.default_rng(7)
    table = pa.table(
        {
            "c": random.integers(0, 50, 9000),
            "n": range(9000),
            "p": pa.array(random.integers(0, 2, 9000), pa.int32()),
        }
    )
    job = job_of(Place.of(tmp_path), "job", spark_schema(table.schema), layout, "UTC")
    job = replace(job, sorts=True)
    make_job_folder(job)
    files = task.write_task(iter(table.to_batches(max_chunksize=500)), job)
    assert len(files) > 3
    assert sum(file.rows for file in files) == 9000
    written = tmp_path / "_temporary-job"
    assert stated(written) == ["c"]
    assert ia.verify([*written.rglob("*.parquet")]) == []
    context = datafusion.SessionContext()
    for file in files:
        context.register_parquet("t", str(written / file.path))
        groups = context.sql("SELECT c, count(*) AS n FROM t GROUP BY c").to_pydict()
        assert sorted(groups["c"]) == sorted(
            set(pq.read_table(written / file.path)["c"].to_pylist())
        )
        context.deregister_table("t")


def test_null_and_empty_strings_share_a_folder_but_no_file(spark, tmp_path):
    data = spark.range(0, 100, 1, 1).selectExpr("id", "IF(id % 2 = 0, NULL, '') AS p")
    ias.write(data, tmp_path, partition_by="p", cluster_by="id")
    assert len([*tmp_path.rglob("*.parquet")]) == 2
    assert len({file.parent for file in tmp_path.rglob("*.parquet")}) == 1
    assert ia.verify(tmp_path) == []
    assert ias.read(spark, tmp_path).count() == 100


def test_a_repeated_hour_shares_a_folder_but_no_file(spark, tmp_path, setting):
    # 00:30 UTC and 01:30 UTC are both 02:30 in Berlin on the last Sunday of October.
    data = spark.range(0, 100, 1, 1).selectExpr(
        "id", "timestamp_seconds(1698539400 + (id % 2) * 3600) AS at"
    )
    setting("spark.sql.session.timeZone", "Europe/Berlin")
    ias.write(data, tmp_path, partition_by="at", cluster_by="id")
    assert [path.name for path in tmp_path.glob("at=*")] == ["at=2023-10-29 02%3A30%3A00"]
    assert len([*tmp_path.rglob("*.parquet")]) == 2
    assert ia.verify(tmp_path) == []


def test_the_order_of_a_collation_is_not_declared(spark, tmp_path):
    data = spark.range(0, 90, 1, 1).selectExpr(
        "id", "(IF(id % 2 = 0, 'a', 'B') || id % 3) COLLATE UTF8_LCASE AS c", "id % 7 AS d"
    )
    ias.write(data, tmp_path / "a", cluster_by=["c", "id"])
    assert stated(tmp_path / "a") == []
    ias.write(data, tmp_path / "b", cluster_by=["d", "c", "id"])
    assert stated(tmp_path / "b") == ["d"]
    assert ia.verify(tmp_path) == []
    with pytest.raises(ia.PredicateError, match=r"'c' cannot be in partition_by: .*UTF8_LCASE"):
        ias.write(data, tmp_path / "c", partition_by="c")
