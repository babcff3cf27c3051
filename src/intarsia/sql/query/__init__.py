"""SQL queries: which rows and columns of each table a query needs, by rewriting its tree.

May import ``sql`` and ``expr``. Start with ``scans``; each pushdown has a module of its own.
"""
