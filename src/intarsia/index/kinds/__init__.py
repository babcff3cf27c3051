"""The index kinds that are built in: which keys or summaries values have, and what answers.

May import ``index`` except its registry. Start with ``lookup``, the smallest kind.
"""
