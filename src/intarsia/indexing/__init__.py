"""Writing: indexes into files that exist, and new files with indexes.

Every change keeps the whole old file, appends to it, and takes its place at once.
"""
