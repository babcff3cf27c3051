"""Where Spark looks for data sources: ``DefaultSource`` of modules called ``pyspark_…``."""

from intarsia.spark.data_source.source import IntarsiaSource as DefaultSource

__all__ = ["DefaultSource"]
