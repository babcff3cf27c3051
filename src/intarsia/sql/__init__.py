"""SQL conditions as expressions; ``query`` holds what plans the scans of a whole SQL query.

May import ``expr``. Start with ``condition``, which reads a condition, then ``query/scans``.
"""
