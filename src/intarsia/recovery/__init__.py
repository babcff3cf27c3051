"""What is left of a torn file: row groups found by their pages, and a footer made anew.

May import ``verify``, ``writer``, ``scan`` and below. Start with ``recover``.
"""
