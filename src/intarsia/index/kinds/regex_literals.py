r"""What texts must contain to match a regular expression in RE2's syntax, as pyarrow takes it.

A small reader of patterns, which gives up (``None``) on what it does not know for certain. Of each
part of a pattern it keeps either all texts the part can match, if they are few, or with which texts
a match begins and ends, and what it must contain besides; parts side by side are joined, so that
``ab(c|d)ef+`` is known to need ``abcef`` or ``abdef``. See Russ Cox, "Regular Expression Matching
with a Trigram Index" (2012).

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

_FEW = 24
"""More texts than this are not told apart."""
_CLASS = 16
"""The most characters of a class that are told apart: the hexadecimal digits."""
_EDGE = 8
"""Characters that are kept of where a match begins and ends."""
_COPIES = 8
_LONGEST = 4000
"""Characters; of a longer pattern nothing is told."""
_NONE: frozenset[str] = frozenset([""])

_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAMED = re.compile(r"\(\?P?<\w+>")
_REPEAT = re.compile(r"\{(0|[1-9][0-9]{0,3})(?:(,)(0|[1-9][0-9]{0,3})?)?\}")
_POSIX = re.compile(r"\[:\^?\w+:\]")
_HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_UNICODE_CLASS = re.compile(r"[pP](?:\{[^}]*\}|[A-Za-z])")
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class _UnknownError(Exception):
    """The pattern is one that is not read."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What is known of the texts that a part of a pattern matches.

    ``exact`` are all of them, or ``None``; each begins with one of ``first``, ends with one of
    ``last`` and meets ``needs``.
    """

    exact: frozenset[str] | None
    first: frozenset[str]
    last: frozenset[str]
    needs: Required | None


def _exactly(texts: frozenset[str]) -> _Part:
    return _Part(texts, texts, texts, None)


_EMPTY = _exactly(_NONE)
_ANYTHING = _Part(None, _NONE, _NONE, None)


def of_regex(pattern: str | bytes, *, latin: bool = False) -> Required | None:
    """Texts in which the regular expression ``pattern`` is found."""
    text = text_of(pattern, latin=latin)
    if text is None or len(text) > _LONGEST:
        return None
    try:
        return _needs(_Reader(text).whole())
    except (_UnknownError, RecursionError):
        return None


def _needs(part: _Part) -> Required | None:
    if part.exact is not None:
        return _one_of(part.exact)
    return all_of([part.needs, _one_of(part.first), _one_of(part.last)])


def _one_of(texts: frozenset[str]) -> Required | None:
    return any_of(Has(text) if text else None for text in sorted(texts))


def _joined(left: _Part, right: _Part) -> _Part:
    """``left`` followed by ``right``."""
    if left.exact is not None and right.exact is not None:
        every = len(left.exact) * len(right.exact)
        if every <= _FEW:
            return _exactly(_crossed(left.exact, right.exact))
    across = None
    if len(left.last) * len(right.first) <= _FEW:
        across = _one_of(_crossed(left.last, right.first))
    first, last = left.first, right.last
    if left.exact is not None and len(left.exact) * len(right.first) <= _FEW:
        first = _crossed(left.exact, right.first)
    if right.exact is not None and len(left.last) * len(right.exact) <= _FEW:
        last = _crossed(left.last, right.exact)
    needs = all_of([_known(left), across, _known(right)])
    return _Part(
        None, _short(first, slice(0, _EDGE)), _short(last, slice(-_EDGE, None)), _bounded(needs)
    )


def _known(part: _Part) -> Required | None:
    return part.needs if part.exact is None else _one_of(part.exact)


def _either(left: _Part, right: _Part) -> _Part:
    """``left`` or ``right``."""
    if left.exact is not None and right.exact is not None:
        every = left.exact | right.exact
        if len(every) <= _FEW:
            return _exactly(every)
    first, last = left.first | right.first, left.last | right.last
    needs = any_of([_needs(left), _needs(right)])
    return _Part(
        None,
        _short(first, slice(0, _EDGE)) if len(first) <= _FEW else _NONE,
        _short(last, slice(-_EDGE, None)) if len(last) <= _FEW else _NONE,
        _bounded(needs),
    )


def _crossed(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    return frozenset(one + other for one in left for other in right)


def _short(texts: frozenset[str], part: slice) -> frozenset[str]:
    return frozenset(text[part] for text in texts)


def _bounded(needs: Required | None) -> Required | None:
    """``needs``, unless it has grown out of hand."""
    return needs if needs is None or _size(needs) <= 40 * _FEW else None


def _size(needs: Required) -> int:
    match needs:
        case AllOf(parts) | AnyOf(parts):
            return sum(_size(part) for part in parts)
        case _:
            return 1


class _Reader:
    """Reads a pattern from left to right."""

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

    def _match(self, what: re.Pattern[str]) -> re.Match[str] | None:
        found = what.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _alternatives(self) -> _Part:
        part = self._sequence()
        while self._next() == "|":
            self._at += 1
            part = _either(part, self._sequence())
        return part

    def _sequence(self) -> _Part:
        part = _EMPTY
        while self._next() not in ("", "|", ")"):
            part = _joined(part, self._repeated())
        return part

    def _repeated(self) -> _Part:
        if self._text.startswith("\\Q", self._at):
            return self._quoted()
        part = self._atom()
        while True:
            found = self._match(_REPEAT)
            if found is not None:
                least, comma, most = found.groups()
                exact = not comma or least == most
                part = self._copies(part, int(least), exact=exact)
            elif self._next() in ("*", "+", "?") and self._next():
                mark = self._take()
                if mark == "?":
                    part = _either(part, _EMPTY)
                else:
                    part = self._copies(part, 1 if mark == "+" else 0, exact=False)
            else:
                return part
            if self._next() == "?":
                self._at += 1

    def _copies(self, part: _Part, least: int, *, exact: bool) -> _Part:
        whole = _EMPTY
        for _ in range(min(least, _COPIES)):
            whole = _joined(whole, part)
        if not exact or least > _COPIES:
            whole = _joined(whole, _ANYTHING)
            if least:
                whole = _joined(whole, part)
        return whole

    def _quoted(self) -> _Part:
        r"""``\Q…\E``: a repetition after it is of its last character."""
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
        """The character that an escape, whose backslash was read, stands for."""
        found = self._match(_HEX)
        if found is not None:
            code = int(found.group(1) or found.group(2), 16)
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
        negated = self._next() == "^"
        self._at += negated
        members: set[str] | None = set()
        opened = self._at
        while self._next() != "]" or self._at == opened:
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
            if members is not None and ord(high) - ord(low) < 2 * _CLASS:
                members |= {folded(chr(code)) for code in range(ord(low), ord(high) + 1)}
            else:
                members = None
        self._at += 1
        if negated or not members or len(members) > _CLASS:
            return _ANYTHING
        return _exactly(frozenset(members))

    def _member(self) -> str:
        character = self._take()
        return self._character() if character == "\\" else character


def _literal(text: str) -> _Part:
    return _exactly(frozenset([folded(text)]))
