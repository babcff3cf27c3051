"""Verifying files: what they claim about themselves against what their pages hold.

``file`` goes through a file, ``pages`` through the pages of a chunk. ``claims`` goes through what
is said of a chunk: ``statistics``, ``page_index`` and bloom filters, which ``bounds`` compares with
decoded values. ``sections`` compares embedded indexes with the values they index.
"""
