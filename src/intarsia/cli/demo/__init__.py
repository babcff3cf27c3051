"""The table of ``intarsia demo``, and the queries of it. Start with ``log_table``."""
