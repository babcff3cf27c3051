"""Advises which indexes would help the filters of a workload, measured on a sample of row groups.

May import ``dataset``, ``indexing`` and below. Start with ``advise``.
"""
