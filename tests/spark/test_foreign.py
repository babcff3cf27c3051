"""Folders whose files are listed by a log of others: read as they are, and not written to."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import intarsia as ia
import intarsia.spark as ias

pytestmark = pytest.mark.spark

MANY = 40
"""Files: of more than 32, Spark's reader gets their folder, if that is the same."""


@pytest.fixture
def streamed(spark, tmp_path):
    """A folder that a stream of Spark's wrote to."""
    source, sink = tmp_path / "source", tmp_path / "sink"
    spark.range(2).coalesce(1).write.parquet(str(source))
    query = (
        spark.readStream.schema("id bigint")
        .parquet(str(source))
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(sink), format="parquet")
    )
    query.awaitTermination()
    assert (sink / "_spark_metadata").is_dir()
    return sink


def test_files_that_a_log_does_not_list_are_read(spark, streamed):
    for number in range(MANY):
        pq.write_table(pa.table({"id": [100 + number]}), streamed / f"x{number}.parquet")
    assert spark.read.parquet(str(streamed)).count() == 2
    for reader in ("auto", "spark", "intarsia"):
        assert ias.read(spark, streamed, reader=reader).count() == MANY + 2


@pytest.mark.parametrize("log", ["_delta_log", "_spark_metadata", ".hoodie"])
@pytest.mark.parametrize("part", ["", "p=1"])
def test_nothing_is_written_where_a_log_would_not_know_of_it(spark, tmp_path, log, part):
    (tmp_path / log).mkdir()
    folder = tmp_path / part
    folder.mkdir(exist_ok=True)
    for name in "ab":
        pq.write_table(pa.table({"id": [1]}), folder / f"{name}.parquet")
    before = sorted(tmp_path.rglob("*"))
    told = rf"whose log \({log}\)"
    with pytest.raises(ia.PathError, match=told):
        ias.optimize(spark, folder)
    for mode in ("append", "overwrite"):
        with pytest.raises(ia.PathError, match=told):
            ias.write(spark.range(1), folder, mode=mode)
        with pytest.raises(PySparkException, match=told):
            spark.range(1).write.format("intarsia").mode(mode).save(str(folder))
    assert sorted(tmp_path.rglob("*")) == before
    assert ias.read(spark, folder, columns=["id"]).count() == 2
