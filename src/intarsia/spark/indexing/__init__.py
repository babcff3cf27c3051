"""Indexes added to the files of a folder by Spark's tasks.

May import ``spark/write`` and the modules of ``spark``. Start with ``job``.
"""
