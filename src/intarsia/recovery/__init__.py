"""Recovers torn files: rebuilds row groups, and writes a new footer. Start with ``recover``."""
