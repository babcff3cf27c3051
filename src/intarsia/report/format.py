"""Formats shares and names for pages. The templates clean and escape them."""

from __future__ import annotations

NAME = 200
"""Characters of a name that are shown."""


def clip(text: str, most: int) -> str:
    """Returns ``text`` in at most ``most`` characters. A longer text loses its middle."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"


def begin(text: str, most: int) -> str:
    """Returns at most ``most`` first characters of ``text``, and its length if it is longer."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


_CONDITION_CHARACTERS = 4_000
"""Characters of a filter that are shown."""
_LINE_BREAKS = (("[\n  ", "["), (",\n  ", ", "), ("\n]", "]"))
"""How Arrow prints arrays over several lines, and their form on one line."""


def condition(text: str) -> str:
    """Returns a filter, or a part of one, on one line and of a readable length."""
    shown = begin(text, _CONDITION_CHARACTERS)
    for lines, line in _LINE_BREAKS:
        shown = shown.replace(lines, line)
    return shown


def percent(part: float, whole: float) -> str:
    """Returns a share with as many digits as it needs. Returns "" if ``whole`` is 0."""
    if not whole:
        return ""
    percentage = 100 * part / whole
    if percentage in (0, 100):
        return f"{percentage:.0f}%"
    if percentage >= 99.95:
        return ">99.9%"
    digits = 1 if percentage >= 10 else 2
    return f"{percentage:.{digits}f}%" if percentage >= 0.005 else "<0.01%"
