"""Writing a data set by Spark's tasks: clustered, sorted, indexed, and committed at the end.

May import ``spark/read``, the modules of ``spark`` and lower packages. Start with
``write``.
"""
