"""Index sections: the bytes of one index in a file, a small Parquet table without its last bytes.

May import ``index`` and ``decode``. Start with ``writer``, then ``reader`` and ``probe``.
"""
