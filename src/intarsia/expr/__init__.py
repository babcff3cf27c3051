"""Filters: from ``pyarrow.compute.Expression``, or SQL text, to what pruning needs to know.

``expression`` reads an Expression's structure, ``pruning`` brings it into a form of ANDs and ORs
over simple tests of one field, ``sql`` turns SQL text into an Expression. Rows are kept or dropped
by pyarrow alone; ``evaluation`` computes the calls of our own ``functions`` before it does.
"""
