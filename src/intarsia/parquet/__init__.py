"""Encodes and decodes the structures of the Parquet format, without opening files.

May import only ``io``, ``row_ranges``, ``limits``, ``redaction`` and ``errors``; knows nothing of
indexes, plans or queries. Start with ``footer.read_footer``, then ``metadata`` and ``page_index``.
"""
