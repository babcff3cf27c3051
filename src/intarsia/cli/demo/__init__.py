"""What ``intarsia demo`` needs: a table of logs, and queries of it.

May import ``cli/output`` and the library. Start with ``log_table``.
"""
