"""Writes a data set by Spark's tasks, committed at the end. Start with ``write``."""
