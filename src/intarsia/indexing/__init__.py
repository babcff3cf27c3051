"""Adds indexes to Parquet files, drops them, lists them and exports them.

May import the reading of single files (``scan``, ``file``, ``index``) and what is below it. Start
with ``add``; ``file_layout`` shows how the bytes of a changed file are laid out.
"""
