"""Spark rewrites files of a data set: compacted, clustered, indexed. Start with ``optimize``."""
