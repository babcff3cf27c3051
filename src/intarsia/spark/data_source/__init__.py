"""``format("intarsia")``: the Python data source that Spark loads. Start with ``source``."""
