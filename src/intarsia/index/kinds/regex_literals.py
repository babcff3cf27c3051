r"""The substrings that a string must contain to match a regular expression in RE2's syntax.

A small parser of patterns, which gives up (None) on syntax that it does not know. For each part of
a pattern, it keeps one of these:

- all strings that the part can match, if they are few,
- the strings with which a match begins and ends, and what else it must contain.

Adjacent parts are joined, so that ``ab(c|d)ef+`` requires ``abcef`` or ``abdef``. See Russ Cox,
"Regular Expression Matching with a Trigram Index" (2012).

https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from intarsia.index.kinds.required_substrings import (
    AllOf,
    AnyOf,
    Has,
    Required,
    all_of,
    any_of,
    text_of,
)
from intarsia.strings.case_folding import folded

_MAX_STRINGS = 24
"""Most alternative strings that are kept for one part."""
_MAX_CLASS_CHARACTERS = 16
"""Most characters of a class that become alternatives: enough for hexadecimal digits."""
_EDGE_CHARACTERS = 8
"""Characters that are kept of the beginning and end of a match."""
_MAX_COPIES = 8
"""Most repetitions of a part that are written out."""
_MAX_PATTERN_CHARACTERS = 4000
"""Longer patterns are not parsed."""
_EMPTY_STRING: frozenset[str] = frozenset([""])

_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAMED = re.compile(r"\(\?P?<\w+>")
_REPEAT = re.compile(r"\{(0|[1-9][0-9]{0,3})(?:(,)(0|[1-9][0-9]{0,3})?)?\}")
_POSIX = re.compile(r"\[:\^?\w+:\]")
_HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_UNICODE_CLASS = re.compile(r"[pP](?:\{[^}]*\}|[A-Za-z])")
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class _UnknownError(Exception):
    """The pattern uses syntax that the parser does not know."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The strings that a part of a pattern matches, as far as known.

    ``exact`` holds all of them, or is None. Each begins with a string in ``first``, ends with one
    in ``last``, and meets ``needs``.
    """

    exact: frozenset[str] | None
    first: frozenset[str]
    last: frozenset[str]
    needs: Required | None


def _exactly(strings: frozenset[str]) -> _Part:
    return _Part(strings, strings, strings, None)


_EMPTY = _exactly(_EMPTY_STRING)
_ANYTHING = _Part(None, _EMPTY_STRING, _EMPTY_STRING, None)


def required_by_regex(pattern: str | bytes, *, latin: bool = False) -> Required | None:
    """Returns what strings must contain to match ``pattern``, or None if unknown."""
    text = text_of(pattern, latin=latin)
    if text is None or len(text) > _MAX_PATTERN_CHARACTERS:
        return None
    try:
        return _required(_Parser(text).whole())
    except (_UnknownError, RecursionError):
        return None


def _required(part: _Part) -> Required | None:
    if part.exact is not None:
        return _one_of(part.exact)
    return all_of([part.needs, _one_of(part.first), _one_of(part.last)])


def _one_of(strings: frozenset[str]) -> Required | None:
    return any_of(Has(text) if text else None for text in sorted(strings))


def _join(left: _Part, right: _Part) -> _Part:
    """Returns the part that matches ``left`` followed by ``right``."""
    if left.exact is not None and right.exact is not None:
        num_strings = len(left.exact) * len(right.exact)
        if num_strings <= _MAX_STRINGS:
            return _exactly(_concatenations(left.exact, right.exact))
    across = None
    if len(left.last) * len(right.first) <= _MAX_STRINGS:
        across = _one_of(_concatenations(left.last, right.first))
    first, last = left.first, right.last
    if left.exact is not None and len(left.exact) * len(right.first) <= _MAX_STRINGS:
        first = _concatenations(left.exact, right.first)
    if right.exact is not None and len(left.last) * len(right.exact) <= _MAX_STRINGS:
        last = _concatenations(left.last, right.exact)
    needs = all_of([_required_within(left), across, _required_within(right)])
    return _Part(
        None,
        _truncate(first, slice(0, _EDGE_CHARACTERS)),
        _truncate(last, slice(-_EDGE_CHARACTERS, None)),
        _limit_size(needs),
    )


def _required_within(part: _Part) -> Required | None:
    return part.needs if part.exact is None else _one_of(part.exact)


def _alternate(left: _Part, right: _Part) -> _Part:
    """Returns the part that matches ``left`` or ``right``."""
    if left.exact is not None and right.exact is not None:
        strings = left.exact | right.exact
        if len(strings) <= _MAX_STRINGS:
            return _exactly(strings)
    first, last = left.first | right.first, left.last | right.last
    needs = any_of([_required(left), _required(right)])
    return _Part(
        None,
        _truncate(first, slice(0, _EDGE_CHARACTERS))
        if len(first) <= _MAX_STRINGS
        else _EMPTY_STRING,
        _truncate(last, slice(-_EDGE_CHARACTERS, None))
        if len(last) <= _MAX_STRINGS
        else _EMPTY_STRING,
        _limit_size(needs),
    )


def _concatenations(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    return frozenset(prefix + suffix for prefix in left for suffix in right)


def _truncate(strings: frozenset[str], characters: slice) -> frozenset[str]:
    return frozenset(text[characters] for text in strings)


def _limit_size(needs: Required | None) -> Required | None:
    """Returns ``needs``, or None if it has become too large."""
    return needs if needs is None or _size(needs) <= 40 * _MAX_STRINGS else None


def _size(needs: Required) -> int:
    match needs:
        case AllOf(parts) | AnyOf(parts):
            return sum(_size(part) for part in parts)
        case _:
            return 1


class _Parser:
    """A recursive-descent parser of a pattern."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> _Part:
        part = self._alternatives()
        if self._at < len(self._text):
            raise _UnknownError
        return part

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._next()
        if not character:
            raise _UnknownError
        self._at += 1
        return character

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _alternatives(self) -> _Part:
        part = self._sequence()
        while self._next() == "|":
            self._at += 1
            part = _alternate(part, self._sequence())
        return part

    def _sequence(self) -> _Part:
        part = _EMPTY
        while self._next() not in ("", "|", ")"):
            part = _join(part, self._repeated())
        return part

    def _repeated(self) -> _Part:
        if self._text.startswith("\\Q", self._at):
            return self._quoted()
        part = self._atom()
        while True:
            repeat = self._match(_REPEAT)
            if repeat is not None:
                min_count, comma, max_count = repeat.groups()
                is_exact = not comma or min_count == max_count
                part = self._copies(part, int(min_count), exact=is_exact)
            elif self._next() in ("*", "+", "?") and self._next():
                mark = self._take()
                if mark == "?":
                    part = _alternate(part, _EMPTY)
                else:
                    part = self._copies(part, 1 if mark == "+" else 0, exact=False)
            else:
                return part
            if self._next() == "?":
                self._at += 1

    def _copies(self, part: _Part, min_count: int, *, exact: bool) -> _Part:
        copies = _EMPTY
        for _ in range(min(min_count, _MAX_COPIES)):
            copies = _join(copies, part)
        if not exact or min_count > _MAX_COPIES:
            copies = _join(copies, _ANYTHING)
            if min_count:
                copies = _join(copies, part)
        return copies

    def _quoted(self) -> _Part:
        r"""Parses ``\Q…\E``. A repetition after it would apply to its last character."""
        self._at += 2
        end = self._text.find("\\E", self._at)
        stop = len(self._text) if end < 0 else end
        text, self._at = self._text[self._at : stop], min(stop + 2, len(self._text))
        if self._next() in ("*", "+", "?", "{") and self._next():
            raise _UnknownError
        return _literal(text)

    def _atom(self) -> _Part:
        if self._next() == "(":
            return self._group()
        if self._next() == "[":
            return self._class()
        character = self._take()
        if character == "\\":
            return self._escaped()
        if character in "^$":
            return _EMPTY
        if character == ".":
            return _ANYTHING
        if character in "*+?":
            raise _UnknownError
        return _literal(character)

    def _group(self) -> _Part:
        flags = self._match(_FLAGS)
        if flags is not None:
            if flags.group(3) == ")":
                return _EMPTY
        elif self._match(_NAMED) is None:
            if self._text.startswith("(?", self._at):
                raise _UnknownError
            self._at += 1
        part = self._alternatives()
        if self._take() != ")":
            raise _UnknownError
        return part

    def _escaped(self) -> _Part:
        if self._match(_UNICODE_CLASS):
            return _ANYTHING
        if self._next() in tuple("dDwWsS"):
            self._at += 1
            return _ANYTHING
        if self._next() in tuple("AzbB"):
            self._at += 1
            return _EMPTY
        return _literal(self._character())

    def _character(self) -> str:
        """Returns the character of an escape whose backslash was read."""
        hex_escape = self._match(_HEX)
        if hex_escape is not None:
            code = int(hex_escape.group(1) or hex_escape.group(2), 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise _UnknownError
            return chr(code)
        character = self._take()
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isalnum() or ord(character) >= 0x80:
            raise _UnknownError
        return character

    def _class(self) -> _Part:
        self._at += 1
        is_negated = self._next() == "^"
        self._at += is_negated
        members: set[str] | None = set()
        first_member = self._at
        while self._next() != "]" or self._at == first_member:
            if self._match(_POSIX):
                members = None
                continue
            if self._next() == "\\":
                escape = self._text[self._at + 1 : self._at + 2]
                if escape and escape in "dDwWsSpP":
                    self._at += 1
                    self._escaped()
                    members = None
                    continue
            low = high = self._member()
            if self._next() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._member()
            if members is not None and ord(high) - ord(low) < 2 * _MAX_CLASS_CHARACTERS:
                members |= {folded(chr(code)) for code in range(ord(low), ord(high) + 1)}
            else:
                members = None
        self._at += 1
        if is_negated or not members or len(members) > _MAX_CLASS_CHARACTERS:
            return _ANYTHING
        return _exactly(frozenset(members))

    def _member(self) -> str:
        character = self._take()
        return self._character() if character == "\\" else character


def _literal(text: str) -> _Part:
    return _exactly(frozenset([folded(text)]))
