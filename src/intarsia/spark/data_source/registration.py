"""Making the data source known to a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.spark.session import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``format("intarsia")`` known to a session, where it does not find it by itself.

    Spark finds it in its driver's Python path, by the module ``pyspark_intarsia``.
    """
    require_pyspark()
    from intarsia.spark.data_source.source import IntarsiaSource  # needs pyspark

    spark.dataSource.register(IntarsiaSource)
