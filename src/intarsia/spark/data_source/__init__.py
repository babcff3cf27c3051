"""``format("intarsia")``: the Python data source that Spark loads.

May import ``spark/read``, ``spark/write`` and lower packages. Start with
``source``.
"""
