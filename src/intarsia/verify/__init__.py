"""Verifies files: compares their metadata and their indexes with what their pages hold.

May import ``catalog``, ``indexing``, ``scan`` and below. Start with ``file``, which has ``verify``.
"""
