"""Texts as arrays of characters: their case folded, their words, and the search for words."""
