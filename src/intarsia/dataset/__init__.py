"""Data sets: which files they are of, which of these a query can leave out, scanning what is left.

What is done with one file is the room ``read``'s.
"""
