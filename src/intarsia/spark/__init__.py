"""Spark: writing data sets with indexes, and reading from them only the pages that can match.

The only part that imports pyspark. The driver plans, tasks carry plans out; there is no JVM code.
"""

from intarsia.spark.read import read
from intarsia.spark.session import session
from intarsia.spark.write import WrittenFile, write

__all__ = ["WrittenFile", "read", "session", "write"]
