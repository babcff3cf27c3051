"""Reading rows of one file: planning its pages, reading them, filtering them.

May import ``file``, ``plan`` and below. Start with ``file_planner``, then ``scan``.
"""
