"""Writes Parquet files with indexes from tables and record batches, resumable and atomic.

May import ``indexing``, ``dataset`` and below. Start with ``parquet_writer``.
"""
