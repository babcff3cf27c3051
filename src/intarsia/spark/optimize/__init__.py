"""Files of a data set rewritten by Spark: compacted, clustered, indexed.

May import ``spark/write``, ``spark/read`` and ``spark/commit``. Start with ``optimize``.
"""
