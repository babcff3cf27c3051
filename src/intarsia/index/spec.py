"""Parses index specifications: ``lookup(trace_id, granule_rows=1024)``, ``trace_id:lookup``."""

from __future__ import annotations

import re
from typing import Any

from intarsia.errors import IndexSpecError

_NAME = r"(?:\"(?:[^\"]|\"\")*\"|\w+)"
_OPENING, _CLOSING, _QUOTES = "([", ")]", "\"'"


def parsed(text: str) -> tuple[str, list[str], dict[str, Any]]:
    """Returns the kind's name, the names in parentheses, and the settings.

    Settings are numbers, ``true``, ``false`` or quoted strings. Names may contain parentheses and
    quotes. Raises ``IndexSpecError`` for a setting of another form.
    """
    call = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", text, re.DOTALL)
    if not call:
        on, _, kind = text.strip().rpartition(":")
        return kind.strip(), [on.strip()] if on else [], {}
    parts = split(call.group(2))
    settings = [re.fullmatch(r"(\w+)\s*=(?!=)\s*(.*)", part, re.DOTALL) for part in parts]
    for part, setting in zip(parts, settings, strict=True):
        if not setting and "=" in re.sub(r"\"[^\"]*\"", "", part):
            raise IndexSpecError(f"in index {text!r}: {part!r} is not NAME=NUMBER")
    names = [part for part, setting in zip(parts, settings, strict=True) if part and not setting]
    given = [_parse_setting(setting[1], setting[2], text) for setting in settings if setting]
    if len(dict(given)) < len(given):
        raise IndexSpecError(f"in index {text!r}: a setting is given twice")
    return call.group(1), names, dict(given)


def quoted(column: str) -> str:
    """Returns a column for use in a specification, in quotes if it needs them."""
    is_plain = re.fullmatch(r"[\w.]+", column) is not None
    return column if is_plain else '"' + column.replace('"', '""') + '"'


def unquoted(column: str) -> str:
    """Returns a column without the quotes around it, or around names on its path."""
    if not re.fullmatch(rf"{_NAME}(\.{_NAME})*", column):
        return column
    names = re.findall(_NAME, column)
    return ".".join(
        name[1:-1].replace('""', '"') if name.startswith('"') else name for name in names
    )


def split(text: str) -> list[str]:
    """Splits ``text`` at commas outside parentheses and quotes, and strips the parts."""
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


def _parse_setting(name: str, value: str, text: str) -> tuple[str, Any]:
    if name.isidentifier() and value.isascii():
        if re.fullmatch(r"-?\d{1,18}", value):
            return name, int(value)
        if re.fullmatch(r"-?(\d+|\d*\.\d+)(e-?\d{1,3})?", value, re.IGNORECASE):
            return name, float(value)
        if value.lower() in ("true", "false"):
            return name, value.lower() == "true"
        string = re.fullmatch(r"'([^']*)'|\"([^\"]*)\"", value)
        if string:
            return name, string.group(1) or string.group(2) or ""
    raise IndexSpecError(
        f"in index {text!r}: {name}={value!r} is not NAME=NUMBER, NAME='text' or NAME=true"
    )
