"""SQL queries on Spark over data sets: filters of the query reach the readers.

May import ``spark/read``, the modules of ``spark`` and lower packages. Start with ``sql``.
"""
