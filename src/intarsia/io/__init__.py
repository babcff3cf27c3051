"""Bytes of files: ranged reads, on local disks and remote storage, and their safe replacement.

May import the root's modules only. Start with ``source`` (a length and ranged reads), then
``storage``, which finds and opens files.
"""
