"""Damage met while a file is scanned: found, located, and kept from doing harm.

May import ``file``, ``plan`` and below. Start with ``page_guard``.
"""
