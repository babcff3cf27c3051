"""The filter of a scan, evaluated on Arrow values, dictionary indices or bytes of pages.

May import ``scan/dictionary_codes``, ``decode``, ``expr`` and below. Start with ``condition``.
"""
