"""The catalog of a data set, built by Spark's tasks.

May import the modules of ``spark`` and lower packages. Start with ``build``.
"""
