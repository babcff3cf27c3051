"""Query plans as data: the candidate rows of each file, the bytes to read, and their explanation.

May import ``parquet``, ``io.source`` and below; no module here reads a file. ``scan`` makes and
executes plans. Start with ``plan``.
"""
