"""Compares the metadata and indexes of files with what their pages hold. Start with ``file``."""
