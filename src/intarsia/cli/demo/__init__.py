"""The table of ``intarsia demo``, and the queries of it.

May import ``cli/output`` and the library. Start with ``log_table``.
"""
