"""Plans queries: which rows of which files might match, and why.

May import ``file`` and below. ``plan``, ``page_ranges``, ``file_account`` and ``file_regions`` hold
data only; ``file`` imports them. ``scan`` executes plans. Start with ``planner``.
"""
