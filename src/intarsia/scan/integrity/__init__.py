"""Damage in a file that is scanned: pages are checked, and damaged rows are located and skipped.

May import ``file``, ``plan`` and below. Start with ``page_guard``.
"""
