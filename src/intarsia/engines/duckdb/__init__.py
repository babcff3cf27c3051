"""``intarsia.sql``: DuckDB runs the query, data sets supply the rows that each table needs.

May import ``dataset``, ``sql`` and below. Start with ``sql``.
"""
