"""Filter expressions: their tree, their data types, their constants, and their evaluation by
pyarrow.

May import ``errors``, ``limits``, ``threads``, ``row_ranges`` and ``strings``. Start with ``tree``,
which reads a ``pyarrow.compute.Expression``, then ``evaluate``.
"""
