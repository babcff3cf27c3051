"""Rows that commands take in: Parquet, CSV, JSON and other formats.

May import the library. Start with ``rows``.
"""
