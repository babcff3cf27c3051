"""Writes Parquet files with indexes, resumable and atomic. Start with ``parquet_writer``."""
