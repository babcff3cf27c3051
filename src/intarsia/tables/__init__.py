"""Knows the folders of Delta Lake, Iceberg and Hudi tables, and which of their files are data.

May import ``scan`` and below. Start with ``data_files``.
"""
