"""Bytes ↔ objects: the Parquet format itself, one noun of the specification a file.

Nothing here opens a file, and nothing here knows of indexes, plans or queries.
"""
