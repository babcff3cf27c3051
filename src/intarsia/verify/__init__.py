"""Verifying files: what they claim about themselves against what their pages hold.

``file`` goes through a file, ``pages`` through the pages of a chunk, ``claims`` compares statistics
and the format's own indexes with decoded values, ``sections`` does so for embedded indexes.
"""
