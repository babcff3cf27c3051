"""The bytes of one index in a file, a Parquet table of its own: written, read and probed.

May import ``index`` and ``decode``. Start with ``writer``, then ``reader`` and ``probe``.
"""
