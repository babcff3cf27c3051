"""Indexes embedded in a file: their kinds, their sections, and the directory that lists them.

A kind says which keys values have and which keys a predicate needs; everything else about an index,
how it is stored, found, checked and probed, is the same for all kinds.
"""
