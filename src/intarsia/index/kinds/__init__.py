"""The built-in index kinds: keys or summaries, and predicates. Start with ``lookup``."""
