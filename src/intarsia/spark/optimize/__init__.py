"""Spark rewrites the files of a data set: compacted, clustered, indexed.

May import ``spark/write``, ``spark/read``, the modules of ``spark`` and lower
packages. Start with ``optimize``.
"""
