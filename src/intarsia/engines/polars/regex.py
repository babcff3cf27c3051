"""Regular expressions that mean the same to Rust's regex, which Polars has, and to RE2, pyarrow's.

Both look for a match anywhere, by code points of UTF-8. They differ in what ``\\d``, ``\\w`` and
``\\b`` cover, in set operations within classes, and in repetitions of repetitions; so what is
left is literals, ``.``, classes of ASCII letters and digits, groups, alternatives, repetitions of
one of these, and anchors.
"""

from __future__ import annotations

import re

_MOST = 200
"""Characters of a pattern; both engines refuse what compiles to too much."""
_LITERAL = r"[^\W]|[ !\"#%&',/:;<=>@`~_-]|\\[.^$*+?()\[\]{}|\\/-]"
_RANGE = r"[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]"
_CLASS = rf"\[\^?(?:{_RANGE}|[A-Za-z0-9_ ])+\]"
_ATOM = re.compile(rf"(?:{_LITERAL}|\.|{_CLASS})(?:[*+?]|\{{\d{{1,2}}(?:,\d{{1,2}})?\}})?")
_ANCHOR = re.compile(r"[\^$]")
_GROUP_REPEATED = re.compile(r"[*+?]")


def is_alike(pattern: str) -> bool:
    """Do Polars and pyarrow find ``pattern`` in the same texts?"""
    return len(pattern) <= _MOST and _alternatives(pattern, 0) == len(pattern)


def _is_ordered(atom: str) -> bool:
    """Are ranges and counts from less to more? Else, both refuse them, each in its own way."""
    ranges = re.findall(_RANGE, atom) if atom.startswith("[") else ()
    counts = re.findall(r"\{(\d+),(\d+)\}", atom)
    return all(r[0] <= r[2] for r in ranges) and all(int(a) <= int(b) for a, b in counts)


def _alternatives(pattern: str, at: int) -> int | None:
    """Where alternatives that begin at ``at`` end; None where something else is there."""
    end = _sequence(pattern, at)
    while end is not None and pattern[end : end + 1] == "|":
        end = _sequence(pattern, end + 1)
    return end


def _sequence(pattern: str, at: int) -> int | None:
    """Where atoms, anchors and groups end, of which there is one at least."""
    start = at
    while True:
        if pattern[at : at + 1] == "(":
            inner = _alternatives(pattern, at + 3 if pattern[at : at + 3] == "(?:" else at + 1)
            if inner is None or pattern[inner : inner + 1] != ")":
                return None
            at = inner + 1
            repeated = _GROUP_REPEATED.match(pattern, at)
            at = repeated.end() if repeated else at
        elif found := _ATOM.match(pattern, at) or _ANCHOR.match(pattern, at):
            if not _is_ordered(found[0]):
                return None
            at = found.end()
        else:
            return at if at > start else None
