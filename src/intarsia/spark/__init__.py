"""Spark: writes data sets with indexes, and reads only the pages that can match a filter.

The driver plans and tasks execute the plans; there is no JVM code. Only this package imports
pyspark. May import all packages but the command line. Start with ``read/read`` and ``write/write``.
"""

from intarsia.commit.job import WrittenFile
from intarsia.commit.recover import recover_dataset as recover
from intarsia.spark.catalog.build import build_catalog
from intarsia.spark.data_source.registration import register
from intarsia.spark.explain import ReadExplanation
from intarsia.spark.indexing.job import add_indexes, drop_indexes
from intarsia.spark.job_status import show_progress
from intarsia.spark.maintain import maintain
from intarsia.spark.optimize.optimize import OptimizedFolder, optimize
from intarsia.spark.read.read import explain, read
from intarsia.spark.read.read_table import read_delta, read_iceberg
from intarsia.spark.session import session
from intarsia.spark.sql.sql import sql
from intarsia.spark.write.clustering import cluster
from intarsia.spark.write.write import write

__all__ = [
    "OptimizedFolder",
    "ReadExplanation",
    "WrittenFile",
    "add_indexes",
    "build_catalog",
    "cluster",
    "drop_indexes",
    "explain",
    "maintain",
    "optimize",
    "read",
    "read_delta",
    "read_iceberg",
    "recover",
    "register",
    "session",
    "show_progress",
    "sql",
    "write",
]
