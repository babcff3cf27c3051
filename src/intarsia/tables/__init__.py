"""Folders that hold tables of other formats: which of their files are data.

May import ``scan`` and below. Start with ``data_files``.
"""
