"""Strings as arrays of characters: case folding, words, and fast search.

May import the root's modules only. Start with ``tokenizer`` (words and their keys), then
``code_points``, which decodes UTF-8.
"""
