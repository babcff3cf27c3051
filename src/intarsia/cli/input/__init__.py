"""Rows that commands take in: Parquet, CSV, JSON and other formats. Start with ``rows``."""
