"""SQL conditions as expressions; ``query`` plans the scans of a whole SQL query.

May import ``expr``; ``query`` may import the other modules. Start with ``where_clause``, which
reads a condition, then ``query/scans``.
"""
