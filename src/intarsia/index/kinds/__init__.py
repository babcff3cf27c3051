"""The built-in index kinds: their keys or summaries, and the predicates that they serve.

May import ``index`` except its registry. Start with ``lookup``, the smallest kind.
"""
