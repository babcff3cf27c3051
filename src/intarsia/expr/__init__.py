"""Filter expressions: their tree, data types and constants, and their evaluation by pyarrow.

May import ``errors``, ``limits``, ``threads``, ``row_ranges``, ``strings`` and
``pyarrow_internals``. Start with ``tree``, which reads a ``pyarrow.compute.Expression``, then
``evaluate``.
"""
