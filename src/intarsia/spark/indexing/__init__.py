"""Indexes that Spark's tasks add to the files of a folder, or drop. Start with ``job``."""
