"""Query engines over data sets: each gets the pushdown that it lacks by itself.

May import ``dataset``, ``sql`` and what is below them.
``duckdb.sql`` and ``polars.lazy_frame`` are the entry points.
"""
