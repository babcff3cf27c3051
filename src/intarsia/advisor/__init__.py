"""Advises which indexes would help a workload, by a sample. Start with ``advise``."""
