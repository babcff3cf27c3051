"""DataFrames over data sets, read by tasks, the driver or Spark itself. Start with ``read``."""
