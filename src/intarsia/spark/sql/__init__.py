"""SQL on Spark over data sets: filters of the query reach the readers. Start with ``sql``."""
