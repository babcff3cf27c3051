"""``intarsia.polars.scan``: a Polars LazyFrame over a data set.

May import ``dataset`` and below. Start with ``lazy_frame``.
"""
