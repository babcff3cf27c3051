"""Where a filter can be true: predicates on terms, joined to a tree, compared with statistics.

May import ``expr``, ``sql`` and ``parquet``. Start with ``builder``, which makes the tree from an
expression, then ``prune``.
"""
