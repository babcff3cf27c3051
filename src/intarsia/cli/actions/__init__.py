"""The actions of commands; imported when a command runs, not when its help is shown.

May import ``cli/input``, ``cli/output`` and the library. Start with ``scan``.
"""
