"""Recovers torn files: rebuilds row groups from their pages, and writes a new footer.

May import ``verify``, ``writer``, ``scan`` and below. Start with ``recover``.
"""
