"""Scans of many files: files are pruned together, and small ones decoded together.

May import ``scan``, ``file`` and below. Start with ``file_pruning``.
"""
