"""An index as text: ``lookup(trace_id, granule_rows=1024)``, or ``trace_id:lookup``."""

from __future__ import annotations

import re
from typing import Any

from intarsia.errors import IndexSpecError

_NAME = r"(?:\"(?:[^\"]|\"\")*\"|\w+)"
_OPENING, _CLOSING, _QUOTES = "([", ")]", "\"'"


def parsed(text: str) -> tuple[str, list[str], dict[str, Any]]:
    """The kind's name, what it is on, and its settings.

    Settings are numbers, ``true``, ``false``, or text in quotes. What an index is on may hold
    parentheses and quotes. Raises ``IndexSpecError`` for a setting of another form.
    """
    called = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", text, re.DOTALL)
    if not called:
        on, _, kind = text.strip().rpartition(":")
        return kind.strip(), [on.strip()] if on else [], {}
    parts = split(called.group(2))
    settings = [re.fullmatch(r"(\w+)\s*=(?!=)\s*(.*)", part, re.DOTALL) for part in parts]
    for part, found in zip(parts, settings, strict=True):
        if not found and "=" in re.sub(r"\"[^\"]*\"", "", part):
            raise IndexSpecError(f"in index {text!r}: {part!r} is not NAME=NUMBER")
    names = [part for part, found in zip(parts, settings, strict=True) if part and not found]
    given = [_setting(found[1], found[2], text) for found in settings if found]
    if len(dict(given)) < len(given):
        raise IndexSpecError(f"in index {text!r}: a setting is given twice")
    return called.group(1), names, dict(given)


def quoted(column: str) -> str:
    """A column as ``unquoted`` reads it, in a text that ``parsed`` takes apart."""
    is_plain = re.fullmatch(r"[\w.]+", column) is not None
    return column if is_plain else '"' + column.replace('"', '""') + '"'


def unquoted(column: str) -> str:
    """A column, of which all may be in quotes, or any name on its path."""
    if not re.fullmatch(rf"{_NAME}(\.{_NAME})*", column):
        return column
    names = re.findall(_NAME, column)
    return ".".join(n[1:-1].replace('""', '"') if n.startswith('"') else n for n in names)


def split(text: str) -> list[str]:
    """``text`` at its commas, but not within parentheses or quotes, without blanks around parts."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        depth += (not quote) * ((character in _OPENING) - (character in _CLOSING))
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _setting(name: str, value: str, text: str) -> tuple[str, Any]:
    if name.isidentifier() and value.isascii():
        if re.fullmatch(r"-?\d{1,18}", value):
            return name, int(value)
        if re.fullmatch(r"-?(\d+|\d*\.\d+)(e-?\d{1,3})?", value, re.IGNORECASE):
            return name, float(value)
        if value.lower() in ("true", "false"):
            return name, value.lower() == "true"
        quoted = re.fullmatch(r"'([^']*)'|\"([^\"]*)\"", value)
        if quoted:
            return name, quoted.group(1) or quoted.group(2) or ""
    raise IndexSpecError(
        f"in index {text!r}: {name}={value!r} is not NAME=NUMBER, NAME='text' or NAME=true"
    )
