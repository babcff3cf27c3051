"""Files written with checkpoints, as Spark's own reader divides and reads them."""

import numpy as np
import pyarrow as pa
import pytest

import intarsia as ia

pytestmark = pytest.mark.spark
ROWS = 20_000


def test_splits_hold_each_row_once(spark, tmp_path):
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
