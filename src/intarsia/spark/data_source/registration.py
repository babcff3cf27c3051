"""Registration of the data source in a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.spark.session import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Registers ``format("intarsia")`` in a session that does not find it by itself.

    Spark finds the format through the module ``pyspark_intarsia``, if the Python path of its driver
    includes this module.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        The session.

    Raises
    ------
    MissingDependencyError
        If pyspark is not installed.

    Examples
    --------
    ::

        ias.register(spark)
        logs = spark.read.format("intarsia").option("where", "status = 500").load("lake/logs")
    """
    require_pyspark()
    from intarsia.spark.data_source.source import IntarsiaSource  # needs pyspark

    spark.dataSource.register(IntarsiaSource)
