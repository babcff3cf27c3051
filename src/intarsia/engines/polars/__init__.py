"""``intarsia.polars.scan``: a Polars LazyFrame over a data set.

May import ``dataset`` and below. Start with ``lazy_frame``.
"""

from intarsia.engines.polars.explain import explain
from intarsia.engines.polars.lazy_frame import scan

__all__ = ["explain", "scan"]
