"""Invisible characters with an effect: on terminals, on text direction, on encoders."""

from __future__ import annotations

import re

_INVISIBLE = (
    "\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Control and format characters, line and paragraph separators, unpaired surrogates."""
_IN_TEXT = re.compile(f"(?![\n\t])[{_INVISIBLE}]")
_IN_JSON = re.compile(f"(?!\n)[{_INVISIBLE}]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def shown_in_text(text: str) -> str:
    r"""Returns ``text`` with escapes such as ``\x9b`` and ``\u202e``. Newlines and tabs stay."""
    if text.isprintable():
        return text
    return _IN_TEXT.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shown_in_json(document: str) -> str:
    r"""Returns a JSON document with these characters escaped (``\u009b``): the values stay."""
    return document if document.isprintable() else _IN_JSON.sub(_as_json, document)


def find_surrogate(text: str) -> tuple[int, str] | None:
    """Returns position and name (``U+D800``) of the first unpaired surrogate, or None."""
    match = _SURROGATE.search(text)
    return None if match is None else (match.start(), f"U+{ord(match[0]):04X}")


def _as_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
