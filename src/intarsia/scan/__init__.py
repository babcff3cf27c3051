"""The scan of one file: its pages are planned, read, decoded and filtered.

May import ``file``, ``plan`` and below. Start with ``scan``.
"""
