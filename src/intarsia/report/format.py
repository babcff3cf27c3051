"""Shares and names as pages show them. What they hold is cleaned and escaped by the templates."""

from __future__ import annotations

NAME = 200
"""Characters of a name that are shown."""


def clip(text: str, most: int) -> str:
    """``text`` in at most so many characters, less its middle where it is longer."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"


def begin(text: str, most: int) -> str:
    """The beginning of ``text``, and how much there is of it where that is more."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


_CONDITION = 4_000
_IN_LINES = (("[\n  ", "["), (",\n  ", ", "), ("\n]", "]"))
"""How Arrow prints the values of an array, and how they read in one line."""


def condition(text: str) -> str:
    """A filter, or a part of one, as far as anybody reads it."""
    found = begin(text, _CONDITION)
    for lines, line in _IN_LINES:
        found = found.replace(lines, line)
    return found


def percent(part: float, whole: float) -> str:
    """A share, as exact as it has to be; nothing where there is no whole."""
    if not whole:
        return ""
    found = 100 * part / whole
    if found in (0, 100):
        return f"{found:.0f}%"
    if found >= 99.95:
        return ">99.9%"
    digits = 1 if found >= 10 else 2
    return f"{found:.{digits}f}%" if found >= 0.005 else "<0.01%"
