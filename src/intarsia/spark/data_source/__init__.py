"""``format("intarsia")``: the Python data source that Spark loads.

May import ``spark/read``, ``spark/write`` and ``spark/commit``. Start with ``source``.
"""
