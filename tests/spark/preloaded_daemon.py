"""Spark's daemon, which forks Python workers, after it has imported what workers need.

Spark starts a process for each step of its Python data sources. Each of them imports pandas,
pyarrow and Intarsia, which takes most of its time, unless the daemon has.

No thread runs before the fork: OpenBLAS starts none, and jemalloc supports forks.
"""

import gc
import importlib
import os
import runpy
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"
sys.path[0] = os.getcwd()  # like python -m
# pkgutil of Python 3.13 fails on archives whose cache the worker has invalidated. Packages that
# pyspark has in archives are installed as well.
sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]

for _name in (
    "pandas",
    "pyarrow.dataset",
    "pyspark.worker",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "intarsia.dataset.dataset",
    "intarsia.spark.data_source.source",
    "intarsia.spark.read.read",
    "intarsia.spark.write.write",
):
    importlib.import_module(_name)

gc.freeze()  # keeps collections from copying the pages of the daemon
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
