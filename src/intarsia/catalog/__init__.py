"""The catalog of a data set: identities, bounds, footers and index keys of all its files.

May import ``scan`` and the packages below it. ``dataset`` and ``verify`` read catalogs, ``spark``
also builds them. Start with ``manifest`` (what a catalog consists of), then ``catalog``.
"""
