"""Bytes of pages → Arrow arrays, by pyarrow's own decoder.

Nothing here chooses pages or reads files; it is given the bytes.
"""
