"""DataFrames over data sets: the driver plans; tasks, the driver or Spark's own reader read.

May import the modules of ``spark``, ``commit`` and lower packages. Start with ``read``.
"""
