"""Indexes that Spark's tasks add to the files of a folder, or drop.

May import ``spark/write``, the modules of ``spark`` and lower packages. Start
with ``job``.
"""
