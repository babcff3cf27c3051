"""Data sets written by Spark's tasks: clustered, sorted, indexed, committed at the end.

May import ``spark/commit`` and the modules of ``spark``. Start with ``write``.
"""
