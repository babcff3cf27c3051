"""Spark SQL over data sets: queries in Spark's dialect.

May import ``spark/read``. Start with ``sql``.
"""
