"""Data sets: discovery of files and partitions, schemas, scans, plans and explanations.

May import ``catalog``, ``scan`` and what is below them, but no engine. Start with ``dataset``.
"""
