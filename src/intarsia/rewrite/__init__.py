"""Makes the files of a data set anew: merged, sorted, in another page layout, indexed.

Spark's ``optimize`` makes its plan and its commits here as well. May import ``commit`` and lower
packages. Start with ``rewrite``.
"""
