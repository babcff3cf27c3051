"""Files written with checkpoints, by Spark's tasks too, and read in splits by its own reader.

``cluster/test_faults.py`` tests what is recovered from killed tasks.
"""

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from pyspark.errors import PySparkException

import intarsia as ia
import intarsia.spark as ias

pytestmark = pytest.mark.spark
ROWS = 20_000


def test_splits_contain_each_row_once(spark, tmp_path):
    table = pa.table({"n": np.arange(ROWS), "s": [f"x{n % 50}" for n in range(ROWS)]})
    with ia.ParquetWriter(tmp_path / "t.parquet", table.schema, checkpoint_row_groups=2) as writer:
        writer.write_table(table, 1000)
    settings = {"spark.sql.files.maxPartitionBytes": 20_000, "spark.sql.files.openCostInBytes": 0}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        frame = spark.read.parquet(str(tmp_path))
        assert frame.rdd.getNumPartitions() > 3
        assert frame.selectExpr("count(*)", "count(DISTINCT n)", "sum(n)").first()[:] == (
            ROWS,
            ROWS,
            sum(range(ROWS)),
        )
        assert frame.where("n > 19990").count() == 9
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_every_way_to_write_takes_checkpoints(spark, tmp_path):
    data = spark.range(0, 1000, 1, 2).selectExpr("id", "id % 2 AS p")
    layout = {"indexes": "id:lookup", "partition_by": "p"}
    ias.write(data, tmp_path / "write", checkpoint_row_groups=1, **layout)
    writer = data.write.format("intarsia").mode("append").options(**layout)
    writer.option("checkpoint_row_groups", "1").save(str(tmp_path / "format"))
    for folder in (tmp_path / "write", tmp_path / "format"):
        assert sorted(row.id for row in ias.read(spark, folder).collect()) == list(range(1000))
        assert not ia.verify(folder)
        assert not list(folder.glob("_temp*"))
        for file in folder.rglob("*.parquet"):
            start = file.read_bytes()[:2000]
            assert start.startswith(b"PAR1")
            assert b"PAR1" in start[4:], "the first checkpoint comes before any page"


@pytest.mark.parametrize("form", ["write", "format"])
def test_a_failed_job_keeps_unfinished_files_on_request(form, spark, tmp_path):
    failing = spark.range(0, 400, 1, 4).selectExpr(
        "CAST(IF(id < 390, id, raise_error('stop here')) AS BIGINT) AS id"
    )
    writer = failing.write.format("intarsia").mode("append").option("keep_unfinished", "true")
    calls = {
        "write": lambda: ias.write(failing, tmp_path, keep_unfinished=True),
        "format": lambda: writer.save(str(tmp_path)),
    }
    with pytest.raises(PySparkException, match="stop here") as raised:
        calls[form]()
    (job,) = tmp_path.glob("_temporary-*")
    if form == "write":
        assert raised.value.__notes__[-1] == f"what was written so far is in {job}"
    with pytest.raises(ia.PathError):
        ia.dataset(tmp_path)
    with pytest.warns(ia.IntarsiaWarning, match="rows of interrupted jobs are kept"):
        assert ias.recover(tmp_path) == []
    assert ias.recover(tmp_path, keep_unfinished=False) == [job.name]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint_row_groups": "0"}, "'checkpoint_row_groups' is a number from 1 on"),
        ({"keep_unfinished": "maybe"}, "'keep_unfinished' is true or false"),
    ],
)
def test_invalid_options_are_refused(options, message, spark, tmp_path):
    writer = spark.range(3).write.format("intarsia").mode("append").options(**options)
    with pytest.raises(PySparkException, match=message):
        writer.save(str(tmp_path / "lake"))
    with pytest.raises(ValueError, match="checkpoint_row_groups must be a whole number"):
        ias.write(spark.range(3), tmp_path / "lake", checkpoint_row_groups=0)
    assert list(tmp_path.iterdir()) == []


def test_streams_refuse_checkpoints(spark, tmp_path):
    ias.write(spark.range(3), tmp_path / "in")
    frame = spark.readStream.format("intarsia").load(str(tmp_path / "in"))
    writer = frame.writeStream.format("intarsia").option("checkpoint_row_groups", "1")
    writer = writer.option("checkpointLocation", str(tmp_path / "marks"))
    with pytest.raises(PySparkException, match="are not for streams"):
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()


def test_remote_folders_are_refused(spark):
    far = pafs.SubTreeFileSystem("/tmp", pafs.LocalFileSystem())
    for options in ({"checkpoint_row_groups": 1}, {"keep_unfinished": True}):
        with pytest.raises(ValueError, match="need a local folder that driver and tasks share"):
            ias.write(spark.range(3), "lake", filesystem=far, **options)
