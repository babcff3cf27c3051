"""One opened file: its footer, page indexes, embedded indexes, sidecar, pages and damage.

May import ``plan``, ``index`` and below. Start with ``open_file``.
"""
