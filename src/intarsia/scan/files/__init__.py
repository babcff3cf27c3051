"""Many files in one scan: pruned together, small ones decoded together.

May import ``scan``, ``file`` and below. Start with ``file_pruning``.
"""
