"""``intarsia demo``: a table of logs is made, indexed and queried.

May import ``cli/output`` and the library. Start with ``demo``.
"""
