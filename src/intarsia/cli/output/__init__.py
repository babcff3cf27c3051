"""Output of commands: tables, JSON documents, HTML pages, streams of rows.

May import ``report`` and the library. Start with ``tables``.
"""
