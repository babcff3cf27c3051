"""The catalog of a data set, built by Spark's tasks. Start with ``build``."""
