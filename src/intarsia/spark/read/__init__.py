"""DataFrames over data sets: planned by the driver, read by tasks or by Spark's own reader.

May import the modules of ``spark`` and what is below it. Start with ``read``.
"""
